"""OffsetFetch (key 9): the committed offsets of a group.

Behaviour: works in any state of the group, and for a missing group: a missing offset is -1.

Version notes: 0 a missing offset is UNKNOWN_TOPIC_OR_PARTITION, as in ZooKeeper's time; 2 null is
all topics, an error applies to the whole response; 5 leader epochs; 6 flexible; 7 `require_stable`:
UNSTABLE_OFFSET_COMMIT for a partition for which an open transaction has sent an offset (KIP-447); 8
several groups in one request.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import checkpoint, listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tidelog.broker.api.services import Services
    from tidelog.broker.coordinators.groups.committed import Committed
    from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchRequestTopic,
        OffsetFetchRequestTopics,
    )
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.topic_partition import TopicPartition

_SEVERAL_SINCE = 8
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT

# By topic: of each partition its number, its offset, and whether a transaction has a newer one.
Found = dict[str, list[tuple[int, "Committed | None", bool]]]


async def handle(
    services: Services, request: OffsetFetchRequest, context: Context
) -> OffsetFetchResponse:
    """Returns the committed offsets."""
    if context.version >= _SEVERAL_SINCE:
        return await _several(services, request, context)
    services.authorizer.require(
        context.session, Operation.DESCRIBE, ResourceType.GROUP, request.group_id
    )
    entry = services.coordinator.get(request.group_id, may_be_empty=True)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if context.version == 0 else ErrorCode.NONE
    topics = []
    for name, partitions in (await _found(entry, request.topics)).items():
        if _may_describe(services, context, name):
            answers = await listed(
                _partition(index, None, _UNSTABLE)
                if request.require_stable and is_unstable
                else _partition(index, at, missing)
                for index, at, is_unstable in partitions
            )
        elif request.topics is None:
            continue
        else:
            answers = await listed(_partition(index, None, _DENIED) for index, *_ in partitions)
        topics.append(OffsetFetchResponseTopic(name=name, partitions=answers))
    return OffsetFetchResponse(topics=topics)


def _may_describe(services: Services, context: Context, topic: str) -> bool:
    return services.authorizer.allows(
        context.session, Operation.DESCRIBE, ResourceType.TOPIC, topic
    )


async def _found(
    entry: GroupMetadata | None,
    wanted: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
) -> Found:
    """Returns the offsets by topic: of the named partitions, each once, or all committed ones.

    A transaction may end while others are served, so all of a partition is read without a checkpoint.
    """
    offsets = {} if entry is None else entry.offsets
    pending = () if entry is None else entry.pending_offsets
    names: Iterable[TopicPartition]
    if wanted is None:
        names = await _in_order(offsets)
    else:
        asked = await listed(
            (topic.name, index) for topic in wanted for index in topic.partition_indexes
        )
        names = dict.fromkeys(asked)
    found: Found = {}
    for name in names:
        found.setdefault(name[0], []).append((name[1], offsets.get(name), name in pending))
        await checkpoint()
    return found


async def _in_order(offsets: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Returns partitions in the order of `sorted`, in steps: sorting all at once would block for long."""
    by_topic: dict[str, list[int]] = {}
    for name, index in list(offsets):
        by_topic.setdefault(name, []).append(index)
        await checkpoint()
    return await listed(
        (name, index) for name in sorted(by_topic) for index in sorted(by_topic[name])
    )


def _partition(index: int, at: Committed | None, missing: int) -> OffsetFetchResponsePartition:
    if at is None:
        return OffsetFetchResponsePartition(
            partition_index=index, committed_offset=-1, metadata="", error_code=missing
        )
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=at.offset,
        committed_leader_epoch=at.leader_epoch,
        metadata=at.metadata,
    )


async def _several(
    services: Services, request: OffsetFetchRequest, context: Context
) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=await per_partition_async(
            services,
            "offset_fetch",
            _each_once(request.groups),
            partial(_of_group, services, context, request.require_stable),
            _failed,
        )
    )


def _each_once(groups: Iterable[OffsetFetchRequestGroup]) -> Iterator[OffsetFetchRequestGroup]:
    """Yields the requested groups, but a group with all its offsets only once: they may be very many."""
    seen: set[str] = set()
    for group in groups:
        if group.topics is not None:
            yield group
        elif group.group_id not in seen:
            seen.add(group.group_id)
            yield group


async def _of_group(
    services: Services, context: Context, require_stable: bool, wanted: OffsetFetchRequestGroup
) -> OffsetFetchResponseGroup:
    services.authorizer.require(
        context.session, Operation.DESCRIBE, ResourceType.GROUP, wanted.group_id
    )
    entry = services.coordinator.get(wanted.group_id, may_be_empty=True)
    answer = OffsetFetchResponseGroup(group_id=wanted.group_id, topics=[])
    for name, partitions in (await _found(entry, wanted.topics)).items():
        is_allowed = _may_describe(services, context, name)
        if not is_allowed and wanted.topics is None:
            continue
        topic = OffsetFetchResponseTopics(name=name, partitions=[])
        answer.topics.append(topic)
        for index, at, is_unstable in partitions:
            one = OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, metadata=""
            )
            if not is_allowed:
                one.error_code = _DENIED
            elif require_stable and is_unstable:
                one.error_code = _UNSTABLE
            elif at is not None:
                one.committed_offset, one.metadata = at.offset, at.metadata
                one.committed_leader_epoch = at.leader_epoch
            topic.partitions.append(one)
            await checkpoint()
    return answer


def _failed(wanted: OffsetFetchRequestGroup, error: BrokerError) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=[], error_code=error.code)


async def refuse(request: OffsetFetchRequest, error: BrokerError) -> OffsetFetchResponse:
    """Returns the error in every field that the version has for it."""
    topics = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=await listed(
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=-1,
                    metadata="",
                    error_code=error.code,
                )
                for index in topic.partition_indexes
            ),
        )
        for topic in request.topics or ()
    ]
    if request.groups:
        return OffsetFetchResponse(
            groups=await listed(_failed(group, error) for group in request.groups)
        )
    return OffsetFetchResponse(topics=topics, error_code=error.code)
