"""Which segments are deleted, by which policy, and when (KIP-33, event-time retention)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.time.lookup import reaches
from storage.time.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from config.topic import TopicConfig
    from storage.time.segment_times import SegmentTimes

BY_START = "log start offset"

BY_TIME = "retention.ms"

BY_SIZE = "retention.bytes"

BY_EVENT_TIME = "retention.max.eventtime.ms"

APPEND_BASIS = "append"


class Retention(NamedTuple):
    """What a topic's settings say about deleting records; None means no limit."""

    retention_ms: int | None
    retention_bytes: int | None
    by_append: bool  # age is counted from the append time alone
    event_ms: int | None = None  # how far an event time may lie behind partition.maxEventTime
    grace_ms: int = 0  # event time deletes no segment for so long after its last append


class Candidate(NamedTuple):
    """A segment that retention may delete. `times` is called only where times decide."""

    end_offset: int
    size: int
    times: Callable[[], SegmentTimes]


def with_inherited_times(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Give each segment that compaction left empty the times of the next segment that is not empty.

    The log must not start later than that next segment allows: a slow consumer would see a loss.
    """
    found = list(candidates)
    for number in reversed(range(len(found) - 1)):
        if not found[number].size:
            found[number] = found[number]._replace(times=found[number + 1].times)
    return found


class Wait(NamedTuple):
    """What one policy that is switched on needs before it deletes a segment."""

    policy: str
    due_ms: int | None  # when it does; MIN_TIMESTAMP: at once; None: not without more appends
    event_time: int | None = None  # deleted when partition.maxEventTime reaches this
    growth: int | None = None  # deleted when the log has grown by so many bytes


class SegmentSchedule(NamedTuple):
    """When a segment is deleted and by which policy, if nothing is appended meanwhile."""

    policy: str | None  # the policy that deletes it; None: none does
    due_ms: int | None  # the first moment, now or later, at which that policy deletes it
    waits: tuple[Wait, ...]  # of each policy, as if this segment were the oldest
    is_held: bool  # no policy may delete it: not below the high watermark, or active and empty


def retention_of(config: TopicConfig) -> Retention:
    """Return what a topic's settings say: -1, or a cleanup.policy without delete, switches a policy off.

    The largest long means no limit too, because people set it to keep records for ever.
    """
    if "delete" not in config.cleanup_policy:
        return Retention(None, None, by_append=False)
    return Retention(
        _bounded(config.retention_ms),
        None if config.retention_bytes < 0 else config.retention_bytes,
        config.retention_time_basis == APPEND_BASIS,
        _bounded(config.retention_max_eventtime_ms),
        config.retention_max_eventtime_grace_ms,
    )


def _bounded(duration_ms: int) -> int | None:
    return duration_ms if 0 <= duration_ms < MAX_TIMESTAMP else None


def aged_from(times: SegmentTimes, retention: Retention) -> int | None:
    """Return the first moment at which all records of a segment are older than retention.ms.

    None if the policy is off, or if the segment has no records.
    """
    newest = times.last_append if retention.by_append else times.aging
    if retention.retention_ms is None or newest is None:
        return None
    return newest + retention.retention_ms + 1


def has_aged(times: SegmentTimes, now_ms: int, retention: Retention) -> bool:
    """Tell whether all records of a segment are older than retention.ms."""
    due_ms = aged_from(times, retention)
    return due_ms is not None and now_ms >= due_ms


def outdated_by(times: SegmentTimes, retention: Retention) -> int | None:
    """Return the smallest partition.maxEventTime at which event time may delete a segment.

    None if the policy is off, or if the segment has no event time.
    """
    if retention.event_ms is None or times.event is None:
        return None
    return times.event + retention.event_ms + 1


def expires_from(
    times: SegmentTimes, retention: Retention, max_event_time: int | None
) -> int | None:
    """Return the first moment at which event time deletes a segment, at the end of its grace.

    None if event time keeps it: the segment has no event time, or partition.maxEventTime is not far
    enough ahead.
    """
    outdated = outdated_by(times, retention)
    if outdated is None or not reaches(max_event_time, outdated) or times.last_append is None:
        return None
    return times.last_append + retention.grace_ms + 1 if retention.grace_ms else MIN_TIMESTAMP


def has_expired(
    times: SegmentTimes, now_ms: int, retention: Retention, max_event_time: int | None
) -> bool:
    """Tell whether event time deletes a segment now."""
    due_ms = expires_from(times, retention, max_event_time)
    return due_ms is not None and now_ms >= due_ms


def segments_to_delete(
    candidates: Sequence[Candidate],
    retention: Retention,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    max_event_time: int | None,
) -> list[str]:
    """Return, for each segment from the oldest on that is to be deleted, the policy that deletes it.

    Ends before the first segment that stays. Each policy deletes on its own. The last candidate is
    the active segment: it is deleted with all the others, unless it is empty. No segment is deleted
    that is not below the high watermark. `max_event_time` is the partition's, needed where
    `retention.event_ms` is not None.
    """
    policies: list[str] = []
    excess = _excess(candidates, retention)
    dated = _EventTimes(candidates, high_watermark)
    for number, (end_offset, size, times) in enumerate(candidates):
        if _is_held(candidates, number, high_watermark):
            break
        if end_offset <= log_start_offset:
            policies.append(BY_START)
        elif retention.retention_bytes is not None and excess >= size:
            policies.append(BY_SIZE)
        elif has_aged(times(), now_ms, retention):
            policies.append(BY_TIME)
        elif retention.event_ms is not None and has_expired(
            dated.times(number), now_ms, retention, max_event_time
        ):
            policies.append(BY_EVENT_TIME)
        else:
            break
        excess -= size
    return policies


def retention_schedule(
    candidates: Sequence[Candidate],
    retention: Retention,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    max_event_time: int | None,
) -> list[SegmentSchedule]:
    """Return for each segment when it is deleted and by which policy, if nothing is appended.

    The arguments are those of `segments_to_delete`, which deletes a segment at its `due_ms` and not
    before.
    """
    found: list[SegmentSchedule] = []
    excess = _excess(candidates, retention)
    dated = _EventTimes(candidates, high_watermark)
    before_ms: int | None = now_ms  # when all segments before are deleted; None: never
    for number, (end_offset, size, times) in enumerate(candidates):
        is_held = _is_held(candidates, number, high_watermark)
        waits = []
        if end_offset <= log_start_offset:
            waits.append(Wait(BY_START, MIN_TIMESTAMP))
        if retention.retention_bytes is not None:
            growth = max(size - excess, 0)
            waits.append(Wait(BY_SIZE, None if growth else MIN_TIMESTAMP, None, growth))
        if retention.retention_ms is not None:
            waits.append(Wait(BY_TIME, aged_from(times(), retention)))
        if retention.event_ms is not None:
            due_ms = expires_from(dated.times(number), retention, max_event_time)
            waits.append(Wait(BY_EVENT_TIME, due_ms, outdated_by(dated.times(number), retention)))
        dues = [wait.due_ms for wait in waits if wait.due_ms is not None]
        if is_held or before_ms is None or not dues:
            before_ms = None
            found.append(SegmentSchedule(None, None, tuple(waits), is_held))
        else:
            before_ms = max(before_ms, min(dues))
            policy = next(w.policy for w in waits if w.due_ms is not None and w.due_ms <= before_ms)
            found.append(SegmentSchedule(policy, before_ms, tuple(waits), is_held))
        excess -= size
    return found


class _EventTimes:
    """The event times by which a segment is judged: its own, or those of the next segment that has any.

    A segment without event times must not keep the segments after it from being deleted, so it is
    deleted with the first segment after it that event time deletes.
    """

    def __init__(self, candidates: Sequence[Candidate], high_watermark: int) -> None:
        self._candidates, self._high_watermark = candidates, high_watermark
        self._next = -1  # the number of the segment found last

    def times(self, number: int) -> SegmentTimes:
        """Return the times by which the segment of this number is judged."""
        candidates = self._candidates
        while self._next < number or (
            self._next < len(candidates)
            and candidates[self._next].end_offset <= self._high_watermark
            and candidates[self._next].times().event is None
        ):
            self._next += 1
        if self._next < len(candidates):
            end_offset, _, times = candidates[self._next]
            if end_offset <= self._high_watermark:
                return times()
        return candidates[number].times()


def _excess(candidates: Sequence[Candidate], retention: Retention) -> int:
    """Return by how many bytes the log exceeds retention.bytes; negative if it is smaller."""
    size = sum(candidate.size for candidate in candidates)
    return 0 if retention.retention_bytes is None else size - retention.retention_bytes


def _is_held(candidates: Sequence[Candidate], number: int, high_watermark: int) -> bool:
    """Tell whether a segment cannot be deleted: not all below the high watermark, or active and empty."""
    end_offset, size, _ = candidates[number]
    return end_offset > high_watermark or (number == len(candidates) - 1 and not size)


def expired(last_append_time_ms: int, now_ms: int, keep_ms: int) -> bool:
    """Tell whether something last used at an append time has been idle for `keep_ms`."""
    return now_ms - last_append_time_ms >= keep_ms
