"""When a time looks like another unit: the rule, its borders, and what it leaves alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.instants import parse_instant
from tidelog.storage.time.arrivals import find_unit_mismatch, unit_mismatch_ranges, usual_range
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
YEAR_MS = 31_557_600_000
DAY_MS = 86_400_000


def unit_of(timestamp, now_ms=NOW_MS):
    found = find_unit_mismatch(timestamp, now_ms)
    return found and found.unit


@pytest.mark.parametrize(
    ("unit", "factor", "divisor"),
    [("seconds", 1, 1_000), ("microseconds", 1_000, 1), ("nanoseconds", 1_000_000, 1)],
)
@given(away_ms=st.integers(-10 * YEAR_MS, 10 * YEAR_MS))
def test_times_of_our_days_are_known_in_every_unit(unit, factor, divisor, away_ms):
    meant = NOW_MS + away_ms // 1_000 * 1_000
    if abs(meant - NOW_MS) <= 10 * YEAR_MS:
        found = find_unit_mismatch(meant * factor // divisor, NOW_MS)
        assert (found.unit, found.meant) == (unit, meant)


@given(away_ms=st.integers(-10 * YEAR_MS, 10 * YEAR_MS), now_ms=st.integers(-(2**50), 2**50))
def test_what_is_near_to_now_is_never_suspect(away_ms, now_ms):
    assert find_unit_mismatch(now_ms + away_ms, now_ms) is None


@given(timestamp=st.integers(MIN_TIMESTAMP, MAX_TIMESTAMP), now_ms=st.integers(-(2**50), 2**50))
def test_whatever_is_suspected_lies_near_to_now_in_its_unit(timestamp, now_ms):
    found = find_unit_mismatch(timestamp, now_ms)
    if found is not None:
        assert abs(found.meant - now_ms) <= 10 * YEAR_MS < abs(timestamp - now_ms)


@pytest.mark.parametrize(
    "time",
    [
        "1900-01-01T00:00Z",
        "1969-07-20T20:17Z",
        "1970-01-01T00:00Z",
        "1970-01-16T00:00Z",
        "1970-02-01T00:00Z",
        "1995-06-01T00:00Z",
        "2015-01-01T00:00Z",
        "2037-01-01T00:00Z",
        "9999-01-01T00:00Z",
        "-2",
        "0",
        str(MAX_TIMESTAMP),
        str(MIN_TIMESTAMP),
    ],
)
def test_history_and_far_futures_are_no_suspects(time):
    assert unit_of(parse_instant(time, NOW_MS)) is None


def test_a_week_of_january_1970_looks_like_seconds():
    days = [day for day in range(40) if unit_of(day * DAY_MS)]
    assert days == [17, 18, 19, 20, 21, 22, 23, 24]  # documented: a guess, and never a refusal


def test_a_clock_in_1970_suspects_nothing_of_its_days():
    for now_ms in (0, 1_000, DAY_MS, -DAY_MS, -YEAR_MS):
        for timestamp in (0, 1, 1_000, DAY_MS, -DAY_MS, 9 * YEAR_MS):
            assert find_unit_mismatch(timestamp, now_ms) is None


@pytest.mark.parametrize("plausible_ms", [0, YEAR_MS, 60 * YEAR_MS])
def test_another_border_would_be_seen(monkeypatch, plausible_ms):
    monkeypatch.setattr("tidelog.storage.time.arrivals._PLAUSIBLE_MS", plausible_ms)
    nine_years_ago_s = (NOW_MS - 9 * YEAR_MS) // 1_000
    right = unit_of(nine_years_ago_s) == "seconds" and unit_of(946_684_800) is None
    assert not right


@given(
    st.one_of(
        st.sampled_from([NOW_MS, 0, -5, MAX_TIMESTAMP, MIN_TIMESTAMP]),
        st.integers(-(2**63), 2**63 - 1),
    ),
    st.integers(0, 2),
    st.integers(-2, 2),
    st.integers(-(2**63), 2**63 - 1),
)
def test_the_ranges_for_columns_say_what_each_time_is_told(now_ms, number, beside, other):
    least, most = usual_range(now_ms)
    ranges = unit_mismatch_ranges(now_ms)
    edges = [edge + beside for edge in (least, most, *ranges[number][1:])]
    for timestamp in (min(max(t, MIN_TIMESTAMP), MAX_TIMESTAMP) for t in (*edges, other)):
        found = find_unit_mismatch(timestamp, now_ms)
        units = [unit for unit, first, last in ranges if first <= timestamp <= last]
        is_usual = least <= timestamp <= most
        assert (found and found.unit) == (None if is_usual or not units else units[0])
