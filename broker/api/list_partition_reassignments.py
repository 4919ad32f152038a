"""ListPartitionReassignments (key 46): the partitions that are moving to other brokers (KIP-455).

Behaviour: of the requested partitions (null: all) those with a reassignment in progress, with all, the
adding and the removing replicas. Others, and unknown ones, are left out, as in Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.api.services import Services
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.list_partition_reassignments import ListPartitionReassignmentsRequest
    from tidelog.protocol.errors import BrokerError


def handle(
    services: Services, request: ListPartitionReassignmentsRequest, _context: Context
) -> ListPartitionReassignmentsResponse:
    """Lists the reassignments in the metadata."""
    topics = services.metadata.image.topics
    asked: dict[str, Iterable[int]] = (
        {name: range(topic.partitions) for name, topic in topics.items()}
        if request.topics is None
        else {each.name: each.partition_indexes for each in request.topics if each.name in topics}
    )
    found = ((name, _ongoing(topics[name], indexes)) for name, indexes in asked.items())
    return ListPartitionReassignmentsResponse(
        topics=[
            OngoingTopicReassignment(name=name, partitions=moves) for name, moves in found if moves
        ]
    )


def _ongoing(topic: Topic, indexes: Iterable[int]) -> list[OngoingPartitionReassignment]:
    """Returns the reassignments in progress of a topic's partitions."""
    known = {index: topic.assignments[index] for index in indexes if 0 <= index < topic.partitions}
    return [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(record.replicas),
            adding_replicas=list(record.adding),
            removing_replicas=list(record.removing),
        )
        for index, record in known.items()
        if record.adding or record.removing
    ]


def refuse(
    _request: ListPartitionReassignmentsRequest, error: BrokerError
) -> ListPartitionReassignmentsResponse:
    """Returns the error at the top."""
    return ListPartitionReassignmentsResponse(
        error_code=error.code, error_message=error.message, topics=[]
    )
