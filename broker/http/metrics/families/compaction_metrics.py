"""Metrics of compaction, by Kafka's names where dashboards expect them."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from tidelog.broker.http.metrics.family import COUNTER, GAUGE, Family

if TYPE_CHECKING:
    from tidelog.broker.http.metrics.family import Read, Samples, Scrape


_CLEANER = "kafka_log_logcleaner_"
_MANAGER = "kafka_log_logcleanermanager_"


def _figure(attribute: str, factor: float = 1) -> Read:
    """Declares one metric; a value of None is left out."""
    of = attrgetter(attribute)

    def read(scrape: Scrape) -> Samples:
        value = of(scrape.services.metrics.compaction)
        if value is not None:
            yield (), value * factor

    return read


def _since_last_round(scrape: Scrape) -> Samples:
    last_ms = scrape.services.metrics.compaction.last_round_ms
    if last_ms is not None:
        yield (), scrape.services.clock.steady_ms() - last_ms


def _uncleanable(scrape: Scrape) -> Samples:
    known = scrape.services.metrics.compaction.uncleanable
    yield (), len(list(known))


def _uncleanable_bytes(scrape: Scrape) -> Samples:
    known = scrape.services.metrics.compaction.uncleanable
    yield (), sum(p.size for p in scrape.partitions if (p.topic, p.index) in known)


FAMILIES = (
    Family("tidelog_compactions", COUNTER, "Logs compacted, each time", (), _figure("cleanings")),
    Family(
        "tidelog_compactions_failed",
        COUNTER,
        "Compactions of a log that came to nothing",
        (),
        _figure("failures"),
    ),
    Family(
        "tidelog_compaction_bytes_read",
        COUNTER,
        "Bytes of segments that compaction has read",
        (),
        _figure("bytes_read"),
    ),
    Family(
        "tidelog_compaction_bytes_written",
        COUNTER,
        "Bytes of segments that compaction has written in their place",
        (),
        _figure("bytes_written"),
    ),
    Family(
        _CLEANER + "cleaner_recopy_percent",
        GAUGE,
        "Percent of the log compacted last that was written again",
        (),
        _figure("last_recopy", 100),
    ),
    Family(
        _CLEANER + "max_clean_time_secs",
        GAUGE,
        "Seconds that the longest compaction of a log took",
        (),
        _figure("longest_s"),
    ),
    Family(
        _CLEANER + "max_compaction_delay_secs",
        GAUGE,
        "Seconds by which max.compaction.lag.ms was missed at most, when it was last looked",
        (),
        _figure("max_delay_ms", 0.001),
    ),
    Family(
        _MANAGER + "max_dirty_percent",
        GAUGE,
        "Percent dirty of the dirtiest log, when it was last looked",
        (),
        _figure("max_dirty_ratio", 100),
    ),
    Family(
        _MANAGER + "time_since_last_run_ms",
        GAUGE,
        "Milliseconds since it was last looked what to compact",
        (),
        _since_last_round,
    ),
    Family(
        _MANAGER + "uncleanable_partitions_count",
        GAUGE,
        "Logs that are compacted no more, for they cannot be read, or it got nowhere",
        (),
        _uncleanable,
    ),
    Family(
        _MANAGER + "uncleanable_bytes",
        GAUGE,
        "Bytes of logs that cannot be compacted",
        (),
        _uncleanable_bytes,
    ),
)
