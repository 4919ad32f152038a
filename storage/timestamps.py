"""The home of time: every rule of the log that looks at a timestamp is decided here.

A time is an int of milliseconds since the epoch, in the range of an int64; negative ones are as
real as others. On the wire and on disk -1 (NO_TIMESTAMP) says "no time", and here a time that may
be missing, or a largest time that does not exist yet, is None. Three names:

- record time: what a consumer sees (the producer's time, or the append time on a LogAppendTime
  topic); control batches have none;
- append time: when this partition's leader appended the batch; it never goes back;
- the window: which record times a CreateTime topic accepts at a given moment (KIP-32, KIP-937).

Other modules carry times about; only this one compares them.
"""

from __future__ import annotations

from bisect import bisect_left
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from config.topic import TopicConfig
    from protocol.records.plan import PreparedBatch

NO_TIMESTAMP = -1
MIN_TIMESTAMP = -(2**63)
MAX_TIMESTAMP = 2**63 - 1

LOG_APPEND_TIME = "LogAppendTime"


class Target(IntEnum):
    """What a ListOffsets request may ask for instead of a time (KIP-79, KIP-734, KIP-405)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


_LOWEST_TARGET = min(Target)


def is_target(timestamp: int) -> bool:
    """Tell whether the timestamp of a ListOffsets request is one of Kafka's special values.

    Those six milliseconds before 1970 cannot be asked for over Kafka's protocol; anything below is
    a real time and is answered.
    """
    return _LOWEST_TARGET <= timestamp < 0


# --- append time ---------------------------------------------------------------------------------


def append_time(last_append_time_ms: int | None, now_ms: int) -> int:
    """Return when a batch that arrives now is appended: never before the one before it.

    KIP-32 met this in its rejected option 1: clocks go back, and leaders' clocks differ. A clock
    that shows -1 counts as 0: as a stamp -1 would be no time (KIP-228 advises such a shift).
    """
    if last_append_time_ms is not None and last_append_time_ms > now_ms:
        return last_append_time_ms
    return 0 if now_ms == NO_TIMESTAMP else now_ms


def ahead(append_time_ms: int | None, now_ms: int) -> int:
    """Return how far, in ms, a last append time lies ahead of the clock: until then time stands still."""
    return 0 if append_time_ms is None else max(0, append_time_ms - now_ms)


def goes_back(append_time_ms: int, next_append_time_ms: int) -> bool:
    """Tell whether two append times that follow one another cannot be: somebody changed them."""
    return next_append_time_ms < append_time_ms


# --- what is done to the times of a produced batch -----------------------------------------------


class Rules(NamedTuple):
    """What a topic's settings say about the times of what is appended to it."""

    log_append_time: bool
    before_ms: int | None  # how far a record may lie behind the clock; None: as far as it likes
    after_ms: int | None  # how far ahead of it


class Stamps(NamedTuple):
    """The rules at one moment, as integers that kernels can compare."""

    append_time_ms: int
    log_append_time: bool
    min_timestamp: int  # the window, both ends inside; -1 ("no time") is exempt from it
    max_timestamp: int


def rules_of(config: TopicConfig, magic: int) -> Rules:
    """Read the rules off a topic's settings, for batches to be stored in format `magic`.

    A LogAppendTime topic has no window, for it overwrites what the window would judge. Format 0
    carries no time, so nothing is judged either (KIP-32, migration phase 1: the field is ignored).
    """
    log_append_time = config.message_timestamp_type == LOG_APPEND_TIME
    if log_append_time or magic == 0:
        return Rules(log_append_time, None, None)
    before_ms, after_ms = config.timestamp_window
    return Rules(log_append_time, before_ms, after_ms)


