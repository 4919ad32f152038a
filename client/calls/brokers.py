"""Calls about the brokers of a cluster: who there is, who leads, who is gone. Refusals raise RequestError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.client import apis
from tidelog.client.errors import RequestError, raise_for_code
from tidelog.client.flow import AnyBroker, Call, ControllerTarget
from tidelog.protocol.api import describe_cluster, elect_leaders, unregister_broker
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.protocol.topic_partition import TopicPartition

WAIT_MS = 30_000
_PREFERRED, _UNCLEAN = 0, 1


def registered() -> Call[set[int]]:
    """The ids of the brokers that are registered, also of those that are down (KIP-1073).

    Brokers before Kafka 4.0 cannot be asked for that: EncodeError.
    """
    request = describe_cluster.DescribeClusterRequest(include_fenced_brokers=True)

    def read(answer: Any) -> set[int]:
        raise_for_code(answer.error_code, "the brokers of the cluster", answer.error_message)
        return {each.broker_id for each in answer.brokers}

    return Call(apis.DESCRIBE_CLUSTER, request, AnyBroker(), read)


def elect(
    places: Iterable[TopicPartition], *, unclean: bool
) -> Call[dict[TopicPartition, RequestError | None]]:
    """Elects the preferred leaders, or with `unclean` any replica where nobody leads (KIP-460).

    Returns for each partition why nobody was elected, or None.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    request = elect_leaders.ElectLeadersRequest(
        election_type=_UNCLEAN if unclean else _PREFERRED,
        topic_partitions=[
            elect_leaders.TopicPartitions(topic=topic, partitions=indexes)
            for topic, indexes in by_topic.items()
        ],
        timeout_ms=WAIT_MS,
    )

    def read(answer: Any) -> dict[TopicPartition, RequestError | None]:
        raise_for_code(answer.error_code, "electing leaders")
        return {
            (topic.topic, one.partition_id): None
            if one.error_code == ErrorCode.NONE
            else RequestError(
                one.error_code,
                f"electing a leader of {topic.topic}-{one.partition_id}",
                one.error_message,
            )
            for topic in answer.replica_election_results
            for one in topic.partition_result
        }

    return Call(apis.ELECT_LEADERS, request, ControllerTarget(), read, wait_s=WAIT_MS / 1000)


def unregister(broker: int) -> Call[None]:
    """Lets the cluster forget a broker that is gone for good."""
    request = unregister_broker.UnregisterBrokerRequest(broker_id=broker)

    def read(answer: Any) -> None:
        raise_for_code(answer.error_code, f"forgetting broker {broker}", answer.error_message)

    return Call(apis.UNREGISTER_BROKER, request, ControllerTarget(), read)
