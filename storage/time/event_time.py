"""How far ahead of its append time an event may count for partition.maxEventTime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.time.timestamp import MAX_TIMESTAMP, NO_TIMESTAMP

if TYPE_CHECKING:
    from config.topic import TopicConfig
    from storage.time.stamping import Rules

EVENT_SLACK_MS = 3_600_000  # how far ahead an event may count where a topic sets no limit


def event_limit(rules: Rules, append_time_ms: int) -> int:
    """Return as which time an event appended now counts at most, so one absurd stamp is harmless."""
    return capped(append_time_ms, EVENT_SLACK_MS if rules.after_ms is None else rules.after_ms)


def capped(append_time_ms: int, slack_ms: int) -> int:
    """Return the time `slack_ms` after an append time; -1 would be no time."""
    limit = min(append_time_ms + slack_ms, MAX_TIMESTAMP)
    return 0 if limit == NO_TIMESTAMP else limit


def event_slack(config: TopicConfig) -> int:
    """Return how far beyond its append time an event counts, where only the log can tell of it."""
    after_ms = config.timestamp_window[1]
    return EVENT_SLACK_MS if after_ms is None else after_ms
