"""How far ahead of its append time a record time may count (event.time.ahead.max.ms).

The limit holds for partition.maxEventTime, and where compaction compares the times of records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.timestamp import MAX_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig

EVENT_SLACK_MS = 3_600_000  # the default of event.time.ahead.max.ms


def event_limit(slack_ms: int, append_time_ms: int) -> int:
    """Returns the largest event time that a record appended now can count as.

    The limit keeps one absurd stamp from expiring the rest of the log.
    """
    limit = append_time_ms + slack_ms
    return limit if 0 <= limit <= MAX_TIMESTAMP else capped(limit, 0)


def counted_limit(event_limit: int, append_time_ms: int, counted: int | None) -> int:
    """Returns the limit of event times of a batch that was counted before, when it was another.

    `counted` is the largest that any counted as; None: it is not known, or there was none. It limits
    times of the future alone: others count as they are under any limit.
    """
    return event_limit if counted is None else min(event_limit, max(counted, append_time_ms))


def capped(append_time_ms: int, slack_ms: int) -> int:
    """Returns the time `slack_ms` after an append time, never -1, which would mean no time."""
    limit = min(append_time_ms + slack_ms, MAX_TIMESTAMP)
    return 0 if limit == NO_TIMESTAMP else limit


def comparison_limit(append_time_ms: int, slack_ms: int) -> int:
    """Returns the largest record time that counts when compaction.strategy=timestamp compares records.

    So a record from the future gives way to updates that are written `slack_ms` after it, and does
    not stay for ever. Where the append time is unknown, the moment of adoption takes its place. The
    limit is never negative, so that a record without a time (-1) stays one beside a clock before 1970.
    """
    return max(capped(append_time_ms, slack_ms), 0)


def compared_stamp(
    stamp_ms: int, written_ms: int, latest_ms: int | None, *, is_adopted: bool
) -> int:
    """Returns as what a time that the broker stamped counts when records are compared.

    It is the append time, so it counts as what that counts as (`written_ms`), and never as less
    than the one that was stamped before it (`latest_ms`, as it counts). If the append time is
    unknown (`is_adopted`), the stamp itself counts, but not as later than the adoption.
    """
    counted = min(stamp_ms, written_ms) if is_adopted else written_ms
    return capped(counted if latest_ms is None else max(counted, latest_ms), 0)


def event_time_ahead(max_event_time: int | None, slack_ms: int, now_ms: int) -> int:
    """Returns how many ms a largest event time is beyond what it could count as by a right clock.

    0 if it is not.
    """
    return 0 if max_event_time is None else max(max_event_time - capped(now_ms, slack_ms), 0)


def event_slack(config: TopicConfig) -> int:
    """Returns how many ms beyond its append time an event time counts."""
    return config.event_time_ahead_max_ms
