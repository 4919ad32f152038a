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
    """What a topic's settings say about keeping records; None is without bound."""

    retention_ms: int | None
    retention_bytes: int | None
    by_append: bool  # age is counted from the append time alone
    event_ms: int | None = None  # how far event times may lie behind the largest one ever
    grace_ms: int = 0  # for how long after its last append event time spares a segment


class Candidate(NamedTuple):
    """A segment that retention may judge. Its times are asked for only when they decide."""

    end_offset: int
    size: int
    times: Callable[[], SegmentTimes]


def with_inherited_times(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Let segments that compaction has left empty go by the times of the next one that is not.

    The log must not start later than that one lets it: a slow consumer would be told of a loss.
    """
    found = list(candidates)
    for number in reversed(range(len(found) - 1)):
        if not found[number].size:
            found[number] = found[number]._replace(times=found[number + 1].times)
    return found


class Wait(NamedTuple):
    """What one policy, that is switched on, waits for before it deletes a segment."""

    policy: str
    due_ms: int | None  # deletes it from then on; MIN_TIMESTAMP: at any time; None: not as it is
    event_time: int | None = None  # the partition's largest event time by which it goes
    growth: int | None = None  # the bytes by which the log would have to grow


class SegmentSchedule(NamedTuple):
    """What becomes of a segment as things are, those before it considered."""

    policy: str | None  # that deletes it, None: none does
    due_ms: int | None  # the first moment, now or later, at which it would
    waits: tuple[Wait, ...]  # what each policy waits for, were it the oldest segment
    is_held: bool  # it does not lie below the high watermark, or is active and empty


def retention_of(config: TopicConfig) -> Retention:
    """Read a topic's settings: -1 switches a policy off, and so does a policy without delete.

    The largest number is for ever too, as those mean who set it: a record of the smallest time is
    older than that.
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
    """Return from when on all records of a segment have been kept longer than retention.ms."""
    newest = times.last_append if retention.by_append else times.aging
    if retention.retention_ms is None or newest is None:
        return None
    return newest + retention.retention_ms + 1


def has_aged(times: SegmentTimes, now_ms: int, retention: Retention) -> bool:
    """Tell whether all records of a segment have been kept long enough."""
    due_ms = aged_from(times, retention)
    return due_ms is not None and now_ms >= due_ms


def outdated_by(times: SegmentTimes, retention: Retention) -> int | None:
    """Return the first event time beside which all of a segment's are too old to be kept."""
    if retention.event_ms is None or times.event is None:
        return None
    return times.event + retention.event_ms + 1


def expires_from(
    times: SegmentTimes, retention: Retention, max_event_time: int | None
) -> int | None:
    """Return from when on event time deletes a segment: when its grace is over (KIP-870).

    None where it is kept: it has no event time, or the partition's largest lies too near.
    """
    outdated = outdated_by(times, retention)
    if outdated is None or not reaches(max_event_time, outdated) or times.last_append is None:
        return None
    return times.last_append + retention.grace_ms + 1 if retention.grace_ms else MIN_TIMESTAMP


def has_expired(
    times: SegmentTimes, now_ms: int, retention: Retention, max_event_time: int | None
) -> bool:
    """Tell whether a segment's event times are no longer kept."""
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
    """Return the policy by which each segment goes, from the oldest on to the first that stays.

    Each policy deletes on its own. The last candidate is the active segment: it is among them when
    all go, unless it is empty. Nothing goes that is not below the high watermark.
    `max_event_time` is the partition's, asked for where `retention.event_ms` is not None.
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
    """Return what becomes of each segment if nothing is appended: what a round does, and when.

    The arguments are those of `segments_to_delete`, which deletes at `due_ms` and not before.
    """
    found: list[SegmentSchedule] = []
    excess = _excess(candidates, retention)
    dated = _EventTimes(candidates, high_watermark)
    before_ms: int | None = now_ms  # when those before are gone; None: never
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
    """By which event times a segment is judged: its own, or those of the next one that has any.

    What has no event time is no event-time data worth keeping, and must not hold back what comes
    after it: it goes with the first segment behind it that goes by event time.
    """

    def __init__(self, candidates: Sequence[Candidate], high_watermark: int) -> None:
        self._candidates, self._high_watermark = candidates, high_watermark
        self._next = -1  # the segment that was found last

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
    """Return by how many bytes the log is larger than it may be; below 0 when it is smaller."""
    size = sum(candidate.size for candidate in candidates)
    return 0 if retention.retention_bytes is None else size - retention.retention_bytes


def _is_held(candidates: Sequence[Candidate], number: int, high_watermark: int) -> bool:
    """Tell whether a segment cannot go: not all of it may be read yet, or it is active and empty."""
    end_offset, size, _ = candidates[number]
    return end_offset > high_watermark or (number == len(candidates) - 1 and not size)


def expired(last_append_time_ms: int, now_ms: int, keep_ms: int) -> bool:
    """Tell whether something last touched at an append time has been idle for `keep_ms`."""
    return now_ms - last_append_time_ms >= keep_ms
