"""Statistics and warnings about the times of records as they arrive.

Counts how late they are, and reports records that are expired on arrival, whose times look like
another unit (seconds, microseconds, nanoseconds), or whose times are the zero times of languages.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.time.event_time import capped, event_slack
from tidelog.storage.time.retention import BY_EVENT_TIME, BY_TIME, retention_of
from tidelog.storage.time.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.config.topic import TopicConfig
    from tidelog.protocol.records.plan import PreparedBatch

DELAYS_MS = (
    *(-1, 0, 10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000),
    *(604_800_000, 2_592_000_000, 31_536_000_000),
)

LATENESS_MS = (10, 100, 1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000, 604_800_000)

_PLAUSIBLE_MS = 315_576_000_000  # ten years: a time this near to now is plausible in milliseconds

# What clients send that have no time: an unset time in the clients' languages.
ZERO_TIMES = {
    -62_135_596_800_000: "year 1, the zero time of Go and .NET",
    -6_795_364_578_871: "the zero time of Go in nanoseconds, which overflows to 1754",
}

_UNITS = (("seconds", 1_000, 1), ("microseconds", 1, 1_000), ("nanoseconds", 1, 1_000_000))


class UnitMismatch(NamedTuple):
    """A time that was probably meant in another unit than milliseconds."""

    timestamp: int
    unit: str
    meant: int  # the time in milliseconds if `timestamp` is in that unit


def find_unit_mismatch(timestamp: int, now_ms: int) -> UnitMismatch | None:
    """Returns the other unit that was probably meant, None if milliseconds are plausible.

    A time is a mismatch if it is more than ten years from now, but within ten years of now when
    read as seconds, microseconds or nanoseconds. This is a guess: events of 1970-01-17 to
    1970-01-25 look like today's times in seconds, and an old time in another unit may be plausible
    in milliseconds.
    """
    if abs(timestamp - now_ms) <= _PLAUSIBLE_MS:
        return None
    for unit, factor, divisor in _UNITS:
        meant = timestamp * factor // divisor
        if abs(meant - now_ms) <= _PLAUSIBLE_MS:
            return UnitMismatch(timestamp, unit, meant)
    return None


def stored_unit_mismatch(
    timestamp: int | None, append_time_ms: int | None, now_ms: int
) -> UnitMismatch | None:
    """Returns the other unit that was probably meant by the time of a record in a log.

    None unless it looks so now and at its append. So a clock that is wrong, now or then, makes no
    time of a right producer look mistaken.
    """
    if timestamp is None:
        return None
    found = find_unit_mismatch(timestamp, now_ms)
    if found is None or append_time_ms is None:
        return found
    then = find_unit_mismatch(timestamp, append_time_ms)
    return None if then is None or then.unit != found.unit else found


MISTAKEN_UNITS = tuple(unit for unit, _, _ in _UNITS)


def usual_range(now_ms: int) -> tuple[int, int]:
    """Returns the smallest and the largest time for which `find_unit_mismatch` returns None.

    Loops over columns compare with these two instead of calling it for each time.
    """
    return max(now_ms - _PLAUSIBLE_MS, MIN_TIMESTAMP), min(now_ms + _PLAUSIBLE_MS, MAX_TIMESTAMP)


def is_within(timestamp: int | None, usual: tuple[int, int]) -> bool:
    """Returns whether a time is missing, or in a range that `usual_range` returned."""
    return timestamp is None or usual[0] <= timestamp <= usual[1]


def unit_mismatch_ranges(now_ms: int) -> list[tuple[str, int, int]]:
    """Returns (unit, smallest time, largest time) for each other unit, for loops over columns.

    For a time outside `usual_range`, the first of these ranges that holds it names the unit that
    `find_unit_mismatch` returns.
    """
    return [
        (
            unit,
            max(-((_PLAUSIBLE_MS - now_ms) * divisor // factor), MIN_TIMESTAMP),
            min(((now_ms + _PLAUSIBLE_MS + 1) * divisor - 1) // factor, MAX_TIMESTAMP),
        )
        for unit, factor, divisor in _UNITS
    ]


def zero_time(*times: int | None) -> int | None:
    """Returns the first of these times that is a zero time, None if none is."""
    return next((time for time in times if time in ZERO_TIMES), None)


def missing_values_with_zero_times(config: TopicConfig) -> str:
    """Returns message.timestamp.missing.values with the zero times added, as the setting is written."""
    return ",".join(map(str, sorted({*config.message_timestamp_missing_values, *ZERO_TIMES})))


class TimeAnomaly(NamedTuple):
    """What is unusual about the times of one append."""

    largest: int
    expired_by: str | None  # the policy by which all its records are expired on arrival
    limit_ms: int  # the setting of that policy
    behind_ms: int  # by how much the append exceeds that setting
    unit_mismatch: UnitMismatch | None
    zero_time: int | None = None  # one that the append has


class Expected(NamedTuple):
    """The limits of a topic's settings beyond which a time is unusual."""

    retention_ms: int | None  # None also where retention.ms counts from append times
    event_ms: int | None
    slack_ms: int


def expected_of(config: TopicConfig) -> Expected:
    """Returns the limits that a topic's settings imply."""
    retention = retention_of(config)
    return Expected(
        None if retention.by_append else retention.retention_ms,
        retention.event_ms,
        event_slack(config),
    )


