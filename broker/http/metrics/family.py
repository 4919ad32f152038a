"""The declaration of a metric, and the values that the metrics of one scrape share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.broker.http.services import Services
    from tidelog.storage.log.partition import Partition

COUNTER = "counter"
GAUGE = "gauge"
HISTOGRAM = "histogram"


class Buckets(NamedTuple):
    """The value of a histogram: counts by upper bound, and one more for larger values."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float | None  # None where values may be negative, as Prometheus wants it


class Scrape:
    """One reading of all metrics: the broker, and values that several metrics need, computed once."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.now_ms = services.clock.now_ms()
        self.clock = services.clock_watch.status()
        self.shared: dict[str, object] = {}  # values that the metrics of a module share, by module

    @cached_property
    def partitions(self) -> list[Partition]:
        """The partitions that have been used since the start."""
        return self.services.store.opened()


Labels = tuple[str, ...]
Samples = Iterator[tuple[Labels, float | Buckets]]
Read = Callable[[Scrape], Samples]


class Family(NamedTuple):
    """A metric: declared once, for /metrics and for docs/metrics.md."""

    name: str  # without the _total of counters
    kind: str
    doc: str  # a sentence, without its full stop
    labels: Labels
    read: Callable[[Scrape], Iterable[tuple[Labels, float | Buckets]]]
