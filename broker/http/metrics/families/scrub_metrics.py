"""Metrics of scrubbing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.http.metrics.family import COUNTER, GAUGE, Family

if TYPE_CHECKING:
    from tidelog.broker.http.metrics.family import Samples, Scrape


def _bytes_read(scrape: Scrape) -> Samples:
    yield (), scrape.services.metrics.scrub.bytes_read


def _bad_batches(scrape: Scrape) -> Samples:
    yield (), sum(each.bad_batches for each in scrape.services.metrics.scrub.damage())


def _ended(scrape: Scrape) -> Samples:
    yield (), scrape.services.metrics.scrub.ended_ms or 0


FAMILIES = (
    Family(
        "tidelog_scrub_bytes",
        COUNTER,
        "Bytes of closed segments that scrubbing has read",
        (),
        _bytes_read,
    ),
    Family(
        "tidelog_scrub_bad_batches",
        GAUGE,
        "Batches of closed segments that have gone bad, or that Java clients refuse, by the last scrubbing",
        (),
        _bad_batches,
    ),
    Family(
        "tidelog_scrub_last_pass_ms",
        GAUGE,
        "When scrubbing last ended a pass over all closed segments; 0: never",
        (),
        _ended,
    ),
)
