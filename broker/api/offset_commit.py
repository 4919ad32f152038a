"""OffsetCommit (key 8): remember how far a group has come.

Behaviour: answered once the offsets are in the log. A partition that does not exist is
UNKNOWN_TOPIC_OR_PARTITION, a note over offset.metadata.max.bytes OFFSET_METADATA_TOO_LARGE (in characters as
Java counts them, whatever the setting is called); the others are stored all the same. Of a partition that is
named twice the last offset counts, and it is answered once. With generation -1 and no member id anybody may
commit while the group is empty.

Version notes: 0 nothing but offsets (Kafka kept those in ZooKeeper; here they are as any other); 1 a time for
each partition, -1 is now; 2-4 a retention time, -1 is the broker's; 6 leader epochs; 7 static members; 8
flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.groups.store import Committed
from config.setting import LONG_MAX
from protocol.api.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.errors import BrokerError, OffsetMetadataTooLarge, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from broker.groups.store import Name
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition

NO_TIME = -1  # where a request could say a time, and does not


def handle(
    node: Node, request: OffsetCommitRequest, _context: Context
) -> OffsetCommitResponse | Coroutine[None, None, OffsetCommitResponse]:
    """Store what may be stored: at once, if the log is at hand and is not to be on the disk first."""
    now_ms = node.coordinator.now_ms()
    offsets: dict[Name, Committed] = {}
    codes: dict[Name, int] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            name = (topic.name, partition.partition_index)
            try:
                check(node, name, partition.committed_metadata or "")
            except BrokerError as error:
                codes[name] = error.code
                continue
            offsets[name] = _committed(partition, request.retention_time_ms, now_ms)
    if node.coordinator.commit_now(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
    ):
        return _answer(request, codes, 0)
    return _stored(node, request, offsets, codes)


async def _stored(
    node: Node,
    request: OffsetCommitRequest,
    offsets: dict[Name, Committed],
    codes: dict[Name, int],
) -> OffsetCommitResponse:
    await node.coordinator.commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        offsets,
    )
    return _answer(request, codes, 0)


def check(node: Node, name: Name, note: str) -> None:
    """Raises why an offset with this note is not stored."""
    topic = node.metadata.image.topics.get(name[0])
    if topic is None or not 0 <= name[1] < topic.partitions:
        raise UnknownTopicOrPartition(f"there is no partition {name[0]}-{name[1]}")
    if len(note.encode("utf-16-le")) // 2 > node.config.offset_metadata_max_bytes:
        raise OffsetMetadataTooLarge(f"a note of {len(note)} characters")


def _committed(
    partition: OffsetCommitRequestPartition, retention_ms: int, now_ms: int
) -> Committed:
    told_ms = partition.commit_timestamp
    return Committed(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms if told_ms == NO_TIME else told_ms,
        NO_TIME if retention_ms == NO_TIME else min(now_ms + retention_ms, LONG_MAX),
    )


def _answer(
    request: OffsetCommitRequest, codes: dict[Name, int], otherwise: int
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=index,
                        error_code=codes.get((topic.name, index), otherwise),
                    )
                    for index in dict.fromkeys(each.partition_index for each in topic.partitions)
                ],
            )
            for topic in request.topics
        ]
    )


def refuse(request: OffsetCommitRequest, error: BrokerError) -> OffsetCommitResponse:
    """The error for every partition: there is no other place."""
    return _answer(request, {}, error.code)
