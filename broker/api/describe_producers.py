"""DescribeProducers (key 61): the idempotent producers that each partition knows (KIP-664).

Behaviour: each partition succeeds or fails on its own; a closed log is opened in a thread. A follower
returns its own state, as in Kafka: operators compare replicas by it. A producer's last timestamp is the
append time of its last batch, because that decides when the producer expires. Kafka returns the batch's
largest record time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions import coordinator_epochs
from tidelog.broker.metadata.names import check_topic_name
from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidelog.protocol.records.markers import NO_COORDINATOR_EPOCH

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.security.session import Session
    from tidelog.protocol.api.describe_producers import DescribeProducersRequest
    from tidelog.protocol.errors import BrokerError
    from tidelog.storage.log.partition import Partition


async def handle(
    services: Services, request: DescribeProducersRequest, context: Context
) -> DescribeProducersResponse:
    """Describes the producers of each partition separately."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=await per_partition_async(
                    services,
                    "describe_producers",
                    dict.fromkeys(topic.partition_indexes),
                    partial(_one, services, context.session, topic.name),
                    _failed,
                ),
            )
            for topic in request.topics
        ]
    )


async def _one(services: Services, session: Session, topic: str, index: int) -> PartitionResponse:
    check_topic_name(topic)
    services.authorizer.require(session, Operation.READ, ResourceType.TOPIC, topic)
    partition = await _replica(services, topic, index)
    largest_epoch = coordinator_epochs.largest(services)
    producers = await services.pools.reads.run(_states, partition, largest_epoch)
    return PartitionResponse(partition_index=index, active_producers=producers)


async def _replica(services: Services, topic: str, index: int) -> Partition:
    """Returns the log of a partition that this broker leads or follows.

    Raises NotLeaderOrFollower if it does neither, UnknownTopicOrPartition and KafkaStorageError.
    """
    known = services.metadata.image.topics.get(topic)
    if known is not None:
        followed = services.replicas.followed_log(known.topic_id, index)
        if followed is not None:
            return followed
    return await services.partitions.open_leader(topic, index)


def _states(partition: Partition, largest_epoch: int) -> list[ProducerState]:
    """Returns the producers, in a thread, because they may be on disk; appends continue.

    A coordinator epoch above `largest_epoch` belonged to no coordinator, and counts as unknown.
    """
    return [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_append_time_ms,
            coordinator_epoch=(
                producer.coordinator_epoch
                if producer.coordinator_epoch <= largest_epoch
                else NO_COORDINATOR_EPOCH
            ),
            current_txn_start_offset=producer.transaction_first_offset,
        )
        for producer in partition.state.read_producers()
    ]


def _failed(index: int, error: BrokerError) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        error_code=error.code,
        error_message=error.message,
        active_producers=[],
    )


async def refuse(
    request: DescribeProducersRequest, error: BrokerError
) -> DescribeProducersResponse:
    """Returns the error for every partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=await listed(_failed(index, error) for index in topic.partition_indexes),
            )
            for topic in request.topics
        ]
    )
