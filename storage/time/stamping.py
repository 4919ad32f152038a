"""The times that an append writes into a produced batch, and the times that it accepts (KIP-32, KIP-937)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.append_time import append_time
from tidelog.storage.time.retention import BY_EVENT_TIME, BY_TIME, retention_of
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.config.topic import TopicConfig
    from tidelog.protocol.records.plan import AppendPlan

LOG_APPEND_TIME = "LogAppendTime"


class StampingRules(NamedTuple):
    """A topic's settings for the times of what is appended to it."""

    log_append_time: bool
    before_ms: int | None  # how far a record time may lie behind the clock; None: no limit
    after_ms: int | None  # how far ahead of it


class Stamps(NamedTuple):
    """The rules applied to one moment, as integers that kernels can compare."""

    append_time_ms: int
    log_append_time: bool
    min_timestamp: int  # the window, both ends inside; -1 ("no time") is exempt from it
    max_timestamp: int


def rules_of(config: TopicConfig, magic: int) -> StampingRules:
    """Returns the rules of a topic's settings, for batches to be stored in format `magic`.

    A LogAppendTime topic has no window, because the broker replaces the times that a window would
    check. Format 0 has no times, so there is nothing to check (KIP-32, migration phase 1).
    """
    log_append_time = config.message_timestamp_type == LOG_APPEND_TIME
    if log_append_time or magic == 0:
        return StampingRules(log_append_time, None, None)
    before_ms, after_ms = config.timestamp_window
    kept_ms = _refused_beyond(config)
    if kept_ms is not None and (before_ms is None or kept_ms < before_ms):
        before_ms = kept_ms
    return StampingRules(log_append_time, before_ms, after_ms)


def missing_times(config: TopicConfig, magic: int) -> tuple[int, ...]:
    """Returns the record times that mean none, in order, for batches to be stored in format `magic`.

    There are none where `rules_of` has no window, and for the same reasons.
    """
    if config.message_timestamp_type == LOG_APPEND_TIME or magic == 0:
        return ()
    return config.message_timestamp_missing_values


def keeps_time(timestamp: int, config: TopicConfig) -> bool:
    """Returns whether a record with this time is stored with it, if the window does not refuse it."""
    if config.message_timestamp_type == LOG_APPEND_TIME or config.target_magic == 0:
        return False
    return timestamp not in missing_times(config, config.target_magic)


def _refused_beyond(config: TopicConfig) -> int | None:
    """Returns the age from which `retention.refuse.expired` refuses; None: it refuses nothing."""
    if not config.retention_refuse_expired:
        return None
    retention = retention_of(config)
    return None if retention.by_append or retention.floor_ms else retention.retention_ms


def why_too_old(config: TopicConfig, rules: StampingRules) -> str:
    """Returns why a time before the window is refused, if it is for retention; else nothing."""
    kept_ms = _refused_beyond(config)
    if kept_ms is None or kept_ms != rules.before_ms:
        return ""
    return f"{BY_TIME}={kept_ms} would delete it at once"


def event_time_kept(config: TopicConfig, magic: int) -> int | None:
    """Returns how far behind the largest event time a record may be by `retention.refuse.expired`.

    None where it refuses nothing for that: also where a grace or `retention.min.append.ms` keeps such
    records for a while, and where `rules_of` has no window.
    """
    retention = retention_of(config)
    if not config.retention_refuse_expired or retention.grace_ms or retention.floor_ms:
        return None
    if config.message_timestamp_type == LOG_APPEND_TIME or magic == 0:
        return None
    return retention.event_ms


def within_event_time(plan: AppendPlan, kept_ms: int, largest_ms: int | None) -> AppendPlan:
    """Returns the plan of an append with the limit of event times, if that is narrower than the window.

    `largest_ms` is the partition's largest event time, by which retention deletes; None: it has none.
    """
    if largest_ms is None:
        return plan
    oldest_ms = max(largest_ms - kept_ms, MIN_TIMESTAMP)
    if oldest_ms <= plan.min_timestamp:
        return plan
    why = f"{BY_EVENT_TIME}={kept_ms} would delete it at once"
    return plan._replace(min_timestamp=oldest_ms, too_old=why)


def stamps_at(
    rules: StampingRules,
    last_append_time_ms: int | None,
    now_ms: int,
    corrected_ms: int = MIN_TIMESTAMP,
    *,
    may_go_back: bool = True,
) -> Stamps:
    """Applies the rules to the moment `now_ms`.

    The window is around the clock and not around the append time: after a clock that was ahead is
    set right, records from the future must be rejected again. Raises ClockWentBack; see
    `append_time`.
    """
    log_append_time, before_ms, after_ms = rules
    # The same as Stamps(...), without the Python frame of a NamedTuple's constructor.
    return tuple.__new__(
        Stamps,
        (
            append_time(last_append_time_ms, now_ms, corrected_ms, may_go_back=may_go_back),
            log_append_time,
            MIN_TIMESTAMP if before_ms is None else max(now_ms - before_ms, MIN_TIMESTAMP),
            MAX_TIMESTAMP if after_ms is None else min(now_ms + after_ms, MAX_TIMESTAMP),
        ),
    )


def is_refused(timestamp: int, rules: StampingRules, now_ms: int) -> bool:
    """Returns whether a record with this time is outside the window around the clock."""
    stamps = stamps_at(rules, None, now_ms)
    return not stamps.min_timestamp <= timestamp <= stamps.max_timestamp


def reported(stamps: Stamps) -> int:
    """Returns the time in a ProduceResponse v2+: the append time of LogAppendTime, else -1."""
    return stamps.append_time_ms if stamps.log_append_time else NO_TIMESTAMP
