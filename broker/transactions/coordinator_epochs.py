"""Which coordinator epochs there can be: the leader epochs of the partitions of __transaction_state.

A marker with an epoch above all of them was no coordinator's. A stranger's is refused, and one that is in a
log already does not fence the coordinator's markers: its epoch counts as unknown (decision 44).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.transactions.state_topic import TOPIC
from config.setting import INT_MAX

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from storage.log.partition import Partition

_ANY: Final = INT_MAX


def largest(node: Node) -> int:
    """Returns the largest epoch that a coordinator can have had, as far as this broker knows; at least 0.

    A log that was adopted from Kafka may have a larger one than the metadata.
    """
    topic = node.metadata.image.topics.get(TOPIC)
    if topic is None:
        return 0
    opened = (node.store.opened_partition(TOPIC, index) for index in range(topic.partitions))
    return max(
        0,
        *(record.leader_epoch for record in topic.assignments),
        *(log.leader_epoch for log in opened if log is not None),
    )


async def allowed(node: Node, context: Context, wanted: int) -> int:
    """Returns the largest epoch that the markers of a request may name.

    Another broker may name any if it proves that it sends the request. Before a stranger's `wanted` is
    found too large, this broker catches up with the metadata. Raises ClusterAuthorizationFailed for a
    wrong proof.
    """
    if node.replicas is not None and context.header.sender is not None:
        from broker.replicas.serving import proven  # a broker that is alone needs none of it

        if await proven.is_of_broker(node, node.replicas, context):
            return _ANY
    if wanted > largest(node):
        await node.catch_up()
    return largest(node)


async def forget_unknown(node: Node, partition: Partition, producer_id: int) -> bool:
    """Forgets a coordinator epoch of a producer in a log if it was no coordinator's.

    Returns whether it was forgotten. Raises KafkaStorageError.
    """
    if partition.coordinator_epoch_of(producer_id) <= largest(node):
        return False
    await node.catch_up()  # a coordinator may have begun of which this broker has not heard
    return partition.forget_coordinator_epoch(producer_id, above=largest(node))
