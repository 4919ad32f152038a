"""How long tombstones and idle transaction markers stay after a cleaning (delete.retention.ms, KIP-534).

The first cleaning that finds a tombstone in format 2 writes a delete horizon into its batch. From
that moment on a cleaning may drop it. Formats 0 and 1 have no place for a horizon: there a
tombstone is dropped if its segment was last appended to delete.retention.ms before the segments
that were clean already, as Kafka did before KIP-534, or if the log was last cleaned as long ago
(`compaction/horizons.py`).
"""

from __future__ import annotations

from tidelog.storage.time.event_time import capped
from tidelog.storage.time.timestamp import MIN_TIMESTAMP, is_due

_EARLIEST = MIN_TIMESTAMP + 1  # in `partition.times`, the least number means that there is none


def delete_horizon(now_ms: int, delete_retention_ms: int) -> int:
    """Returns the delete horizon of what a cleaning finds now.

    Never -1, which would mean no time.
    """
    return capped(now_ms, delete_retention_ms)


def is_past_horizon(delete_horizon_ms: int | None, now_ms: int) -> bool:
    """Returns whether a batch's delete horizon has come.

    A batch without one (None) is never past it.
    """
    return delete_horizon_ms is not None and is_due(delete_horizon_ms, now_ms)


def with_late_horizons(before: tuple[int, int] | None, from_ms: int, to_ms: int) -> tuple[int, int]:
    """Returns which delete horizons are too early after another time in which the clock was behind.

    `from_ms` is what the clock showed first then, `to_ms` what it showed when it was corrected.
    """
    from_ms = max(from_ms, _EARLIEST)
    if before is None:
        return from_ms, to_ms
    return min(before[0], from_ms), max(before[1], to_ms)


def late_horizons_by(before: tuple[int, int] | None, now_ms: int) -> tuple[int, int] | None:
    """Returns which delete horizons are too early once the clock went back to `now_ms`.

    What the clock corrected was found by then.
    """
    return None if before is None else (before[0], min(before[1], now_ms))


def counted_horizon(
    delete_horizon_ms: int | None, late_horizons: tuple[int, int] | None, delete_retention_ms: int
) -> int | None:
    """Returns what a batch's delete horizon counts as after a clock was behind; None without one.

    `late_horizons` are the first time that the clock showed while it was behind, and the time at
    which it was corrected; None if it never was. Horizons of that time are too early: they count as
    if they had been written when the clock was corrected.
    """
    if delete_horizon_ms is None or late_horizons is None:
        return delete_horizon_ms
    from_ms, to_ms = late_horizons
    least_ms = delete_horizon(to_ms, delete_retention_ms)
    return least_ms if from_ms <= delete_horizon_ms < least_ms else delete_horizon_ms


def old_format_horizon(
    clean_until_ms: int | None, delete_retention_ms: int, now_ms: int
) -> int | None:
    """Returns the append time up to which segments lose their tombstones of formats 0 and 1.

    `clean_until_ms` is the last append time of the section that was clean already; None if there
    is none, and then all tombstones stay. A clock that has leapt may have given it, so it counts at
    most as `now_ms`, the time by which may be deleted.
    """
    return None if clean_until_ms is None else min(clean_until_ms, now_ms) - delete_retention_ms


def keeps_old_tombstones(last_append_ms: int, horizon_ms: int | None) -> bool:
    """Returns whether a segment appended last then keeps its tombstones of formats 0 and 1."""
    return horizon_ms is None or last_append_ms > horizon_ms
