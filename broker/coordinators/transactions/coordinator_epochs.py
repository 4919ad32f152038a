"""Which coordinator epochs a marker may have: the leader epochs of the partitions of __transaction_state.

A marker in a log with an epoch above all of them was no coordinator's, and does not fence the coordinator's
markers: its epoch counts as unknown. The partitions have different epochs, and nothing in a marker names the
one of its coordinator. So a stranger may name only the epoch that the log has for the producer, by which
no producer is fenced that is not fenced already (decision 44).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.coordinators.transactions.state_topic import TOPIC
from tidelog.config.setting import INT_MAX
from tidelog.protocol.errors import (
    KafkaStorageError,
    NotLeaderOrFollower,
    TransactionCoordinatorFenced,
)

if TYPE_CHECKING:
    from tidelog.broker.coordinators.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.log.partition import Partition

_ANY: Final = INT_MAX


def largest(services: Services) -> int:
    """Returns the largest epoch that a coordinator can have had, as far as this broker knows; at least 0.

    A log that was adopted from Kafka may have a larger one than the metadata.
    """
    topic = services.metadata.image.topics.get(TOPIC)
    if topic is None:
        return 0
    opened = (services.store.opened_partition(TOPIC, index) for index in range(topic.partitions))
    return max(
        0,
        *(record.leader_epoch for record in topic.assignments),
        *(log.leader_epoch for log in opened if log is not None),
    )


async def allowed(services: Services, context: Context, *, catches_up: bool = False) -> int:
    """Returns the largest epoch that the markers of a request may name for every producer.

    Another broker may name any if it proves that it sends the request. A stranger may name 0, or while a
    broker of an older version lives, which proves nothing, the largest one. With `catches_up` this broker
    catches up with the metadata first. Raises ClusterAuthorizationFailed for a wrong proof,
    NotLeaderOrFollower for one of a session that is over or not known here, after which a coordinator
    writes its markers again, and KafkaStorageError.
    """
    is_of_broker = await services.replicas.is_of_broker(context)
    if is_of_broker:
        return _ANY
    if is_of_broker is False:
        raise NotLeaderOrFollower("the session of the broker is over, or not known here")
    if catches_up:
        await _catch_up(services)
    me, brokers = services.metadata.node_id, services.metadata.image.brokers
    all_prove = all(live.record.secret for broker, live in brokers.items() if broker != me)
    return 0 if all_prove else largest(services)


async def check(services: Services, name: TopicPartition, producer_id: int, epoch: int) -> None:
    """Checks the epoch of a stranger's marker: a log has it for the producer, from a coordinator.

    Raises TransactionCoordinatorFenced, and what `Partitions.open_leader` raises.
    """
    partition = await services.partitions.open_leader(*name)
    known = await services.pools.reads.run(partition.coordinator_epoch_of, producer_id)
    if epoch > min(known, largest(services)):
        raise TransactionCoordinatorFenced(f"no coordinator of the producer has had epoch {epoch}")


async def reset_unknown(services: Services, partition: Partition, producer_id: int) -> bool:
    """Resets a coordinator epoch of a producer in a log if it was no coordinator's.

    Returns whether it was reset. Raises KafkaStorageError.
    """
    known = await services.pools.reads.run(partition.coordinator_epoch_of, producer_id)
    if known <= largest(services):
        return False
    await _catch_up(services)  # there may be a coordinator that is newer than this broker's image
    return partition.forget_coordinator_epoch(producer_id, above=largest(services))


async def _catch_up(services: Services) -> None:
    """Updates the image, together with all who ask for that. Raises KafkaStorageError."""
    if not await services.replicas.senders.catch_up():
        raise KafkaStorageError("the metadata cannot be read")
