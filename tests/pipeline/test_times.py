"""Times over all of int64, against datetime where datetime can count, and by hand elsewhere."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.pipeline import times

INT64 = st.integers(min_value=times.FIRST_MS, max_value=times.LAST_MS)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@given(INT64)
def test_every_time_is_read_back_as_it_was_written(time_ms):
    assert times.parse_time(times.to_iso(time_ms)) == time_ms


@given(st.datetimes(min_value=dt.datetime(1, 1, 1), max_value=dt.datetime(9999, 12, 31)))
def test_as_datetime_counts_where_it_can(moment):
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=dt.UTC)
    time_ms = (moment - EPOCH) // dt.timedelta(milliseconds=1)
    assert times.to_iso(time_ms) == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert times.date_of(time_ms) == moment.date().isoformat()


@pytest.mark.parametrize(
    ("time_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (-62135596800000, "0001-01-01T00:00:00.000Z"),
        (-62135596800001, "0000-12-31T23:59:59.999Z"),
        (-62167219200001, "-0001-12-31T23:59:59.999Z"),
        (253402300799999, "9999-12-31T23:59:59.999Z"),
        (253402300800000, "+10000-01-01T00:00:00.000Z"),
        (-377736739200001, "-10001-12-31T23:59:59.999Z"),
        (times.LAST_MS, "+292278994-08-17T07:12:55.807Z"),
        (times.FIRST_MS, "-292275055-05-16T16:47:04.192Z"),
    ],
)
def test_known_times(time_ms, text):
    assert times.parse_time(text) == time_ms
    assert times.to_iso(time_ms) == text


@pytest.mark.parametrize(
    "text", ["+292278994-08-17T07:12:55.808Z", "-292275055-05-16T16:47:04.191Z"]
)
def test_beyond_int64_is_refused(text):
    with pytest.raises(ValueError, match="outside the range of times"):
        times.parse_time(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("2026-01-01T00:00+01:99", "'2026-01-01T00:00+01:99': there is no zone +01:99"),
        ("+12026-01-01T00:00+01:99", "'+12026-01-01T00:00+01:99': there is no zone +01:99"),
        ("+12026-02-29T00:00Z", "'+12026-02-29T00:00Z': there is no such day"),
        ("+12026-01-01T00:00", "'+12026-01-01T00:00' does not say its zone"),
        ("+12026-01", "'+12026-01' is no time: expected +12026-01-01T00:00Z"),
    ],
)
def test_a_mistake_is_told_as_it_was_made(text, sentence):
    with pytest.raises(ValueError, match="'") as caught:
        times.parse_time(text)
    assert str(caught.value).startswith(sentence)
    with pytest.raises(ValueError, match="'"):
        times.to_ms(text, "iso")


@pytest.mark.parametrize("text", ["now", "-2h", "+7d"])
def test_what_is_told_from_now_on_needs_a_now(text):
    with pytest.raises(ValueError, match="relative to now"):
        times.parse_time(text)
    assert (
        times.parse_time(text, 10**12)
        == 10**12 + {"now": 0, "-2h": -7_200_000, "+7d": 604_800_000}[text]
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-01-01T00:00",
        "2026-02-29T00:00Z",
        "+12026-13-01T00:00Z",
        "+12026-01-01T00:00",
    ],
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError):
        times.parse_time(text)


@pytest.mark.parametrize(
    ("value", "unit", "time_ms"),
    [
        (-1, "s", -1000),
        (0, "ms", 0),
        (-1, "us", -1),
        (-1000, "us", -1),
        (-1001, "us", -2),
        (999_999, "ns", 0),
        (-1, "ns", -1),
        ("-0044-03-15T12:00Z", "iso", -63549316800000),
    ],
)
def test_units_are_cut_down_by_floor(value, unit, time_ms):
    assert times.to_ms(value, unit) == time_ms


@pytest.mark.parametrize(("value", "unit"), [("5", "iso"), (5, "iso"), ("x", "ms"), (2**62, "s")])
def test_values_that_are_not_of_their_unit_are_refused(value, unit):
    with pytest.raises(ValueError):
        times.to_ms(value, unit)


def test_days_and_hours_are_those_they_belong_to():
    assert times.date_of(-1) == "1969-12-31"
    assert times.date_of(253402300800000) == "+10000-01-01"
    assert times.hour_of(-1) == -3_600_000
    assert times.hour_of(3_600_000) == 3_600_000
