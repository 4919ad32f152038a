"""Metrics of clients that have quotas, under Kafka's names.

Kafka has one metric for each client. Here there is one for each entity with a quota, summed over its clients,
because clients choose their ids: so there are no more metrics than quotas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.http.metrics.family import COUNTER, GAUGE, Family
from tidelog.broker.metrics.counters import OTHER
from tidelog.broker.quotas.entity import CLIENT_ID, FETCH, MUTATION, PRODUCE, REQUEST, USER

if TYPE_CHECKING:
    from tidelog.broker.http.metrics.family import Labels, Read, Samples, Scrape
    from tidelog.broker.quotas.clients import Used
    from tidelog.broker.quotas.entity import Entity

MOST_ENTITIES: Final = 200  # entities whose metrics are apart
_DEFAULT = "<default>"
_LABELS = ("user", "client_id")


def _all(scrape: Scrape) -> list[Used]:
    found = scrape.shared.get(__name__)
    if not isinstance(found, list):
        now_ms = int(scrape.services.clock.monotonic_s() * 1000)
        found = scrape.shared[__name__] = list(scrape.services.client_quotas.used(now_ms))
    return found


def _labels(entity: Entity) -> Labels:
    """Returns the user and the client id of an entity; empty where it has none."""
    names = {kind: _DEFAULT if name is None else name for kind, name in entity}
    return names.get(USER, ""), names.get(CLIENT_ID, "")


def _summed(key: str, attribute: str) -> Read:
    """Declares a metric of each entity with a quota: the sum over its clients."""

    def read(scrape: Scrape) -> Samples:
        totals: dict[Labels, float] = {}
        for used in _all(scrape):
            if used.key == key:
                labels = _labels(used.entity)
                if labels not in totals and len(totals) >= MOST_ENTITIES:
                    labels = (OTHER, OTHER)
                totals[labels] = totals.get(labels, 0) + getattr(used, attribute)
        yield from totals.items()

    return read


def _rate(name: str, key: str, doc: str) -> Family:
    return Family(f"kafka_server_{name}", GAUGE, doc, _LABELS, _summed(key, "per_second"))


def _throttled(name: str, key: str) -> Family:
    doc = f"For how many ms clients were told to wait because of their {key}"
    read = _summed(key, "throttled_ms")
    return Family(f"kafka_server_{name}_throttle_time", COUNTER, doc, _LABELS, read)


def _entities(scrape: Scrape) -> Samples:
    yield (), len(scrape.services.metadata.image.quotas)


FAMILIES = (
    Family(
        "tidelog_quota_entities",
        GAUGE,
        "Users, client ids, pairs of both, and addresses that have quotas",
        (),
        _entities,
    ),
    _rate(
        "produce_byte_rate", PRODUCE, "Bytes a second of Produce requests, of clients with a quota"
    ),
    _rate("fetch_byte_rate", FETCH, "Bytes a second that clients with a quota fetch"),
    _rate(
        "request_request_time",
        REQUEST,
        "Percent of the event loop's time that clients with a quota take",
    ),
    _rate(
        "controllermutation_tokens",
        MUTATION,
        "Partitions that clients with a quota may create or delete now",
    ),
    _throttled("produce", PRODUCE),
    _throttled("fetch", FETCH),
    _throttled("request", REQUEST),
    _throttled("controllermutation", MUTATION),
)
