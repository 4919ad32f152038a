"""DeleteRecords (key 21): delete the records before an offset (KIP-107).

Behaviour: each partition succeeds or fails on its own. Its log start offset rises to the requested
offset, -1 being the high watermark; it never falls. The response's low watermark is the new log
start; of several replicas it is the smallest one, and the response waits until the live replicas
have followed (REQUEST_TIMED_OUT after timeout_ms; the leader has deleted them all the same). The
offset may lie within a batch: a fetch then returns the whole batch, and clients skip the records
before the offset. An offset above the high watermark, or any other negative offset, is
OFFSET_OUT_OF_RANGE. A topic whose cleanup.policy is `compact` alone is POLICY_VIOLATION (Kafka 4.2), and an
internal topic is INVALID_TOPIC_EXCEPTION. The new start is durable before the response is sent: no
crash restores the records.

Version notes: 1 is the same as 0; 2 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import listed
from tidelog.broker.settings import is_internal
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from tidelog.protocol.errors import InvalidTopic, OffsetOutOfRange, PolicyViolation

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.security.session import Session
    from tidelog.protocol.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest
    from tidelog.protocol.errors import BrokerError

_HIGH_WATERMARK = -1
_NO_LOW_WATERMARK = -1


async def handle(
    services: Services, request: DeleteRecordsRequest, context: Context
) -> DeleteRecordsResponse:
    """Raises the log start of each partition separately."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=await per_partition_async(
                    services,
                    "delete_records",
                    topic.partitions,
                    partial(_one, services, context.session, topic.name, request.timeout_ms),
                    _failed,
                ),
            )
            for topic in request.topics
        ]
    )


async def _one(
    services: Services,
    session: Session,
    topic: str,
    timeout_ms: int,
    wanted: DeleteRecordsPartition,
) -> DeleteRecordsPartitionResult:
    services.authorizer.require(session, Operation.DELETE, ResourceType.TOPIC, topic)
    partition = await services.partitions.open_leader(topic, wanted.partition_index)
    if is_internal(topic):
        raise InvalidTopic(f"{topic} is the broker's own")
    config = partition.config
    if config.is_compacted and "delete" not in config.cleanup_policy:
        raise PolicyViolation(f"records of {topic} are not deleted on request")
    high_watermark = partition.high_watermark
    offset = high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= high_watermark:
        raise OffsetOutOfRange(
            f"{topic}-{wanted.partition_index}: offset {offset} is not between 0 and "
            f"{high_watermark}"
        )
    # This waits for the disk, and must not occupy the threads of lookups.
    await services.pools.syncs.of(partition).run(partition.retainer.delete_records_before, offset)
    low_watermark = await services.replicas.deleted_everywhere(partition, offset, timeout_ms)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark
    )


def _failed(wanted: DeleteRecordsPartition, error: BrokerError) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index,
        low_watermark=_NO_LOW_WATERMARK,
        error_code=error.code,
    )


async def refuse(request: DeleteRecordsRequest, error: BrokerError) -> DeleteRecordsResponse:
    """Returns the error for every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=await listed(_failed(wanted, error) for wanted in topic.partitions),
            )
            for topic in request.topics
        ]
    )
