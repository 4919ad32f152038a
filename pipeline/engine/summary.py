"""The figures of an audit as they are reported: plain values by name, and rows by event time.

Spans are in ms. Quantiles are upper bounds (see `tables.py`). Names are those of report.json.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tidelog.pipeline.engine.audit import HOUR_COUNTS
from tidelog.pipeline.engine.plausible import UNKNOWN
from tidelog.pipeline.engine.tables import buckets_of, largest_in, quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.pipeline.engine.audit import Example
    from tidelog.pipeline.engine.partial_audits import Audit
    from tidelog.pipeline.engine.tables import Ints, Table

SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999, "p99_99": 0.9999}
ROW_SHARES: Final = {"p50": 0.5, "p99": 0.99, "p99_9": 0.999}
_LARGEST: Final = 2**63 - 1
_SECOND: Final = int(buckets_of(np.array([1000], np.uint64))[0])


def summary(audit: Audit) -> dict[str, Any]:
    """Returns the figures of a partition or a topic."""
    counts, settings = audit.counts, audit.settings
    _, late_buckets, late_counts = audit.tables.late.cells.columns()
    late = int(late_counts.sum())
    return {
        "records": counts.records,
        "bytes": counts.bytes,
        "missing": counts.missing,
        "negative": counts.negative,
        "future": counts.future,
        "suspects": dict(counts.suspects),
        "log_append_time": counts.log_append,
        "append_time_known": counts.append_known,
        "plausible": counts.plausible,
        "out_of_order": late,
        "later_than_a_second": int(late_counts[late_buckets > _SECOND].sum()),
        "least_time_ms": audit.least,
        "largest_time_ms": audit.most,
        "least_plausible_ms": audit.least_plausible,
        "largest_plausible_ms": audit.largest,
        "lateness_ms": _lateness(audit, late_buckets, late_counts, late),
        "delay_ms": _delays(audit),
        "beyond_before": _beyond(settings.before_limits_ms, counts.before),
        "beyond_after": _beyond(settings.after_limits_ms, counts.after),
        "lateness_beyond": _beyond(settings.before_limits_ms, audit.tables.late.beyond),
        "examples": {name: example(each) for name, each in sorted(audit.examples.items())},
        "newest": None if audit.newest is None else example(audit.newest),
        "span_ms": audit.tables.span_ms,
    }


def example(each: Example) -> dict[str, Any]:
    """Returns one example record."""
    found: dict[str, Any] = each._asdict()
    if each.append_time_ms == UNKNOWN:
        found["append_time_ms"] = None
    return found


def _lateness(audit: Audit, buckets: Ints, counts: Ints, late: int) -> dict[str, int | None]:
    plausible = audit.counts.plausible
    all_buckets = np.concatenate([[0], buckets])
    all_counts = np.concatenate([[plausible - late], counts])
    worst = audit.tables.late.worst.columns()[1]
    largest = int(worst.max()) if len(worst) else (0 if plausible else None)
    found: dict[str, int | None] = {
        name: _at_most(quantile(all_buckets, all_counts, share), largest)
        for name, share in SHARES.items()
    }
    return found | {"max": largest}


def _delays(audit: Audit) -> dict[str, int | None]:
    _, buckets, counts = audit.tables.delays.columns()
    found: dict[str, int | None] = {"count": audit.counts.delays}
    for name, share in SHARES.items():
        found[name] = _at_most(quantile(buckets, counts, share), audit.longest_delay)
    return found | {"min": audit.shortest_delay, "max": audit.longest_delay}


def _at_most(value: int | None, largest: int | None) -> int | None:
    return value if value is None or largest is None else min(value, largest)


def _beyond(limits: Sequence[int], counts: Ints) -> list[dict[str, int]]:
    return [
        {"limit_ms": limit, "records": int(count)}
        for limit, count in zip(limits, counts.tolist(), strict=True)
    ]


def late_curve(audit: Audit) -> list[tuple[int, int]]:
    """Returns (lateness, how many records are later), ascending, one pair for each bucket."""
    _, buckets, counts = audit.tables.late.cells.columns()
    known, places = np.unique(buckets, return_inverse=True)
    sums = np.zeros(len(known), np.int64)
    np.add.at(sums, places, counts)
    left = int(sums.sum()) - np.cumsum(sums)
    return [(largest_in(int(b)), int(n)) for b, n in zip(known, left, strict=True)]


def producers(audit: Audit) -> list[dict[str, Any]]:
    """Returns the records and the median delay of each producer that has delays."""
    ids, buckets, counts = audit.producers.columns()
    known, starts = np.unique(ids, return_index=True)
    ends = [*starts.tolist(), len(ids)][1:]
    return [
        {
            "producer_id": int(each),
            "records": int(counts[start:end].sum()),
            "median_delay_ms": quantile(buckets[start:end], counts[start:end], 0.5),
            "p99_delay_ms": quantile(buckets[start:end], counts[start:end], 0.99),
            "least_delay_ms": largest_in(int(buckets[start:end].min())),
        }
        for each, start, end in zip(known, starts.tolist(), ends, strict=True)
    ]


def plot_range(audit: Audit) -> tuple[int, int, int]:
    """Returns what a plot over event time shows: first and last span, and how many to combine.

    On each side up to a thousandth of the plausible records is left out, so that a few records do
    not hide the others.
    """
    hours, records, odd, *_ = audit.tables.hours.columns()
    plausible = np.cumsum(records - odd)
    if not len(hours) or not plausible[-1]:
        return 0, 0, 1
    aside = int(plausible[-1]) // 1000
    first = int(hours[np.searchsorted(plausible, aside, side="right")])
    last = int(hours[np.searchsorted(plausible, plausible[-1] - aside, side="left")])
    spans = last - first + 1
    factor = next((f for f in _FACTORS if spans <= f * (_MOST_BARS - 1)), -(-spans // _MOST_BARS))
    return first // factor * factor, last // factor * factor + factor, factor


_MOST_BARS: Final = 120
_FACTORS: Final = (
    *(1, 2, 3, 6, 12, 24, 48, 24 * 7, 24 * 14, 24 * 28, 24 * 91),
    *(24 * 365 * years for years in (1, 2, 5, 10, 20, 50, 100)),
)


def rows(audit: Audit, factor: int = 1) -> dict[str, list[Any]]:
    """Returns columns with a row for each span of event time.

    A row covers `factor` times the `span_ms` of the summary.
    """
    tables = audit.tables
    span_ms = tables.span_ms * factor
    hour_table, cells, worst_table, delay_table = (
        table if factor == 1 else table.coarsened(factor)
        for table in (tables.hours, tables.late.cells, tables.late.worst, tables.delays)
    )
    hours, *values = hour_table.columns()
    found: dict[str, list[Any]] = {"event_ms": (hours * span_ms).tolist()}
    for name, column in zip((*HOUR_COUNTS, "least_ms", "largest_ms"), values, strict=True):
        found[name] = column.tolist()
    late = _sums(hours, cells)
    found["out_of_order"] = late.tolist()
    found["later_than_a_second"] = _sums(hours, cells, over=_SECOND).tolist()
    worst_hours, worst = worst_table.columns()
    largest = np.zeros(len(hours), np.int64)
    largest[np.searchsorted(hours, worst_hours)] = worst
    found["max_lateness_ms"] = largest.tolist()
    plausible = values[0] - values[1]
    for name, share in ROW_SHARES.items():
        found[f"lateness_{name}_ms"] = _quantiles(hours, cells, share, plausible - late, plausible)
    delays = _sums(hours, delay_table)
    found["delays"] = delays.tolist()
    nothing = np.zeros(len(hours), np.int64)
    for name, share in ROW_SHARES.items():
        found[f"delay_{name}_ms"] = _quantiles(hours, delay_table, share, nothing, delays)
    return found


def _sums(groups: Ints, cells: Table, over: int = -(2**62)) -> Ints:
    """Returns how many values each group has in the buckets after `over`."""
    keys, buckets, counts = cells.columns()
    keys, counts = keys[buckets > over], counts[buckets > over]
    sums = np.zeros(len(groups), np.int64)
    np.add.at(sums, np.searchsorted(groups, keys), counts)
    return sums


def _quantiles(
    groups: Ints, cells: Table, share: float, zeros: Ints, totals: Ints
) -> list[int | None]:
    """Returns a quantile of each group; `zeros` of its values are below all values in the cells."""
    keys, buckets, counts = cells.columns()
    millionths = round(share * 1_000_000)
    ranks = np.maximum(-(-totals * millionths // 1_000_000), 1)
    reached = np.cumsum(counts)
    before = np.concatenate([np.zeros(1, np.int64), reached])[np.searchsorted(keys, groups)]
    places = np.searchsorted(reached, before + ranks - zeros)
    # Two times may be further apart than a column of int64 can say.
    return [
        None if not total else 0 if rank <= zero else min(largest_in(int(buckets[place])), _LARGEST)
        for total, rank, zero, place in zip(
            totals.tolist(), ranks.tolist(), zeros.tolist(), places.tolist(), strict=True
        )
    ]
