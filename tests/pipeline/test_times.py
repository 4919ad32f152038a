"""Times as columns and options have them; tests/config/test_instants.py has what is read and written."""

from __future__ import annotations

import pytest

from tidelog.pipeline import times


@pytest.mark.parametrize("text", ["now", "-2h", "+7d"])
def test_what_is_told_from_now_on_needs_a_now(text):
    with pytest.raises(ValueError, match="relative to now"):
        times.parse_time(text)
    assert (
        times.parse_time(text, 10**12)
        == 10**12 + {"now": 0, "-2h": -7_200_000, "+7d": 604_800_000}[text]
    )


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
