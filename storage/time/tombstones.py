"""How long tombstones and idle transaction markers stay after a cleaning (delete.retention.ms, KIP-534).

The first cleaning that finds a tombstone in format 2 writes a delete horizon into its batch. From
that moment on a cleaning may drop it. Formats 0 and 1 have no place for a horizon: there a
tombstone is dropped if its segment was last appended to delete.retention.ms before the segments
that were clean already, as Kafka did before KIP-534.
"""

from __future__ import annotations

from storage.time.event_time import capped
from storage.time.timestamp import is_due


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


def old_format_horizon(clean_until_ms: int | None, delete_retention_ms: int) -> int | None:
    """Returns the append time up to which segments lose their tombstones of formats 0 and 1.

    `clean_until_ms` is the last append time of the section that was clean already; None if there
    is none, and then all tombstones stay.
    """
    return None if clean_until_ms is None else clean_until_ms - delete_retention_ms


def keeps_old_tombstones(last_append_ms: int, horizon_ms: int | None) -> bool:
    """Returns whether a segment appended last then keeps its tombstones of formats 0 and 1."""
    return horizon_ms is None or last_append_ms > horizon_ms
