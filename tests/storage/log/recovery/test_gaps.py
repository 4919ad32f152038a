"""Gaps between batches: recovery cuts at those of a power loss, and keeps those of compaction."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation.power_loss import Disk
from tests.storage import cleaning
from tests.storage.conftest import OnlyWhatIsDurable
from tidelog.protocol.records.batch import Record, build
from tidelog.storage import filenames, files
from tidelog.storage.compaction.cleaner import Cleaner
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.replication.leader_state import LeaderState
from tidelog.storage.log.replication.received import AppendedFrom
from tidelog.storage.log.times import partition_times
from tidelog.storage.segment.segment import Segment


def path_of(log, base, suffix=".log"):
    return log.directory / filenames.segment_file(base, suffix)


def start(log, boot, config=None):
    """Open the log on a machine that was booted with this id."""
    config = log.config if config is None else config
    log.store = LogStore([log.path], default_config=config, boot_id=boot)
    log.store.open(100, {"t": config})
    log.partition = log.store.partition("t", 0)


def bases(log):
    return [segment.base_offset for segment in log.partition.segments]


def offsets(log):
    found, offset = [], log.partition.log_start_offset
    while offset < log.partition.log_end_offset:
        data = log.read(offset, 1).buffers
        head = next(iter(data))
        found.append(int.from_bytes(head[:8], "big"))
        offset = found[-1] + int.from_bytes(head[23:27], "big") + 1
    return found


def led(make_log, count=4, **settings):
    """A log of as many segments, one batch of one record each."""
    log = make_log(segment_bytes=100, **settings).create()
    for number in range(count):
        log.append([number], now=10 * number, values=[b"value of some length"])
    assert bases(log) == list(range(count))
    return log


def follow(log, *firsts, high_watermark=0):
    data = b"".join(build([Record(first, 5, b"k", b"v")]) for first in firsts)
    leader = LeaderState(high_watermark, 0, None, None)
    times = [AppendedFrom(firsts[0], 10)]
    return log.partition.replica.append_as_follower(data, times, (), leader, now_ms=99)


# --- of a power loss ------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["the end of a segment", "a segment"])
@pytest.mark.parametrize("losses", [1, 2, 3])
def test_a_log_ends_at_a_gap_that_a_power_loss_left(make_log, losses, lost):
    """From the second loss on no append time is known, so the segments look like another's."""
    log = led(make_log)
    log.crash()
    for number in range(losses - 1):
        for path in log.directory.glob("*.appendtimes"):
            path.write_bytes(
                path.read_bytes()[:24]
            )  # without END entries, which would vouch for them
        start(log, f"boot {number}")
        assert log.partition.reader.append_time_of(log.partition.segments[1].base_offset) is None
        log.crash()
    path_of(log, 1).write_bytes(b"")
    if lost == "a segment":
        for path in log.directory.glob(filenames.segment_file(1, ".*")):
            path.unlink()
    start(log, "the last boot")
    assert (offsets(log), log.partition.log_end_offset) == ([0], 1)


