"""Calls that move partitions to other brokers, and list the moves (KIP-455). Refusals raise RequestError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.client import apis
from tidelog.client.errors import RequestError, raise_for_code
from tidelog.client.flow import Call, ControllerTarget
from tidelog.protocol.api import alter_partition_reassignments as alter
from tidelog.protocol.api import list_partition_reassignments as listing
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidelog.protocol.topic_partition import TopicPartition

WAIT_MS = 30_000


class Move(NamedTuple):
    """A partition that is being moved: its replicas when that is done, and those it does not have yet."""

    target: tuple[int, ...]
    adding: tuple[int, ...]


def under_way() -> Call[dict[TopicPartition, Move]]:
    """The partitions of all topics that are being moved."""

    def read(answer: Any) -> dict[TopicPartition, Move]:
        raise_for_code(answer.error_code, "listing what is moved", answer.error_message)
        return {
            (topic.name, one.partition_index): Move(
                tuple(each for each in one.replicas if each not in one.removing_replicas),
                tuple(one.adding_replicas),
            )
            for topic in answer.topics
            for one in topic.partitions
        }

    request = listing.ListPartitionReassignmentsRequest(timeout_ms=WAIT_MS, topics=None)
    return Call(apis.LIST_REASSIGNMENTS, request, ControllerTarget(), read)


def reassign(
    replicas: Mapping[TopicPartition, Sequence[int] | None],
) -> Call[dict[TopicPartition, RequestError]]:
    """Begins to move partitions to these brokers, the preferred leader first; None cancels a move.

    Returns the refusals by partition; what is not refused is under way.
    """
    by_topic: dict[str, list[alter.ReassignablePartition]] = {}
    for (topic, index), brokers in replicas.items():
        wanted = None if brokers is None else list(brokers)
        one = alter.ReassignablePartition(partition_index=index, replicas=wanted)
        by_topic.setdefault(topic, []).append(one)
    request = alter.AlterPartitionReassignmentsRequest(
        timeout_ms=WAIT_MS,
        topics=[
            alter.ReassignableTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )

    def read(answer: Any) -> dict[TopicPartition, RequestError]:
        raise_for_code(answer.error_code, "moving partitions", answer.error_message)
        refused: dict[TopicPartition, RequestError] = {}
        for topic in answer.responses:
            for one in topic.partitions:
                if one.error_code != ErrorCode.NONE:
                    what = f"moving {topic.name}-{one.partition_index}"
                    refused[topic.name, one.partition_index] = RequestError(
                        one.error_code, what, one.error_message
                    )
        return refused

    return Call(apis.REASSIGN, request, ControllerTarget(), read, wait_s=WAIT_MS / 1000)
