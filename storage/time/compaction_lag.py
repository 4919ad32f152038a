"""How long records stay before compaction may clean them, or must (KIP-58, KIP-354)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.time.timestamp import earlier

if TYPE_CHECKING:
    from tidelog.storage.time.segment_times import SegmentTimes


def is_past_min_lag(times: SegmentTimes, now_ms: int, lag_ms: int) -> bool:
    """Returns whether every record of a segment is older than min.compaction.lag.ms (`lag_ms`).

    The age of a record counts from its record time, or from its append time if that is smaller.
    Otherwise a record from the future would keep the segments behind it from compaction.
    """
    return times.aging is None or now_ms - times.aging >= lag_ms


def written_from(times: SegmentTimes) -> int | None:
    """Returns the first record time or the first append time of a segment, the smaller one.

    The moment of its adoption stands in for an unknown append time.
    """
    created = times.created_clock if times.created is None else times.created
    return earlier(times.first, created)


def overdue(since_ms: int | None, now_ms: int, lag_ms: int) -> int:
    """Returns for how many ms a state that began at `since_ms` has exceeded its limit.

    0 if it has not.
    """
    return 0 if since_ms is None else max(now_ms - since_ms - lag_ms, 0)
