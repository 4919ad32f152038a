"""OffsetCommit (key 8): store the committed offsets of a group.

Behaviour: the response is sent once the offsets are in the log. A partition that does not exist is
UNKNOWN_TOPIC_OR_PARTITION. Metadata over offset.metadata.max.bytes is OFFSET_METADATA_TOO_LARGE
(the limit counts characters as Java does, whatever the setting is called). The other offsets are
stored all the same. Offsets that would need more than max.groups.bytes are POLICY_VIOLATION. If a
partition is named twice, its last offset is stored, and it has one result. With generation -1 and no
member id, any client may commit while the group is empty.

Old clients send 0 where they mean no time and no retention (sarama 531), and the offset would expire at
once: 0 is read as -1, and logged once for each group.

Version notes: 0 only offsets (Kafka kept those in ZooKeeper; here they are like any other); 1 a
time for each partition, -1 is now; 2-4 a retention time, -1 is the broker's; 6 leader epochs; 7
static members; 8 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import admission
from tidelog.broker.coordinators.groups.committed import Commit, Committed, Committer
from tidelog.broker.network.per_partition import per_partition, per_partition_async
from tidelog.broker.network.scheduler import listed
from tidelog.config.setting import LONG_MAX
from tidelog.protocol.api.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.protocol.errors import GroupAuthorizationFailed
from tidelog.protocol.records.layout import NO_TIMESTAMP

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.topic_partition import TopicPartition

    _Wanted = tuple[TopicPartition, OffsetCommitRequestPartition]

_MEAN_NONE = (0, -1)  # times of a commit, and retention times


async def handle(
    services: Services, request: OffsetCommitRequest, context: Context
) -> OffsetCommitResponse:
    """Stores the admitted offsets."""
    commit = _Commit(services, request)
    waiting: list[tuple[_Wanted, asyncio.Future[None]]] = []

    def admit(wanted: _Wanted) -> None:
        name, partition = wanted
        metadata = partition.committed_metadata or ""
        answer = admission.admit_commit(services, context.session, request.group_id, name, metadata)
        if answer is None:
            commit.accept(wanted)
        else:
            waiting.append((wanted, answer))

    await per_partition(services, "offset_commit", _wanted(request), admit, commit.refuse)
    if waiting:
        return await commit.store_when_admitted(waiting)
    return await commit.store()


def _wanted(request: OffsetCommitRequest) -> Iterator[_Wanted]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield (topic.name, partition.partition_index), partition


class _Commit:
    """The offsets of one request that will be stored, and the error codes of the others."""

    def __init__(self, services: Services, request: OffsetCommitRequest) -> None:
        self._services = services
        self._request = request
        self._now_ms = services.coordinator.offsets.now_ms()
        self._offsets: dict[TopicPartition, Committed] = {}
        self._codes: dict[TopicPartition, int] = {}

    def accept(self, wanted: _Wanted) -> None:
        """Notes that an offset will be stored."""
        name, partition = wanted
        retention_ms = self._request.retention_time_ms
        if not (partition.commit_timestamp and retention_ms):
            self._services.coordinator.offsets.note_zero_time(self._request.group_id)
        self._offsets[name] = _committed(partition, retention_ms, self._now_ms)

    def refuse(self, wanted: _Wanted, error: BrokerError) -> None:
        """Notes an error. Raises it again if the client has no right to the group."""
        if isinstance(error, GroupAuthorizationFailed):
            raise error
        self._codes[wanted[0]] = error.code

    async def store_when_admitted(
        self, waiting: list[tuple[_Wanted, asyncio.Future[None]]]
    ) -> OffsetCommitResponse:
        """Stores the offsets after another broker has verified some of them."""

        async def admit(asked: tuple[_Wanted, asyncio.Future[None]]) -> None:
            await asked[1]
            self.accept(asked[0])

        def refuse(asked: tuple[_Wanted, asyncio.Future[None]], error: BrokerError) -> None:
            self.refuse(asked[0], error)

        await per_partition_async(self._services, "offset_commit", waiting, admit, refuse)
        return await self.store()

    async def store(self) -> OffsetCommitResponse:
        """Writes the accepted offsets to the group's log; at once if it is open and not synced."""
        request = self._request
        committer = Committer(
            request.member_id, request.group_instance_id, request.generation_id_or_member_epoch
        )
        commit = await Commit.of_many(request.group_id, committer, self._offsets)
        if self._services.coordinator.offsets.commit_now(commit):
            return await _answer(request, self._codes, 0)
        await self._services.coordinator.offsets.commit(commit)
        return await _answer(request, self._codes, 0)


def _committed(
    partition: OffsetCommitRequestPartition, retention_ms: int, now_ms: int
) -> Committed:
    told_ms = partition.commit_timestamp
    expire_ms = NO_TIMESTAMP
    if retention_ms not in _MEAN_NONE:
        expire_ms = min(now_ms + retention_ms, LONG_MAX)
    return Committed(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms if told_ms in _MEAN_NONE else told_ms,
        expire_ms,
    )


async def _answer(
    request: OffsetCommitRequest, codes: dict[TopicPartition, int], otherwise: int
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=await listed(
                    OffsetCommitResponsePartition(
                        partition_index=index,
                        error_code=codes.get((topic.name, index), otherwise),
                    )
                    for index in dict.fromkeys(
                        await listed(each.partition_index for each in topic.partitions)
                    )
                ),
            )
            for topic in request.topics
        ]
    )


async def refuse(request: OffsetCommitRequest, error: BrokerError) -> OffsetCommitResponse:
    """Returns the error for every partition, because the response has no other field for it."""
    return await _answer(request, {}, error.code)
