"""Spark filters that reduce what is read, and which of them Spark has to apply again.

The rows that are read may be too many for the latter, but never too few. A filter on `timestamp_ms` is
used only if it excludes the value -1: records without a time have it, and reading by event time leaves
them out.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar

from tidelog.pipeline.source.levels import MOST_US
from tidelog.pipeline.source.splits import NO_END, Within
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.pipeline.archive.reading import Bounds
    from tidelog.pipeline.archive.selecting import Query
    from tidelog.pipeline.source.splits import Selection

    _Limited = TypeVar("_Limited", Selection, Bounds)

_LOW: Final = -(2**63)
_END: Final = 2**63  # not included
_EQUALITIES: Final = ("EqualTo", "EqualNullSafe", "In")
_COMPARISONS: Final = (
    "EqualTo",
    "GreaterThan",
    "GreaterThanOrEqual",
    "LessThan",
    "LessThanOrEqual",
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def narrowed(selection: Selection, filters: Iterable[Any], *, of_records: bool) -> Selection:
    """Returns a selection reduced by filters; `of_records`: each row is a record."""
    given = [one for one in filters if len(getattr(one, "attribute", ())) == 1]
    within = Within(_allowed(given, "topic"), _allowed(given, "partition"))
    if of_records:
        low, end = _span(given, "offset")
        within = replace(within, low_offset=max(low, 0), end_offset=max(min(end, NO_END), 0))
        selection = _timed(selection, *_span(given, "timestamp_ms"))
        low, end = _instants(given)
        if (low, end) != (_LOW, _END):
            # A record without a time has no `timestamp`, so no comparison is true of it. Neither
            # is one of a record whose time does not fit int64 microseconds.
            selection = _limited(selection, max(low, -MOST_US), min(end, MOST_US + 1))
    return replace(selection, within=within)


def not_exact(filters: Iterable[Any], *, of_records: bool, shows_all: bool) -> list[Any]:
    """Returns the filters that exclude more than `narrowed` does.

    `shows_all`: no `timestamp` is null because its time is not plausible.
    """
    filters = list(filters)
    exact = {"topic", "partition"}
    if of_records:
        given = [one for one in filters if len(getattr(one, "attribute", ())) == 1]
        exact |= {"offset", "timestamp"} if shows_all else {"offset"}
        low, end = _span(given, "timestamp_ms")
        if low < _END and not low <= NO_TIMESTAMP < end:
            exact.add("timestamp_ms")
    return [one for one in filters if not _is_used(one, exact)]


def _is_used(one: Any, columns: set[str]) -> bool:
    """Returns whether reading applies a filter of one of these columns wholly."""
    if len(getattr(one, "attribute", ())) != 1 or one.attribute[0] not in columns:
        return False
    column, kind = str(one.attribute[0]), type(one).__name__
    if kind == "IsNotNull":
        return column != "timestamp"  # the others are never null
    if column in ("topic", "partition"):
        return kind in _EQUALITIES
    if column == "timestamp":
        return kind in _COMPARISONS and _is_instant(one.value)
    return kind in _COMPARISONS and isinstance(one.value, int)


def narrowed_query(query: Query, filters: Iterable[Any]) -> Query:
    """Returns a query of an archive reduced by filters; it is as wide as they allow."""
    given = [one for one in filters if len(getattr(one, "attribute", ())) == 1]
    bounds = query.bounds
    low, end = _span(given, "offset")
    bounds = replace(bounds, low=max(low, bounds.low), high=min(end, bounds.high))
    for low, end in (_span(given, "timestamp_ms"), _instants(given)):
        if not low <= NO_TIMESTAMP < end:
            bounds = _limited(bounds, low, end)
    return replace(
        query,
        bounds=bounds,
        topics=_both(query.topics, _allowed(given, "topic")),
        partitions=_both(query.partitions, _allowed(given, "partition")),
        dates=_both(query.dates, _allowed(given, "event_date")),
    )


def _both(one: frozenset[Any] | None, other: frozenset[Any] | None) -> frozenset[Any] | None:
    return other if one is None else one if other is None else one & other


def _timed(selection: Selection, low: int, end: int) -> Selection:
    if low <= NO_TIMESTAMP < end:
        return selection
    return _limited(selection, low, end)


def _limited(selection: _Limited, low: int, end: int) -> _Limited:
    lows = [each for each in (selection.low_time, low) if each is not None and each > _LOW]
    ends = [each for each in (selection.high_time, end) if each is not None and each < _END]
    return replace(
        selection,
        low_time=min(max(lows), _END - 1) if lows else None,
        high_time=max(min(ends), _LOW) if ends else None,
    )


def _allowed(given: Sequence[Any], column: str) -> frozenset[Any] | None:
    """Returns the values that a column may have; None: any."""
    allowed: frozenset[Any] | None = None
    for one in given:
        kind = type(one).__name__
        if one.attribute[0] != column or kind not in _EQUALITIES:
            continue
        values = frozenset(one.value) if kind == "In" else frozenset([one.value])
        allowed = values if allowed is None else allowed & values
    return allowed


def _span(given: Sequence[Any], column: str) -> tuple[int, int]:
    """Returns the range of values that the filters allow in a column: its first value and its end.

    The end is not in the range. A column without a filter has the whole range of int64.
    """
    low, end = _LOW, _END
    for one in given:
        kind, value = type(one).__name__, getattr(one, "value", None)
        if one.attribute[0] != column or not isinstance(value, int):
            continue
        if kind in ("EqualTo", "GreaterThanOrEqual"):
            low = max(low, value)
        elif kind == "GreaterThan":
            low = max(low, value + 1)
        if kind in ("EqualTo", "LessThanOrEqual"):
            end = min(end, value + 1)
        elif kind == "LessThan":
            end = min(end, value)
    return low, end


def _instants(given: Sequence[Any]) -> tuple[int, int]:
    """Returns the first millisecond that `timestamp` may have, and the one after the last."""
    low, end = _LOW, _END
    for one in given:
        kind, value = type(one).__name__, getattr(one, "value", None)
        if one.attribute[0] != "timestamp" or not _is_instant(value):
            continue
        whole, rest = divmod(_micros(value), 1000)
        if kind in ("EqualTo", "GreaterThanOrEqual"):
            low = max(low, whole + bool(rest))
        elif kind == "GreaterThan":
            low = max(low, whole + 1)
        if kind in ("EqualTo", "LessThanOrEqual"):
            end = min(end, whole + 1)
        elif kind == "LessThan":
            end = min(end, whole + bool(rest))
    return low, end


def _is_instant(value: Any) -> TypeGuard[datetime]:
    return isinstance(value, datetime) and value.tzinfo is not None


def _micros(value: datetime) -> int:
    """Returns the microseconds since 1970 of a value as Spark hands it over, with its zone."""
    return (value - _EPOCH) // timedelta(microseconds=1)
