"""ElectLeaders (key 43): this broker is the only one and leads already (KIP-183, KIP-460).

Behaviour: a named partition is ELECTION_NOT_NEEDED. One whose log a failed disk took offline is
PREFERRED_LEADER_NOT_AVAILABLE (ELIGIBLE_LEADERS_NOT_AVAILABLE if any replica may be elected). As in
Kafka, a request for all partitions (null) returns only those errors; other topics have no
partitions in the response. A partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION, an
invalid type of election INVALID_REQUEST.

Version notes: 1 the type of election, an error at the top; 2 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NoReturn

from broker.network.per_partition import per_partition
from protocol.api.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from protocol.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidRequest,
    PreferredLeaderNotAvailable,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.elect_leaders import ElectLeadersRequest
    from protocol.errors import BrokerError

_PREFERRED, _UNCLEAN = 0, 1


def handle(node: Node, request: ElectLeadersRequest, _context: Context) -> ElectLeadersResponse:
    """Returns for each partition why no leader is elected."""
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        raise InvalidRequest(f"there is no election of type {request.election_type}")
    if request.topic_partitions is None:
        asked: dict[str, list[int]] = {name: [] for name in node.metadata.image.topics}
        for partition in node.offline():
            asked.setdefault(partition.topic, []).append(partition.index)
    else:
        asked = {each.topic: each.partitions for each in request.topic_partitions}
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic,
                partition_result=per_partition(
                    node,
                    "elect_leaders",
                    indexes,
                    partial(_elect, node, topic, request.election_type),
                    _failed,
                ),
            )
            for topic, indexes in asked.items()
        ]
    )


def _elect(node: Node, topic: str, kind: int, index: int) -> NoReturn:
    """Raises the reason why there is no election."""
    known = node.metadata.image.topics.get(topic)
    if known is None:
        raise UnknownTopicOrPartition(f"there is no topic {topic}")
    if not 0 <= index < known.partitions:
        raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
    opened = node.store.opened_partition(topic, index)
    if opened is not None and opened.offline is not None:
        if kind == _UNCLEAN:
            raise EligibleLeadersNotAvailable(opened.offline)
        raise PreferredLeaderNotAvailable(opened.offline)
    raise ElectionNotNeeded(f"{topic}-{index} is led by broker {node.config.node_id} already")


def _failed(index: int, error: BrokerError) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)


def refuse(request: ElectLeadersRequest, error: BrokerError) -> ElectLeadersResponse:
    """Returns the error at the top (v1), and for every named partition."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[_failed(index, error) for index in each.partitions],
            )
            for each in request.topic_partitions or ()
        ],
    )