def test_a_gap_behind_what_was_compacted_is_cut(make_log):
    log = led(make_log, 6, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log.partition.flush()
    assert cleaning.clean(log.partition, 1000) is not None
    compacted = log.partition.state.gaps_end_offset
    for number in range(3):
        log.append([number], now=2000, values=[b"value of some length"])
    log.crash()
    *_, before, _ = sorted(log.directory.glob("*.log"))
    assert int(before.stem) >= compacted
    before.write_bytes(b"")
    start(log, "another boot")
    assert log.partition.log_end_offset == int(before.stem)


# --- of compaction --------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["kill", "power loss"])
def test_a_log_that_was_once_compacted_opens_whole_without_checkpoints(make_log, end):
    log = led(make_log, 6, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log.partition.flush()
    assert cleaning.clean(log.partition, 1000) is not None
    before = offsets(log)
    assert before[0] > 0, "a gap at the start"
    log.crash()
    for path in log.path.glob("*checkpoint"):
        path.unlink()
    policy = dataclasses.replace(log.config, cleanup_policy=("delete",))
    start(log, "boot" if end == "power loss" else "", policy)
    assert (offsets(log), log.partition.log_end_offset) == (before, 6)


def test_a_log_of_an_older_tidelog_opens_whole_and_is_recorded(make_log):
    """Its `partition.times` does not say where it may have gaps."""
    log = led(make_log, 6, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log.partition.flush()
    assert cleaning.clean(log.partition, 1000) is not None
    before = offsets(log)
    log.crash()
    known = partition_times.read(log.directory)._replace(gaps_end_offset=None)
    partition_times.write(log.directory, partition_times.pack(known), durable=False)
    start(log, "another boot")
    assert (offsets(log), log.partition.log_end_offset) == (before, 6)
    assert partition_times.read(log.directory).gaps_end_offset == 6


@pytest.mark.parametrize("lost", ["partition.times", "and the checkpoints"])
@pytest.mark.parametrize("end", ["kill", "power loss"])
def test_a_compacted_log_opens_whole_without_partition_times(make_log, end, lost):
    log = led(make_log, 6, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log.partition.flush()
    assert cleaning.clean(log.partition, 1000) is not None
    before, log_start = offsets(log), log.partition.log_start_offset
    assert before[0] > log_start, "a gap at the start"
    log.crash()
    (log.directory / partition_times.FILE_NAME).unlink()
    if lost == "and the checkpoints":
        for path in log.path.glob("*checkpoint"):
            path.unlink()
    start(log, "boot" if end == "power loss" else "")
    assert (offsets(log), log.partition.log_end_offset) == (before, 6)
    assert log.partition.log_start_offset == log_start


def test_gaps_end_behind_what_replaces_the_removed_records_from_the_first_segment_on(make_log):
    """Else a follower that is killed while it compacts could not tell where it must not be cut."""
    log = led(make_log, 6, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    log.partition.flush()
    compactor = log.partition.compactor
    job = compactor.begin_cleaning(1000, asked=True)
    cleaner = Cleaner(log.directory, job)
    first = next(iter(cleaner.groups()))
    assert compactor.take_in(cleaner.clean(first), 1000)
    log.crash()
    start(log, "")
    assert first[-1].base_offset + 1 < job.upper_offset == log.partition.state.gaps_end_offset


# --- of a leader that was compacted ---------------------------------------------------------------


@pytest.mark.parametrize("segment_bytes", [80, 1 << 20])
def test_a_follower_that_was_killed_keeps_the_gaps_of_its_leader(make_log, segment_bytes):
    log = make_log(segment_bytes=segment_bytes).create()
    follow(log, 3, 4)
    follow(log, 9, 12)
    log.crash()
    start(log, "")
    assert (offsets(log), log.partition.log_end_offset) == ([3, 4, 9, 12], 13)


def test_a_follower_records_gaps_up_to_the_high_watermark_at_once(log, monkeypatch):
    written = []
    monkeypatch.setattr(partition_times, "write", lambda *args, **_: written.append(args))
    for first in range(0, 30, 3):
        follow(log, first, first + 1, high_watermark=100)
    assert len(written) == 1
    follow(log, 30)
    assert log.partition.state.gaps_end_offset == 100


def test_committed_records_behind_a_gap_outlive_a_power_loss(make_log, use):
    log, left = make_log(flush_messages=1).create(), make_log("left", flush_messages=1)
    log.close()
    disk = Disk(log.path)
    use(disk)
    log.open()
    follow(log, 0, 1)
    log.partition.flush()
    follow(log, 2, 5)
    assert log.partition.commit() == 6
    disk.lose_power(left.path, OnlyWhatIsDurable())
    log.crash()
    use(files.System())
    start(left, "another boot")
    assert offsets(left) == [0, 1, 2, 5]


def test_a_gap_that_was_not_recorded_is_cut(make_log):
    """A power loss took the last `partition.times`."""
    log = make_log().create()
    follow(log, 0, 1)
    log.partition.flush()
    path = log.directory / partition_times.FILE_NAME
    before = path.read_bytes()
    follow(log, 2, 5)
    log.crash()
    path.write_bytes(before)
    start(log, "another boot")
    assert offsets(log) == [0, 1, 2]
    follow(log, 5)
    log.crash()
    start(log, "another boot")
    assert offsets(log) == [0, 1, 2, 5]


def test_a_gap_that_an_index_cannot_hold_is_cut(make_log):
    log = make_log().create()
    follow(log, 0, 2**31 - 1, high_watermark=2**32)
    log.crash()
    with path_of(log, 0).open("ab") as file:
        file.write(build([Record(2**31, 5, b"k", b"v")]))
    start(log, "")
    assert offsets(log) == [0, 2**31 - 1]


def test_a_segment_with_gaps_is_durable_before_the_next_begins(make_log, monkeypatch):
    """Recovery could not tell its lost end from a gap of compaction."""
    log, synced = make_log(segment_bytes=80).create(), []
    monkeypatch.setattr(Segment, "sync", lambda segment: synced.append(segment.base_offset))
    follow(log, 0, 1, 2)
    assert synced == []
    follow(log, 5, 9, 10)
    assert bases(log) == [0, 1, 2, 3, 6, 10]
    assert synced == [0, 1, 2, 3, 6]


def test_a_truncation_allows_no_gaps_behind_it(log):
    follow(log, 0, 5, 9)
    assert log.partition.state.gaps_end_offset == 10
    log.partition.truncater.truncate_to(7)
    assert log.partition.state.gaps_end_offset == 6
    log.partition.truncater.start_at(2)
    assert log.partition.state.gaps_end_offset == 2
