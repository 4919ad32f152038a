"""Appends of idempotent producers: duplicates, also after a restart, and what is refused."""

import pytest

from tidelog.config.topic import TopicConfig
from tidelog.protocol.errors import (
    InvalidRecord,
    InvalidTimestamp,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    UnsupportedForMessageFormat,
)


def idempotent(sequence, **more):
    return {"producer_id": 9, "producer_epoch": 0, "base_sequence": sequence, **more}


def test_a_duplicate_is_answered_as_the_first_time(make_log):
    log = make_log(message_timestamp_type="LogAppendTime").create()
    first = log.append([1, 2], now=1000, **idempotent(0))
    assert first.log_append_time_ms == 1000
    log.append([3], now=1001, **idempotent(2))
    again = log.append([1, 2], now=2000, **idempotent(0))
    assert again[:3] == first[:3]
    assert again.duplicate
    assert again.count == 2
    assert log.partition.log_end_offset == 3
    assert log.partition.last_append_time == 1001
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append([1], **idempotent(7))
    assert log.partition.log_end_offset == 3


@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
@pytest.mark.parametrize("stop", ["close", "crash"])
def test_any_of_the_last_five_batches_is_recognized_after_a_restart(make_log, stop, segment_bytes):
    log = make_log(segment_bytes=segment_bytes).create()
    for sequence in range(9):
        log.append([1], **idempotent(sequence))
        log.append([1], **idempotent(sequence, producer_id=77 + sequence // 8))
    log.append([1], **idempotent(0, producer_id=78, producer_epoch=1))
    getattr(log, stop)()
    log.open()
    for sequence in range(4, 9):
        again = log.append([1], **idempotent(sequence))
        assert (again.duplicate, again.base_offset) == (True, 2 * sequence)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.append([1], **idempotent(3))
    # A new epoch's producer has nothing left of the old one's.
    assert [b.first_offset for b in log.partition.state.read_producers().get(78).batches] == [18]
    assert log.append([1], **idempotent(9)).base_offset == 19


def test_the_tail_that_is_searched_for_producers_is_bounded(make_log, monkeypatch):
    monkeypatch.setattr("tidelog.storage.log.producers.recovered_producers._REFILL_BYTES", 200)
    log = make_log(index_interval_bytes=0).create()
    for sequence in range(20):
        log.append([1], **idempotent(sequence))
    log.close()
    log.open()
    walked = []
    walk = type(log.partition.segments[0]).walk
    monkeypatch.setattr(
        "tidelog.storage.segment.segment.Segment.walk",
        lambda segment, *where: walked.append(where) or walk(segment, *where),
    )
    batches = log.partition.state.read_producers().get(9).batches
    assert batches[-1].last_offset == 19
    assert 1 < len(batches) < 5
    assert walked[0] == ((20 - len(batches)) * log.partition.size // 20,)


def test_a_duplicate_keeps_its_stamp_when_the_topic_changes(log):
    log.append([5], now=1000, **idempotent(0))
    log.partition.config = TopicConfig(message_timestamp_type="LogAppendTime")
    log.append([5], now=1500, **idempotent(1))
    assert log.append([5], now=2000, **idempotent(0)).log_append_time_ms == -1
    log.partition.config = TopicConfig()
    assert log.append([5], now=2000, **idempotent(1)).log_append_time_ms == 1500


def test_a_refused_append_leaves_no_trace_of_its_producer(make_log):
    log = make_log(message_timestamp_after_max_ms=10).create()
    with pytest.raises(InvalidTimestamp):
        log.append([5000], now=0, **idempotent(0))
    assert log.append([5], now=0, **idempotent(0)).base_offset == 0
    assert log.partition.last_append_time == 0


def test_a_transaction_does_not_begin_without_a_guard(log):
    with pytest.raises(InvalidTxnState, match="not part of a transaction"):
        log.append([1], **idempotent(0, is_transactional=True))
    assert log.partition.log_end_offset == 0


def test_what_formats_0_and_1_cannot_carry_is_refused(make_log):
    for version in ("0.9.0", "0.10.0"):
        log = make_log(version, message_format_version=version).create()
        for more in ({}, {"is_transactional": True}):
            with pytest.raises(UnsupportedForMessageFormat):
                log.append([1], **idempotent(0, **more))
        assert log.partition.log_end_offset == 0


def test_a_producer_id_without_a_sequence_is_refused(log):
    with pytest.raises(InvalidRecord):
        log.append([1], producer_id=9, producer_epoch=0, base_sequence=-1)


def test_snapshots_do_not_pile_up(make_log):
    log = make_log(segment_bytes=400).create()
    for _ in range(4):
        log.append([1])
        log.close()
        log.open()
    bases = {segment.base_offset for segment in log.partition.segments}
    kept = {int(path.name[:20]) for path in log.directory.glob("*.snapshot")}
    assert kept <= bases | {4}
    assert 4 in kept
