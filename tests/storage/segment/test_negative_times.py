"""`.negativetimes`, the part of the time index below zero: its bytes, its loss, and what lookups read.

That lookups find what a scan finds is held to the model of a log (tests/storage/log_model).
"""

import random
import struct

import pytest

from tidelog.storage.segment import time_search
from tidelog.storage.segment.time_index import TimeIndex
from tidelog.storage.would_block import WouldBlock

HEADER = b"tidn\0\0\0\1"
ENTRIES = [(-500, 103), (-50, 110), (-7, 112), (0, 113), (9, 120)]


def index_at(path, entries=()):
    index = TimeIndex(path / "i", 100, path / "n")
    for entry in entries:
        index.append(*entry)
    return index


# --- the two files --------------------------------------------------------------------------------


def test_the_bytes(tmp_path):
    index_at(tmp_path, [(None, 100), *ENTRIES]).flush()
    packed = [struct.pack(">qi", time, offset - 100) for time, offset in ENTRIES]
    assert (tmp_path / "n").read_bytes() == HEADER + b"".join(packed[:3])
    assert (tmp_path / "i").read_bytes() == b"".join(packed[3:])


@pytest.mark.parametrize("split", range(len(ENTRIES) + 1))
def test_entries_are_added_to_the_files(tmp_path, split):
    index = index_at(tmp_path, ENTRIES[:split])
    index.flush()
    for entry in ENTRIES[split:]:
        index.append(*entry)
    index.flush()
    again = index_at(tmp_path)
    assert again.load()
    assert again.entries() == ENTRIES
    for timestamp in range(-501, 11):
        expected = next((e for e in ENTRIES if e[0] >= timestamp), None)
        assert again.first_reaching(timestamp) == expected


def test_without_negative_times_there_is_no_file(tmp_path):
    index = index_at(tmp_path, ENTRIES[3:])
    index.flush()
    assert not (tmp_path / "n").exists()
    assert not index.is_anew
    assert index_at(tmp_path).load()


def test_a_file_of_an_earlier_index_goes(tmp_path):
    index_at(tmp_path, ENTRIES).flush()
    index_at(tmp_path, ENTRIES[3:]).flush()
    assert not (tmp_path / "n").exists()


@pytest.mark.parametrize("end", range(100, 122))
def test_truncation_reaches_both_files(tmp_path, end):
    index = index_at(tmp_path, ENTRIES)
    index.flush()
    index.truncate(end)
    kept = [entry for entry in ENTRIES if entry[1] < end]
    assert index.entries() == kept
    added = [(-6, 130), (40, 131)] if not kept or kept[-1][0] < -6 else [(40, 131)]
    for entry in added:
        index.append(*entry)
    index.flush()
    again = index_at(tmp_path)
    assert again.load()
    assert again.entries() == kept + added


@pytest.mark.parametrize("cut", range(8 + 3 * 12))
def test_a_torn_file_keeps_only_what_is_whole(tmp_path, cut):
    """Entries behind a hole would let a lookup go too far."""
    index_at(tmp_path, ENTRIES).flush()
    data = (tmp_path / "n").read_bytes()
    for torn in (data[:cut], data[:cut] + bytes(len(data) - cut)):
        (tmp_path / "n").write_bytes(torn)
        again = index_at(tmp_path)
        assert again.load()
        count = max(cut - 8, 0) // 12
        if torn == data:  # it ended in zeros anyway
            count = len(ENTRIES)
        found = again.entries()
        assert found[:count] == ENTRIES[:count]
        assert not any(entry.timestamp >= 0 for entry in found) or torn == data[: 8 + 12 * count]
        again.append(77, 140)
        again.flush()
        more = index_at(tmp_path)
        assert more.load()
        assert more.entries() == [*found, (77, 140)]


# --- lookups --------------------------------------------------------------------------------------


def expected_of(rows, timestamp, start, upper):
    return next(
        ((o, t) for o, t in rows if start <= o < upper and t != -1 and t >= timestamp), None
    )