def stamps_at(rules: Rules, last_append_time_ms: int | None, now_ms: int) -> Stamps:
    """Apply the rules at a moment.

    The window lies around the clock, not around the append time: a clock that was ahead for a
    while and has been set right must not go on admitting records from the future.
    """
    log_append_time, before_ms, after_ms = rules
    return Stamps(
        append_time(last_append_time_ms, now_ms),
        log_append_time,
        MIN_TIMESTAMP if before_ms is None else max(now_ms - before_ms, MIN_TIMESTAMP),
        MAX_TIMESTAMP if after_ms is None else min(now_ms + after_ms, MAX_TIMESTAMP),
    )


def reported(stamps: Stamps) -> int:
    """Return the time a ProduceResponse v2+ tells the producer: the stamp, or -1 (KIP-32, 6)."""
    return stamps.append_time_ms if stamps.log_append_time else NO_TIMESTAMP


# --- largest times and lookups -------------------------------------------------------------------


def or_none(timestamp: int) -> int | None:
    """Turn a time as it is written into a time as it is meant: -1 is none."""
    return None if timestamp == NO_TIMESTAMP else timestamp


def exceeds(timestamp: int | None, largest: int | None) -> bool:
    """Tell whether a time is larger than the largest so far; a missing time never is."""
    return timestamp is not None and (largest is None or timestamp > largest)


def reaches(largest: int | None, target: int) -> bool:
    """Tell whether records with this largest time hold one at or after `target` (KIP-33)."""
    return largest is not None and largest >= target


def is_indexed(largest: int | None, last_indexed: int | None) -> bool:
    """Tell whether a time index takes the largest time so far: it has grown, and is not negative.

    Kafka's tools take the times of an index to begin at -1; smaller ones are found by walking.
    """
    return largest is not None and largest > (-1 if last_indexed is None else last_indexed)


def is_searchable(timestamp: int) -> bool:
    """Tell whether a time index can say where a time is first reached."""
    return timestamp >= 0


def count_growing(times: Sequence[int]) -> int:
    """Return how many times at the start of a time index can be true: not negative, growing."""
    if times and times[0] >= 0 and all(map(int.__lt__, times, times[1:])):
        return len(times)  # as a rule, and a loop over a long index takes ten times as long
    last = -1
    for count, time in enumerate(times):
        if time <= last:
            return count
        last = time
    return len(times)


# --- what is known of a segment's times ----------------------------------------------------------


class SegmentTimes:
    """The times of a segment's batches, as far as rolling, retention and lookups ask.

    None stands for a time that no record has, or an append time that nobody knows.
    """

    __slots__ = (
        "aging",
        "created",
        "event",
        "first",
        "has_missing",
        "has_unknown",
        "largest",
        "largest_offset",
        "last_append",
    )

    def __init__(self) -> None:
        """Begin with a segment of no batches."""
        self.created: int | None = None  # the append time of its first batch
        self.last_append: int | None = None
        self.first: int | None = None  # the first record time
        self.largest: int | None = None  # the largest one, and where the index says it is
        self.largest_offset = -1
        self.has_missing = False  # a data record has no time
        self.has_unknown = False  # nobody knows when some batch was appended
        # The largest over records of min(record time, append time); the append time stands in
        # where a record has none. A record from the future counts as written when it was.
        self.aging: int | None = None
        # The largest event time, each counted at most as a limit beyond its append time.
        self.event: int | None = None

    def note(
        self,
        first: int | None,
        largest: int | None,
        largest_offset: int,
        has_missing: bool,
        append_time_ms: int,
        event_limit: int,
    ) -> None:
        """Take a data batch into account."""
        age = append_time_ms
        if largest is None:
            self.has_missing = True
        else:
            if has_missing:
                self.has_missing = True
            elif largest < append_time_ms:
                age = largest
            if self.first is None:
                self.first = first
            if self.largest is None or largest > self.largest:
                self.largest = largest
                self.largest_offset = largest_offset
            largest = min(largest, event_limit)
            if self.event is None or largest > self.event:
                self.event = largest
        if self.aging is None or age > self.aging:
            self.aging = age

    def note_control(self, append_time_ms: int) -> None:
        """Take a control batch into account: it has no event time, and ages as it was appended."""
        if exceeds(append_time_ms, self.aging):
            self.aging = append_time_ms

    def note_append(self, append_time_ms: int | None) -> None:
        """Take into account when a batch was appended."""
        if append_time_ms is None:
            self.has_unknown = True
            return
        self.last_append = append_time_ms
        if self.created is None:
            self.created = append_time_ms

    def copy(self) -> SegmentTimes:
        """Return a second one that goes its own way."""
        other = SegmentTimes()
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SegmentTimes) and all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = (f"{name}={getattr(self, name)}" for name in self.__slots__)
        return f"SegmentTimes({', '.join(fields)})"


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


