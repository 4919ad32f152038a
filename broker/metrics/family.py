"""What a declared metric is, and what one reading of all metrics has in hand."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker.node import Node
    from storage.log.partition import Partition

COUNTER = "counter"
GAUGE = "gauge"
HISTOGRAM = "histogram"


class Buckets(NamedTuple):
    """The value of a histogram: counts between upper bounds, one more for what lies above them all."""

    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float | None  # None where values may be negative, as Prometheus wants it


class Scrape:
    """One reading: the node, and what several metrics need of it, gathered once."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.now_ms = node.clock.now_ms()
        self.shared: dict[str, object] = {}  # what a module's metrics have gathered, by its name

    @cached_property
    def partitions(self) -> list[Partition]:
        """The partitions that have been used since the start."""
        return self.node.store.opened()


Labels = tuple[str, ...]


class Family(NamedTuple):
    """A metric: declared once, read into /metrics and into docs/metrics.md."""

    name: str  # without the _total of counters
    kind: str
    doc: str  # a sentence, without its full stop
    labels: Labels
    read: Callable[[Scrape], Iterable[tuple[Labels, float | Buckets]]]
