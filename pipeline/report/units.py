"""Formats numbers for people: spans, counts, shares, and axes with a logarithm of time."""

from __future__ import annotations

from typing import Final

from tidelog.pipeline.times import to_iso

NONE: Final = "\N{EN DASH}"
_MINUS: Final = "\N{MINUS SIGN}"
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_YEAR: Final = 31_557_600_000

_PARTS: Final = (
    (_YEAR, "years"),
    (_DAY, "days"),
    (_HOUR, "h"),
    (_MINUTE, "min"),
    (_SECOND, "s"),
)

_STEPS: Final = (
    *(1, 10, 100, _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND),
    *(_MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(days * _DAY for days in (1, 2, 3, 7, 14, 30, 60, 90, 180, 365)),
)

TIME_TICKS: Final = (
    *(1, 10, 100, _SECOND, 10 * _SECOND, _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY),
    *(30 * _DAY, _YEAR, 10 * _YEAR, 100 * _YEAR, 1000 * _YEAR),
)
"""Where an axis of spans has its marks."""


def span(ms: float | None) -> str:
    """Formats a span: `850 ms`, `4.2 s`, `3.5 h`, `12 days`; a dash for None."""
    if ms is None:
        return NONE
    sign, size = (_MINUS if ms < 0 else ""), abs(ms)
    for unit_ms, unit in _PARTS:
        if size >= unit_ms:
            return f"{sign}{_short(size / unit_ms)} {_one(unit, size / unit_ms)}"
    return f"{sign}{_short(size)} ms" if size else "0"


def setting(ms: int) -> str:
    """Formats a span as settings take it, exactly: `7d`, `36h`, `90s`, `250ms`."""
    for unit_ms, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m"), (_SECOND, "s")):
        if ms and ms % unit_ms == 0:
            return f"{ms // unit_ms}{unit}"
    return f"{ms}ms"


def tick(ms: float) -> str:
    """Formats a mark of an axis of spans."""
    return (
        span(ms)
        .replace(" days", " d")
        .replace(" day", " d")
        .replace(" years", " y")
        .replace(" year", " y")
    )


def rounded_up(ms: float) -> int:
    """Returns the next round span at or above this one, as a person would set it."""
    for step in _STEPS:
        if step >= ms:
            return step
    return -(-int(ms) // (365 * _DAY)) * 365 * _DAY


def count(number: int | None) -> str:
    """Formats a count with a separator for thousands."""
    return NONE if number is None else f"{number:,}"


def share(part: int, whole: int) -> str:
    """Formats a share in per cent; only 0 is shown as 0 %, and only the whole as 100 %."""
    if not whole or not part:
        return "0 %"
    if part == whole:
        return "100 %"
    percent = 100 * part / whole
    if percent < 0.001:
        return "< 0.001 %"
    if percent > 99.9:
        return "> 99.9 %"
    return f"{percent:.3g} %" if percent < 10 else f"{percent:.1f} %"


def moment(ms: int | None) -> str:
    """Formats a time as ISO 8601, without milliseconds if they are 0; a dash for None."""
    if ms is None:
        return NONE
    return to_iso(ms).replace(".000Z", "Z").replace("T", " ")


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value:.3g}"
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _one(unit: str, value: float) -> str:
    return unit[:-1] if _short(value) == "1" and unit in ("years", "days") else unit
