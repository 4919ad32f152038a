"""`partition.times`: what a truncation leaves in it, and what older ones do not have."""

import pytest

from tidelog.storage.log.times.partition_times import ClockMark, Cut, PartitionTimes, pack, parse
from tidelog.storage.segment.segment_line import SegmentLine
from tidelog.storage.time.adoption import Adopted
from tidelog.storage.time.corrections import NO_MARK, Correction, Mark, WrittenBehind, step_back
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.tombstones import with_late_horizons

TIMES = PartitionTimes(5, 6, 7, 8, "boot", ())


@pytest.mark.parametrize("mark", [0, 9])
@pytest.mark.parametrize(
    "cut",
    [None, Cut(3, None), Cut(3, 2), Cut(3, None, 0), Cut(3, 4, 12, begins_anew=True)],
)
@pytest.mark.parametrize("gaps_end_offset", [None, 0, 11])
@pytest.mark.parametrize("adopted", [(), (Adopted(3, -7), Adopted(8, 2**40))])
def test_what_is_packed_comes_back(mark, cut, gaps_end_offset, adopted):
    times = TIMES._replace(
        back_offset=mark, cut=cut, gaps_end_offset=gaps_end_offset, adopted=adopted
    )
    assert parse(pack(times)) == times


@pytest.mark.parametrize("mark", [0, 9])
@pytest.mark.parametrize("corrections", [(), (step_back(5, -7), Correction(1, 2, 3, 4, 5, 2**62))])
@pytest.mark.parametrize(
    "clock", [ClockMark(), ClockMark("a cl\u00f6ck", 7), ClockMark("b", 8, (-5, 2**40))]
)
def test_corrections_come_back(mark, corrections, clock):
    times = TIMES._replace(corrections=corrections, clock=clock, back_offset=mark)
    assert parse(pack(times)) == times
    assert parse(pack(times._replace(cut=Cut(3, 2), gaps_end_offset=4))).clock == clock


@pytest.mark.parametrize("mark", [NO_MARK, Mark(4, 1)])
@pytest.mark.parametrize("is_replicated", [False, True])
def test_what_replicas_compare_comes_back(mark, is_replicated):
    times = TIMES._replace(mark=mark, is_replicated=is_replicated, back_offset=9, cut=Cut(3, 2))
    assert parse(pack(times)) == times


def test_the_file_of_a_broker_alone_is_as_it_was():
    assert pack(TIMES)[4:8] == pack(TIMES._replace(back_offset=1))[4:8] == b"\0\0\0\3"
    assert pack(TIMES._replace(is_replicated=True))[4:8] == b"\0\0\0\4"


@pytest.mark.parametrize("is_replicated", [False, True])
def test_batches_that_java_cannot_read_come_back(is_replicated):
    segments = []
    for offset in (None, 0, 7):
        times = SegmentTimes()
        times.unreadable_offset, times.aging = offset, 5
        segments.append(SegmentLine(0, 10, 100, times, 1, 1, False))
    times = TIMES._replace(segments=tuple(segments), is_replicated=is_replicated, back_offset=9)
    assert parse(pack(times)) == times
    assert pack(times)[4:8] == b"\0\0\0\5"
    # Without any the file is one that an older tidelog reads.
    assert pack(times._replace(segments=(segments[0],)))[4:8] < b"\0\0\0\5"


@pytest.mark.parametrize("unreadable_offset", [None, 7])
@pytest.mark.parametrize("cut", [None, Cut(3, 2)])
def test_what_leaders_have_written_whose_clocks_were_behind_comes_back(unreadable_offset, cut):
    times = SegmentTimes()
    times.unreadable_offset, times.aging = unreadable_offset, 5
    line = SegmentLine(0, 10, 100, times, 1, 1, False)
    written = WrittenBehind(5, 2**63 - 1, 30_000)
    times = TIMES._replace(segments=(line,), written_behind=written, back_offset=9, cut=cut)
    assert parse(pack(times)) == times
    assert pack(times)[4:8] == b"\0\0\0\6"
    # Once it is corrected the file is one that an older tidelog reads.
    assert pack(times._replace(written_behind=None))[4:8] < b"\0\0\0\6"


def test_horizons_of_a_clock_that_was_behind_from_its_first_reading_come_back():
    late = with_late_horizons(None, -(2**63), 2**40)
    clock = parse(pack(TIMES._replace(clock=ClockMark("a", 1, late)))).clock
    assert clock.late_horizons == late


def test_a_log_that_was_never_truncated_has_the_file_it_had():
    assert len(pack(TIMES._replace(back_offset=1))) == len(pack(TIMES)) + 8


# Written by version 1: two segments, a mark, a truncation and gaps.
VERSION_1 = bytes.fromhex(
    "746964700000000132a3a1be0000000000000014000000000000001e0000000000000000"
    "00000000000000040004626f6f7400000002000000000000000000000000000000020000"
    "0000000001f4000000000000000700000000000000090000000000000001000000000000"
    "000900000000000000080000000000000005000000000000000800000003000000020200"
    "000000000000020000000000000004000000000000005000000000000000090000000000"
    "000014000000000000000300000000000000140000000000000014800000000000000000"
    "0000000000001e00000000000000010400000000000000020000000000000003ffffffff"
    "ffffffffffffffffffffffff00000000000000000b"
)


def test_a_file_of_version_1_is_read_without_what_came_of_the_dates_of_files():
    times = parse(VERSION_1)
    assert times[:5] == (20, 30, 0, 4, "boot")
    assert times[6:9] == (2, Cut(3, None), 11)
    (first,) = times.segments  # of the other one some append times are unknown
    assert (first.times.created, first.times.created_clock, first.is_true) == (5, None, True)
    assert parse(pack(times)) == times


# Written by version 2: a segment, a moment of adoption, a mark, a truncation and gaps.
VERSION_2 = bytes.fromhex(
    "746964700000000227a0b6ff0000000000000014000000000000001e0000000000000000"
    "00000000000000040004626f6f7400000001000000000000000000000000000000020000"
    "0000000001f4000000000000000700000000000000090000000000000001000000000000"
    "000900000000000000080000000000000005000000000000000800000003000000020200"
    "00000000000004000000010000000000000003fffffffffffffff9000000000000000200"
    "00000000000003ffffffffffffffffffffffffffffffff00000000000000000b"
)


def test_a_file_of_version_2_is_read_without_corrections():
    times = parse(VERSION_2)
    assert times[:5] == (20, 30, 0, 4, "boot")
    assert times[6:] == (
        2,
        Cut(3, None),
        11,
        (Adopted(3, -7),),
        (),
        ClockMark(),
        False,
        NO_MARK,
        None,
    )
    (line,) = times.segments
    assert (line.times.created, line.times.created_clock, line.times.aging) == (5, 4, 8)
    assert parse(pack(times)) == times
