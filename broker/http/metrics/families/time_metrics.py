"""Metrics of time: late, early and expired arrivals, the age of the stored records, and the next deletion.

The metrics are by topic, so that many partitions cost little; by partition only those that an operator needs
there, and only where they occur. Partitions keep the counts themselves, from their first use after a
start; those of a deleted topic are lost with it. The longest latency survives restarts. The counts are of
batches: format-2 batches, or message sets of format 0 or 1.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.http.metrics.family import COUNTER, GAUGE, HISTOGRAM, Buckets, Family, Scrape
from tidelog.storage.log.retention.findings import Readings
from tidelog.storage.time.append_time import ahead
from tidelog.storage.time.arrivals import DELAYS_MS, LATENESS_MS, Arrivals
from tidelog.storage.time.timestamp import earlier, later, left

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.http.metrics.family import Read, Samples
    from tidelog.broker.metrics.time_watch import TopicAnomalies
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.retention.known_times import KnownTimes


_DELAYS_S = tuple(bound / 1000 for bound in DELAYS_MS)
_LATENESS_S = tuple(bound / 1000 for bound in LATENESS_MS)


class _Arrived:
    """The arrivals of a topic, summed over its partitions."""

    def __init__(self) -> None:
        self.delays: Sequence[int] = ()
        self.lateness: Sequence[int] = ()
        self.late_batches = self.late_records = self.timeless_batches = 0
        self.most_late_ms = 0

    def add(self, arrivals: Arrivals) -> None:
        """Adds the counts of a partition."""
        self.delays = _sums(self.delays, arrivals.delays)
        self.lateness = _sums(self.lateness, arrivals.lateness)
        self.late_batches += arrivals.late_batches
        self.late_records += arrivals.late_records
        self.timeless_batches += arrivals.timeless_batches
        self.most_late_ms = max(self.most_late_ms, arrivals.most_late_ms)


def _sums(counts: Sequence[int], more: Sequence[int]) -> Sequence[int]:
    return [one + other for one, other in zip(counts, more, strict=True)] if counts else list(more)


class _OpenTimes(NamedTuple):
    """The times of a topic's open partitions, and their next deletion."""

    oldest_event: int | None = None
    largest_record: int | None = None
    oldest_append: int | None = None
    newest_append: int | None = None
    next_policy: str | None = None
    next_due_ms: int | None = None

    def plus(self, partition: Partition, times: KnownTimes) -> _OpenTimes:
        """Returns the values with those of one more partition."""
        policy, due_ms = self.next_policy, self.next_due_ms
        if times.next_due_ms is not None and (due_ms is None or times.next_due_ms < due_ms):
            policy, due_ms = times.next_policy, times.next_due_ms
        return _OpenTimes(
            earlier(times.first_event_time, self.oldest_event),
            later(times.largest_record_time, self.largest_record),
            earlier(times.first_append_time, self.oldest_append),
            later(partition.last_append_time, self.newest_append),
            policy,
            due_ms,
        )


