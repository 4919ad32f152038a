"""Which segments are deleted, by which policy, and when (KIP-33, event-time retention).

`retention_schedule` decides. A round of retention deletes the segments that it says are due, and an
explanation describes the same schedule, so both always agree.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.event_time import capped, event_slack
from tidelog.storage.time.lookup import reaches
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, exceeds, is_due

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.time.segment_times import SegmentTimes

BY_START = "log start offset"

BY_TIME = "retention.ms"

BY_SIZE = "retention.bytes"

BY_EVENT_TIME = "retention.max.eventtime.ms"

APPEND_BASIS = "append"


class Retention(NamedTuple):
    """A topic's settings for deleting records; None means no limit."""

    retention_ms: int | None
    retention_bytes: int | None
    by_append: bool  # age is counted from the append time alone
    event_ms: int | None = None  # how far an event time may lie behind partition.maxEventTime
    grace_ms: int = 0  # event time deletes no segment for so long after its last append
    floor_ms: int = 0  # no time policy deletes a segment for so long after its last append
    ahead_ms: int = MAX_TIMESTAMP  # how far after its append time an event time may count


NO_LIMITS = Retention(None, None, by_append=False)


class Candidate(NamedTuple):
    """A segment that retention may delete. `times` is called only where times decide."""

    end_offset: int
    size: int
    times: Callable[[], SegmentTimes]


