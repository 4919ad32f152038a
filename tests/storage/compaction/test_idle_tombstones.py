"""Tombstones of a log to which nothing is appended any more: they go once their horizon has come."""

import pytest

from tests.storage.cleaning import clean
from tidelog.protocol.records.batch import Record, build, records, scan
from tidelog.storage.log.rolling import roll

KEEP_MS = 1_000


@pytest.fixture
def log(make_log):
    log = make_log(
        cleanup_policy=("compact",), delete_retention_ms=KEEP_MS, file_delete_delay_ms=0
    ).create()
    for key, value in ((b"k", b"v"), (b"k", None), (b"other", b"v")):
        log.partition.append(build([Record(0, 5, key, value)]), now_ms=100, produce_version=9)
    roll(log.partition.state)
    assert clean(log.partition, 200)
    log.store.checkpoint()
    return log


def keys(partition):
    data = b"".join(segment.path.read_bytes() for segment in partition.segments)
    return [record.key for batch in scan(data) for record in records(data, batch)]


def test_a_horizon_that_has_come_makes_one_cleaning_due(log):
    partition = log.partition
    assert keys(partition) == [b"k", b"other"]
    assert not partition.compactor.dirty_section(200 + KEEP_MS - 1).is_due
    assert partition.compactor.dirty_section(200 + KEEP_MS).is_due
    assert clean(partition, 200 + KEEP_MS, asked=False)
    assert keys(partition) == [b"other"]
    assert not partition.compactor.dirty_section(10**12).is_due
    assert clean(partition, 10**12, asked=False) is None


def test_the_horizon_is_known_after_a_start(log):
    log.close()
    partition = log.open(now=300).partition
    assert not partition.compactor.dirty_section(200 + KEEP_MS - 1).is_due
    assert partition.compactor.dirty_section(200 + KEEP_MS).is_due
