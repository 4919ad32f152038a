"""Metrics of the memory that requests reserve, by its use (broker/network/memory)."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from tidelog.broker.http.metrics.family import COUNTER, GAUGE, Family

if TYPE_CHECKING:
    from tidelog.broker.http.metrics.family import Read, Samples, Scrape


def _of_shares(attribute: str) -> Read:
    """Declares a metric that reads an attribute of each share."""
    value = attrgetter(attribute)

    def read(scrape: Scrape) -> Samples:
        for use, share in scrape.services.memory:
            yield (use,), value(share)

    return read


_USE = ("use",)

FAMILIES = (
    Family(
        "tidelog_memory_reserved_bytes",
        GAUGE,
        "Memory that requests have reserved, by use",
        _USE,
        _of_shares("reserved_bytes"),
    ),
    Family(
        "tidelog_memory_limit_bytes",
        GAUGE,
        "Share of memory.limit.bytes, by use",
        _USE,
        _of_shares("limit_bytes"),
    ),
    Family(
        "tidelog_memory_waiting",
        GAUGE,
        "Requests that wait for memory",
        _USE,
        _of_shares("waiting"),
    ),
    Family(
        "tidelog_memory_waited",
        COUNTER,
        "Requests that had to wait for memory",
        _USE,
        _of_shares("waited"),
    ),
    Family(
        "tidelog_memory_refused",
        COUNTER,
        "Requests refused, and connections closed, because memory is scarce",
        _USE,
        _of_shares("refused"),
    ),
)
