"""Parses and formats times for the pipeline: int milliseconds <-> ISO 8601, over all of int64.

The calendar is the proleptic Gregorian one with a year 0, as ISO 8601 counts. Years before 1 and
after 9999 have a sign and more digits (`+12026-01-01T00:00Z`). Finer units are rounded down to
milliseconds, before 1970 too. Nothing here creates a datetime, because that supports only the years
1 to 9999.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from tidelog.config.instants import (
    FIRST_MS,
    LAST_MS,
    is_local,
    parse_duration,
    parse_instant,
    to_iso,
)

__all__ = [
    "FIRST_MS",
    "LAST_MS",
    "UNITS",
    "Unit",
    "date_of",
    "hour_of",
    "is_local",
    "is_relative",
    "parse_duration",
    "parse_time",
    "to_iso",
    "to_ms",
]

Unit = Literal["s", "ms", "us", "ns", "iso"]
UNITS: Final[tuple[Unit, ...]] = get_args(Unit)
"""The units in which a column may contain times."""

_DAY_MS: Final = 86_400_000
_PER_UNIT: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}


def parse_time(value: int | str, now_ms: int | None = None) -> int:
    """Returns a time in ms: from milliseconds, an ISO time with its zone, or a span from `now_ms`.

    Raises ValueError with one sentence for an invalid time, for one outside int64, and for "now" or
    a span without a `now_ms`.
    """
    text = str(value).strip()
    if now_ms is None:
        if is_relative(text):
            raise ValueError(f"{text!r} is relative to now: give an ISO time or milliseconds")
        return parse_instant(text, 0)
    return parse_instant(text, now_ms)


def is_relative(value: int | str) -> bool:
    """Returns whether a time is "now" or a span from now. Raises ValueError if it is not a time."""
    return parse_instant(str(value), 0) != parse_instant(str(value), 1)


def date_of(time_ms: int) -> str:
    """Returns the UTC day of a time, `2026-01-31` or `-0044-03-15`.

    -1 ms is in the day before 1970.
    """
    return to_iso(time_ms).partition("T")[0]


def hour_of(time_ms: int) -> int:
    """Returns the first millisecond of the hour that contains a time."""
    return time_ms - time_ms % 3_600_000


def to_ms(value: int | str, unit: Unit) -> int:
    """Returns a value of a column in milliseconds, finer units rounded down. Raises ValueError."""
    if unit == "iso":
        if isinstance(value, int) or _is_number(value):
            raise ValueError(f"{value!r} is a number, not an ISO time: name its unit")
        return parse_time(value)
    factor, divisor = _PER_UNIT[unit]
    try:
        found = int(value) * factor // divisor
    except ValueError:
        raise ValueError(f"{value!r} is not a whole number of {unit}") from None
    if not FIRST_MS <= found <= LAST_MS:
        raise ValueError(f"{value!r} {unit} is outside the range of times: 64 bits of milliseconds")
    return found


def _is_number(text: str) -> bool:
    return text.strip().lstrip("+-").isdecimal()
