"""Counts unusual times of arriving records by topic, and logs them at a bounded rate.

The rules are in `storage.time.arrivals`; an append returns the anomalies that they found. Records that are
expired on arrival, and times that look like another unit, are logged at once, and then for each topic at
most once a minute of the broker's clock, with the count since the last line. The zero times of clients are
logged once for each topic. For the metric of findings, the results of `storage.log.retention.diagnosis` are
cached for each log.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from tidelog.config.instants import to_iso
from tidelog.storage.time.arrivals import (
    ZERO_TIMES,
    find_unit_mismatch,
    missing_values_with_zero_times,
    zero_time,
)
from tidelog.storage.time.retention import BY_EVENT_TIME, BY_TIME
from tidelog.storage.time.timestamp import is_due

if TYPE_CHECKING:
    from tidelog.broker.clock import Clock
    from tidelog.protocol.errors import InvalidTimestamp
    from tidelog.storage.log.partition import Appended, Partition
    from tidelog.storage.log.retention.findings import Readings
    from tidelog.storage.time.arrivals import TimeAnomaly, UnitMismatch

log = logging.getLogger("tidelog.times")

_INTERVAL_MS = 60_000

# Advice for records that are expired on arrival, by policy.
_ADVICE = {
    BY_TIME: (
        "the first round of retention that finds nothing younger in their segment deletes them. "
        "retention.time.basis=append keeps records for retention.ms from when they were written; "
        "a larger retention.ms keeps older ones; retention.refuse.expired=true refuses them instead"
    ),
    BY_EVENT_TIME: (
        "when their grace is over, the first round of retention that finds nothing younger in their "
        "segment deletes them. A larger retention.max.eventtime.ms keeps older ones; "
        "retention.max.eventtime.grace.ms is the time there is to read them"
    ),
}


class TopicAnomalies:
    """The counters of one topic."""

    __slots__ = (
        "expired_on_arrival",
        "last_mismatches",
        "refused_batches",
        "refused_records",
        "unit_mismatches",
        "zero_times",
    )

    def __init__(self) -> None:
        self.expired_on_arrival: defaultdict[str, int] = defaultdict(int)  # records, by policy
        self.unit_mismatches: defaultdict[str, int] = defaultdict(int)  # batches, by unit
        self.zero_times: defaultdict[int, int] = defaultdict(int)  # batches, by the time
        self.last_mismatches: dict[str, UnitMismatch] = {}  # by unit
        self.refused_batches = 0  # appends refused for a record outside the window
        self.refused_records = 0  # the records of those appends that are outside the window


class _Due(NamedTuple):
    """When the next line of a kind may be logged for a topic, and the count since the last one."""

    after_ms: int
    unlogged: int


class _Examined(NamedTuple):
    """The findings in a log, and the state of the log that they depend on."""

    state: tuple[object, ...]
    kinds: frozenset[str]


class TimeWatch:
    """Counts and logs unusual times, and caches the findings about the times of logs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[tuple[str, str], _Due] = {}
        self._examined: dict[tuple[str, int], _Examined] = {}
        self.topics: defaultdict[str, TopicAnomalies] = defaultdict(TopicAnomalies)

    def drop_topic(self, topic: str) -> None:
        """Drops the counters of a deleted topic."""
        self.topics.pop(topic, None)
        self._due = {key: due for key, due in self._due.items() if key[0] != topic}
        for key in list(self._examined):  # a scrape may add to it meanwhile
            if key[0] == topic:
                self._examined.pop(key, None)

    def examined(self, partition: Partition, readings: Readings) -> frozenset[str]:
        """Returns the kinds of findings in a log, without reading its segments; raises KafkaStorageError.

        A log that has not changed is examined again once a minute: a scrape of ten thousand idle logs
        would take a second otherwise. Different logs are examined at different times of the minute.
        """
        key = partition.topic, partition.index
        phase_ms = hash(key) % _INTERVAL_MS
        state = (
            partition,
            partition.config,
            partition.log_start_offset,
            partition.log_end_offset,
            partition.last_append_time,
            (readings.now_ms + phase_ms) // _INTERVAL_MS,
            (readings.deletion_ms + phase_ms) // _INTERVAL_MS,
            readings.check_interval_ms,
        )
        known = self._examined.get(key)
        if known is None or known.state != state:
            from tidelog.storage.log.retention.diagnosis import diagnose

            findings = diagnose(partition.retainer.facts(), partition.config, readings)
            known = _Examined(state, frozenset(finding.kind for finding in findings))
            self._examined[key] = known
        return known.kinds

    def note_anomaly(self, partition: Partition, appended: Appended, anomaly: TimeAnomaly) -> None:
        """Counts the unusual times of an append, and logs them if a line is due."""
        counts = self.topics[partition.topic]
        if anomaly.unit_mismatch is not None:
            self._count_unit_mismatch(partition, counts, anomaly.unit_mismatch)
        if anomaly.zero_time is not None:
            _count_zero_time(partition, counts, anomaly.zero_time)
        if anomaly.expired_by is None:
            return
        counts.expired_on_arrival[anomaly.expired_by] += appended.count
        count = self._count_to_log(partition.topic, anomaly.expired_by, appended.count)
        if count:
            log.warning(
                "records expired on arrival",
                extra={
                    "topic": partition.topic,
                    "partition": partition.index,
                    "records": count,
                    "newest_ms": anomaly.largest,
                    "newest": to_iso(anomaly.largest),
                    "policy": anomaly.expired_by,
                    "limit_ms": anomaly.limit_ms,
                    "beyond_ms": anomaly.behind_ms,
                    "advice": _ADVICE[anomaly.expired_by],
                },
            )

    def refused(self, partition: Partition, error: InvalidTimestamp) -> None:
        """Counts a refused append if it was refused for times outside the window."""
        if not error.outside:
            return
        counts = self.topics[partition.topic]
        counts.refused_batches += 1
        counts.refused_records += error.outside
        unit_mismatch = find_unit_mismatch(error.timestamp, self._clock.now_ms())
        if unit_mismatch is not None:
            self._count_unit_mismatch(partition, counts, unit_mismatch)
        if zero_time(error.timestamp) is not None:
            _count_zero_time(partition, counts, error.timestamp)

    def _count_unit_mismatch(
        self, partition: Partition, counts: TopicAnomalies, unit_mismatch: UnitMismatch
    ) -> None:
        timestamp, unit, meant = unit_mismatch
        counts.last_mismatches[unit] = unit_mismatch
        counts.unit_mismatches[unit] += 1
        count = self._count_to_log(partition.topic, unit, 1)
        if count:
            log.warning(
                "record times in a wrong unit arrived",
                extra={
                    "topic": partition.topic,
                    "partition": partition.index,
                    "batches": count,
                    "timestamp": timestamp,
                    "looks_like": unit,
                    "meant": to_iso(meant),
                    "taken_as": to_iso(timestamp),
                    "advice": "times in Kafka are milliseconds",
                },
            )

    def _count_to_log(self, topic: str, kind: str, count: int) -> int:
        """Adds to the count since the last line; returns it if a line is due now, else 0."""
        now_ms = self._clock.steady_ms()
        due = self._due.get((topic, kind))
        if due is not None:
            count += due.unlogged
            if not is_due(due.after_ms, now_ms):
                self._due[topic, kind] = _Due(due.after_ms, count)
                return 0
        self._due[topic, kind] = _Due(now_ms + _INTERVAL_MS, 0)
        return count


def _count_zero_time(partition: Partition, counts: TopicAnomalies, timestamp: int) -> None:
    """Counts a batch with a zero time, and logs the first of its topic."""
    is_first = not counts.zero_times
    counts.zero_times[timestamp] += 1
    if is_first:
        log.warning(
            "record time looks like a missing time",
            extra={
                "topic": partition.topic,
                "partition": partition.index,
                "timestamp": timestamp,
                "looks_like": ZERO_TIMES[timestamp],
                "advice": "the producer has probably set no time; to store such records without a time, "
                f"and retain them from their append on: `tidelog configs set {partition.topic} "
                f"message.timestamp.missing.values={missing_values_with_zero_times(partition.config)}`",
            },
        )
