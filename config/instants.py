"""Times and spans as people write them, and times as they read them.

A time is an int of milliseconds since the epoch, over all of int64; a span is an int of milliseconds.
Pure: where a time is told from now on, `now_ms` is an argument. The calendar is the Gregorian one, also
before it was in use; year 0 is the one before year 1, as ISO 8601 counts. Years before 0 have a sign, years
beyond four digits a sign and more digits: -0044-03-15T00:00Z, +12026-01-01T00:00Z. So every time has a text.
Every refusal is a ValueError of one sentence.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import overload

FIRST_MS = -(2**63)
LAST_MS = 2**63 - 1

_UNITS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_DAY_MS = 86_400_000
_MINUTE_MS = 60_000
_YEAR_MS = 31_557_600_000
_MOST_TIMES = 16
_YEARS_FROM_MS = 2 * _YEAR_MS
# Numbers that would be times between 2001 and 2286, and what makes milliseconds of them.
_OTHER_UNITS = (
    ("seconds", 10**9, 10**10, 1000, 1),
    ("microseconds", 10**15, 10**16, 1, 1000),
    ("nanoseconds", 10**18, 10**19, 1, 1_000_000),
)
_INTEGER = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
_SPAN = re.compile(r"([+-]?)((?:[0-9]{1,19}(?:\.[0-9]{1,9})?(?:ms|[smhdw]))+)", re.ASCII)
_SPAN_PART = re.compile(r"([0-9]+)(?:\.([0-9]+))?(ms|[smhdw])", re.ASCII)
_ISO = re.compile(
    r"([+-]?[0-9]{4}|[+-][0-9]{5,9})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,9}))?)?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?",
    re.ASCII | re.IGNORECASE,
)
_LONG_YEAR = re.compile(r"[+-][0-9]{5,9}-", re.ASCII)
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def parse_instant(value: int | str, now_ms: int) -> int:
    """Returns the time in ms since the epoch of a text: ms, ISO time with zone, "now", or a span.

    A span has a sign: "-2h" is two hours before `now_ms`, "+7d" seven days after it. A bare number
    is milliseconds since the epoch. Raises ValueError, also for a time beyond int64.
    """
    text = str(value).strip()
    if _INTEGER.fullmatch(text):
        found = int(text)
    elif text.lower() == "now":
        found = now_ms
    elif iso := _ISO.fullmatch(text):
        found = _from_iso(text, iso)
    elif _SPAN.fullmatch(text):
        if text[0] not in "+-":
            raise ValueError(f"{text!r}: before or after now? write -{text} or +{text}")
        found = now_ms + parse_duration(text)
    elif _LONG_YEAR.match(text):
        raise ValueError(f"{text!r} is not a time: expected +12026-01-01T00:00Z")
    else:
        raise ValueError(
            f"{text!r} is not a time: write 2026-01-01T00:00Z, milliseconds since 1970, or -2h for two "
            "hours ago"
        )
    if not FIRST_MS <= found <= LAST_MS:
        raise ValueError(f"{text!r} is outside the range of times: 64 bits of milliseconds")
    return found


def parse_times(text: str) -> tuple[int, ...]:
    """Returns the times in a list of up to 16 numbers of ms; -1, which means no time, is left out.

    Raises ValueError.
    """
    given = [part.strip() for part in text.split(",")] if text else []
    if len(given) > _MOST_TIMES:
        raise ValueError(f"expected at most {_MOST_TIMES} times")
    if not all(map(_INTEGER.fullmatch, given)):
        raise ValueError("expected a list of numbers of milliseconds since 1970")
    found = {int(part) for part in given}
    if any(not FIRST_MS <= time_ms <= LAST_MS for time_ms in found):
        raise ValueError("expected integers of 64 bits")
    return tuple(sorted(found - {-1}))


def suspect_unit(value: int | str) -> str | None:
    """Returns a sentence if a bare number is far from our days in ms, and near in another unit."""
    text = str(value).strip()
    if not _INTEGER.fullmatch(text):
        return None
    found = int(text)
    for unit, low, high, factor, divisor in _OTHER_UNITS:
        if low <= found < high and found <= LAST_MS:
            meant_ms = found * factor // divisor
            return f"{text} is {to_iso(found)}: if {unit} are meant, write {meant_ms} for {to_iso(meant_ms)}"
    return None


def is_local(text: str) -> bool:
    """Returns whether a text is an ISO time without a zone."""
    iso = _ISO.fullmatch(text.strip())
    return iso is not None and iso[8] is None


def parse_duration(value: int | str) -> int:
    """Returns the duration of a text in ms: "7d", "-2h", "1h30m", "1.5s"; a bare number is ms.

    Raises ValueError, also for a part of a millisecond: 0 ms would mean something else.
    """
    text = str(value).strip()
    if _INTEGER.fullmatch(text):
        return int(text)
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a span of time: write 7d, -2h, 1h30m, 1.5s or 250ms")
    total = 0
    for whole, part, unit in _SPAN_PART.findall(found[2]):
        part_ms, rest = divmod(int(part or 0) * _UNITS_MS[unit], 10 ** len(part))
        if rest:
            raise ValueError(f"{text!r} is not a whole number of milliseconds")
        total += int(whole) * _UNITS_MS[unit] + part_ms
    return -total if found[1] == "-" else total


def to_duration(span_ms: int) -> str:
    """Returns the text of a span that `parse_duration` reads back: "7d", "1h30m", "250ms"."""
    sign, left = ("-", -span_ms) if span_ms < 0 else ("", span_ms)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms"):
        count, left = divmod(left, _UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return sign + ("".join(parts) or "0ms")


def to_span(span_ms: int) -> str:
    """Returns a span as people say it, rounded: its two largest units, "58d 23h", or "10.0 years"."""
    sign, left = ("-", -span_ms) if span_ms < 0 else ("", span_ms)
    if left < _MINUTE_MS:
        return sign + (f"{left} ms" if 0 < left < 1000 else f"{left // 100 / 10:g} s")
    if left >= _YEARS_FROM_MS:
        return f"{sign}{left / _YEAR_MS:,.1f} years"
    seconds = left // 1000
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return sign + " ".join(parts[:2])


@overload
def to_iso(time_ms: int) -> str: ...


@overload
def to_iso(time_ms: None) -> None: ...


@overload
def to_iso(time_ms: int | None) -> str | None: ...


def to_iso(time_ms: int | None) -> str | None:
    """Returns a time as ISO 8601 in UTC, with milliseconds, which `parse_instant` reads.

    None for None.
    """
    if time_ms is None:
        return None
    minutes, in_minute_ms = divmod(time_ms, _MINUTE_MS)
    seconds, ms = divmod(in_minute_ms, 1000)
    return f"{_minute_of(minutes)}:{seconds:02d}.{ms:03d}Z"


@lru_cache(64)  # times that are shown together are near each other
def _minute_of(minutes: int) -> str:
    """Returns the text of a minute since the epoch, without its seconds."""
    days, minute = divmod(minutes, 1440)
    year, month, day = _date_of(days)
    shown = f"{year:04d}" if 0 <= year <= 9999 else f"{year:+05d}"
    return f"{shown}-{month:02d}-{day:02d}T{minute // 60:02d}:{minute % 60:02d}"


def _from_iso(text: str, iso: re.Match[str]) -> int:
    year, month, day = int(iso[1]), int(iso[2]), int(iso[3])
    hour, minute, second = int(iso[4] or 0), int(iso[5] or 0), int(iso[6] or 0)
    if iso[8] is None:
        raise ValueError(
            f"{text!r} does not say its zone: add Z for UTC, or an offset such as +02:00"
        )
    offset_minutes = 0
    if iso[8] not in "Zz":
        digits = iso[8][1:].replace(":", "").ljust(4, "0")
        hours, minutes = int(digits[:2]), int(digits[2:])
        if hours > 23 or minutes > 59:
            raise ValueError(
                f"{text!r}: there is no zone {iso[8]}: offsets go from -23:59 to +23:59"
            )
        offset_minutes = hours * 60 + minutes
        if iso[8][0] == "-":
            offset_minutes = -offset_minutes
    is_date = 1 <= month <= 12 and 1 <= day <= _days_in(year, month)
    if not is_date or hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r}: there is no such day or time of day")
    ms = int((iso[7] or "0").ljust(3, "0")[:3])
    in_day_ms = ((hour * 60 + minute - offset_minutes) * 60 + second) * 1000 + ms
    return _days_to(year, month, day) * _DAY_MS + in_day_ms


def _days_in(year: int, month: int) -> int:
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if month == 2 and leap else _MONTH_DAYS[month - 1]


def _days_to(year: int, month: int, day: int) -> int:
    """Returns the days from the epoch to a date; years begin in March, so leap days come last."""
    year -= month <= 2
    era, in_era = divmod(year, 400)
    in_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + in_era * 365 + in_era // 4 - in_era // 100 + in_year - 719_468


def _date_of(days: int) -> tuple[int, int, int]:
    """Returns the date `days` after the epoch: the inverse of `_days_to`."""
    era, in_era = divmod(days + 719_468, 146_097)
    year = (in_era - in_era // 1460 + in_era // 36_524 - in_era // 146_096) // 365
    in_year = in_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * in_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + year + (month <= 2), month, in_year - (153 * shifted + 2) // 5 + 1
