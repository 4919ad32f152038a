"""Retention asks closed partitions: those it would leave as they are need not be opened."""

from dataclasses import replace
from functools import partial

import pytest

from tidelog.storage.directory.store import LogStore
from tidelog.storage.log import lookup
from tidelog.storage.log.rolling import roll
from tidelog.storage.log.times import partition_times
from tidelog.storage.time.lookup import LookupTarget
from tidelog.storage.would_block import WouldBlock

DAY = 86_400_000
SETTINGS = {"retention_ms": DAY, "segment_bytes": 200, "index_interval_bytes": 100}


@pytest.fixture
def log(make_log):
    log = make_log(**SETTINGS).create()
    for time in range(1000, 1005):
        log.append([time], now=time)
    assert len(log.partition.segments) > 1
    return log


def reopened(log):
    """Start anew; no partition is opened."""
    log.close()
    log.store = LogStore([log.path], default_config=log.config)
    log.store.open(0)
    return log.store


def test_nothing_is_opened_while_all_stays(log):
    store = reopened(log)
    assert store.keeps_everything("t", 0, 1000 + DAY)
    assert not store.opened()


def test_what_has_aged_asks_for_opening(log):
    assert not reopened(log).keeps_everything("t", 0, 1002 + DAY)


@pytest.mark.parametrize(("settings", "keeps"), [({"retention_bytes": 200}, False), ({}, True)])
def test_size(make_log, settings, keeps):
    log = make_log(**SETTINGS, **settings).create()
    for time in range(1000, 1005):
        log.append([time], now=time)
    assert reopened(log).keeps_everything("t", 0, 1000) is keeps


@pytest.mark.parametrize(
    ("max_ms", "grace_ms", "keeps"), [(2, 0, False), (4, 0, True), (2, 50, True)]
)
def test_event_time(make_log, max_ms, grace_ms, keeps):
    event = {"retention_max_eventtime_ms": max_ms, "retention_max_eventtime_grace_ms": grace_ms}
    log = make_log(**SETTINGS, **event).create()
    for time in range(1000, 1005):
        log.append([time], now=time)
    assert reopened(log).keeps_everything("t", 0, 1005) is keeps


def test_event_time_of_a_segment_that_is_gone_still_counts(make_log):
    event = {"retention_max_eventtime_ms": 100, "retention_max_eventtime_grace_ms": 0}
    log = make_log(**(SETTINGS | event | {"segment_bytes": 100})).create()
    for time in (5000, 1000, 1000):
        log.append([time], now=time)
    log.partition.retainer.delete_records_before(1)
    log.partition.config = replace(log.config, retention_max_eventtime_ms=10_000)
    assert [each.base_offset for each in log.partition.retainer.apply_retention(5000)] == [0]
    assert not reopened(log).keeps_everything("t", 0, 5000)


def test_other_settings_are_tried(log):
    store = reopened(log)
    assert not store.keeps_everything("t", 0, 1005, replace(log.config, retention_bytes=200))
    assert store.keeps_everything("t", 0, 1005)


def test_segments_below_the_log_start_ask_for_opening(log):
    log.partition.retainer.delete_records_before(4)
    assert not reopened(log).keeps_everything("t", 0, 1000)


def test_an_open_one_and_one_that_is_not_here_are_not_judged(log):
    assert not log.store.keeps_everything("t", 0, 1000)
    assert not log.store.keeps_everything("t", 1, 1000)


def test_without_its_times_nobody_knows(log):
    store = reopened(log)
    (log.directory / "partition.times").unlink()
    assert not store.keeps_everything("t", 0, 1000)


def test_a_log_that_somebody_has_changed_is_opened(log):
    store = reopened(log)
    active = max(log.directory.glob("*.log"))
    active.write_bytes(active.read_bytes() + b"x")
    assert not store.keeps_everything("t", 0, 1000)
    active.unlink()
    assert not store.keeps_everything("t", 0, 1000)


def test_lookups_are_cached_once_the_indexes_are_in_memory(log):
    segments = log.partition.segments
    assert lookup.is_cached(segments, 1004, start_offset=0, upper_offset=5)  # in the active segment
    assert lookup.is_cached(segments, LookupTarget.MAX_TIMESTAMP, start_offset=0, upper_offset=5)
    assert lookup.is_cached(segments, 1005, start_offset=0, upper_offset=5)  # nowhere
    assert not lookup.is_cached(
        segments, 1000, start_offset=0, upper_offset=5
    )  # sealed: its indexes rest
    assert log.partition.reader.find_by_time(1000, upper_offset=5) == (0, 1000)
    assert lookup.is_cached(segments, 1000, start_offset=0, upper_offset=5)


def test_a_lookup_is_not_cached_where_the_log_starts_within_a_segment(log):
    segment = log.partition.segments[0]
    assert segment.tail.end_offset > 1
    log.partition.reader.find_by_time(1000, upper_offset=5)
    assert lookup.is_cached([segment], 1000, start_offset=0, upper_offset=5)
    assert not lookup.is_cached([segment], 1000, start_offset=1, upper_offset=5)


def test_a_stop_writes_nothing_of_a_partition_that_was_only_read(log, monkeypatch):
    reopened(log)
    partition = log.store.partition("t", 0)
    assert partition.reader.find_by_time(1003, upper_offset=5) == (3, 1003)
    written = []
    real = partition_times.write
    monkeypatch.setattr(
        partition_times, "write", lambda *a, **k: written.append(a) or real(*a, **k)
    )
    log.close()
    assert not written
    log.open(2000)
    log.append([1005], now=2000)
    log.close()
    assert written


def test_a_lookup_that_may_not_block_raises_until_the_indexes_are_cached(log, monkeypatch):
    reader = log.partition.reader
    asked = [
        (partial(reader.find_by_time, 1000, upper_offset=5), (0, 1000)),
        (partial(reader.offsets_before_v0, 1000, 1), [0]),
    ]
    for ask, _ in asked:
        ask(may_block=False)  # the log is short
    log.partition.segments[0].rest()
    monkeypatch.setattr("tidelog.storage.log.reader._SHORT_LOG_BYTES", 0)
    for ask, _ in asked:
        with pytest.raises(WouldBlock):
            ask(may_block=False)
    assert reader.find_by_time(1004, upper_offset=5, may_block=False) == (4, 1004)
    assert reader.find_largest_time(upper_offset=5, may_block=False) == (4, 1004)
    assert reader.offsets_before_v0(LookupTarget.EARLIEST, 1, may_block=False) == [0]
    for ask, answer in asked:
        assert ask() == answer
        assert ask(may_block=False) == answer


def test_the_largest_time_in_a_segment_at_rest_would_block(log, monkeypatch):
    log.append([9000], now=9000)
    log.append([1006], now=9001)
    roll(log.partition.state)
    monkeypatch.setattr("tidelog.storage.log.reader._SHORT_LOG_BYTES", 0)
    with pytest.raises(WouldBlock):
        log.partition.reader.find_largest_time(upper_offset=7, may_block=False)
    assert log.partition.reader.find_largest_time(upper_offset=7) == (5, 9000)
    assert log.partition.reader.find_largest_time(upper_offset=7, may_block=False) == (5, 9000)
