"""Which segments of a log may be compacted now, and whether it is due: Kafka's rules, pure.

The log is clean up to where the last cleaning ended; the rest is the dirty section. Of that,
compaction may clean the segments that are below the high watermark, not active, and older than
min.compaction.lag.ms. Cleaning is due when more than min.cleanable.dirty.ratio of the bytes are
dirty, when a record has been dirty for longer than max.compaction.lag.ms, or when a delete horizon
has come since the last cleaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.setting import LONG_MAX
from tidelog.storage.time.compaction_lag import is_past_min_lag, overdue, written_from
from tidelog.storage.time.timestamp import earlier
from tidelog.storage.time.tombstones import is_past_horizon

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.time.segment_times import SegmentTimes

TIMESTAMP = "timestamp"  # the compaction.strategy by which the newest record time wins

# What keeps a log from being cleaned: `DirtySection.held_by`.
NOTHING = "nothing dirty"
LAG = "min.compaction.lag.ms"
NOT_SEEN = "high watermark"
RATIO = "min.cleanable.dirty.ratio"


class CompactionRules(NamedTuple):
    """A topic's settings for compaction."""

    min_lag_ms: int
    max_lag_ms: int
    has_max_lag: bool
    min_ratio: float


class SealedSegment(NamedTuple):
    """A sealed segment. `times` may read the log, so it is called only where times decide."""

    end_offset: int
    size: int
    times: Callable[[], SegmentTimes]


class DirtySection(NamedTuple):
    """What there is to clean in a log."""

    first_dirty_offset: int
    upper_offset: int  # only what lies before it may be cleaned
    clean_bytes: int
    dirty_bytes: int  # dirty, and before the upper offset
    ratio: float  # of dirty bytes to clean and dirty bytes
    delay_ms: int  # by how much the oldest dirty record exceeds max.compaction.lag.ms
    held_by: str | None  # why it is not cleaned now; None: it is due

    @property
    def is_due(self) -> bool:
        """Whether cleaning is due now."""
        return self.held_by is None


def rules_of(config: TopicConfig) -> CompactionRules:
    """Returns a topic's settings for compaction."""
    max_lag_ms = config.max_compaction_lag_ms
    return CompactionRules(
        config.min_compaction_lag_ms,
        max_lag_ms,
        max_lag_ms != LONG_MAX,
        config.min_cleanable_dirty_ratio,
    )


def first_dirty(cleaned_offset: int | None, log_start_offset: int, log_end_offset: int) -> int:
    """Returns the offset at which the dirty section begins, given the offset in the checkpoint."""
    if cleaned_offset is None or not log_start_offset <= cleaned_offset <= log_end_offset:
        return log_start_offset
    return cleaned_offset


def judge(
    parts: Sequence[SealedSegment],
    first_dirty_offset: int,
    limit_offset: int,
    rules: CompactionRules,
    now_ms: int,
    horizon_ms: int | None = None,
) -> DirtySection:
    """Returns the dirty section of some sealed segments, and whether cleaning it is due.

    Segments that reach beyond `limit_offset` are not cleaned. `horizon_ms` is the first delete horizon
    of the clean section that no cleaning has met.
    """
    upper_offset, held_by = first_dirty_offset, NOTHING
    dirty_since: int | None = None
    clean_bytes = dirty_bytes = 0
    is_open = True  # nothing before this segment holds it back
    for end_offset, size, times in parts:
        if end_offset <= first_dirty_offset:
            clean_bytes += size
            upper_offset = max(upper_offset, end_offset)
            continue
        if is_open and end_offset > limit_offset:
            is_open, held_by = False, NOT_SEEN
        if is_open and rules.min_lag_ms and not is_past_min_lag(times(), now_ms, rules.min_lag_ms):
            is_open, held_by = False, LAG
        if rules.has_max_lag:
            dirty_since = earlier(written_from(times()), dirty_since)
        if not is_open:
            continue
        upper_offset = end_offset
        dirty_bytes += size  # also where memory for keys ended within it the last time
    total = clean_bytes + dirty_bytes
    ratio = dirty_bytes / total if total else 0.0
    delay_ms = overdue(dirty_since, now_ms, rules.max_lag_ms)
    can_go_on = upper_offset > first_dirty_offset and dirty_bytes > 0
    why: str | None = held_by
    if can_go_on:
        why = None if delay_ms or ratio > rules.min_ratio else RATIO
    if clean_bytes and is_past_horizon(horizon_ms, now_ms):
        why = None
    return DirtySection(
        first_dirty_offset, upper_offset, clean_bytes, dirty_bytes, ratio, delay_ms, why
    )
