"""`.negativetimes`, the part of the time index below zero: its bytes, its loss, and lookups with it.

Random logs of all formats, with times on both sides of 1970 and none, live through restarts, crashes,
lost and damaged files, truncation, compaction and a start after an older version, which had no such
file. All lookups are compared with a scan of what was written. Without permission to block they give
the same answer, or WouldBlock after few reads.
"""

import random
import struct

import pytest

from tests.storage.cleaning import clean
from tidelog.protocol.records.batch import Record, build, records
from tidelog.storage.log.rolling import roll
from tidelog.storage.log.times import partition_times
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


class Life:
    """A log and the times in it."""

    def __init__(self, make_log, seed, reads):
        self.chance, self.reads = random.Random(seed), reads
        pick = self.chance.choice
        self.log = make_log(
            segment_bytes=pick([2_000, 20_000, 1 << 30]),
            index_interval_bytes=pick([0, 0, 300, 4096]),
            cleanup_policy=pick(["delete", "compact"]),
            min_cleanable_dirty_ratio=0.0,
        ).create()
        self.rows = []
        self.center = pick([-4000, -1000, 0])
        self.magics = pick([(2,), (1, 2), (0, 1, 2)])

    def time(self):
        pick = self.chance.random()
        if pick < 0.1:
            return -1
        if pick < 0.13:
            return self.chance.choice([-(2**63), -2, 0, 1])
        return self.center + 5 * len(self.rows) + self.chance.randint(-400, 400)

    def append(self):
        for _ in range(self.chance.choice([1, 5, 30])):
            magic = self.chance.choice(self.magics)
            times = [self.time() for _ in range(self.chance.choice([1, 2, 7]))]
            if magic == 0:
                times = [-1] * len(times)
            codec = self.chance.choice([0, 0, 1])
            keys = [b"%d" % self.chance.randrange(40) for _ in times]
            self.put(times, keys, magic, codec)

    def put(self, times, keys, magic, codec):
        sent = [
            Record(i, time, key, b"v" * self.chance.randint(1, 60), ())
            for i, (time, key) in enumerate(zip(times, keys, strict=True))
        ]
        end = self.log.partition.log_end_offset
        data = build(sent, magic=magic, compression=codec)
        version = 9 if magic == 2 else 2
        self.log.partition.append(data, now_ms=10**6, produce_version=version)
        self.rows += list(enumerate(times, end))

    def restart(self):
        self.log.close()
        self.log.open(10**6)

    def crash(self):
        if self.chance.random() < 0.5:
            self.log.store.checkpoint()
        self.log.crash()
        self.log.open(10**6)

    def damage(self):
        self.log.close()
        suffix = self.chance.choice([".negativetimes", ".negativetimes", ".timeindex", ".index"])
        for path in self.log.directory.glob("*" + suffix):
            data = path.read_bytes()
            if self.chance.random() < 0.6:
                path.unlink()
            else:
                path.write_bytes(data[: self.chance.randrange(len(data) + 1)])
        self.log.open(10**6)

    def lose_partition_times(self):
        if self.log.partition.log_start_offset:
            return
        self.log.close()
        (self.log.directory / partition_times.FILE_NAME).unlink()
        self.log.open(10**6)

    def be_of_an_older_version(self):
        """It had no such file, and did not count its entries."""
        for segment in self.log.partition.segments:
            assert segment.index is not None  # both are whole again, whatever was damaged
            assert segment.time_index is not None
        self.log.close()
        for path in self.log.directory.glob("*.negativetimes"):
            path.unlink()
        times = partition_times.read(self.log.directory)
        lines = []
        for line in times.segments:
            path = self.log.directory / f"{line.base_offset:020d}.timeindex"
            lines.append(line._replace(time_index_entries=path.stat().st_size // 12))
        data = partition_times.pack(times._replace(segments=tuple(lines)))
        partition_times.write(self.log.directory, data, durable=False)
        self.log.open(10**6)

    def truncate(self):
        partition = self.log.partition
        offset = self.chance.randint(partition.log_start_offset, partition.log_end_offset)
        end = partition.truncater.truncate_to(offset, below_high_watermark=True)
        self.rows = [row for row in self.rows if row[0] < end]

    def delete_records(self):
        partition = self.log.partition
        if self.log.config.cleanup_policy == "delete" and self.chance.random() < 0.3:
            offset = partition.log_start_offset + self.chance.randrange(30)
            partition.retainer.delete_records_before(min(offset, partition.log_end_offset))

    def compact(self):
        if self.log.config.cleanup_policy != "compact":
            return
        if self.log.partition.segments[-1].tail.size:
            roll(self.log.partition.state)
        clean(self.log.partition, 10**6)
        left = {
            record.offset
            for segment in self.log.partition.segments
            for found in segment.walk()
            for record in records(found.buffer, found.batch)
        }
        self.rows = [row for row in self.rows if row[0] in left]

    def check(self):
        partition = self.log.partition
        start, end = partition.log_start_offset, partition.log_end_offset
        known = [t for _, t in self.rows if t != -1]
        asked = {self.time() for _ in range(12)} | {-2, 0, 1, -(2**63)}
        asked |= {t + d for t in self.chance.sample(known, min(5, len(known))) for d in (0, 1)}
        for timestamp in asked - {-1}:
            upper = self.chance.choice([end, end, self.chance.randint(start, end)])
            wanted = expected_of(self.rows, timestamp, start, upper)
            self.ask(partition.reader.find_by_time, wanted, timestamp, upper_offset=upper)
        upper = self.chance.choice([end, self.chance.randint(start, end)])
        rows = [(o, t) for o, t in self.rows if start <= o < upper and t != -1]
        largest = max((t for _, t in rows), default=None)
        wanted = next(((o, t) for o, t in rows if t == largest), None)
        self.ask(partition.reader.find_largest_time, wanted, upper_offset=upper)

    def ask(self, find, wanted, *arguments, **more):
        self.reads.bytes = 0
        try:
            found = find(*arguments, may_block=False, **more)
        except WouldBlock:
            pass
        else:
            assert found == wanted, (arguments, more)
            assert self.reads.bytes <= 64 * 1024 + 24 * 1024
        assert find(*arguments, **more) == wanted, (arguments, more)


STEPS = (
    Life.append,
    Life.append,
    Life.append,
    Life.restart,
    Life.crash,
    Life.damage,
    Life.lose_partition_times,
    Life.be_of_an_older_version,
    Life.truncate,
    Life.delete_records,
    Life.compact,
)


def live(make_log, reads, seed):
    life = Life(lambda **settings: make_log(str(seed), **settings), seed, reads)
    life.append()
    for _ in range(12):
        step = life.chance.choice(STEPS)
        step(life)
        life.check()
    life.log.crash()


@pytest.mark.parametrize("seed", range(30))
def test_every_lookup_agrees_with_a_scan(make_log, reads, seed):
    live(make_log, reads, seed)


PLANTED = {
    "a missing file is believed": (TimeIndex, "lacks_negatives", lambda *_: False),
    "an entry is skipped": (
        TimeIndex,
        "first_reaching",
        lambda index, time: next((e for e in index.entries()[1:] if e.timestamp >= time), None),
    ),
}


def live_often(make_log, reads):
    for seed in range(200):
        live(make_log, reads, seed)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(make_log, reads, monkeypatch, name):
    target, attribute, wrong = PLANTED[name]
    monkeypatch.setattr(target, attribute, wrong)
    with pytest.raises(AssertionError):
        live_often(make_log, reads)


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


def test_a_planted_walk_is_found(large, reads, monkeypatch):
    monkeypatch.setattr(time_search, "reads_little", lambda *_: True)
    monkeypatch.setattr(time_search, "_reached_by", lambda *_: 0)
    assert looked_up(large, reads, 19_000) > INTERVAL
