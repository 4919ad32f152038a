"""Batches read together with when they were appended.

That what is told is true of every batch is held to the model of a log (tests/storage/log_model).
"""

import struct

import pytest

from tests.storage.cleaning import clean
from tests.storage.log_model.agreement import time_of
from tidelog.protocol.errors import KafkaStorageError, OffsetOutOfRange
from tidelog.protocol.records.batch import scan
from tidelog.storage.log import slices


def read(partition, offset, max_bytes=1 << 20, upper=None):
    return partition.reader.read_with_append_times(
        offset,
        max_bytes,
        upper_offset=partition.log_end_offset if upper is None else upper,
        minimum_one=True,
    )


def test_nothing_is_told_of_what_lies_behind(make_log):
    log = make_log().create()
    for number in range(10):
        log.append([5], now=1000 + number)
    _, told = read(log.partition, 3, upper=6)
    assert [len(one.entries) // 12 for one in told] == [3]
    assert [time_of(told[0], offset) for offset in (3, 4, 5)] == [1003, 1004, 1005]
    fetched, told = read(log.partition, 10)
    assert (fetched.size, told) == (0, [])
    with pytest.raises(OffsetOutOfRange):
        read(log.partition, 11)


def test_one_entry_tells_of_many_batches(make_log):
    log = make_log().create()
    for number in range(300):
        log.append([5], now=1000 + number // 100)
    _, (one,) = read(log.partition, 150)
    assert one.entries == struct.pack(">qiqi", 1001, 100, 1002, 200)


def test_who_reads_at_the_end_costs_no_read(make_log, monkeypatch):
    log = make_log().create()
    for number in range(20):
        log.append([5], now=1000 + number)
    times = log.partition.segments[0].append_times
    monkeypatch.setattr(times, "_descriptor", None)
    monkeypatch.setattr(
        "tidelog.storage.segment.append_times.files.Descriptor", None
    )  # fails if it is opened
    for first in range(12, 20):  # the last eight append times are in memory
        _, (one,) = read(log.partition, first)
        expected = [struct.pack(">qi", 1000 + number, number) for number in range(first, 20)]
        assert one.entries == b"".join(expected)
    with pytest.raises(TypeError):
        read(log.partition, 11)


def test_holes_and_their_neighbours(make_log):
    """Compaction took every batch but a few: none of them has the time of one that is gone."""
    log = make_log(cleanup_policy=("compact",), segment_bytes=300).create()
    for number in range(60):
        log.append([5], now=1000 + number, values=[b"x" * (number % 7)])
    log.partition.flush()
    clean(log.partition, 10**9)
    fetched, told = read(log.partition, 0)
    assert are_right(fetched, told)
    assert 1 < sum(len(scan(data)) for data in fetched.buffers) < 30


def test_records_and_their_times_are_of_the_same_files(make_log, monkeypatch):
    """What was read before a compaction is not told with the entries that it leaves."""
    log = make_log(cleanup_policy=("compact",), segment_bytes=300).create()
    for number in range(60):
        log.append([5], now=1000 + number)
    partition = log.partition
    partition.flush()
    reads = []
    plain = slices.read

    def read_then_compact(*args, **more):
        fetched = plain(*args, **more)
        reads.append(fetched)
        clean(partition, 10**9)
        return fetched

    monkeypatch.setattr(slices, "read", read_then_compact)
    fetched, told = read(partition, 0)
    assert len(reads) == 1
    assert are_right(fetched, told)
    assert sum(len(scan(data)) for data in fetched.buffers) == 60, "those of the version held"
    mixed = slices.append_times_of(partition.segments, reads[0])
    assert not are_right(reads[0], mixed), "the race would not be seen"


def are_right(fetched, told):
    return all(
        time_of(one, batch.last_offset) == 1000 + batch.last_offset
        for data, one in zip(fetched.buffers, told, strict=True)
        for batch in scan(data)
    )


def test_records_that_retention_takes_meanwhile_have_their_append_times(make_log, monkeypatch):
    """The read holds its version: the files are there until it has both."""
    log = make_log(segment_bytes=300, file_delete_delay_ms=0).create()
    for number in range(60):
        log.append([5], now=1000 + number)
    partition = log.partition
    plain, reads = slices.read, []

    def read_then_delete(*args, **more):
        fetched = plain(*args, **more)
        reads.append(fetched)
        if len(reads) == 1:
            partition.retainer.delete_records_before(40)
            assert partition.retainer.apply_retention(10**9)
            partition.retainer.apply_retention(10**9)  # removes what is due, as far as it may
        return fetched

    monkeypatch.setattr(slices, "read", read_then_delete)
    fetched, told = read(partition, 0)
    assert are_right(fetched, told)
    assert len(partition.segments) < 20
    with pytest.raises(OffsetOutOfRange):
        read(partition, 0)
    assert list(log.directory.glob("*.deleted"))
    partition.retainer.apply_retention(10**9)
    assert not list(log.directory.glob("*.deleted")), "nobody holds them any more"


def test_append_times_that_cannot_be_read_are_a_storage_error(make_log, monkeypatch):
    log = make_log().create()
    for number in range(9):
        log.append([5], now=1000 + number)
    monkeypatch.setattr(
        "tidelog.storage.segment.append_times.AppendTimes.entries_between",
        lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")),
    )
    with pytest.raises(KafkaStorageError):
        read(log.partition, 0)