def with_inherited_times(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Gives each segment that compaction left empty the times of the next one with records.

    The log must not start later than that next segment allows: a slow consumer would see a loss.
    """
    found = list(candidates)
    for number in reversed(range(len(found) - 1)):
        if not found[number].size:
            found[number] = found[number]._replace(times=found[number + 1].times)
    return found


class PolicyCondition(NamedTuple):
    """What one policy that is switched on needs before it deletes a segment."""

    policy: str
    due_ms: int | None  # when it does; MIN_TIMESTAMP: at once; None: not without more appends
    event_time: int | None = None  # deleted when partition.maxEventTime reaches this
    growth: int | None = None  # deleted when the log has grown by so many bytes
    is_floored: bool = False  # without retention.min.append.ms it would be deleted earlier


class SegmentSchedule(NamedTuple):
    """When a segment is deleted and by which policy, if nothing is appended meanwhile."""

    policy: str | None  # the policy that deletes it; None: none does
    due_ms: int | None  # the first moment, now or later, at which that policy deletes it
    is_held: bool  # no policy may delete it: not below the high watermark, or active and empty
    waits: Callable[
        [], Iterator[PolicyCondition]
    ]  # of each policy, as if this segment were the oldest


def retention_of(config: TopicConfig) -> Retention:
    """Returns a topic's settings: -1, or no delete in cleanup.policy, means off.

    The largest long means no limit too, because people set it to keep records for ever.
    """
    if "delete" not in config.cleanup_policy:
        return NO_LIMITS
    return Retention(
        _bounded(config.retention_ms),
        None if config.retention_bytes < 0 else config.retention_bytes,
        config.retention_time_basis == APPEND_BASIS,
        _bounded(config.retention_max_eventtime_ms),
        config.retention_max_eventtime_grace_ms,
        config.retention_min_append_ms,
        event_slack(config),
    )


def _bounded(duration_ms: int) -> int | None:
    return duration_ms if 0 <= duration_ms < MAX_TIMESTAMP else None


def newest_counted(times: SegmentTimes, retention: Retention) -> int | None:
    """Returns the time from which the age of a segment counts; None if it has no records."""
    return times.last_append if retention.by_append else times.aging


def aged_from(times: SegmentTimes, retention: Retention) -> int | None:
    """Returns the first moment at which all records of a segment are older than retention.ms.

    None if the policy is off, or if the segment has no records.
    """
    newest = newest_counted(times, retention)
    if retention.retention_ms is None or newest is None:
        return None
    return newest + retention.retention_ms + 1


def oldest_kept(retention_ms: int, now_ms: int) -> int:
    """Returns the smallest record time that `retention.ms` does not delete now.

    Negative: no limit.
    """
    return MIN_TIMESTAMP if retention_ms < 0 else max(now_ms - retention_ms, MIN_TIMESTAMP)


def outdated_by(times: SegmentTimes, retention: Retention) -> int | None:
    """Returns the smallest partition.maxEventTime at which event time may delete a segment.

    None if the policy is off, or if the segment has no event time.
    """
    if retention.event_ms is None or times.event is None:
        return None
    return times.event + retention.event_ms + 1


def expires_from(
    times: SegmentTimes, retention: Retention, max_event_time: int | None
) -> int | None:
    """Returns the first moment at which event time deletes a segment, at the end of its grace.

    None if event time keeps it: the segment has no event time, or partition.maxEventTime is not far
    enough ahead. That counts no further ahead of the clock than event times may be: the clock may
    have leapt when it was counted.
    """
    outdated = outdated_by(times, retention)
    if outdated is None or not reaches(max_event_time, outdated) or times.last_append is None:
        return None
    least = outdated or NO_TIMESTAMP  # 0 counts as reached where the limit would be -1
    counts_from = max(least - retention.ahead_ms, MIN_TIMESTAMP)
    if not retention.grace_ms:
        return counts_from
    return max(times.last_append + retention.grace_ms + 1, counts_from)


class Outlived(NamedTuple):
    """By how much a record has outlived retention.ms."""

    due_ms: int  # the last moment at which it was allowed to be there
    by_ms: int


def outlived(
    times: SegmentTimes, retention: Retention, longest_age_ms: int, interval_ms: int, now_ms: int
) -> Outlived | None:
    """Returns by how much the first record of a segment has outlived retention.ms; None: it has not.

    A record may stay for the longer of retention.ms and the floor after its append, or after its
    adoption. To that come the time until its segment ends, and that until the next round.
    """
    began = times.created_clock if times.created is None else times.created
    if retention.retention_ms is None or began is None:
        return None
    kept_ms = max(retention.retention_ms, retention.floor_ms)
    due_ms = began + kept_ms + longest_age_ms + interval_ms
    return Outlived(due_ms, now_ms - due_ms) if now_ms > due_ms else None


def floored_until(times: SegmentTimes, retention: Retention) -> int | None:
    """Returns the first moment at which a time policy may delete a segment by its last append.

    None without a floor, or if the segment has no records.
    """
    if not retention.floor_ms or times.last_append is None:
        return None
    return min(times.last_append + retention.floor_ms + 1, MAX_TIMESTAMP)


def counted_event_time(
    candidates: Sequence[Candidate], retention: Retention, max_event_time: int | None
) -> int | None:
    """Returns partition.maxEventTime as far as it counts now by the newest append time.

    What was counted while the limit was larger, or the clock ahead, must not expire records that
    are written under the limit of today.
    """
    newest = next((each for each in reversed(candidates) if each.size), None)
    if newest is None or max_event_time is None:
        return max_event_time
    appended = newest.times().last_append
    if appended is None:
        return max_event_time
    return min(max_event_time, capped(appended, retention.ahead_ms))


def segments_to_delete(
    candidates: Sequence[Candidate],
    retention: Retention,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    max_event_time: int | None,
) -> list[str]:
    """Returns the policy that deletes each segment that is to go, from the oldest on.

    These are the segments that are due by `retention_schedule`, which takes the same arguments. No
    segment after the first that stays is judged.
    """
    schedule = retention_schedule(
        candidates,
        retention,
        now_ms=now_ms,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        max_event_time=max_event_time,
    )
    due = itertools.takewhile(lambda s: s.due_ms is not None and is_due(s.due_ms, now_ms), schedule)
    return [segment.policy for segment in due if segment.policy is not None]


def retention_schedule(
    candidates: Sequence[Candidate],
    retention: Retention,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    max_event_time: int | None,
) -> Iterator[SegmentSchedule]:
    """Yields for each segment when it is deleted and by which policy, if nothing is appended.

    Segments are deleted oldest first, and each policy deletes on its own. The last candidate is the
    active segment: it is deleted with all the others, unless it is empty. No segment is deleted
    that is not below the high watermark. `max_event_time` is the partition's, needed where
    `retention.event_ms` is not None.

    A segment is judged when the iterator comes to it. Its times are read only if no earlier policy
    deletes it at that moment, or if the caller asks for its `waits`.
    """
    dated = _EventTimes(candidates, high_watermark, retention, max_event_time)
    excess = 0  # by how many bytes the rest of the log exceeds retention.bytes
    if retention.retention_bytes is not None:
        excess = sum(candidate.size for candidate in candidates) - retention.retention_bytes
    before_ms: int | None = now_ms  # when all segments before are deleted; None: never
    for number, candidate in enumerate(candidates):
        waits = functools.partial(
            _waits, candidate, number, dated, retention, log_start_offset, excess
        )
        policy = None
        is_held = _is_held(candidates, number, high_watermark)
        if is_held:
            before_ms = None
        elif before_ms is not None:
            policy, before_ms = _first_due(waits(), before_ms)
        yield SegmentSchedule(policy, before_ms, is_held, waits)
        excess -= candidate.size


def _waits(
    candidate: Candidate,
    number: int,
    dated: _EventTimes,
    retention: Retention,
    log_start_offset: int,
    excess: int,
) -> Iterator[PolicyCondition]:
    """Yields what each policy that is switched on needs.

    Times are read when their policy's turn comes.
    """
    end_offset, size, times = candidate
    if end_offset <= log_start_offset:
        yield PolicyCondition(BY_START, MIN_TIMESTAMP)
    if retention.retention_bytes is not None:
        growth = max(size - excess, 0)
        yield PolicyCondition(BY_SIZE, None if growth else MIN_TIMESTAMP, None, growth)
    if retention.retention_ms is not None:
        due_ms = aged_from(times(), retention)
        yield _not_below_floor(PolicyCondition(BY_TIME, due_ms), times, retention)
    if retention.event_ms is not None:
        judged = dated.times(number)
        outdated = outdated_by(judged, retention)
        due_ms = expires_from(judged, retention, dated.largest(outdated))
        yield _not_below_floor(PolicyCondition(BY_EVENT_TIME, due_ms, outdated), times, retention)


def _not_below_floor(
    wait: PolicyCondition, times: Callable[[], SegmentTimes], retention: Retention
) -> PolicyCondition:
    """Returns the wait of a time policy, with retention.min.append.ms as the floor of its due time."""
    if wait.due_ms is None or not retention.floor_ms:
        return wait
    floor_ms = floored_until(times(), retention)
    if floor_ms is None or not exceeds(floor_ms, wait.due_ms):
        return wait
    return wait._replace(due_ms=floor_ms, is_floored=True)


def _first_due(waits: Iterable[PolicyCondition], before_ms: int) -> tuple[str | None, int | None]:
    """Returns which policy deletes a segment, and when, if all before it go at `before_ms`.

    Of the policies that delete it at that moment it is the first.
    """
    policy: str | None = None
    due_ms: int | None = None
    for wait in waits:
        if wait.due_ms is None:
            continue
        if wait.due_ms <= before_ms:
            return wait.policy, before_ms
        if due_ms is None or wait.due_ms < due_ms:
            policy, due_ms = wait.policy, wait.due_ms
    return policy, due_ms


class _EventTimes:
    """The event times by which a segment is judged: its own, or those of the next segment that has any.

    A segment without event times must not keep the segments after it from being deleted, so it is
    deleted with the first segment after it that event time deletes.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        high_watermark: int,
        retention: Retention,
        max_event_time: int | None,
    ) -> None:
        self._candidates, self._high_watermark = candidates, high_watermark
        self._retention, self._max_event_time = retention, max_event_time
        self._is_bounded = False
        # The segments from the first number up to, not including, the second have no event time.
        self._first = self._next = -1

    def times(self, number: int) -> SegmentTimes:
        """Returns the times by which the segment of this number is judged."""
        if not self._first <= number <= self._next:
            self._first, self._next = number, self._find(number)
        judged = number if self._next == len(self._candidates) else self._next
        return self._candidates[judged].times()

    def largest(self, outdated: int | None) -> int | None:
        """Returns partition.maxEventTime as far as it counts now, to be compared with `outdated`.

        The newest segment is read for it only where that can make a difference.
        """
        is_reached = outdated is not None and reaches(self._max_event_time, outdated)
        if is_reached and not self._is_bounded:
            self._is_bounded = True
            self._max_event_time = counted_event_time(
                self._candidates, self._retention, self._max_event_time
            )
        return self._max_event_time

    def _find(self, number: int) -> int:
        """Returns the first segment from this one on that has an event time.

        The end if none has.
        """
        for found in range(number, len(self._candidates)):
            candidate = self._candidates[found]
            if candidate.end_offset > self._high_watermark:
                break
            if candidate.times().event is not None:
                return found
        return len(self._candidates)


def _is_held(candidates: Sequence[Candidate], number: int, high_watermark: int) -> bool:
    """Returns whether a segment must stay: not all below the high watermark, or active and empty."""
    end_offset, size, _ = candidates[number]
    return end_offset > high_watermark or (number == len(candidates) - 1 and not size)


def expired(last_append_time_ms: int, now_ms: int, keep_ms: int) -> bool:
    """Returns whether `keep_ms` have passed since the last append of a producer."""
    return now_ms - last_append_time_ms >= keep_ms
