"""Tombstones of every format stay for delete.retention.ms, and not a millisecond less."""

from tests.storage.cleaning import clean
from tests.storage.compaction.test_compaction import rows
from tidelog.protocol.records.batch import Record, build

KEEP_MS = 1_000  # delete.retention.ms of these logs


def tombstones(log):
    return [offset for offset, key, value in rows(log) if key == b"gone" and value is None]


def put(log, key, value, now):
    data = build([Record(0, 5, key, value)])
    return log.partition.append(data, now_ms=now, produce_version=9).base_offset


def fill(log, now):
    """Append enough to close the segment."""
    for number in range(20):
        put(log, b"k%d" % (number % 5), b"v%d" % number, now)


def compacted(make_log, name, **settings):
    policy = {"cleanup_policy": ("compact",), "delete_retention_ms": KEEP_MS}
    return make_log(name, segment_bytes=200, **policy, **settings).create()


def with_tombstone(log, now):
    """Append a value, its tombstone and enough to close the segment."""
    put(log, b"gone", b"once", now)
    offset = put(log, b"gone", None, now)
    fill(log, now=now)
    return offset


def test_format_2_counts_from_the_cleaning_that_found_the_tombstone(make_log):
    log = compacted(make_log, "log")
    offset = with_tombstone(log, now=100)
    clean(log.partition, 5_000)
    assert tombstones(log) == [offset]
    fill(log, now=5_000)
    clean(log.partition, 5_000 + KEEP_MS - 1)
    assert tombstones(log) == [offset]
    fill(log, now=6_000)
    clean(log.partition, 5_000 + KEEP_MS)
    assert tombstones(log) == []


def left_in_old_format(log, clean_until):
    """Return tombstones after two cleanings; the first cleans up to an append time."""
    first = with_tombstone(log, now=100)
    fill(log, now=clean_until)
    clean(log.partition, 9_000)
    assert tombstones(log) == [first]  # no section was clean before the first cleaning
    fill(log, now=clean_until)
    clean(log.partition, 9_000)
    return tombstones(log)


def test_formats_before_2_count_from_the_end_of_the_clean_section(make_log):
    log = compacted(make_log, "kept", message_format_version="0.10.2")
    assert left_in_old_format(log, 100 + KEEP_MS - 1) == [1]
    log = compacted(make_log, "dropped", message_format_version="0.10.2")
    assert left_in_old_format(log, 100 + KEEP_MS) == []
