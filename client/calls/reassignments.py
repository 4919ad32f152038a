"""The call that moves partitions to other brokers (KIP-455). Refusals raise RequestError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from client import apis
from client.errors import RequestError, raise_for_code
from client.flow import Call, Controller
from protocol.api import alter_partition_reassignments as alter
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocol.topic_partition import TopicPartition

WAIT_MS = 30_000


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

    return Call(apis.REASSIGN, request, Controller(), read, wait_s=WAIT_MS / 1000)
