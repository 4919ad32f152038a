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

from tidelog.storage.time.arrivals import unit_mismatch_ranges, usual_range

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
    timestamp_ms: Ints, append_time_ms: Ints, now_ms: int, margin_ms: int, most: int | None = None
) -> Bools | None:
    """Returns which times are from the future, or None if there are none.

    `most` is the largest time, if the caller knows it.
    """
    most = int(timestamp_ms.max()) if most is None else most
    limit = min(now_ms + margin_ms, _MOST)
    least_append = int(append_time_ms.min())  # UNKNOWN is the smallest there is
    if least_append == UNKNOWN:
        is_unknown = append_time_ms == UNKNOWN
        if is_unknown.all() and most <= limit:
            return None
        limits = np.where(is_unknown, limit, _beyond(append_time_ms, margin_ms))
    else:
        if most <= least_append:
            return None
        limits = _beyond(append_time_ms, margin_ms)
    future: Bools = timestamp_ms > limits
    return future if future.any() else None


def _beyond(append_time_ms: Ints, margin_ms: int) -> Ints:
    """Returns append times and the margin; one near the largest int64 stops there."""
    return np.minimum(append_time_ms, _MOST - margin_ms) + margin_ms
