"""All metrics in the text format of Prometheus.

A broker with 25,000 partitions has some 250,000 samples, each a line. The Prometheus library makes an object
and sorts the labels for each. Here the lines of counters and gauges are written at once, and the labels of a
partition once for all its metrics, which takes a fifth of the time. The bytes are those of the library,
which writes the histograms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.http.metrics.collector import FAMILIES, collected
from tidelog.broker.http.metrics.family import COUNTER, GAUGE, Scrape

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.http.metrics.family import Family, Labels
    from tidelog.broker.http.services import Services

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_PLAIN_FROM, _PLAIN_TO = -1_000_000, 1_000_000  # whole numbers that the library writes as they are


def metrics_text(services: Services, registry: Any) -> bytes:
    """Returns every metric of the broker, and those of `registry`, a registry of the library."""
    from prometheus_client import generate_latest

    scrape = Scrape(services)
    shown: dict[tuple[Labels, Labels], str] = {}
    parts: list[str] = []
    try:
        for family in FAMILIES:
            if family.kind in (COUNTER, GAUGE):
                parts += _lines(family, scrape, shown)
            else:
                parts.append(generate_latest(_Alone(collected(family, scrape))).decode())
    finally:
        scrape.shared.clear()  # which refers to the scrape
    parts.append(generate_latest(registry).decode())
    return "".join(parts).encode()


class _Alone:
    """A registry of one metric."""

    def __init__(self, metric: Any) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Any]:
        """Yields the metric."""
        yield self._metric


def _lines(
    family: Family, scrape: Scrape, shown: dict[tuple[Labels, Labels], str]
) -> Iterator[str]:
    """Yields the lines of a counter or a gauge; `shown` has the labels that were written before."""
    name = f"{family.name}_total" if family.kind == COUNTER else family.name
    doc = family.doc.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# HELP {name} {doc}\n# TYPE {name} {family.kind}\n"
    for labels, value in family.read(scrape):
        key = family.labels, labels
        text = shown.get(key)
        if text is None:
            text = shown[key] = _shown(family.labels, labels)
        yield f"{name}{text} {_number(value)}\n"


def _shown(names: Labels, values: Labels) -> str:
    """Returns labels as they are written, in the order of their names."""
    if not names:
        return ""
    pairs = sorted(zip(names, values, strict=True))
    text_of_labels = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)
    return f"{{{text_of_labels}}}"


def _number(value: Any) -> str:
    """Returns a value as the library writes it."""
    if type(value) is int and _PLAIN_FROM < value < _PLAIN_TO:
        return f"{value}.0"
    from prometheus_client.utils import floatToGoString

    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text
