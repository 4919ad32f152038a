"""Times and spans as text: against datetime where that reaches, by their own rules beyond it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.config.instants import parse_duration, parse_instant, to_duration, to_iso, to_span

NOW_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
CYCLE_MS = 146_097 * 86_400_000  # 400 years, after which the calendar repeats
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        (5, 5),
        ("-2", -2),
        (" 17 ", 17),
        ("now", NOW_MS),
        ("-2h", NOW_MS - 7_200_000),
        ("+7d", NOW_MS + 7 * 86_400_000),
        ("-1h30m", NOW_MS - 5_400_000),
        ("2026-01-01T00:00Z", NOW_MS),
        ("2026-01-01Z", NOW_MS),
        ("2026-01-01 01:00:00.0009+01:00", NOW_MS),
        ("2025-12-31T19:00-0500", NOW_MS),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1960-02-29T12:00Z", -310_478_400_000),
        ("0000-03-01T00:00Z", -62_162_035_200_000),
        ("-0001-03-01T00:00Z", -62_162_035_200_000 - 366 * 86_400_000),
        ("-0044-03-15T00:00Z", -435_456_000_000 - 5 * CYCLE_MS),  # as in 1956
        ("+12026-01-01T00:00Z", NOW_MS + 25 * CYCLE_MS),
        ("+12026-01-01T01:00+01:00", NOW_MS + 25 * CYCLE_MS),
        ("+012026-01-01T00:00Z", NOW_MS + 25 * CYCLE_MS),
        ("+2026-01-01T00:00Z", NOW_MS),
        ("-10000-03-01T00:00Z", 951_868_800_000 - 30 * CYCLE_MS),
        ("+292278994-08-17T07:12:55.807Z", 2**63 - 1),
        ("-292275055-05-16T16:47:04.192Z", -(2**63)),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        ("1970-01-01T00:00+23:59", -86_340_000),
        ("1970-01-01T00:00-2359", 86_340_000),
    ],
)
def test_a_time(text, time_ms):
    assert parse_instant(text, NOW_MS) == time_ms


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("2h", "'2h': before or after now? write -2h or +2h"),
        ("yesterday", "'yesterday' is not a time: write 2026-01-01T00:00Z, milliseconds"),
        ("2026-01-01", "does not say its zone: add Z for UTC"),
        ("2026-02-29T00:00Z", "there is no such day"),
        ("2026-13-01T00:00Z", "there is no such day"),
        ("2026-01-01T24:00Z", "there is no such day or time of day"),
        ("2026-01-01T00:00+01:99", "there is no zone +01:99: offsets go from -23:59 to +23:59"),
        ("2026-01-01T00:00-0160", "there is no zone -0160"),
        ("2026-01-01T00:00+24:00", "there is no zone +24:00"),
        ("2026-01-01T00:00-99", "there is no zone -99"),
        ("12026-01-01T00:00Z", "is not a time"),
        ("+12026-02-29T00:00Z", "there is no such day"),
        ("+292278994-08-17T07:12:55.808Z", "is outside the range of times"),
        ("-292275055-05-16T16:47:04.191Z", "is outside the range of times"),
        (2**63, "is outside the range of times"),
        ("1.5", "is not a time"),
        ("\u0661", "is not a time"),
        ("", "is not a time"),
        (True, "is not a time"),
    ],
)
def test_what_is_no_time(text, sentence):
    with pytest.raises(ValueError, match="'") as caught:
        parse_instant(text, NOW_MS)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "span_ms"),
    [
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("-2h", -7_200_000),
        ("1h30m", 5_400_000),
        ("1.5s", 1_500),
        ("0.25s", 250),
        ("250ms", 250),
        (-30, -30),
        ("+12", 12),
    ],
)
def test_a_span(text, span_ms):
    assert parse_duration(text) == span_ms


@pytest.mark.parametrize("text", ["", "h", "7 d", "7y", "--7d", "1.d", "P7D"])
def test_what_is_no_span(text):
    with pytest.raises(ValueError, match="is not a span of time: write 7d"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["0.25ms", "1.5ms", "-0.0001s"])
def test_a_part_of_a_millisecond_is_no_span(text):
    with pytest.raises(ValueError, match=f"'{text}' is not a whole number of milliseconds"):
        parse_duration(text)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_as_datetime_has_it(time_ms):
    shown = (EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")
    assert to_iso(time_ms) == shown.replace("+00:00", "Z")
    assert parse_instant(shown, 0) == time_ms


@given(st.integers(-(2**63), 2**63 - 1))
def test_what_is_shown_is_read_again(time_ms):
    assert parse_instant(to_iso(time_ms), 0) == time_ms


@given(st.integers(-700_000, 700_000), st.integers(0, 146_096))
def test_the_calendar_repeats_every_400_years(cycles, day):
    inside = to_iso(-62_135_596_800_000 + day * 86_400_000)  # the years 1 to 400
    shown = to_iso(-62_135_596_800_000 + (day + cycles * 146_097) * 86_400_000)
    assert shown[-20:] == inside[-20:]
    assert int(shown[:-20]) == int(inside[:-20]) + 400 * cycles


def test_years_that_have_a_sign():
    assert to_iso(None) is None
    assert to_iso(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert to_iso(253_402_300_800_000) == "+10000-01-01T00:00:00.000Z"
    assert to_iso(-62_167_219_200_000) == "0000-01-01T00:00:00.000Z"
    assert to_iso(-62_167_219_200_001) == "-0001-12-31T23:59:59.999Z"
    first = parse_instant("-9999-01-01T00:00Z", 0)
    assert to_iso(first) == "-9999-01-01T00:00:00.000Z"
    assert to_iso(first - 1) == "-10000-12-31T23:59:59.999Z"
    assert to_iso(-(2**63)) == "-292275055-05-16T16:47:04.192Z"
    assert to_iso(2**63 - 1) == "+292278994-08-17T07:12:55.807Z"


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0ms"),
        (250, "250ms"),
        (604_800_000, "7d"),
        (5_400_000, "1h30m"),
        (-90_061_001, "-1d1h1m1s1ms"),
        (2**63 - 1, "106751991167d7h12m55s807ms"),
    ],
)
def test_a_duration_as_it_is_set(span_ms, text):
    assert to_duration(span_ms) == text


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_duration_is_read_back(span_ms):
    assert parse_duration(to_duration(span_ms)) == span_ms


@pytest.mark.parametrize(
    ("span_ms", "text"),
    [
        (0, "0 s"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (59_999, "59.9 s"),
        (60_000, "1m 0s"),
        (5_400_000, "1h 30m"),
        (-90_000_000, "-1d 1h"),
        (86_400_000 * 365, "365d 0h"),
        (NOW_MS + 3, "56.0 years"),
    ],
)
def test_a_span_as_people_say_it(span_ms, text):
    assert to_span(span_ms) == text