def later(timestamp: int | None, other: int | None) -> int | None:
    """Return the later of two times that may be missing."""
    return timestamp if exceeds(timestamp, other) else other


def earlier(timestamp: int | None, other: int | None) -> int | None:
    """Return the earlier of two times that may be missing."""
    if timestamp is None or other is None:
        return other if timestamp is None else timestamp
    return min(timestamp, other)


# --- rolling (KIP-33) ----------------------------------------------------------------------------


def should_roll(
    times: SegmentTimes,
    largest: int | None,
    append_time_ms: int,
    segment_ms: int,
    min_interval_ms: int,
) -> bool:
    """Tell whether what is about to be appended begins a new segment, by time.

    When its largest record time lies more than `segment_ms` beyond the segment's first one. Where
    there are no times to compare, the append time is compared with that of the segment's first batch.
    Old and new times that alternate would roll with every batch: a segment is not rolled by time
    before it is `min_interval_ms` old by append time.
    """
    if times.created is None:
        return False
    age = append_time_ms - times.created
    if age < min_interval_ms:
        return False
    if largest is None or times.first is None:
        return age > segment_ms
    return largest - times.first > segment_ms


def segment_span(config: TopicConfig) -> int:
    """Return the span of time after which a segment is closed.

    What has to be compacted within max.compaction.lag.ms has to be in a closed segment by then.
    """
    if config.is_compacted:
        return min(config.segment_ms, config.max_compaction_lag_ms)
    return config.segment_ms


# --- retention (KIP-33, event time) --------------------------------------------------------------

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


def stood_in(candidates: Iterable[Candidate]) -> list[Candidate]:
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


class Fate(NamedTuple):
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
    dated = _Dated(candidates, high_watermark)
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


def fates(
    candidates: Sequence[Candidate],
    retention: Retention,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
    max_event_time: int | None,
) -> list[Fate]:
    """Return what becomes of each segment if nothing is appended: what a round does, and when.

    The arguments are those of `segments_to_delete`, which deletes at `due_ms` and not before.
    """
    found: list[Fate] = []
    excess = _excess(candidates, retention)
    dated = _Dated(candidates, high_watermark)
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
            found.append(Fate(None, None, tuple(waits), is_held))
        else:
            before_ms = max(before_ms, min(dues))
            policy = next(w.policy for w in waits if w.due_ms is not None and w.due_ms <= before_ms)
            found.append(Fate(policy, before_ms, tuple(waits), is_held))
        excess -= size
    return found


class _Dated:
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


def left(due_ms: int, now_ms: int) -> int:
    """Return how long it is until the moment for something comes; 0 once it has."""
    return max(due_ms - now_ms, 0)


def is_due(due_ms: int, now_ms: int) -> bool:
    """Tell whether the moment for something has come."""
    return now_ms >= due_ms


# --- compaction -----------------------------------------------------------------------------------


def has_lain(times: SegmentTimes, now_ms: int, lag_ms: int) -> bool:
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


# --- what is noticed of times as they arrive -----------------------------------------------------
#
# Nothing here refuses or changes anything. The unit is an append: a batch, or a set of messages of
# format 0 or 1, with the times that its preparation tells for nothing: the first one and the largest.

DELAYS_MS = (
    *(-1, 0, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000),
    *(604_800_000, 2_592_000_000, 31_536_000_000),
)
"""Upper bounds of what an append time may lie behind an event time; -1: events from the future."""

