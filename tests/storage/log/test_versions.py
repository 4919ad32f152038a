"""Readers hold a version: its files stay, its answers are of one state, and truncation overtakes them."""

from dataclasses import replace

import pytest

from tidelog.protocol.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from tidelog.protocol.records.batch import records
from tidelog.storage import files
from tidelog.storage.log import slices


@pytest.fixture
def log(make_log):
    """Four segments of one record; retention takes all but the last."""
    log = make_log(segment_bytes=80, retention_ms=100, file_delete_delay_ms=0).create()
    for now in (1, 2, 3, 500):
        log.append([now], now=now)
    return log


def values(version):
    fetched = slices.read(
        version.segments,
        version.log_start_offset,
        1 << 20,
        upper_offset=version.segments[-1].tail.end_offset,
        minimum_one=True,
    )
    return [record.offset for data in fetched.buffers for record in records(data)]


def test_a_held_version_is_read_after_its_segments_were_deleted(log, monkeypatch):
    """Though every descriptor was dropped: the files are opened again by their new names."""
    monkeypatch.setattr(files, "RECENT", files.Recent(1))
    partition = log.partition
    with partition.hold() as version:
        assert len(partition.retainer.apply_retention(500)) == 3
        partition.retainer.apply_retention(500)
        for segment in version.segments:
            segment.rest()
        assert values(version) == [0, 1, 2, 3]
        assert partition.log_start_offset == 3
        assert list(log.directory.glob("*.deleted"))
    partition.retainer.apply_retention(500)
    assert not list(log.directory.glob("*.deleted"))


def test_files_wait_for_the_delay_though_nobody_holds_them(make_log):
    log = make_log(segment_bytes=80, retention_ms=100, file_delete_delay_ms=60_000).create()
    for now in (1, 2, 3, 500):
        log.append([now], now=now)
    log.partition.retainer.apply_retention(500)
    log.partition.config = replace(log.config, retention_ms=-1)
    log.partition.retainer.apply_retention(60_499)
    assert list(log.directory.glob("*.deleted"))
    log.partition.retainer.apply_retention(60_500)
    assert not list(log.directory.glob("*.deleted"))


def test_each_of_several_holders_keeps_the_files(log):
    partition = log.partition
    first, second = partition.hold(), partition.hold()
    partition.retainer.apply_retention(500)
    first.release()
    partition.retainer.apply_retention(500)
    assert values(second) == [0, 1, 2, 3]
    second.release()
    partition.retainer.apply_retention(500)
    assert not list(log.directory.glob("*.deleted"))


def test_a_version_held_since_keeps_no_files_of_an_older_one(log):
    partition = log.partition
    partition.retainer.apply_retention(500)
    with partition.hold():
        partition.retainer.apply_retention(500)
        assert not list(log.directory.glob("*.deleted"))


def test_a_deleted_partition_never_opens_the_files_of_its_successor(log):
    partition = log.partition
    for segment in partition.segments:
        segment.rest()
    log.store.delete_topic("t")
    log.partition = log.store.create_partition("t", partition.state.topic_id, 0, log.config, 0)
    log.append([1])
    with pytest.raises(UnknownTopicOrPartition):
        partition.read(0, 1000, upper_offset=4, minimum_one=True)


@pytest.mark.parametrize("overtakes", ["a truncation", "a leader epoch", "nothing"])
def test_what_overtakes_a_read(log, monkeypatch, overtakes):
    partition, plain = log.partition, slices.read

    def overtaken(*arguments, **more):
        fetched = plain(*arguments, **more)
        if overtakes == "a truncation":
            with partition.state.append_lock:
                partition.state.begin_generation()
        elif overtakes == "a leader epoch":
            partition.leader_epoch = 7
        return fetched

    monkeypatch.setattr(slices, "read", overtaken)
    for read in (partition.read, partition.reader.read_with_append_times):
        if overtakes == "nothing":
            assert read(0, 1000, upper_offset=4, minimum_one=True)
            continue
        partition.leader_epoch = 0
        with pytest.raises(NotLeaderOrFollower):
            read(0, 1000, upper_offset=4, minimum_one=True)


def test_the_high_watermark_never_goes_back_nor_beyond_the_end(log):
    state = log.partition.state
    with state.append_lock:
        for offset in (2, 10**9):
            state.advance_high_watermark(offset)
            assert state.ends == (4, 4, 4)


def test_after_flush_others_read_what_is_durable(make_log):
    log = make_log(flush_messages=1).create()
    log.append([1])
    assert log.partition.state.ends == (1, 0, 0)
    log.partition.commit()
    assert log.partition.state.ends == (1, 1, 1)
