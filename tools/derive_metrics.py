"""Writes docs/metrics.md from the declarations of the broker's metrics.

`python tools/derive_metrics.py` writes the page. With `--check` it writes nothing and exits with
status 1 if the page is stale.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

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
from tidelog.broker.http.metrics.family import COUNTER, HISTOGRAM
from tools.derived import write_or_check

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.http.metrics.family import Family

PAGE = ROOT / "docs" / "metrics.md"

_HEAD = """\
# Metrics

This page is derived from the declarations in `broker/http/metrics/families/` by
`make derive`; do not edit it.

`GET /metrics` on the HTTP port answers in Prometheus' text format; the Python client adds its own
`process_*` and `python_info`. Names are Kafka's own where dashboards expect them, as the JMX exporter
writes them. Points in time are milliseconds since 1970 and end in `_ms`; spans are seconds unless
their name says otherwise. Counters begin at 0 with the process. What is kept per topic or partition
is there from when it is first used after a start, and goes when the topic is deleted.
"""

_TIME = """\
## Of time

What they mean is on [the page about time](time.md). About thirty series a topic, ten more where
batches come late; none per partition, except where a partition's append time is ahead of the clock.
A batch is a format-2 batch, or a set of messages of format 0 or 1.
"""


_CLOCK = """\
## Of the clock

What a leap and a correction are is on [the page about time](time.md#when-the-clock-is-wrong).
"""

_GROUPS = """\
## Of consumer groups

One series for each partition a group has committed an offset of, two for its seconds. What lag in
seconds means is on [the page about groups](groups.md).
"""

_COMPACTION = """\
## Of compaction

Ratios and delays are as of the last time a round looked at every log (`log.cleaner.backoff.ms`). A log
is uncleanable from when it could not be read, or a cleaning of it made no progress
(`log.cleaner.progress.timeout.ms`), until the next start, or until somebody asks for it.
"""

_TRANSACTIONS = """\
## Of transactions

A partition has series only while its last stable offset is below the high watermark. What holds it back
is on [the page about transactions](transactions.md#what-hangs).
"""

_REPLICATION = """\
## Of replication

Those of `kafka_server_` are of this broker. Those of `kafka_controller_kafkacontroller_` are of the
cluster, and every broker has them by what it knows: take the largest, not the sum.
"""


_QUOTAS = """\
## Of quotas

One series for each user, client id, or both, that has the quota, all its clients together. See [the page
about quotas](quotas.md).
"""


def page() -> str:
    """Returns the whole page."""
    return "\n".join(
        (
            _HEAD,
            _TIME,
            _table(time_metrics.FAMILIES),
            _CLOCK,
            _table(clock_metrics.FAMILIES),
            _GROUPS,
            _table(group_metrics.FAMILIES),
            _TRANSACTIONS,
            _table(transaction_metrics.FAMILIES),
            _REPLICATION,
            _table(replication_metrics.FAMILIES),
            _COMPACTION,
            _table(compaction_metrics.FAMILIES),
            "## Of scrubbing\n",
            _table(scrub_metrics.FAMILIES),
            "## Of serving\n",
            _table(serving_metrics.FAMILIES),
            "## Of disks\n",
            _table(disk_metrics.FAMILIES),
            "## Of memory\n",
            _table(memory_metrics.FAMILIES),
            _QUOTAS,
            _table(quota_metrics.FAMILIES),
            "## Of the build\n",
            _table(build_metrics.FAMILIES),
        )
    )


def _table(families: Iterable[Family]) -> str:
    rows = "".join(_row(family) for family in families)
    return f"| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}"


def _row(family: Family) -> str:
    suffix = {COUNTER: "_total", HISTOGRAM: "_bucket"}.get(family.kind, "")
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}{suffix}` | {family.kind} | {labels} | {family.doc} |\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
