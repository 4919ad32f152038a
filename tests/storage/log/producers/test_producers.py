"""Idempotent producers: what is a duplicate, what comes next, what is refused (KIP-98)."""

import struct

import pytest
from crc32c import crc32c

from tidelog.protocol.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber
from tidelog.protocol.records.layout import Batch
from tidelog.storage.log.producers import producer_snapshots
from tidelog.storage.log.producers.producer_state import MAX_SEQUENCE, Producers, Sequenced

DAY = 86_400_000


def batch(first, last, epoch=0, pid=7):
    return Sequenced(pid, epoch, first, last)


def with_batches(*sequences, epoch=0):
    producers, offset = Producers(DAY), 0
    for first, last in sequences:
        producers.appended(batch(first, last, epoch), (offset, offset + last - first), 1000)
        offset += last - first + 1
    return producers


def test_an_unknown_producer_may_begin_anywhere():
    assert Producers(DAY).check(batch(42, 45), 0) is None


def test_the_last_five_batches_are_recognized_with_their_offsets():
    producers = with_batches(*[(3 * i, 3 * i + 2) for i in range(6)])
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.check(batch(0, 2), 2000)
    for i in range(1, 6):
        found = producers.check(batch(3 * i, 3 * i + 2), 2000)
        assert (found.first_offset, found.last_offset) == (3 * i, 3 * i + 2)
    assert producers.check(batch(18, 18), 2000) is None


@pytest.mark.parametrize("first", [0, 2, 3, 5, 100])
def test_a_gap_or_a_step_back_is_refused(first):
    producers = with_batches((0, 3))
    with pytest.raises(OutOfOrderSequenceNumber, match="4 comes next"):
        producers.check(batch(first, first + 1), 2000)


def last_sequence_of(first_sequence, count):
    return Batch(0, 0, 0, count - 1, 2, 0, 0, 0, 0, 7, 0, first_sequence, count).last_sequence


def test_the_sequence_wraps_at_the_end_of_int32():
    assert last_sequence_of(MAX_SEQUENCE, 1) == MAX_SEQUENCE
    assert last_sequence_of(MAX_SEQUENCE, 2) == 0
    assert last_sequence_of(MAX_SEQUENCE - 1, 4) == 1
    producers = Producers(DAY)
    producers.appended(batch(MAX_SEQUENCE - 1, MAX_SEQUENCE), (0, 1), 0)
    assert producers.check(batch(0, 3), 0) is None
    with pytest.raises(OutOfOrderSequenceNumber):
        producers.check(batch(1, 3), 0)
    producers = Producers(DAY)
    producers.appended(batch(MAX_SEQUENCE - 1, 1), (0, 3), 0)
    assert producers.check(batch(2, 2), 0) is None
    assert producers.check(batch(MAX_SEQUENCE - 1, 1), 0).first_offset == 0


def test_epochs():
    producers = with_batches((0, 3), epoch=2)
    with pytest.raises(InvalidProducerEpoch, match="epoch 2 has taken over"):
        producers.check(batch(4, 4, epoch=1), 2000)
    with pytest.raises(OutOfOrderSequenceNumber, match="instead of 0"):
        producers.check(batch(4, 4, epoch=3), 2000)
    assert producers.check(batch(0, 3, epoch=3), 2000) is None
    producers.appended(batch(0, 3, epoch=3), (4, 7), 2000)
    assert producers.check(batch(0, 3, epoch=3), 2000).first_offset == 4
    with pytest.raises(InvalidProducerEpoch):
        producers.check(batch(0, 3, epoch=2), 2000)


def test_a_producer_is_forgotten_by_append_time():
    producers = with_batches((0, 3))
    assert producers.check(batch(0, 3), 1000 + DAY - 1) is not None
    assert producers.check(batch(17, 17), 1000 + DAY) is None
    producers.expire(1000 + DAY - 1)
    assert len(producers) == 1
    producers.expire(1000 + DAY)
    assert len(producers) == 0


def test_newcomers_push_out_who_has_expired():
    producers = with_batches((0, 3))
    for i in range(100):
        now = 1000 + DAY + i
        producers.appended(batch(0, 0, pid=100 + i), (10 + i, 10 + i), now, now)
    assert producers.get(7) is None
    assert len(producers) == 100


def test_the_snapshot_is_kafkas_byte_for_byte(tmp_path):
    producers = Producers(DAY)
    producers.appended(batch(5, 9, epoch=3, pid=4000), (100, 104), 1_700_000_000_000)
    producer_snapshots.write(tmp_path, 105, producers)
    body = struct.pack(">i", 1) + struct.pack(
        ">qhiqiqiq", 4000, 3, 9, 104, 4, 1_700_000_000_000, -1, -1
    )
    path = tmp_path / "00000000000000000105.snapshot"
    assert path.read_bytes() == struct.pack(">hI", 1, crc32c(body)) + body


def test_a_snapshot_keeps_each_producers_last_batch(tmp_path):
    producers = with_batches((0, 3), (4, 6))
    producers.appended(batch(MAX_SEQUENCE, 2, pid=9), (7, 10), 5000)
    producer_snapshots.write(tmp_path, 11, producers)
    again = producer_snapshots.read(tmp_path / "00000000000000000011.snapshot", DAY)
    assert len(again) == 2
    assert again.check(batch(4, 6), 6000).first_offset == 4
    assert again.check(batch(MAX_SEQUENCE, 2, pid=9), 6000) == (MAX_SEQUENCE, 2, 7, 10)
    assert again.check(batch(7, 7), 6000) is None
    assert again.get(9).last_append_time_ms == 5000
    with pytest.raises(OutOfOrderSequenceNumber):
        again.check(batch(0, 3), 6000)


def test_every_damage_to_a_snapshot_is_noticed(tmp_path):
    producer_snapshots.write(tmp_path, 7, with_batches((0, 3), (4, 6)))
    path = tmp_path / "00000000000000000007.snapshot"
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(data[:position])
        with pytest.raises(producer_snapshots.SnapshotError):
            producer_snapshots.read(path, DAY)
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(producer_snapshots.SnapshotError):
                producer_snapshots.read(path, DAY)
