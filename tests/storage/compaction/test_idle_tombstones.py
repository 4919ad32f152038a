"""Tombstones of a log to which nothing is appended any more: they go once their horizon has come."""

import pytest

from tests.storage.cleaning import clean
from tidelog.protocol.records.batch import Compression, Record, build, records, scan
from tidelog.storage.log.rolling import roll

CLEANED_MS, KEEP_MS = 200, 1_000
FORMATS = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}


@pytest.fixture(params=FORMATS)
def release(request):
    return FORMATS[request.param]


@pytest.fixture(params=[Compression.NONE, Compression.GZIP])
def cleaned(make_log, release, request):
    """Makes a log that was cleaned once, and kept a tombstone for delete.retention.ms."""

    def make(keep_ms=KEEP_MS):
        log = make_log(
            cleanup_policy=("compact",),
            delete_retention_ms=keep_ms,
            file_delete_delay_ms=0,
            message_format_version=release,
        ).create()
        for key, value in ((b"k", b"v"), (b"k", None), (b"other", b"v")):
            put(log, key, value, request.param)
        roll(log.partition.state)
        assert clean(log.partition, CLEANED_MS)
        log.store.checkpoint()
        return log

    return make


def put(log, key, value, codec=Compression.NONE, now_ms=100):
    data = build([Record(0, 5, key, value)], compression=codec)
    log.partition.append(data, now_ms=now_ms, produce_version=9)


def keys(partition):
    data = b"".join(segment.path.read_bytes() for segment in partition.segments)
    return [record.key for batch in scan(data) for record in records(data, batch)]


@pytest.mark.parametrize("keep_ms", [KEEP_MS, 0])
def test_a_horizon_that_has_come_makes_one_cleaning_due(cleaned, keep_ms):
    partition = cleaned(keep_ms).partition
    assert keys(partition) == [b"k", b"other"]
    due_ms = CLEANED_MS + keep_ms
    assert not partition.compactor.dirty_section(due_ms - 1).is_due
    assert partition.compactor.dirty_section(due_ms).is_due
    assert clean(partition, due_ms, asked=False)
    assert keys(partition) == [b"other"]
    assert not partition.compactor.dirty_section(10**12).is_due
    assert clean(partition, 10**12, asked=False) is None


def test_the_horizon_is_known_after_a_start(cleaned, release):
    log = cleaned()
    log.close()
    started_ms = 300
    partition = log.open(now=started_ms).partition
    # Formats 0 and 1 have no place for it: there it counts from the start.
    found_ms = CLEANED_MS if release == FORMATS[2] else started_ms
    assert not partition.compactor.dirty_section(started_ms).is_due
    assert not partition.compactor.dirty_section(found_ms + KEEP_MS - 1).is_due
    assert partition.compactor.dirty_section(found_ms + KEEP_MS).is_due
    assert clean(partition, found_ms + KEEP_MS, asked=False)
    assert keys(partition) == [b"other"]


def test_what_a_later_cleaning_finds_has_its_own_horizon(cleaned):
    log = cleaned()
    partition = log.partition
    put(log, b"other", None, now_ms=900)
    roll(partition.state)
    assert clean(partition, 1_000)
    assert keys(partition) == [b"k", b"other"]
    for now_ms in (CLEANED_MS + KEEP_MS, 1_000 + KEEP_MS - 1):
        clean(partition, now_ms, asked=False)
        assert b"other" in keys(partition)
    assert clean(partition, 1_000 + KEEP_MS, asked=False)
    assert keys(partition) == []
    assert not partition.compactor.dirty_section(10**12).is_due
