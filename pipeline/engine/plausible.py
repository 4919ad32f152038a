"""Decides which times of records cannot be right, by the broker's own rules, over columns.

- future: a time is more than a margin after its append time, or after the current time if the
  append time is unknown.
- in another unit: it was probably meant in seconds, microseconds or nanoseconds
  (`storage.time.arrivals`).

Every job that must not be misled by a few absurd times asks here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.time.arrivals import unit_mismatch_ranges, usual_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

UNKNOWN: Final = -(2**63)
"""An unknown append time, as in `.appendtimes`."""

MARGIN_MS: Final = 60_000
"""How far after its append time a time may be, where nobody says: clocks differ a little."""

_MOST: Final = 2**63 - 1


def are_odd(
    timestamp_ms: Ints, append_time_ms: Ints, now_ms: int, margin_ms: int = MARGIN_MS
) -> Bools:
    """Returns which times cannot be right. An append time may be UNKNOWN."""
    odd = np.zeros(len(timestamp_ms), np.bool_)
    if not len(timestamp_ms):
        return odd
    for _, meant in in_other_units(timestamp_ms, now_ms):
        odd |= meant
    future = from_the_future(timestamp_ms, append_time_ms, now_ms, margin_ms)
    return odd if future is None else odd | future


def in_other_units(timestamp_ms: Ints, now_ms: int) -> Iterator[tuple[str, Bools]]:
    """Yields (unit, which times were probably meant in it); a time has one unit at most."""
    low, high = usual_range(now_ms)
    unusual = (timestamp_ms < low) | (timestamp_ms > high)
    if not unusual.any():
        return
    for unit, first, last in unit_mismatch_ranges(now_ms):
        meant = unusual & (timestamp_ms >= first) & (timestamp_ms <= last)
        if meant.any():
            unusual &= ~meant
            yield unit, meant


def from_the_future(
    timestamp_ms: Ints, append_time_ms: Ints, now_ms: int, margin_ms: int
) -> Bools | None:
    """Returns which times are from the future, or None if there are none."""
    most = int(timestamp_ms.max())
    limit = min(now_ms + margin_ms, _MOST)
    is_unknown = append_time_ms == UNKNOWN
    if is_unknown.all():
        if most <= limit:
            return None
        future: Bools = timestamp_ms > limit
    else:
        some_unknown = bool(is_unknown.any())
        if not some_unknown and most <= int(append_time_ms.min()):
            return None
        # The sum may overflow int64 for an append time near its maximum: then no time lies beyond it.
        limits = np.minimum(append_time_ms, _MOST - margin_ms) + margin_ms
        future = timestamp_ms > (np.where(is_unknown, limit, limits) if some_unknown else limits)
    return future if future.any() else None
