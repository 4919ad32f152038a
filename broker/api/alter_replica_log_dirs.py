"""AlterReplicaLogDirs (key 34): replicas stay in their log directory (KIP-113).

Behaviour, as in Kafka: a directory that is not written as DescribeLogDirs names it is
LOG_DIR_NOT_FOUND, a partition that does not exist UNKNOWN_TOPIC_OR_PARTITION, and one of which this
broker has no log REPLICA_NOT_AVAILABLE; one that is in the directory already needs no move. Kafka does
any other move; here it is INVALID_REQUEST.

Version notes: 1 is the same as 0; 2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import checkpoint, listed
from tidelog.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from tidelog.protocol.errors import (
    InvalidRequest,
    LogDirNotFound,
    ReplicaNotAvailable,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.alter_replica_log_dirs import AlterReplicaLogDirsRequest
    from tidelog.protocol.errors import BrokerError


class _Move(NamedTuple):
    """A partition, and the directory to which a client wants it to be moved."""

    topic: str
    partition: int
    path: str


async def handle(
    services: Services, request: AlterReplicaLogDirsRequest, _context: Context
) -> AlterReplicaLogDirsResponse:
    """Refuses every move that would change something."""

    def accept(move: _Move) -> tuple[_Move, int]:
        _check(services, move)
        return move, 0

    moves = await _moves(request)
    return await _answer(
        await per_partition(services, "alter_replica_log_dirs", moves, accept, _failed)
    )


async def _moves(request: AlterReplicaLogDirsRequest) -> list[_Move]:
    """Returns every partition once; the last directory that is named for it counts."""
    found = dict(
        await listed(
            ((topic.name, index), _Move(topic.name, index, each.path))
            for each in request.dirs
            for topic in each.topics
            for index in topic.partitions
        )
    )
    return list(found.values())


def _check(services: Services, move: _Move) -> None:
    """Raises the error of a move, unless the partition is there already."""
    if move.path not in {str(each.absolute()) for each in services.store.log_dirs}:
        raise LogDirNotFound(f"{move.path} is not one of log.dirs")
    topic = services.metadata.image.topics.get(move.topic)
    if topic is None or not 0 <= move.partition < topic.partitions:
        raise UnknownTopicOrPartition(f"there is no partition {move.topic}-{move.partition}")
    place = services.store.directory_of(move.topic, move.partition)
    if place is None:
        raise ReplicaNotAvailable(f"this broker has no log of {move.topic}-{move.partition}")
    if str(place.absolute()) != move.path:
        raise InvalidRequest("replicas are not moved between the log directories of a broker")


def _failed(move: _Move, error: BrokerError) -> tuple[_Move, int]:
    return move, error.code


async def _answer(outcomes: Iterable[tuple[_Move, int]]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for move, code in outcomes:
        result = AlterReplicaLogDirPartitionResult(partition_index=move.partition, error_code=code)
        topics.setdefault(move.topic, []).append(result)
        await checkpoint()
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )


async def refuse(
    request: AlterReplicaLogDirsRequest, error: BrokerError
) -> AlterReplicaLogDirsResponse:
    """Returns the error for every partition."""
    return await _answer([(move, error.code) for move in await _moves(request)])
