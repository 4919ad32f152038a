"""Changes of partitions that clients ask for: reassignments and elections.

Each change is decided on the newest image and stored if the partition has not changed since. A change that
is refused, because the metadata have changed meanwhile, is decided again until the request's timeout.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.controller import reassignment
from tidelog.broker.controller.controller import able, decided, elect
from tidelog.broker.controller.election import is_unclean, prefer
from tidelog.broker.controller.topics.placing import check_manual_replicas
from tidelog.broker.metadata.eligible_leaders import TopicRules
from tidelog.broker.metadata.records import NO_LEADER
from tidelog.broker.metadata.store import MOST_OPERATIONS
from tidelog.broker.metadata.transactions import batched, change
from tidelog.broker.network.scheduler import checkpoint
from tidelog.protocol.errors import (
    BrokerError,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    NoReassignmentInProgress,
    PreferredLeaderNotAvailable,
    RequestTimedOut,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias
    from uuid import UUID

    from tidelog.broker.controller.topics.services import Services
    from tidelog.broker.lifecycle.services import Membership
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.metadata.transactions import PartitionChange, Transaction
    from tidelog.broker.settings import Settings
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.directory.store import LogStore

    Decide: TypeAlias = Callable[[Image], PartitionChange | None]

log = logging.getLogger("tidelog.topics")

_FEWER = 4  # so many times smaller are the transactions after one was refused


async def reassign(
    services: Services, wanted: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int
) -> dict[TopicPartition, BrokerError]:
    """Starts reassignments of partitions; None cancels one. Returns the errors of those that failed.

    The errors are UnknownTopicOrPartition, InvalidReplicaAssignment, NoReassignmentInProgress and
    RequestTimedOut. Raises KafkaStorageError.
    """
    decide = {
        name: partial(_reassigned, name, replicas, services.cluster)
        for name, replicas in wanted.items()
    }
    return await _store(services, decide, timeout_ms)


async def elect_preferred(
    services: Services, wanted: Sequence[TopicPartition], timeout_ms: int
) -> dict[TopicPartition, BrokerError]:
    """Elects the first replica of each partition its leader. Returns the errors of those that failed.

    The errors are UnknownTopicOrPartition, ElectionNotNeeded, PreferredLeaderNotAvailable and
    RequestTimedOut. Raises KafkaStorageError.
    """
    decide = {name: partial(_preferred, name, services.store) for name in wanted}
    return await _store(services, decide, timeout_ms)


async def elect_any(
    services: Services, wanted: Sequence[TopicPartition], timeout_ms: int
) -> dict[TopicPartition, BrokerError]:
    """Elects a leader, which may lack records, for each partition without one.

    Returns the errors of those that failed.

    The errors are UnknownTopicOrPartition, ElectionNotNeeded, EligibleLeadersNotAvailable and
    RequestTimedOut. Raises KafkaStorageError.
    """
    decide = {name: partial(_any, name, services.settings, services.store) for name in wanted}
    return await _store(services, decide, timeout_ms)


def _known(image: Image, name: TopicPartition) -> tuple[Topic, PartitionRecord]:
    """Returns a partition and its topic. Raises UnknownTopicOrPartition."""
    record = image.assignment(*name)
    if record is None:
        raise UnknownTopicOrPartition(f"there is no partition {name[0]}-{name[1]}")
    return image.topics[name[0]], record


def _reassigned(
    name: TopicPartition, replicas: Sequence[int] | None, cluster: Membership, image: Image
) -> PartitionChange | None:
    topic, record = _known(image, name)
    if replicas is None:
        if not reassignment.is_in_progress(record):
            raise NoReassignmentInProgress
        after = reassignment.cancel(record)
    else:
        possible = cluster.for_placing(image)
        check_manual_replicas(possible, replicas)
        after = reassignment.begin(record, replicas, possible.registrations)
    before = (record.replicas, record.adding, record.removing)
    if (after.replicas, after.adding, after.removing) == before:
        return None
    return change(image, topic.name, name[1], after, (), "reassignment by a client")


def _preferred(name: TopicPartition, store: LogStore, image: Image) -> PartitionChange:
    topic, record = _known(image, name)
    if record.leader == record.replicas[0]:
        if (why := _why_offline(store, name)) is not None:
            raise PreferredLeaderNotAvailable(why)
        raise ElectionNotNeeded(f"broker {record.leader} leads {name[0]}-{name[1]} already")
    after = prefer(record, able(image).of(topic.topic_id, name[1]))
    if after is None:
        raise PreferredLeaderNotAvailable
    return decided(image, topic, name[1], after, "preferred leader")


def _any(
    name: TopicPartition, settings: Settings, store: LogStore, image: Image
) -> PartitionChange:
    topic, record = _known(image, name)
    if record.leader != NO_LEADER:
        if (why := _why_offline(store, name)) is not None:
            raise EligibleLeadersNotAvailable(why)
        raise ElectionNotNeeded(f"broker {record.leader} leads {name[0]}-{name[1]} already")
    can_lead = able(image)
    after = elect(
        record,
        can_lead.of(topic.topic_id, name[1]),
        can_lead.to_read(topic.topic_id, name[1]),
        TopicRules(settings.served(topic).min_insync_replicas, allows_unclean=True),
    )
    if after is None or after.leader == NO_LEADER:
        raise EligibleLeadersNotAvailable
    why = "unclean election" if is_unclean(record, after) else "election"
    return decided(image, topic, name[1], after, f"{why} by a client")


def _why_offline(store: LogStore, name: TopicPartition) -> str | None:
    """Returns why the open log of a partition is offline; None if it is not, is closed or elsewhere."""
    opened = store.opened_partition(*name)
    return None if opened is None else opened.offline


async def _store(
    services: Services, decide: Mapping[TopicPartition, Decide], timeout_ms: int
) -> dict[TopicPartition, BrokerError]:
    """Stores the change that is decided for each partition; returns the errors of those that failed."""
    end_s = services.clock.monotonic_s() + timeout_ms / 1000
    failed: dict[TopicPartition, BrokerError] = {}
    left, limit = dict(decide), MOST_OPERATIONS
    await services.catch_up()
    while left:
        image = services.metadata.image
        changes: dict[tuple[UUID, int], tuple[TopicPartition, PartitionChange]] = {}
        for name, one in left.items():
            try:
                found = one(image)
            except BrokerError as error:
                failed[name] = error
            else:
                if found is not None:
                    changes[found.topic_id, found.partition] = name, found
            await checkpoint()
        left = {}
        for transaction in batched((found for _, found in changes.values()), (), limit):
            if (
                await services.metadata.transact(transaction.compares, transaction.operations)
                is None
            ):
                again = (changes[each.topic_id, each.partition][0] for each in transaction.changes)
                left.update((name, decide[name]) for name in again)
            else:
                _log(image, transaction)
        limit = max(1, limit // _FEWER)
        if services.clock.monotonic_s() >= end_s:
            failed.update(dict.fromkeys(left, RequestTimedOut()))
            break
    return failed


def _log(image: Image, transaction: Transaction) -> None:
    for each in transaction.changes:
        name = f"{image.topics_by_id[each.topic_id].name}-{each.partition}"
        level = logging.WARNING if is_unclean(each.before, each.after) else logging.INFO
        log.log(
            level,
            "partition changed by a client",
            extra={
                "log": name,
                "leader": each.after.leader,
                "replicas": list(each.after.replicas),
                "why": each.why,
            },
        )
