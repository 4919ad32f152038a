"""All metrics, and how each is read as an object of the Prometheus library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.http.metrics.families import (
    build_metrics,
    clock_metrics,
    compaction_metrics,
    disk_metrics,
    group_metrics,
    memory_metrics,
    quota_metrics,
    replication_metrics,
    scrub_metrics,
    serving_metrics,
    time_metrics,
    transaction_metrics,
)
from tidelog.broker.http.metrics.family import COUNTER, GAUGE, Buckets

if TYPE_CHECKING:
    from tidelog.broker.http.metrics.family import Family, Scrape

FAMILIES = (
    *serving_metrics.FAMILIES,
    *build_metrics.FAMILIES,
    *disk_metrics.FAMILIES,
    *memory_metrics.FAMILIES,
    *time_metrics.FAMILIES,
    *clock_metrics.FAMILIES,
    *group_metrics.FAMILIES,
    *compaction_metrics.FAMILIES,
    *scrub_metrics.FAMILIES,
    *replication_metrics.FAMILIES,
    *transaction_metrics.FAMILIES,
    *quota_metrics.FAMILIES,
)


def collected(family: Family, scrape: Scrape) -> Any:
    """Returns a metric as an object of the Prometheus library."""
    from prometheus_client import core

    kinds = {COUNTER: core.CounterMetricFamily, GAUGE: core.GaugeMetricFamily}
    kind: Any = kinds.get(family.kind, core.HistogramMetricFamily)
    metric = kind(family.name, family.doc, labels=family.labels)
    for labels, value in family.read(scrape):
        if not isinstance(value, Buckets):
            metric.add_metric(labels, value)
            continue
        buckets = _cumulative(value)
        metric.add_metric(labels, buckets, value.sum)
        if value.bounds[0] < 0 or value.sum is None:  # the library leaves the count out, too
            named = dict(zip(family.labels, labels, strict=True))
            metric.add_sample(f"{family.name}_count", named, buckets[-1][1])
    return metric


def _cumulative(value: Buckets) -> list[tuple[str, float]]:
    """Returns bucket counts as Prometheus needs them: cumulative, the last one +Inf."""
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*map(str, value.bounds), "+Inf"), value.counts, strict=True):
        total += count
        buckets.append((bound, total))
    return buckets
