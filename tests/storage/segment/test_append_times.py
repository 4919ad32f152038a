"""`.appendtimes`: exact, written first, cut with the log, never going back."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.storage import files
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.appended.entries import Cursor
from tidelog.storage.segment.appended.layout import END, ENTRY, UNKNOWN, Layout

SIZE = {1: 12, 2: 16}


@pytest.fixture(params=[1, 2])
def version(request):
    """Of the file: an older tidelog wrote version 1, and it is gone on with as it is."""
    return request.param


def packed(version, entries, first=0, base=100):
    """The bytes of entries, the first of which has a number."""
    layout = Layout(base, version)
    numbered = enumerate(entries, first)
    return b"".join(layout.pack(n, time, (offset - base) % 2**32) for n, (time, offset) in numbered)


def made(path, entries, base=100, version=2):
    times = AppendTimes(path, base)
    if version == 1:
        path.write_bytes(Layout(base, 1).header + packed(1, entries[:1], base=base))
        assert times.load()
    for time, offset in entries:
        times.append(time, offset)
    return times


def entries_of(times):
    return list(times.entries())


def test_the_bytes_of_version_1(tmp_path):
    path = tmp_path / "a"
    made(path, [(-5, 100), (-5, 101), (1000, 103)], version=1)
    assert path.read_bytes() == (
        b"tide" + struct.pack(">i", 1) + struct.pack(">qi", -5, 0) + struct.pack(">qi", 1000, 3)
    )


def crc32c(data, seed=0):
    """CRC-32C bit by bit."""
    seed ^= 0xFFFFFFFF
    for byte in data:
        seed ^= byte
        for _ in range(8):
            seed = seed >> 1 ^ 0x82F63B78 * (seed & 1)
    return seed ^ 0xFFFFFFFF


def test_the_bytes(tmp_path):
    path = tmp_path / "a"
    times = made(path, [(-5, 100), (-5, 101), (1000, 103)])
    assert times.finish(108)
    seed, expected = crc32c(struct.pack(">q", 100)), b"TIDE" + struct.pack(">i", 2)
    for number, entry in enumerate(((-5, 0), (1000, 3), (-(2**63) + 1, 8))):
        data = struct.pack(">qi", *entry)
        expected += data + struct.pack(">I", crc32c(data, seed ^ number))
    assert path.read_bytes() == expected


def test_a_walk_reads_them_in_blocks(tmp_path, monkeypatch):
    times, reads = made(tmp_path / "a", [(i, 100 + i) for i in range(10_000)]), []
    read_at = files.read_at
    monkeypatch.setattr(files, "read_at", lambda *asked: reads.append(asked) or read_at(*asked))
    in_order = Cursor(times)
    assert [in_order.at(100 + i) for i in range(0, 10_000, 3)] == list(range(0, 10_000, 3))
    assert len(reads) < 5
    in_order = Cursor(times)
    assert (in_order.at(10_089), in_order.at(10_090)) == (9989, 9990)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), min_size=1, max_size=40))
def test_every_batch_has_its_own_time_and_every_change_one_entry(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("a") / "a"
    time, offset, expected = 50, 100, {}
    times = AppendTimes(path, 100)
    for time_step, count in steps:
        time += time_step
        times.append(time, offset)
        expected |= dict.fromkeys(range(offset, offset + count), time)
        offset += count
    again = AppendTimes(path, 100)
    assert again.load()
    for both in (times, again):
        assert {o: both.at(o) for o in expected} == expected
        assert both.last_time == time
        assert both.is_complete
        assert len(both) == len(set(expected.values()))


STEPS = st.tuples(st.sampled_from([0, 0, 1, 3, None]), st.integers(1, 5))  # None: unknown


@settings(max_examples=30)
@given(st.lists(STEPS, min_size=1, max_size=25), st.none() | st.integers(101, 150), st.lists(STEPS))
def test_what_followers_ask_for_is_the_same_from_memory_and_from_the_file(
    tmp_path_factory, steps, cut_offset, more
):
    path = tmp_path_factory.mktemp("a") / "a"
    times, time, offset = AppendTimes(path, 100), 50, 100

    def append(steps):
        nonlocal time, offset
        for time_step, count in steps:
            time += time_step or 0
            times.append(UNKNOWN if time_step is None else time, offset)
            offset += count

    append(steps)
    if cut_offset is not None and cut_offset < offset:
        times.truncate(cut_offset)
        offset = cut_offset
    append(more)
    read = AppendTimes(path, 100)
    assert read.load()
    for first in range(100, offset):
        for last in range(first, min(first + 12, offset)):
            assert times.entries_between(first, last) == read.entries_between(first, last)


def test_the_last_entries_are_sent_without_the_file(tmp_path, monkeypatch):
    times = made(tmp_path / "a", [(2 * i, 100 + 3 * i) for i in range(100)])
    expected = [(2 * i, 3 * i) for i in range(94, 98)]
    with monkeypatch.context() as patched:
        patched.setattr(files, "read_at", None)  # it is not called
        assert list(ENTRY.iter_unpack(times.entries_between(383, 391))) == expected
    first, *_ = ENTRY.iter_unpack(times.entries_between(100, 391))
    assert first == (0, 0)  # that is in the file alone


def test_before_the_first_offset_nothing_is_known(tmp_path):
    assert made(tmp_path / "a", [(5, 100)]).at(99) is None
    assert AppendTimes(tmp_path / "b", 0).at(0) is None
    assert AppendTimes(tmp_path / "b", 0).last_time is None


ENTRIES = [(1000, 100), (1001, 105), (1005, 106), (2000, 110)]


@pytest.mark.parametrize("cut", range(8 + 16 * 4 + 1))
def test_a_torn_file_keeps_its_whole_entries(version, tmp_path, cut):
    path = tmp_path / "a"
    made(path, ENTRIES, version=version)
    path.write_bytes(path.read_bytes()[:cut])
    times = AppendTimes(path, 100)
    whole = min(max(cut - 8, 0) // SIZE[version], 4)
    assert times.load() == bool(whole)
    assert entries_of(times) == [(t, o - 100) for t, o in ENTRIES[:whole]]
    times.truncate(112)
    times.append(3000, 112 if whole else 100)
    assert AppendTimes(path, 100).load()
    assert (len(path.read_bytes()) - 8) // SIZE[version if whole else 2] == whole + 1


@pytest.mark.parametrize("end", range(99, 113))
def test_truncation(version, tmp_path, end):
    path = tmp_path / "a"
    times = made(path, ENTRIES, version=version)
    times.truncate(end)
    kept = [(t, o - 100) for t, o in ENTRIES if o < end]
    assert entries_of(times) == kept
    again = AppendTimes(path, 100)
    assert again.load() == bool(kept)
    assert entries_of(again) == kept
    assert path.stat().st_size == (8 + SIZE[version] * len(kept) if kept else 0)


def test_unknown_times(tmp_path):
    path = tmp_path / "a"
    times = AppendTimes(path, 100)
    times.mark_unknown()
    assert (times.at(100), times.last_time, times.is_complete) == (None, None, False)
    times.append(7, 120)
    again = AppendTimes(path, 100)
    assert again.load()
    assert [again.at(o) for o in (100, 119, 120)] == [None, None, 7]
    assert (again.last_time, again.is_complete) == (7, False)
    assert path.read_bytes()[8:20] == struct.pack(">qi", UNKNOWN, 0)


@pytest.mark.parametrize(
    "bad", [(999, 7), (1001, 5), (1002, 4), (1002, -1)], ids=["time", "same", "offset", "negative"]
)
def test_after_an_entry_that_cannot_be_nothing_is_known(version, tmp_path, bad):
    path = tmp_path / "a"
    made(path, ENTRIES[:2], version=version)
    with path.open("ab") as file:
        file.write(packed(version, [(bad[0], bad[1] + 100), (5000, 150)], 2))
    times = AppendTimes(path, 100)
    assert times.load()
    assert not times.check(100)
    assert times.check(100)
    assert [times.at(o) for o in (100, 105, 106, 150)] == [1000, 1001, None, None]
    again = AppendTimes(path, 100)
    assert again.load()
    assert entries_of(again) == entries_of(times)
    assert not again.is_complete


@pytest.mark.parametrize("hole", [10, 40])
@pytest.mark.parametrize("from_offset", [150, 195, 200])
@pytest.mark.parametrize("end", [[(END, 200)], []], ids=["end", "no end"])
def test_a_hole_in_the_middle_takes_nothing_of_what_was_there_before(
    version, tmp_path, hole, from_offset, end
):
    """A disk may have written a later block and not the one before when the power goes."""
    path = tmp_path / "a"
    made(path, [(1000 + i, 100 + 10 * i) for i in range(10)], version=version)
    later = [*((2000 + i, 400 + i) for i in range(10)), (END, 500)]
    with path.open("ab") as file:
        file.write(packed(version, end, 10) + bytes(SIZE[version] * hole))
        file.write(packed(version, later, 10 + len(end) + hole))
    times = AppendTimes(path, 100)
    assert times.load()
    assert not times.check(from_offset)
    assert [times.at(100 + offset) for offset in (0, 9, 10, 90)] == [1000, 1000, 1001, 1009]
    assert times.at(400) is None
    assert times.last_time == 1009
    again = AppendTimes(path, 100)
    assert again.load()
    assert again.check(100)
    assert entries_of(again) == entries_of(times)
    if end:
        assert times.end_offset == again.end_offset == 200, (
            "what it vouches for is what was durable"
        )


@pytest.mark.parametrize(
    "data",
    [b"", b"tide", b"nope" + bytes(20), b"tide\0\0\0\2" + bytes(12), b"TIDE\0\0\0\1" + bytes(16)],
)
def test_a_file_that_is_not_ours_says_nothing(tmp_path, data):
    path = tmp_path / "a"
    path.write_bytes(data)
    assert not AppendTimes(path, 0).load()


def test_only_what_lies_behind_an_offset_is_checked(version, tmp_path):
    path = tmp_path / "a"
    changed = [ENTRIES[0], (5, 105), *ENTRIES[2:]]
    path.write_bytes(Layout(100, version).header + packed(version, changed))
    for from_offset, good in ((111, True), (110, True), (106, True), (105, False)):
        times = AppendTimes(path, 100)
        assert times.load()
        assert times.check(from_offset) == good
    assert entries_of(times) == [(1000, 0), (UNKNOWN, 5)], "what lies before was durable"


def test_unknown_from_an_offset_on(version, tmp_path):
    for offset, expected in (
        (106, [(1000, 0), (1001, 5), (UNKNOWN, 6)]),
        (108, [(1000, 0), (1001, 5), (1005, 6), (UNKNOWN, 8)]),
        (100, [(UNKNOWN, 0)]),
        (None, [(UNKNOWN, 0)]),
    ):
        path = tmp_path / f"a{offset}"
        times = made(path, ENTRIES, version=version)
        times.mark_unknown(offset)
        times.append(9000, 120)
        again = AppendTimes(path, 100)
        assert again.load()
        for both in (times, again):
            assert entries_of(both) == [*expected, (9000, 20)]
            assert not both.is_complete
            assert both.last_time == 9000


def test_many_entries_are_not_kept_in_memory(version, tmp_path):
    """A million appends a day would be twelve megabytes, and a thousand times that is usual."""
    path, count = tmp_path / "a", 10_000
    times = made(path, [(2 * i, 100 + 3 * i) for i in range(count)], version=version)
    assert len(times) == count
    held = [getattr(times, name) for name in AppendTimes.__slots__]
    assert all(not hasattr(value, "__len__") or len(value) < 100 for value in held)
    again = AppendTimes(path, 100)
    assert again.load()
    for both in (times, again):
        assert [both.at(100 + o) for o in (0, 2, 3, 14_999, 15_000, 29_997, 40_000)] == [
            *(0, 0, 2, 2 * 4999, 10_000, 19_998, 19_998)
        ]
        assert both.is_complete
    assert again.check(100)
    again.mark_unknown(20_100)
    third = AppendTimes(path, 100)
    assert third.load()
    assert third.last_time == 2 * 6666
    assert not third.is_complete
    third.truncate(20_000)
    assert third.is_complete


def test_segments_with_unknown_append_times_are_counted(make_log):
    log = make_log(segment_bytes=100).create()
    for now in (10, 11, 12):
        log.append([1], now=now)
    assert log.partition.unknown_append_bytes is None
    log.close()
    (log.directory / "partition.times").unlink()
    (log.directory / f"{0:020}.appendtimes").unlink()
    log.open()
    assert [log.partition.reader.append_time_of(offset) for offset in range(3)] == [None, 11, 12]
    for _ in range(2):
        assert log.partition.unknown_append_bytes == log.partition.segments[0].tail.size
        log.close()
        log.open()


def test_append_times_that_end_too_early_are_not_believed(make_log):
    log = make_log().create()
    for now in (10, 11, 12):
        log.append([1], now=now)
    log.close()
    path = log.directory / f"{0:020}.appendtimes"
    path.write_bytes(path.read_bytes()[:-32])  # the last entry, and END
    log.open()
    assert [log.partition.reader.append_time_of(offset) for offset in range(3)] == [10, 11, None]
    assert log.partition.unknown_append_bytes == log.partition.size
    log.close()
    log.open()
    assert log.partition.unknown_append_bytes == log.partition.size


@pytest.mark.parametrize("is_strict", [False, True])
def test_who_asks_while_entries_are_dropped_finds_those_that_stay(version, tmp_path, is_strict):
    """After a failed append the file is read again, and readers in other threads go on."""
    times = made(tmp_path / "a", ENTRIES, version=version)
    if is_strict:
        times.mark_end(115)

    class Asking(files.System):
        def read(self, number, size, position):
            if not asking:
                asking.append(1)
                found.append([times.at(offset) for offset in (100, 105, 107)])
                found.append(times.last_time is not None)
                asking.pop()
            return super().read(number, size, position)

    asking, found = [], []
    before = files.use(Asking())
    try:
        times.truncate(108)
    finally:
        files.use(before)
    assert found
    assert all(each in ([1000, 1001, 1005], True) for each in found), found
    assert entries_of(times) == [(1000, 0), (1001, 5), (1005, 6)]
    assert times.last_time == 1005
    assert (times.end_offset > 100) == is_strict
