"""Adds the pieces of an audit up to the audit of a partition, and partitions to that of a topic.

The sums do not depend on how the log was cut. Event times are added up by the finest of these spans
of which a log has at most MOST_SPANS: the hour, the day, 30 days and so on. A piece that needs a
coarser span proves that the whole log needs it, so the piece can be reduced where it was read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.pipeline.engine.audit import Auditor, Counts, Example, better
from tidelog.pipeline.engine.lateness import HOUR_MS, Counted, Lateness
from tidelog.pipeline.engine.tables import Table
from tidelog.storage.time.timestamp import earlier, later

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.pipeline.engine.audit import AuditSettings

SPAN_HOURS: Final = (1, 24, 24 * 30, 24 * 360, 24 * 36_000, 24 * 3_600_000, 24 * 360_000_000)
"""How many hours a span may have; each divides the next one."""

MOST_SPANS: Final = 20_000


class Tables:
    """The sums by event time, and by producer."""

    def __init__(self, hours: Table, delays: Table, late: Counted) -> None:
        """Begins with sums by the hour."""
        self.hours, self.delays, self.late = hours, delays, late
        self.level = 0  # of SPAN_HOURS

    @property
    def span_ms(self) -> int:
        """The length of the spans in ms."""
        return SPAN_HOURS[self.level] * HOUR_MS

    def coarsen_to(self, level: int) -> None:
        """Adds spans up to longer ones."""
        if level <= self.level:
            return
        factor = SPAN_HOURS[level] // SPAN_HOURS[self.level]
        self.hours, self.delays = self.hours.coarsened(factor), self.delays.coarsened(factor)
        cells, worst = self.late.cells.coarsened(factor), self.late.worst.coarsened(factor)
        self.late = self.late._replace(cells=cells, worst=worst)
        self.level = level

    def bound(self, most: int = MOST_SPANS) -> None:
        """Coarsens the spans only as far as necessary for at most `most` of them."""
        while len(self.hours) > most and self.level + 1 < len(SPAN_HOURS):
            self.coarsen_to(self.level + 1)

    def add(self, other: Tables) -> None:
        """Adds the sums of another object."""
        self.coarsen_to(other.level)
        other.coarsen_to(self.level)
        self.hours.merge(other.hours)
        self.delays.merge(other.delays)
        self.late.add(other.late)


class PartialAudit(NamedTuple):
    """The result of one split, small enough to be sent to the driver."""

    topic: str
    partition: int
    start_offset: int
    audit: Audit
    lateness: Lateness


class Audit:
    """The counts of a piece, a partition or a topic."""

    def __init__(self, auditor: Auditor) -> None:
        """Takes the counts of an auditor, except its lateness."""
        self.settings: AuditSettings = auditor.settings
        self.counts: Counts = auditor.counts
        self.least, self.most = auditor.least, auditor.most
        self.least_plausible = auditor.least_plausible
        self.largest = auditor.lateness.largest  # plausible
        self.longest_delay, self.shortest_delay = auditor.longest_delay, auditor.shortest_delay
        self.examples: dict[str, Example] = auditor.examples
        self.newest = auditor.newest
        self.producers = auditor.producers
        nothing = Counted.nothing(auditor.settings.before_limits_ms)
        self.tables = Tables(auditor.hours, auditor.delays, nothing)

    @classmethod
    def nothing(cls, settings: AuditSettings) -> Audit:
        """Returns the audit of no records."""
        return cls(Auditor(settings))

    def add(self, other: Audit) -> None:
        """Adds the records that follow in a partition, or those of another partition."""
        self.counts.add(other.counts)
        self.least = earlier(self.least, other.least)
        self.most = later(self.most, other.most)
        self.least_plausible = earlier(self.least_plausible, other.least_plausible)
        self.largest = later(self.largest, other.largest)
        self.longest_delay = later(self.longest_delay, other.longest_delay)
        self.shortest_delay = earlier(self.shortest_delay, other.shortest_delay)
        for name, example in other.examples.items():
            mine = self.examples.get(name)
            self.examples[name] = example if mine is None else better(name, mine, example)
        self.newest = other.newest or self.newest
        self.producers.merge(other.producers)
        self.tables.add(other.tables)


def partial_audit(topic: str, partition: int, start_offset: int, auditor: Auditor) -> PartialAudit:
    """Returns the counts of an auditor in a form that can be sent."""
    audit = Audit(auditor)
    audit.tables.bound()
    return PartialAudit(topic, partition, start_offset, audit, auditor.lateness)


class Again(NamedTuple):
    """A piece to be read once more, and the largest plausible time before it."""

    number: int
    carry: int


def to_read_again(pieces: Sequence[PartialAudit]) -> list[Again]:
    """Returns the pieces of one partition whose lateness their first records cannot decide."""
    return [
        Again(number, carry)
        for number, (each, carry) in enumerate(zip(pieces, carries(pieces), strict=True))
        if carry is not None and each.lateness.needs(carry)
    ]


def carries(pieces: Iterable[PartialAudit]) -> list[int | None]:
    """Returns the largest plausible time before each piece of one partition, in order."""
    found: list[int | None] = []
    largest: int | None = None
    for each in pieces:
        found.append(largest)
        largest = later(largest, each.audit.largest)
    return found


def partition_audit(
    pieces: Sequence[PartialAudit], settings: AuditSettings, most: int = MOST_SPANS
) -> Audit:
    """Adds up all pieces of one partition, in order.

    Those of `to_read_again` must have been replaced.
    """
    whole = Audit.nothing(settings)
    for each, carry in zip(pieces, carries(pieces), strict=True):
        audit = each.audit
        late = Tables(Table(1, "+"), Table(2, "+"), each.lateness.settle(carry))
        late.coarsen_to(audit.tables.level)
        audit.tables.late = late.late
        whole.add(audit)
    whole.tables.bound(most)
    return whole
