"""The call by which a follower fetches from its leader. Refusals raise RequestError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from client import apis
from client.errors import UnsupportedByBroker, raise_for_code
from client.flow import Call, Node
from protocol.api import fetch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from protocol.api.fetch import PartitionData
    from protocol.topic_partition import TopicPartition


def replica_fetch(
    broker: int,
    broker_epoch: int,
    topics: Mapping[UUID, list[fetch.FetchPartition]],
    forgotten: Mapping[UUID, list[int]] | None = None,
    *,
    max_bytes: int,
    max_wait_ms: int,
    session: tuple[int, int] = (0, -1),
    newest_magic: int = 2,
) -> fetch.FetchRequest:
    """Returns the fetch of a broker for its replicas, by the ids of their topics (v15 or later).

    `forgotten` are the partitions for which the session asks no more.
    `session` is the id and the epoch of a fetch session (KIP-227), by default none. `newest_magic`
    is the newest message format that the broker stores.
    """
    return fetch.FetchRequest(
        replica_state=fetch.ReplicaState(replica_id=broker, replica_epoch=broker_epoch),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            fetch.FetchTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        forgotten_topics_data=[
            fetch.ForgottenTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in (forgotten or {}).items()
        ],
        with_append_times=True,
        with_replication_state=True,
        newest_magic=newest_magic,
    )


class Position(NamedTuple):
    """What a follower says of its log of one partition."""

    fetch_offset: int  # it has stored everything before it
    leader_epoch: int  # the current one, as far as it knows
    last_fetched_epoch: int = -1  # of its last batch; -1: unknown
    log_start_offset: int = -1


def fetch_as_follower(
    node_id: int,
    replica_id: int,
    positions: Mapping[TopicPartition, Position],
    *,
    max_bytes: int = 16 << 20,
    partition_max_bytes: int = 1 << 20,
    max_wait_ms: int = 500,
) -> Call[dict[TopicPartition, PartitionData]]:
    """Fetches batches of several partitions from their leader, for the replicas of broker `replica_id`.

    The answers have append times and replication state, those with records as well as those
    without. A partition's error code is in its answer.
    """
    by_topic: dict[str, list[fetch.FetchPartition]] = {}
    for (topic, partition), position in positions.items():
        by_topic.setdefault(topic, []).append(
            fetch.FetchPartition(
                partition=partition,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=partition_max_bytes,
            )
        )
    request = fetch.FetchRequest(
        replica_id=replica_id,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[
            fetch.FetchTopic(topic=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
        with_append_times=True,
        with_replication_state=True,
    )

    def read(answer: Any) -> dict[TopicPartition, PartitionData]:
        raise_for_code(answer.error_code, f"replicating from broker {node_id}")
        found: dict[TopicPartition, PartitionData] = {}
        for topic in answer.responses:
            for one in topic.partitions:
                if one.replication_state is None and not one.error_code:
                    raise UnsupportedByBroker(
                        f"broker {node_id} sends broker {replica_id} no replication state: it is "
                        "not tidelog, or refuses the right CLUSTER_ACTION"
                    )
                found[topic.topic, one.partition_index] = one
        return found

    return Call(apis.FETCH, request, Node(node_id), read, wait_s=max_wait_ms / 1000)
