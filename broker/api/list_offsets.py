"""ListOffsets (key 2): the ends of a log, and the first offset at or after a time.

Behaviour: -1 is the end (the high watermark, or the last stable offset for read_committed), -2 the
start, -3 the record with the largest time, -4 the earliest local offset (the start, because there
is no tiered storage), -5 the latest tiered offset and -6 the earliest pending upload (none). In a
version that does not know one of these, it is UNSUPPORTED_VERSION. Any other value is a time, also
those below -6 (KIP-228). If there is no record at or after the time, the result is offset -1, time
-1, no error. A partition named twice is INVALID_REQUEST (from version 1 on).

Version notes: 0 a list of offsets, segment by segment; 1 one offset and its time (KIP-79); 2
isolation level; 4 leader epochs; 6 flexible; 7 the largest time; 8 earliest local; 9 latest tiered;
10 a timeout (nothing here waits); 11 earliest pending upload.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import listed
from tidelog.broker.partitions.offload import answer, unpacking
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.protocol.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    OffsetNotAvailable,
    UnsupportedVersion,
)
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.lookup import LookupTarget, is_target

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.services import Replication
    from tidelog.broker.pools import Permit
    from tidelog.protocol.api.list_offsets import ListOffsetsPartition, ListOffsetsRequest
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.records.layout import OffsetAndTimestamp
    from tidelog.storage.log.partition import Partition

# The first version that knows each special value.
_TARGET_SINCE = {
    LookupTarget.LATEST: 0,
    LookupTarget.EARLIEST: 0,
    LookupTarget.MAX_TIMESTAMP: 7,
    LookupTarget.EARLIEST_LOCAL: 8,
    LookupTarget.LATEST_TIERED: 9,
    LookupTarget.EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1
_OFFSET_NOT_AVAILABLE_SINCE = 5


async def handle(
    services: Services, request: ListOffsetsRequest, context: Context
) -> ListOffsetsResponse:
    """Returns the result now, or from a thread if a log has to be opened, or a long one read."""
    names = (
        (topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
    )
    return await answer(services, names, partial(_answer, services, request, context))


async def _answer(
    services: Services, request: ListOffsetsRequest, context: Context, permit: Permit
) -> ListOffsetsResponse:
    """Finds the offset of each partition separately. Raises Abandoned if the request has ended."""
    version = context.version
    times = Counter(
        await listed(
            (topic.name, wanted.partition_index)
            for topic in request.topics
            for wanted in topic.partitions
        )
    )

    def look_up(name: str, wanted: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        permit.check()
        services.authorizer.require(context.session, Operation.DESCRIBE, ResourceType.TOPIC, name)
        if version > 0 and times[name, wanted.partition_index] > 1:
            raise InvalidRequest("the partition is named more than once")
        partition = services.partitions.leader(
            name, wanted.partition_index, wanted.current_leader_epoch, permit.may_block
        )
        found = _look_up(partition, wanted, request.isolation_level, version, permit)
        _check_end_known(services.replicas, partition, found, wanted.timestamp, version)
        return found

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=await per_partition(
                    services,
                    "list_offsets",
                    topic.partitions,
                    partial(look_up, topic.name),
                    _failed,
                ),
            )
            for topic in request.topics
        ]
    )


def _check_end_known(
    replicas: Replication,
    partition: Partition,
    found: ListOffsetsPartitionResponse,
    target: int,
    version: int,
) -> None:
    """Refuses an end offset while an earlier leader may have had a larger high watermark (KIP-207).

    Raises OffsetNotAvailable, or LeaderNotAvailable in an older version.
    """
    is_end = target == LookupTarget.LATEST or (not is_target(target) and found.offset < 0)
    if not is_end:
        return
    try:
        replicas.check_end_known(partition)
    except OffsetNotAvailable:
        if version < _OFFSET_NOT_AVAILABLE_SINCE:
            raise LeaderNotAvailable from None
        raise


def _look_up(
    partition: Partition,
    wanted: ListOffsetsPartition,
    isolation_level: int,
    version: int,
    permit: Permit,
) -> ListOffsetsPartitionResponse:
    """Returns the result of one partition.

    Raises WouldBlock if `permit` does not allow to block, NeedsMemory, and MessageTooLarge.
    """
    target, may_block = wanted.timestamp, permit.may_block
    if is_target(target) and _TARGET_SINCE[LookupTarget(target)] > version:
        raise UnsupportedVersion(f"version {version} does not know the value {target}")
    if version == 0:
        return ListOffsetsPartitionResponse(
            partition_index=wanted.partition_index,
            old_style_offsets=unpacking(
                permit, partition.reader.offsets_before_v0, target, wanted.max_num_offsets
            ),
        )
    upper = partition.high_watermark
    if isolation_level == _READ_COMMITTED:
        partition.reader.learn(may_block=may_block)
        upper = partition.last_stable_offset
    offset, timestamp = _find(partition, target, upper, permit)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        offset=offset,
        timestamp=timestamp,
        leader_epoch=_leader_epoch(partition, target, offset),
    )


def _find(partition: Partition, target: int, upper: int, permit: Permit) -> OffsetAndTimestamp:
    """Returns the requested offset and its time, -1 if there is none."""
    reader = partition.reader
    found: OffsetAndTimestamp | None
    if not is_target(target):
        found = unpacking(permit, reader.find_by_time, target, upper_offset=upper)
    elif target == LookupTarget.MAX_TIMESTAMP:
        found = unpacking(permit, reader.find_largest_time, upper_offset=upper)
    elif target == LookupTarget.LATEST:
        found = (upper, NO_TIMESTAMP)
    elif target in (LookupTarget.EARLIEST, LookupTarget.EARLIEST_LOCAL):
        found = (partition.log_start_offset, NO_TIMESTAMP)
    else:
        found = None  # there is no tiered storage
    return (-1, NO_TIMESTAMP) if found is None else found


def _leader_epoch(partition: Partition, target: int, offset: int) -> int:
    """Returns the leader epoch of an offset; for the end, the epoch of the next append."""
    if offset < 0:
        return -1
    return (
        partition.leader_epoch
        if target == LookupTarget.LATEST
        else partition.reader.leader_epoch_at(offset)
    )


def _failed(wanted: ListOffsetsPartition, error: BrokerError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=error.code,
        offset=-1,
        timestamp=NO_TIMESTAMP,
        old_style_offsets=[],
    )


async def refuse(request: ListOffsetsRequest, error: BrokerError) -> ListOffsetsResponse:
    """Returns the error for every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=await listed(_failed(wanted, error) for wanted in topic.partitions),
            )
            for topic in request.topics
        ]
    )
