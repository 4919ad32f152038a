"""What fetchers ask of a leader, and with what: the request, as Fetch carries it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.broker.partitions.views import sent_fetch
from tidelog.client.calls.replication import replica_fetch
from tidelog.protocol.api import fetch_single
from tidelog.protocol.records.layout import NEWEST_MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from uuid import UUID

    from tidelog.broker.lifecycle.cluster import Cluster
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.network.memory.share import Share
    from tidelog.broker.partitions.following.leader_clocks import LeaderClocks
    from tidelog.broker.partitions.following.partition_follower import PartitionFollower
    from tidelog.broker.partitions.replication.messages import FetchRequest
    from tidelog.broker.partitions.replication.quota import ReplicationQuotas
    from tidelog.broker.partitions.senders import Senders
    from tidelog.protocol.api.fetch import FetchPartition
    from tidelog.protocol.message import Message
    from tidelog.protocol.topic_partition import TopicIdPartition


@dataclass(slots=True)
class FetcherContext:
    """What all fetchers of a broker use."""

    cluster: Cluster
    metadata: ClusterMetadata
    senders: Senders
    quotas: ReplicationQuotas
    clocks: LeaderClocks
    received: Share  # memory for answers
    monotonic_s: Callable[[], float]
    newest_magic: int
    fetch_wait_ms: int
    response_max_bytes: int
    partition_max_bytes: int

    def now_ms(self) -> int:
        """Returns milliseconds of a monotonic clock."""
        return int(self.monotonic_s() * 1000)


def fetch_of(
    context: FetcherContext,
    version: int,
    session: tuple[int, int],
    asked: Sequence[tuple[TopicIdPartition, FetchRequest]],
    forgotten: Collection[TopicIdPartition],
) -> Message | bytes:
    """Returns a fetch of some partitions; of one partition the encoded body.

    `session` is its id and the epoch of this fetch.
    """
    replica = context.cluster.me, context.cluster.epoch
    is_usual = version == fetch_single.VERSION and context.newest_magic == NEWEST_MAGIC
    if is_usual and len(asked) == 1 and not forgotten:
        ((topic_id, index), request) = asked[0]
        return fetch_single.write(
            (context.fetch_wait_ms, context.response_max_bytes, context.partition_max_bytes),
            session,
            replica,
            topic_id.bytes,
            index,
            request.leader_epoch,
            request.fetch_offset,
            request.last_fetched_epoch,
            request.log_start_offset,
            request.high_watermark,
        )
    by_topic: dict[UUID, list[FetchPartition]] = {}
    for (topic_id, index), request in asked:
        wanted = sent_fetch(index, request, context.partition_max_bytes)
        by_topic.setdefault(topic_id, []).append(wanted)
    gone: dict[UUID, list[int]] = {}
    for topic_id, index in forgotten:
        gone.setdefault(topic_id, []).append(index)
    return replica_fetch(
        *replica,
        by_topic,
        gone,
        max_bytes=context.response_max_bytes,
        max_wait_ms=context.fetch_wait_ms,
        session=session,
        newest_magic=context.newest_magic,
    )


def served_last(
    to_ask: dict[TopicIdPartition, PartitionFollower], served: Collection[TopicIdPartition]
) -> dict[TopicIdPartition, PartitionFollower]:
    """Returns what to ask for in another order: what came with records, and its topic, is last.

    A leader with little room answers those without records that come late in a fetch, so each has to
    come early in its turn.
    """
    topics = {topic_id for topic_id, _ in served}
    return dict(sorted(to_ask.items(), key=lambda each: (each[0][0] in topics, each[0] in served)))
