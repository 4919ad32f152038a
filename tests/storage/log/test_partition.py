"""Appending to one partition: offsets, rolls, limits, formats, leader epochs, times."""

import warnings

import pytest

from tidelog.protocol.errors import (
    KafkaStorageError,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
from tidelog.protocol.records.batch import Compression, Record, build, scan
from tidelog.storage.segment import time_search

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, at import
    from kafka.record import MemoryRecords


def test_another_codec_reads_the_bytes(log):
    """kafka-python is the judge of what lies in the log."""
    log.append([10, 20], now=5)
    log.append([30], now=5, compression=Compression.GZIP)
    log.append([40, 50], now=5, compression=Compression.LZ4)
    (data,) = log.read().buffers
    found = []
    batches = MemoryRecords(bytes(data))
    while (batch := batches.next_batch()) is not None:
        assert batch.validate_crc()
        found += [(r.offset, r.timestamp, r.key, r.value) for r in batch]
    assert found == [
        (0, 10, b"k", b"v0"),
        (1, 20, b"k", b"v1"),
        (2, 30, b"k", b"v0"),
        (3, 40, b"k", b"v0"),
        (4, 50, b"k", b"v1"),
    ]


def test_an_empty_set_changes_nothing(log):
    appended = log.partition.append(b"", now_ms=5, produce_version=2)
    assert (appended.base_offset, appended.count, appended.log_append_time_ms) == (-1, 0, -1)
    assert log.partition.log_end_offset == 0
    assert log.partition.last_append_time is None


@pytest.mark.parametrize(
    ("index_bytes", "times", "bases"),
    [
        (16, range(9), [0, 2, 4, 6, 8]),
        (24, range(9), [0, 3, 6]),  # two entries of the time index, which is full before the other
        (24, [7] * 9, [0, 4, 8]),  # three entries of the offset index
        (48, range(9), [0, 5]),
    ],
)
def test_segments_roll_when_an_index_is_full(make_log, index_bytes, times, bases):
    log = make_log(segment_index_bytes=index_bytes, index_interval_bytes=0).create()
    for time in times:
        log.append([time])
    assert [s.base_offset for s in log.partition.segments] == bases
    assert [r[1] for r in log.contents()] == list(times)
    log.close()
    sizes = [each.stat().st_size for each in log.directory.glob("*index")]
    assert 0 < max(sizes) <= index_bytes


@pytest.mark.parametrize("lost", [".index", ".timeindex"])
def test_an_index_is_rebuilt_by_the_topics_own_interval(make_log, lost):
    log = make_log(segment_bytes=2000, index_interval_bytes=300).create()
    for time in range(50):
        log.append([time])
    log.close()
    names = sorted(log.directory.glob("*index"))
    files = {each.name: each.read_bytes() for each in names}
    for each in log.directory.glob(f"*{lost}"):
        each.unlink()
    log.open()
    assert [r[1] for r in log.contents()] == list(range(50))
    for segment in log.partition.segments:
        found = time_search.find_time(segment, 49, min_offset=0, upper_offset=50)
        assert found or segment.base_offset < 40
        segment.indexes.complete()
    log.close()
    assert {each.name: each.read_bytes() for each in sorted(log.directory.glob("*index"))} == files


def test_segments_roll_before_offsets_outgrow_the_index(log):
    segment = log.partition.segments[0]
    log.append([1])
    assert segment.indexes.has_room(10, 2**31 - 1, 1 << 30, 1000)
    assert not segment.indexes.has_room(10, 2**31, 1 << 30, 1000)


def test_a_set_no_segment_can_take_is_refused(make_log):
    log = make_log(segment_bytes=200).create()
    with pytest.raises(RecordListTooLarge, match=r"segment\.bytes is 200"):
        log.append([1], values=[b"x" * 300])
    assert log.partition.log_end_offset == 0


def test_internal_appends_are_format_2(make_log):
    log = make_log(message_format_version="0.9.0").create()
    data = build([Record(0, 5, None, b"v", ((b"h", b"1"),))])
    log.partition.append(data, now_ms=1, produce_version=9, internal=True)
    assert scan(log.read().buffers[0])[0].magic == 2


def test_a_deleted_or_closed_partition_refuses_appends(make_log):
    log = make_log().create()
    partition = log.partition
    log.store.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartition):
        log.append([1])
    log.partition = log.store.create_partition("t", partition.topic_id, 0, partition.config, 0)
    log.append([2])
    partition = log.partition
    log.close()
    log.partition = partition
    with pytest.raises(KafkaStorageError, match="closed"):
        log.append([3])
