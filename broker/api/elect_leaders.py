"""ElectLeaders (key 43): preferred leaders, and leaders that may lack records (KIP-183, KIP-460).

Behaviour: a preferred election makes the first replica the leader if it is in sync and able to lead,
else it is PREFERRED_LEADER_NOT_AVAILABLE. An unclean one elects any replica that is there for a
partition without a leader, else it is ELIGIBLE_LEADERS_NOT_AVAILABLE. A partition that has the
leader already is ELECTION_NOT_NEEDED. As in Kafka, a request for all partitions (null) returns no
such errors; other topics have no partitions in the response. A partition that does not exist is
UNKNOWN_TOPIC_OR_PARTITION, an invalid type of election INVALID_REQUEST. Before the response is sent,
the leaders are in the metadata.

A partition that this broker leads, and whose log a failed disk took offline, is
PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE.

Version notes: 1 the type of election, an error at the top; 2 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import listed
from tidelog.protocol.api.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from tidelog.protocol.errors import ElectionNotNeeded, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.elect_leaders import ElectLeadersRequest
    from tidelog.protocol.errors import BrokerError

_PREFERRED, _UNCLEAN = 0, 1


async def handle(
    services: Services, request: ElectLeadersRequest, _context: Context
) -> ElectLeadersResponse:
    """Elects the leaders, or returns for each partition the error why none is elected."""
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        raise InvalidRequest(f"there is no election of type {request.election_type}")
    from tidelog.broker.controller.topics.partition_changes import elect_any, elect_preferred

    is_all = request.topic_partitions is None
    if is_all:
        topics = services.metadata.image.topics
        asked = {name: list(range(topic.partitions)) for name, topic in topics.items()}
    else:
        asked = _asked(request)
    elect = elect_preferred if request.election_type == _PREFERRED else elect_any
    wanted = await listed((topic, index) for topic, indexes in asked.items() for index in indexes)
    failed = await elect(services, wanted, request.timeout_ms)

    def is_shown(topic: str, index: int) -> bool:
        return not isinstance(failed.get((topic, index)), ElectionNotNeeded)

    if is_all:
        asked = {
            topic: await listed(indexes, partial(is_shown, topic))
            for topic, indexes in asked.items()
        }

    def result(topic: str, index: int) -> PartitionResult:
        error = failed.get((topic, index))
        if error is not None:
            raise error
        return PartitionResult(partition_id=index)

    return await _response(services, asked, lambda topic: partial(result, topic))


def _asked(request: ElectLeadersRequest) -> dict[str, list[int]]:
    return {each.topic: each.partitions for each in request.topic_partitions or ()}


async def _response(
    services: Services,
    asked: Mapping[str, list[int]],
    elect_in: Callable[[str], Callable[[int], PartitionResult]],
) -> ElectLeadersResponse:
    """Returns the results of topics; `elect_in(topic)` returns a function that elects in a partition."""
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic,
                partition_result=await per_partition(
                    services, "elect_leaders", indexes, elect_in(topic), _failed
                ),
            )
            for topic, indexes in asked.items()
        ]
    )


def _failed(index: int, error: BrokerError) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=error.code, error_message=error.message)


async def refuse(request: ElectLeadersRequest, error: BrokerError) -> ElectLeadersResponse:
    """Returns the error at the top (v1), and for every named partition."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=await listed(_failed(index, error) for index in each.partitions),
            )
            for each in request.topic_partitions or ()
        ],
    )
