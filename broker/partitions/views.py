"""Logs, fetches and answers as the machines of `replication/` see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.partitions.replication.messages import (
    NO_EPOCH,
    NO_OFFSET,
    BrokerStatus,
    Diverging,
    FetchAnswer,
    FetchRequest,
    FollowerLog,
    LeaderLog,
)
from tidelog.protocol.api.fetch import FetchPartition
from tidelog.protocol.error_codes import ERRORS
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.metadata.brokers.records import Endpoint
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.partitions.replication.leader import Leader
    from tidelog.broker.partitions.replication.messages import BrokerView
    from tidelog.protocol.api.fetch import PartitionData, ReplicaState
    from tidelog.protocol.topic_partition import TopicIdPartition
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.state import LogState

SINCE_VERSION = 15
"""The version of Fetch from which on followers name their broker epoch."""


class History:
    """The leader epochs of a log, as it is when asked."""

    __slots__ = ("_state",)

    def __init__(self, state: LogState) -> None:
        self._state = state

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Returns the largest epoch up to `epoch`, and the offset at which it ended."""
        state = self._state
        return state.epochs.end_offset_of(epoch, state.ends.log_end_offset)


class FollowerLag(NamedTuple):
    """How far a follower is behind its leader."""

    broker: int
    lag: int | None
    """The records that it lacks; None before its first fetch in this leader epoch."""
    caught_up_ms_ago: int | None
    """None if it never had the whole log."""


def followers_of(leader: Leader, now_ms: int) -> list[FollowerLag]:
    """Returns how far the followers of a leader are behind; `now_ms` is monotonic."""
    end = leader.log_end_offset
    return [
        FollowerLag(
            one.broker,
            None if one.log_end_offset < 0 else max(end - one.log_end_offset, 0),
            None if one.caught_up_ms is None else now_ms - one.caught_up_ms,
        )
        for one in leader.followers
    ]


def leader_log(partition: Partition) -> LeaderLog:
    """Returns the log of a partition that has just become a leader's."""
    state = partition.state
    end_offset, high_watermark, _ = state.ends
    return LeaderLog(
        state.version.log_start_offset,
        high_watermark,
        end_offset,
        min(state.durability.durable_offset, end_offset),
        History(state),
    )


def follower_log(partition: Partition) -> FollowerLog:
    """Returns the log of a follower as it is now."""
    state = partition.state
    end_offset, high_watermark, _ = state.ends
    return FollowerLog(
        state.version.log_start_offset,
        high_watermark,
        end_offset,
        min(state.durability.durable_offset, end_offset),
        state.epochs.last_begun,
        History(state),
        state.gaps_end_offset,
    )


def brokers_of(image: Image) -> BrokerView:
    """Returns the brokers that are registered by an image."""
    return {
        broker: BrokerStatus(live.epoch, live.record.is_fenced, live.record.is_stopping)
        for broker, live in image.brokers.items()
    }


def endpoint_of(image: Image, broker: int) -> Endpoint | None:
    """Returns where another broker listens; None if it is not registered."""
    live = image.brokers.get(broker)
    return live.record.endpoints[0] if live is not None and live.record.endpoints else None


def is_in_sync(image: Image, broker: int, name: TopicIdPartition) -> bool:
    """Returns whether a broker's replica of a partition is in sync, by an image."""
    topic_id, index = name
    topic = image.topics_by_id.get(topic_id)
    if topic is None or index >= topic.partitions:
        return False
    return broker in topic.assignments[index].isr


def received_fetch(wanted: FetchPartition, replica: ReplicaState) -> FetchRequest:
    """Returns what a follower asks for one partition."""
    return FetchRequest(
        replica.replica_id,
        replica.replica_epoch,
        wanted.current_leader_epoch,
        wanted.fetch_offset,
        wanted.last_fetched_epoch,
        wanted.log_start_offset,
        wanted.high_watermark,
    )


def sent_fetch(index: int, request: FetchRequest, max_bytes: int) -> FetchPartition:
    """Returns what this broker asks for one partition, as Fetch carries it."""
    return FetchPartition(
        partition=index,
        current_leader_epoch=request.leader_epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        log_start_offset=request.log_start_offset,
        partition_max_bytes=max_bytes,
        high_watermark=request.high_watermark,
    )


def _code(number: int) -> ErrorCode:
    return ERRORS.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


def received_answer(data: PartitionData, leader_epoch: int) -> FetchAnswer:
    """Returns a leader's answer for one partition. `leader_epoch` is the one asked for."""
    state, diverging = data.replication_state, data.diverging_epoch
    return FetchAnswer(
        _code(data.error_code),
        leader_epoch,
        data.high_watermark,
        data.log_start_offset,
        NO_OFFSET if state is None else state.log_end_offset,
        None
        if diverging is None or diverging.epoch == NO_EPOCH
        else Diverging(diverging.epoch, diverging.end_offset),
    )