LATENESS_MS = (10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000, 604_800_000)
"""Upper bounds of how far an event time lies behind the largest one before it."""

_PLAUSIBLE_MS = 315_576_000_000  # ten years: times this near to now are taken as they are
_UNITS = (("seconds", 1_000, 1), ("microseconds", 1, 1_000), ("nanoseconds", 1, 1_000_000))


class Suspicion(NamedTuple):
    """A time that was probably meant in another unit."""

    timestamp: int
    unit: str
    meant: int  # the time in milliseconds, if it is in that unit


def suspect_unit(timestamp: int, now_ms: int) -> Suspicion | None:
    """Tell in which other unit a time was probably meant, if it looks so.

    It does where it lies more than ten years from now, and within ten years of it when read in seconds,
    micro- or nanoseconds. This is a guess: what happened between about 1970-01-17 and 1970-01-25 looks
    like seconds of our days. Nor does it see everything: what is old already passes in any unit.
    """
    if abs(timestamp - now_ms) <= _PLAUSIBLE_MS:
        return None
    for unit, factor, divisor in _UNITS:
        meant = timestamp * factor // divisor
        if abs(meant - now_ms) <= _PLAUSIBLE_MS:
            return Suspicion(timestamp, unit, meant)
    return None


SUSPECT_UNITS = tuple(unit for unit, _, _ in _UNITS)


def usual_range(now_ms: int) -> tuple[int, int]:
    """Return the first and the last time that `suspect_unit` takes as it is; for loops over columns."""
    return max(now_ms - _PLAUSIBLE_MS, MIN_TIMESTAMP), min(now_ms + _PLAUSIBLE_MS, MAX_TIMESTAMP)


