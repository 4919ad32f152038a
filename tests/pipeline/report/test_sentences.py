"""Sentences and spans of reports: what is said of which numbers, and how numbers are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline.report import findings, units

pytest.importorskip("numpy")

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
NOTHING = {"p50": 0, "p90": 0, "p99": 0, "p99_9": 0, "p99_99": 0, "max": 0}


def topic(**numbers):
    """A topic of a thousand records in order that arrived at once, but for what is given."""
    producers = numbers.pop("producers", [])
    settings = numbers.pop("settings", None)
    pinned = numbers.pop("pinned", [])
    summary = {
        "records": 1000,
        "missing": 0,
        "negative": 0,
        "future": 0,
        "suspects": {"seconds": 0, "microseconds": 0, "nanoseconds": 0},
        "log_append_time": 0,
        "plausible": 1000,
        "out_of_order": 0,
        "least_time_ms": 0,
        "lateness_ms": NOTHING,
        "delay_ms": NOTHING | {"count": 1000, "min": 0, "max": 10},
        "beyond_before": [],
        "lateness_beyond": [],
        "examples": {},
    } | numbers
    return {
        "topic": "t",
        "summary": summary,
        "producers": producers,
        "skewed_producers": findings.skewed(producers, summary["delay_ms"]["p50"]),
        "safe_windows": findings.safe_windows(summary),
        "settings": settings,
        "pinned": pinned,
    }


def said(**numbers):
    return {(each.level, each.title): each.text for each in findings.of_topic(topic(**numbers))}


def example(stamp, append=1_767_225_600_000, producer=7):
    return {
        "offset": 1234,
        "timestamp_ms": stamp,
        "append_time_ms": append,
        "producer_id": producer,
        "partition": 3,
    }


def test_good_times_are_called_good():
    levels = {level for level, _ in said()}
    assert levels == {"ok", "info"}
    assert ("ok", "Its times look right.") in said()


def test_another_unit_is_shown_with_what_it_means():
    found = said(
        plausible=999,
        suspects={"seconds": 1, "microseconds": 0, "nanoseconds": 0},
        examples={"seconds": example(1_700_000_000)},
    )
    text = found["bad", "1 record looks like seconds instead of milliseconds."]
    assert "offset 1,234 of partition 3 by producer 7: 1700000000 is 1970-01-20 16:13:20Z" in text
    assert "read as seconds 2023-11-14 22:13:20Z" in text
    assert ("ok", "Its times look right.") not in found


@pytest.mark.parametrize(
    ("ahead", "append", "level"),
    [(2 * MINUTE, 0, "warn"), (HOUR, 0, "warn"), (HOUR + 1, 0, "bad"), (2 * MINUTE, None, "bad")],
)
def test_a_clock_a_little_ahead_is_less_than_a_far_future(ahead, append, level):
    when = example((append or 0) + ahead, append)
    found = said(future=5, plausible=995, examples={"future": when})
    assert (level, "5 records (0.5 %) come from the future.") in found


def test_what_is_from_the_future_by_its_unit_alone_is_told_once():
    found = said(
        future=2,
        plausible=998,
        suspects={"seconds": 0, "microseconds": 2, "nanoseconds": 0},
        examples={"microseconds": example(1_767_225_600_000_000)},
    )
    assert not any("future" in title for _, title in found)


def producer(number, median, records=100):
    return {
        "producer_id": number,
        "records": records,
        "median_delay_ms": median,
        "p99_delay_ms": median,
        "least_delay_ms": median,
    }


def test_clocks_are_told_by_the_median_delay():
    producers = [
        producer(1, -findings.AHEAD_MS),
        producer(2, -findings.AHEAD_MS + 1),
        producer(3, findings.BEHIND_MS + 1),
        producer(4, findings.BEHIND_MS),
        producer(5, -DAY, records=findings.LEAST_RECORDS - 1),
        producer(-1, -DAY),
        producer(6, -5000),
    ]
    assert [(e["producer_id"], e["how"]) for e in findings.skewed(producers, 0)] == [
        (1, "ahead"),
        (3, "behind"),
        (6, "ahead"),
    ]
    median = 36 * findings.FAR_MS  # of a history that was written anew
    rewritten = [
        producer(1, median + 20 * findings.BEHIND_MS),
        producer(2, 2 * median + findings.BEHIND_MS + 1),
    ]
    assert [e["producer_id"] for e in findings.skewed(rewritten, median)] == [2]
    found = said(producers=producers)
    assert "producer 6" in found["warn", "2 producers with a clock that runs ahead."]
    assert "producer 3" in found["warn", "1 producer whose records come very late."]


def test_windows_have_something_to_spare():
    delay = NOTHING | {"count": 10, "min": -2 * MINUTE, "max": 50 * MINUTE, "p99_9": 4 * MINUTE}
    windows = topic(delay_ms=delay)["safe_windows"]
    assert windows == {
        "before_ms": 2 * HOUR,  # of 75 minutes
        "before_most_ms": 10 * MINUTE,  # of 6
        "after_ms": 5 * MINUTE,  # of 3
        "basis": "delay",
    }
    unknown = NOTHING | {"count": 0, "min": None, "max": None}
    late = NOTHING | {"p99_9": 1, "max": DAY}
    windows = topic(delay_ms=unknown, lateness_ms=late)["safe_windows"]
    assert windows == {
        "before_ms": 2 * DAY,
        "before_most_ms": 5_000,
        "after_ms": None,
        "basis": "lateness",
    }


@pytest.mark.parametrize("by_append", [False, True])
def test_a_retention_that_loses_what_comes_late_is_told(by_append):
    own = {"retention_ms": DAY, "by_append": by_append}
    beyond = [{"limit_ms": HOUR, "records": 9}, {"limit_ms": DAY, "records": 4}]
    found = said(settings=own, beyond_before=beyond)
    assert (("bad", "4 records older than retention.ms=1d on arrival.") in found) != by_append


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0"),
        (None, "\N{EN DASH}"),
        (999, "999 ms"),
        (1000, "1 s"),
        (-1500, "\N{MINUS SIGN}1.5 s"),
        (59_999, "60 s"),
        (90 * MINUTE, "1.5 h"),
        (DAY, "1 day"),
        (36 * HOUR, "1.5 days"),
        (31_557_600_000, "1 year"),
        (2**63, "292,277,025 years"),
    ],
)
def test_a_span_is_written_as_people_read_it(ms, text):
    assert units.span(ms) in (text, text.replace("292,277,025", "2.92e+08"))


@given(st.integers(1, 10**15))
def test_a_setting_reads_back_exactly_and_a_rounded_span_is_no_less(ms):
    from tidelog.config.instants import parse_duration

    assert parse_duration(units.setting(ms)) == ms
    rounded = units.rounded_up(ms)
    assert rounded >= ms
    assert units.rounded_up(rounded) == rounded


@given(st.integers(1, 10**12), st.data())
def test_a_share_never_reads_as_nothing_or_all_unless_it_is(whole, data):
    part = data.draw(st.integers(0, whole))
    text = units.share(part, whole)
    assert (text == "0 %") == (part == 0)
    assert (text == "100 %") == (part == whole)
    assert (float(text.strip("<> %")) == 100) == (part == whole)