# --- what the event loop may read -----------------------------------------------------------------


@pytest.fixture
def large(make_log, reads):
    """A log in three segments, from negative times to positive ones, out of order."""
    chance = random.Random(5)
    log = make_log(segment_bytes=1 << 20).create()
    log.rows = []
    for i in range(-2000, 2000):
        times = [10 * i + chance.randint(-500, 500) for _ in range(4)]
        log.rows += enumerate(times, len(log.rows))
        log.append(times, now=10**6, values=[b"x" * 150] * 4)
    assert len(log.partition.segments) == 3
    return log


def looked_up(log, reads, timestamp, **more):
    """Ask as the event loop does; return how many bytes were read, or None."""
    end = log.partition.log_end_offset
    reads.bytes = 0
    try:
        found = log.partition.reader.find_by_time(
            timestamp, upper_offset=end, may_block=False, **more
        )
    except WouldBlock:
        return None
    assert found == expected_of(log.rows, timestamp, log.partition.log_start_offset, end)
    return reads.bytes


INTERVAL = 8192 + 16_384 + 2000  # the first two windows of a walk, and a batch of slack


@pytest.mark.parametrize("stop", ["close", "crash"])
def test_a_lookup_below_zero_reads_an_index_interval(large, reads, stop):
    large.store.checkpoint()
    getattr(large, stop)()
    large.open(10**6)
    asked = [*range(-20_000, 20_000, 400), -7, 0, 1]
    for timestamp in asked:  # reads the indexes
        found = large.partition.reader.find_by_time(
            timestamp, upper_offset=large.partition.log_end_offset
        )
        assert found == expected_of(large.rows, timestamp, 0, 10**9)
    for timestamp in asked:
        assert looked_up(large, reads, timestamp) <= INTERVAL


@pytest.mark.parametrize("lost", ["negativetimes", "timeindex", "index", "times"])
def test_nothing_is_rebuilt_on_the_loop(large, reads, lost):
    large.close()
    for path in large.directory.glob(f"*.{lost}"):
        path.unlink()
    large.open(10**6)
    reads.bytes = 0
    for timestamp in range(-20_000, 20_000, 4000):
        assert (looked_up(large, reads, timestamp) or 0) <= INTERVAL
        assert reads.bytes <= INTERVAL


def test_a_wide_index_interval_is_not_walked_on_the_loop(make_log, reads):
    log = make_log(index_interval_bytes=1 << 20).create()
    log.rows = list(enumerate(range(-2000, 2000)))
    for _, time in log.rows:
        log.append([time], now=10**6, values=[b"x" * 50])
    assert [looked_up(log, reads, time) for time in (-1900, -7, 1900)] == [None] * 3
    assert reads.bytes == 0


def test_the_largest_time_below_an_open_end_is_not_searched_on_the_loop(large, reads):
    find, end = large.partition.reader.find_largest_time, large.partition.log_end_offset
    for upper in (end - 2000, end - 5000):
        reads.bytes = 0
        with pytest.raises(WouldBlock):
            find(upper_offset=upper, may_block=False)
        assert reads.bytes == 0
        rows = large.rows[:upper]
        largest = max(time for _, time in rows)
        assert find(upper_offset=upper) == next(row for row in rows if row[1] == largest)
    large.append([10**9], now=10**6)
    for _ in range(100):
        large.append([5] * 10, now=10**6)
    assert find(upper_offset=end + 10, may_block=False) == (end, 10**9)  # it lies below


def test_a_lookup_within_the_first_segment_is_not_made_on_the_loop(large, reads):
    large.partition.retainer.delete_records_before(20)
    assert looked_up(large, reads, -19_000) is None
    assert reads.bytes == 0


def test_an_injected_walk_is_found(large, reads, monkeypatch):
    monkeypatch.setattr(time_search, "reads_little", lambda *_: True)
    monkeypatch.setattr(time_search, "_reached_by", lambda *_: 0)
    assert looked_up(large, reads, 19_000) > INTERVAL