class _TimeScrape:
    """Values that the metrics of time share in one scrape."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    @cached_property
    def arrived(self) -> dict[str, _Arrived]:
        """The arrivals by topic."""
        topics: dict[str, _Arrived] = {}
        for partition in self._scrape.partitions:
            arrivals = partition.arrivals
            if any(arrivals.delays) or arrivals.timeless_batches:
                topics.setdefault(partition.topic, _Arrived()).add(arrivals)
        return topics

    @cached_property
    def open_times(self) -> dict[str, _OpenTimes]:
        """The times and the next deletion by topic."""
        topics: dict[str, _OpenTimes] = {}
        known = self._scrape.services.metadata.image.topics
        for partition in self._scrape.partitions:
            if partition.topic in known:  # logs of no topic are never deleted from
                open_times = topics.get(partition.topic, _OpenTimes())
                times = partition.retainer.known_times(self._scrape.clock.deletion_ms)
                topics[partition.topic] = open_times.plus(partition, times)
        return topics

    @cached_property
    def findings(self) -> Counter[tuple[str, str]]:
        """The number of partitions with each finding of a diagnosis, by topic and finding."""
        services = self._scrape.services
        readings = Readings(
            self._scrape.now_ms,
            self._scrape.clock.deletion_ms,
            services.config.log_retention_check_interval_ms,
        )
        found: Counter[tuple[str, str]] = Counter()
        for partition in self._scrape.partitions:
            if partition.topic in services.metadata.image.topics and partition.offline is None:
                kinds = services.time_watch.examined(partition, readings)
                found.update((partition.topic, kind) for kind in kinds)
        return found


def _shared(scrape: Scrape) -> _TimeScrape:
    found = scrape.shared.get(__name__)
    if not isinstance(found, _TimeScrape):
        found = scrape.shared[__name__] = _TimeScrape(scrape)
    return found


# --- how they are read ---------------------------------------------------------------------------


def _of_arrived(attribute: str, divisor: int = 1) -> Read:
    """Declares a number of each topic's arrivals; None is left out."""

    def read(scrape: Scrape) -> Samples:
        for topic, arrived in _shared(scrape).arrived.items():
            value = getattr(arrived, attribute)
            if value is not None:
                yield (topic,), value / divisor if divisor > 1 else value

    return read


def _of_open_times(attribute: str) -> Read:
    """Declares a time of each topic's open partitions; None is left out."""

    def read(scrape: Scrape) -> Samples:
        for topic, open_times in _shared(scrape).open_times.items():
            value = getattr(open_times, attribute)
            if value is not None:
                yield (topic,), value

    return read


def _of_anomalies(attribute: str) -> Read:
    def read(scrape: Scrape) -> Samples:
        for topic, anomalies in _anomalies(scrape):
            yield (topic,), getattr(anomalies, attribute)

    return read


def _by_kind(attribute: str) -> Read:
    def read(scrape: Scrape) -> Samples:
        for topic, anomalies in _anomalies(scrape):
            for kind, count in dict(getattr(anomalies, attribute)).items():
                yield (topic, str(kind)), count

    return read


def _anomalies(scrape: Scrape) -> list[tuple[str, TopicAnomalies]]:
    return list(dict(scrape.services.time_watch.topics).items())


def _delays(scrape: Scrape) -> Samples:
    for topic, arrived in _shared(scrape).arrived.items():
        yield (topic,), Buckets(_DELAYS_S, arrived.delays, None)


def _max_latency(scrape: Scrape) -> Samples:
    topics: dict[str, int | None] = {}
    for (topic, _), delay_ms in scrape.services.store.longest_delays_ms().items():
        topics[topic] = later(delay_ms, topics.get(topic))
    for topic, longest_ms in topics.items():
        if longest_ms is not None:
            yield (topic,), longest_ms / 1000


def _lateness(scrape: Scrape) -> Samples:
    for topic, arrived in _shared(scrape).arrived.items():
        if arrived.late_batches:
            yield (topic,), Buckets(_LATENESS_S, arrived.lateness, None)


def _next_expiry(scrape: Scrape) -> Samples:
    for topic, open_times in _shared(scrape).open_times.items():
        if open_times.next_policy is not None and open_times.next_due_ms is not None:
            yield (
                (topic, open_times.next_policy),
                left(open_times.next_due_ms, scrape.clock.deletion_ms) / 1000,
            )


def _ahead(scrape: Scrape) -> Samples:
    for partition in scrape.partitions:
        ahead_ms = ahead(partition.last_append_time, scrape.now_ms)
        if ahead_ms:
            yield (partition.topic, str(partition.index)), ahead_ms


def _findings(scrape: Scrape) -> Samples:
    yield from _shared(scrape).findings.items()


_TOPIC = ("topic",)