class Arrivals:
    """Counters of how the times of a partition's appends compare with their append times."""

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
        "zero_batches",
        "zero_time",
    )

    def __init__(self, config: TopicConfig) -> None:
        """Begins with no appends."""
        self.delays = [0] * (len(DELAYS_MS) + 1)  # append - first event time, by DELAYS_MS
        # Of all appends ever, kept over restarts by the log directory. Unit mismatches and times
        # more than ten years back are excluded: one absurd time would be the maximum for ever.
        self.longest_delay_ms: int | None = None
        self.late_batches = 0  # whose first time is smaller than a time that came before
        self.late_records = 0  # the records of those batches
        self.lateness = [0] * (len(LATENESS_MS) + 1)  # late batches, by LATENESS_MS
        self.most_late_ms = 0  # the same are excluded
        self.timeless_batches = 0  # no record has a time
        self.zero_batches = 0  # whose first or largest time is a zero time
        self.zero_time: int | None = None  # the last of those
        # The largest event time so far, each counted at most a bounded way beyond its append time:
        # one absurd stamp must not make all that follows late.
        self.reached = MIN_TIMESTAMP
        self.expect(config)

    def begin(self, largest_event: int | None) -> None:
        """Continues from the largest event time that was reached before; None: from none."""
        self.reached = MIN_TIMESTAMP if largest_event is None else largest_event

    def expect(self, config: TopicConfig) -> None:
        """Applies these settings from now on."""
        self._expected = expected_of(config)
        self._usual_ms = -1  # delays up to this need no closer look

    def note(
        self,
        batches: Sequence[PreparedBatch],
        largest: int | None,
        append_time_ms: int,
        now_ms: int,
    ) -> TimeAnomaly | None:
        """Counts an append; returns what is unusual about its times, None as a rule.

        `largest` is the largest time in `batches`.
        """
        first = batches[0].first
        if first is None or largest is None or largest > append_time_ms:
            return self._note_unusual(batches, largest, append_time_ms, now_ms)
        delay_ms = append_time_ms - first
        if delay_ms > self._usual_ms:
            return self._note_unusual(batches, largest, append_time_ms, now_ms)
        self.delays[bisect_left(DELAYS_MS, delay_ms)] += 1
        anomaly = None
        if first < self.reached:
            anomaly = self._note_late(batches, first, largest, None)
        if largest > self.reached:  # noqa: PLR1730 - max() takes three times as long
            self.reached = largest
        return anomaly

    def _note_unusual(
        self,
        batches: Sequence[PreparedBatch],
        largest: int | None,
        append_time_ms: int,
        now_ms: int,
    ) -> TimeAnomaly | None:
        """Counts an append with a time in the future, an unusually long delay, or no time."""
        first = next((batch.first for batch in batches if batch.first is not None), None)
        if first is None or largest is None:
            self.timeless_batches += 1
            return None
        delay_ms = append_time_ms - first
        self.delays[bisect_left(DELAYS_MS, delay_ms)] += 1
        unit_mismatch = find_unit_mismatch(largest, now_ms) or find_unit_mismatch(first, now_ms)
        longest_ms = self.longest_delay_ms
        is_plausible = unit_mismatch is None and delay_ms <= _PLAUSIBLE_MS
        if is_plausible and (longest_ms is None or delay_ms > longest_ms):
            self.longest_delay_ms = longest_ms = max(delay_ms, 0)
        retention_ms, _, slack_ms = self._expected
        usual_ms = _PLAUSIBLE_MS if retention_ms is None else min(retention_ms, _PLAUSIBLE_MS)
        self._usual_ms = -1 if longest_ms is None else min(longest_ms, usual_ms)
        anomaly, zero = None, zero_time(largest, first)
        if zero is not None:
            self.zero_batches, self.zero_time = self.zero_batches + 1, zero
        if unit_mismatch is not None or zero is not None:
            anomaly = TimeAnomaly(largest, None, 0, 0, unit_mismatch, zero)
        if retention_ms is not None and delay_ms > retention_ms:
            has_missing = any(batch.has_missing for batch in batches)
            behind_ms = now_ms - min(largest, append_time_ms) - retention_ms
            if behind_ms > 0 and not has_missing:
                anomaly = TimeAnomaly(
                    largest, BY_TIME, retention_ms, behind_ms, unit_mismatch, zero
                )
        if first < self.reached:
            anomaly = self._note_late(batches, first, largest, anomaly)
        self.reached = max(self.reached, min(largest, capped(append_time_ms, slack_ms)))
        return anomaly

    def _note_late(
        self,
        batches: Sequence[PreparedBatch],
        first: int,
        largest: int,
        anomaly: TimeAnomaly | None,
    ) -> TimeAnomaly | None:
        """Counts an append whose first time is smaller than the largest time so far."""
        late_ms = self.reached - first
        self.late_batches += 1
        self.late_records += batches[-1].last_offset - batches[0].base_offset + 1
        self.lateness[bisect_left(LATENESS_MS, late_ms)] += 1
        if late_ms <= _PLAUSIBLE_MS and (anomaly is None or anomaly.unit_mismatch is None):
            self.most_late_ms = max(self.most_late_ms, late_ms)
        event_ms = self._expected.event_ms
        behind_ms = 0 if event_ms is None else self.reached - largest - event_ms
        if (
            event_ms is None
            or behind_ms <= 0
            or (anomaly is not None and anomaly.expired_by is not None)
        ):
            return anomaly
        expired = TimeAnomaly(largest, BY_EVENT_TIME, event_ms, behind_ms, None)
        if anomaly is None:
            return expired
        return expired._replace(unit_mismatch=anomaly.unit_mismatch, zero_time=anomaly.zero_time)
