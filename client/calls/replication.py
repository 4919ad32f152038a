"""The fetch by which a follower copies the logs of its leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api import fetch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID


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
