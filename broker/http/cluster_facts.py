"""The answer of `/v1/cluster`: brokers, leaders, replicas that lag and why, by this broker's image.

Only the leader knows the lag of a follower, so the answer has it for the partitions that this broker
leads.
"""

from __future__ import annotations

import heapq
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tidelog.broker.coordinators.transactions.open_transactions import opened
from tidelog.broker.http.answers import time_fields
from tidelog.broker.http.readiness import reasons
from tidelog.broker.metadata.brokers.records import OfflineRecord
from tidelog.broker.metadata.eligible_leaders import effective_min
from tidelog.broker.metadata.partition_health import health_of_partitions, state_of, why_missing
from tidelog.broker.network.accepting.listener import HTTP
from tidelog.config.broker.listeners import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from tidelog.broker.http.api_query import ApiQuery
    from tidelog.broker.http.services import Services
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.partition_health import PartitionHealth
    from tidelog.storage.log.partition import Partition

_IDLE_MS = 60_000
"""Transactions in which the producer was active within this time are left out: most end by themselves."""
_MOST_TRANSACTIONS = 100
_MOST_PRODUCERS = 10_000

OK, UNDER_REPLICATED, UNDER_MIN_ISR, OFFLINE = "ok", "under-replicated", "under-min-isr", "offline"


def cluster(query: ApiQuery) -> dict[str, Any]:
    """Returns the cluster as this broker knows it."""
    services = query.services
    image = services.metadata.image
    found = list(health_of_partitions(image))
    controller = image.controller
    told = None
    if controller is not None:
        told = {"broker": controller.broker, "epoch": controller.epoch}
    return {
        "cluster_id": image.cluster_id,
        "broker": services.metadata.node_id,
        "revision": image.revision,
        "controller": told,
        **time_fields("now", services.clock.now_ms()),
        "own": _own(services),
        "brokers": _brokers(services, image, found),
        "partitions": [_partition(services, image, each) for each in found],
    }


def _own(services: Services) -> dict[str, Any]:
    """Returns the state that only this broker knows: readiness, directories, transactions."""
    config, member = services.config, services.cluster
    return {
        "not_serving": member.why_not_serving,
        "not_ready": [{"reason": each.kind, "sentence": each.line} for each in reasons(services)],
        "metadata_error": member.metadata_error,
        "suspended_partitions": services.replicas.suspended_logs(),
        "unwritable_directories": {str(path): why for path, why in member.unwritable.items()},
        "inter_broker_protocol_version": config.cluster.inter_broker_protocol_version,
        "message_format_version": config.topic_defaults.message_format_version,
        "transaction_max_timeout_ms": config.transactions.transaction_max_timeout_ms,
        "open_transactions": _open_transactions(services),
        "open_producers": services.transactions.open_producers(_MOST_PRODUCERS),
    }


def _open_transactions(services: Services) -> list[dict[str, Any]]:
    """Returns the open transactions idle for longest in the partitions that this broker leads."""
    image, me = services.metadata.image, services.metadata.node_id

    def leads(partition: Partition) -> bool:
        record = image.assignment(partition.topic, partition.index)
        return record is not None and record.leader == me

    led = filter(leads, services.store.opened())
    idle = [each for each in opened(led, services.clock.now_ms()) if each.idle_ms > _IDLE_MS]
    longest = heapq.nlargest(_MOST_TRANSACTIONS, idle, key=attrgetter("idle_ms"))
    return [each._asdict() for each in longest]


def _unable(image: Image, broker: int) -> dict[str, list[str]]:
    """Returns the partitions of a broker whose logs have failed, or are on a full or slow disk."""
    said = image.offline.get(broker)
    record = OfflineRecord() if said is None else said.record

    def named(found: Mapping[UUID, Iterable[int]]) -> list[str]:
        known = image.topics_by_id
        return sorted(
            f"{known[topic_id].name}-{index}"
            for topic_id, indexes in found.items()
            if topic_id in known
            for index in indexes
        )

    return {
        "failed_logs": named(record.partitions),
        "full_disk_logs": named(record.full),
        "slow_disk_logs": named(record.slow),
    }


def _brokers(
    services: Services, image: Image, found: list[PartitionHealth]
) -> list[dict[str, Any]]:
    leads = Counter(each.record.leader for each in found)
    has = Counter(broker for each in found for broker in each.record.replicas)
    in_sync = Counter(broker for each in found for broker in each.record.isr)
    known = {*image.registrations, *image.brokers, services.metadata.node_id}
    answer = []
    for broker in sorted(known):
        live = image.brokers.get(broker)
        addresses = {
            at.listener: joined(at.host, at.port)
            for at in (() if live is None else live.record.endpoints)
        }
        answer.append(
            {
                "broker": broker,
                "state": state_of(image, broker),
                "session": None if live is None else live.record.incarnation,
                "rack": None if live is None else live.record.rack,
                "http": addresses.pop(HTTP, None),
                "listeners": addresses,
                "leads": leads[broker],
                "replicas": has[broker],
                "in_sync": in_sync[broker],
                **_unable(image, broker),
            }
        )
    return answer


def _partition(services: Services, image: Image, each: PartitionHealth) -> dict[str, Any]:
    record = each.record
    least = services.settings.served(each.topic).min_insync_replicas
    return {
        "topic": each.topic.name,
        "partition": each.number,
        "state": _state(each, effective_min(record, least)),
        "leader": None if each.is_offline else record.leader,
        "leader_epoch": record.leader_epoch,
        "replicas": list(record.replicas),
        "isr": list(record.isr),
        "elr": list(record.elr),
        "adding": list(record.adding),
        "removing": list(record.removing),
        "min_insync_replicas": least,
        "missing": [
            {"broker": broker, "why": why_missing(image, each, broker)} for broker in each.missing
        ],
        "followers": _followers(services, each),
    }


def _followers(services: Services, each: PartitionHealth) -> list[dict[str, Any]] | None:
    """Returns the lag of each follower of a partition; None if another broker leads the partition.

    `lag` is null before the first fetch of a follower in this leader epoch. `caught_up_ms_ago` is
    null if it never had the whole log.
    """
    followers = services.replicas.followers_of(each.topic.topic_id, each.number)
    if followers is None:
        return None
    return [
        {"broker": one.broker, "lag": one.lag, "caught_up_ms_ago": one.caught_up_ms_ago}
        for one in followers
    ]


def _state(each: PartitionHealth, least: int) -> str:
    if each.is_offline:
        return OFFLINE
    if len(each.record.isr) < least:
        return UNDER_MIN_ISR
    return UNDER_REPLICATED if each.missing else OK