FAMILIES = (
    Family(
        "tidelog_append_delay_seconds",
        HISTOGRAM,
        "Append time minus event time of a batch's first record; the lowest bucket holds batches from the "
        "future, of which there is no sum",
        _TOPIC,
        _delays,
    ),
    Family(
        "tidelog_max_latency_seconds",
        GAUGE,
        "Largest append time minus event time of a batch's first record, ever (KIP-33's MaxLatency); times "
        "that look like another unit, or lie more than ten years back, are left out",
        _TOPIC,
        _max_latency,
    ),
    Family(
        "tidelog_late_batches",
        COUNTER,
        "Batches whose first event time is behind the largest that came before it in its partition",
        _TOPIC,
        _of_arrived("late_batches"),
    ),
    Family(
        "tidelog_late_records",
        COUNTER,
        "Records in late batches",
        _TOPIC,
        _of_arrived("late_records"),
    ),
    Family(
        "tidelog_lateness_seconds",
        HISTOGRAM,
        "How far late batches are behind; only of topics that have any",
        _TOPIC,
        _lateness,
    ),
    Family(
        "tidelog_max_lateness_seconds",
        GAUGE,
        "How far the latest of late batches lay behind; times that look like another unit, or lie more than "
        "ten years back, are left out",
        _TOPIC,
        _of_arrived("most_late_ms", 1000),
    ),
    Family(
        "tidelog_batches_without_time",
        COUNTER,
        "Batches without any time: format 0, or -1",
        _TOPIC,
        _of_arrived("timeless_batches"),
    ),
    Family(
        "tidelog_doomed_records",
        COUNTER,
        "Records that arrived older than their retention allows, by the policy that deletes them; "
        "counted where a whole batch is",
        ("topic", "policy"),
        _by_kind("expired_on_arrival"),
    ),
    Family(
        "tidelog_suspect_time_batches",
        COUNTER,
        "Batches with a first or largest time that looks like another unit, refused ones included",
        ("topic", "unit"),
        _by_kind("unit_mismatches"),
    ),
    Family(
        "tidelog_zero_time_batches",
        COUNTER,
        "Batches with a first or largest time that is the zero time of Go or .NET, refused ones included",
        ("topic", "time"),
        _by_kind("zero_times"),
    ),
    Family(
        "tidelog_window_refused_batches",
        COUNTER,
        "Appends refused for records outside the topic's time window",
        _TOPIC,
        _of_anomalies("refused_batches"),
    ),
    Family(
        "tidelog_window_refused_records",
        COUNTER,
        "Records that lay outside the topic's time window",
        _TOPIC,
        _of_anomalies("refused_records"),
    ),
    Family(
        "tidelog_oldest_event_time_ms",
        GAUGE,
        "First event time of the oldest segment that has any",
        _TOPIC,
        _of_open_times("oldest_event"),
    ),
    Family(
        "tidelog_largest_record_time_ms",
        GAUGE,
        "Largest record time that is still there, as it came",
        _TOPIC,
        _of_open_times("largest_record"),
    ),
    Family(
        "tidelog_oldest_append_time_ms",
        GAUGE,
        "First append time of the oldest segment",
        _TOPIC,
        _of_open_times("oldest_append"),
    ),
    Family(
        "tidelog_newest_append_time_ms",
        GAUGE,
        "Last append time",
        _TOPIC,
        _of_open_times("newest_append"),
    ),
    Family(
        "tidelog_next_expiry_seconds",
        GAUGE,
        "Until the next segment of the topic is due, if nothing is appended, by the policy that deletes it; "
        "0: with the next round",
        ("topic", "policy"),
        _next_expiry,
    ),
    Family(
        "tidelog_append_time_ahead_ms",
        GAUGE,
        "How far a last append time is ahead of the clock; only where it is. More than ten seconds are "
        "corrected by the next append, or where other brokers have copies by tidelog clock reset",
        ("topic", "partition"),
        _ahead,
    ),
    Family(
        "tidelog_time_findings",
        GAUGE,
        "Open partitions in which tidelog doctor finds something, as far as can be said without reading",
        ("topic", "finding"),
        _findings,
    ),
)
