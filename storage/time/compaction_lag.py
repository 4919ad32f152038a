"""How long records stay before compaction may, or must, clean them (KIP-58, KIP-354)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.time.timestamp import earlier

if TYPE_CHECKING:
    from storage.time.segment_times import SegmentTimes


def is_past_min_lag(times: SegmentTimes, now_ms: int, lag_ms: int) -> bool:
    """Tell whether every record of a segment is old enough to be compacted (min.compaction.lag.ms).

    By record time, none counted as later than it was appended: a record from the future would
    keep what lies behind it from compaction for as long.
    """
    return times.aging is None or now_ms - times.aging >= lag_ms


def written_from(times: SegmentTimes) -> int | None:
    """Return since when a segment holds something, by its first record or its first append."""
    return earlier(times.first, times.created)


def overdue(since_ms: int | None, now_ms: int, lag_ms: int) -> int:
    """Return for how long something has been left longer than it may be; 0 where it has not."""
    return 0 if since_ms is None else max(now_ms - since_ms - lag_ms, 0)