def suspect_ranges(now_ms: int) -> list[tuple[str, int, int]]:
    """Return the first and the last time that reads as near to now in each other unit.

    Outside `usual_range` the first of these that a time lies in is what `suspect_unit` finds.
    """
    return [
        (
            unit,
            max(-((_PLAUSIBLE_MS - now_ms) * divisor // factor), MIN_TIMESTAMP),
            min(((now_ms + _PLAUSIBLE_MS + 1) * divisor - 1) // factor, MAX_TIMESTAMP),
        )
        for unit, factor, divisor in _UNITS
    ]


class Odd(NamedTuple):
    """What is odd about the times of an append."""

    largest: int
    doomed_by: str | None  # the policy that keeps none of its records
    limit_ms: int  # and what that policy keeps
    behind_ms: int  # by how much the append lies beyond it
    suspicion: Suspicion | None


class Expected(NamedTuple):
    """What a topic's settings make of a time that lies far back or ahead."""

    retention_ms: int | None  # None also where append times alone count
    event_ms: int | None
    slack_ms: int


def expected_of(config: TopicConfig) -> Expected:
    """Read a topic's settings."""
    retention = retention_of(config)
    return Expected(
        None if retention.by_append else retention.retention_ms,
        retention.event_ms,
        event_slack(config),
    )


class Arrivals:
    """What the times of a partition's appends have been like since it was opened."""

    __slots__ = (
        "_expected",
        "_usual_ms",
        "delays",
        "late_batches",
        "late_records",
        "lateness",
        "longest_delay_ms",
        "most_late_ms",
        "reached",
        "timeless_batches",
    )

    def __init__(self, config: TopicConfig) -> None:
        """Begin with no appends."""
        self.delays = [0] * (len(DELAYS_MS) + 1)  # append - first event time, by DELAYS_MS
        self.longest_delay_ms: int | None = None  # without those that look like another unit
        self.late_batches = 0  # those whose first time lies behind a larger one that came before
        self.late_records = 0  # in them
        self.lateness = [0] * (len(LATENESS_MS) + 1)  # of them, by LATENESS_MS
        self.most_late_ms = 0  # without those, too
        self.timeless_batches = 0  # without any time
        # The largest event time so far, each counted at most a bounded way beyond its append time:
        # one absurd stamp must not make all that follows late.
        self.reached = MIN_TIMESTAMP
        self.expect(config)

    def begin(self, largest_event: int | None) -> None:
        """Take up what was reached in an earlier life."""
        if largest_event is not None:
            self.reached = largest_event

    def expect(self, config: TopicConfig) -> None:
        """Go by these settings from now on."""
        self._expected = expected_of(config)
        self._usual_ms = -1  # delays up to this need no closer look

    def note(
        self,
        batches: Sequence[PreparedBatch],
        largest: int | None,
        append_time_ms: int,
        now_ms: int,
    ) -> Odd | None:
        """Take an append into account; return what is odd about it, as a rule nothing.

        `largest` is the largest time in `batches`.
        """
        first = batches[0].first
        if first is None or largest is None or largest > append_time_ms:
            return self._look_closer(batches, largest, append_time_ms, now_ms)
        delay_ms = append_time_ms - first
        if delay_ms > self._usual_ms:
            return self._look_closer(batches, largest, append_time_ms, now_ms)
        self.delays[bisect_left(DELAYS_MS, delay_ms)] += 1
        odd = None
        if first < self.reached:
            odd = self._note_late(batches, first, largest, None)
        if largest > self.reached:  # noqa: PLR1730 - max() takes three times as long
            self.reached = largest
        return odd

    def _look_closer(
        self,
        batches: Sequence[PreparedBatch],
        largest: int | None,
        append_time_ms: int,
        now_ms: int,
    ) -> Odd | None:
        """Take an append into account that comes from the future, after long, or without times."""
        first = next((batch.first for batch in batches if batch.first is not None), None)
        if first is None or largest is None:
            self.timeless_batches += 1
            return None
        delay_ms = append_time_ms - first
        self.delays[bisect_left(DELAYS_MS, delay_ms)] += 1
        suspicion = suspect_unit(largest, now_ms) or suspect_unit(first, now_ms)
        longest_ms = self.longest_delay_ms
        if suspicion is None and (longest_ms is None or delay_ms > longest_ms):
            self.longest_delay_ms = longest_ms = delay_ms
        retention_ms, _, slack_ms = self._expected
        usual_ms = _PLAUSIBLE_MS if retention_ms is None else min(retention_ms, _PLAUSIBLE_MS)
        self._usual_ms = -1 if longest_ms is None else min(longest_ms, usual_ms)
        odd = None
        if suspicion is not None:
            odd = Odd(largest, None, 0, 0, suspicion)
        if retention_ms is not None and delay_ms > retention_ms:
            has_missing = any(batch.has_missing for batch in batches)
            behind_ms = now_ms - min(largest, append_time_ms) - retention_ms
            if behind_ms > 0 and not has_missing:
                odd = Odd(largest, BY_TIME, retention_ms, behind_ms, suspicion)
        if first < self.reached:
            odd = self._note_late(batches, first, largest, odd)
        self.reached = max(self.reached, min(largest, capped(append_time_ms, slack_ms)))
        return odd

    def _note_late(
        self, batches: Sequence[PreparedBatch], first: int, largest: int, odd: Odd | None
    ) -> Odd | None:
        """Take into account that an append begins before the largest time so far."""
        late_ms = self.reached - first
        self.late_batches += 1
        self.late_records += batches[-1].last_offset - batches[0].base_offset + 1
        self.lateness[bisect_left(LATENESS_MS, late_ms)] += 1
        if odd is None or odd.suspicion is None:
            self.most_late_ms = max(self.most_late_ms, late_ms)
        event_ms = self._expected.event_ms
        behind_ms = 0 if event_ms is None else self.reached - largest - event_ms
        if event_ms is None or behind_ms <= 0 or (odd is not None and odd.doomed_by is not None):
            return odd
        return Odd(largest, BY_EVENT_TIME, event_ms, behind_ms, odd and odd.suspicion)
