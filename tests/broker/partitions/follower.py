"""A follower that a test plays at broker 1, in the session of broker 3."""

from __future__ import annotations

from tests.broker.partitions.inside import tags_of
from tidelog.broker.partitions.views import SINCE_VERSION
from tidelog.client import apis
from tidelog.client.async_connection import open_connection
from tidelog.client.calls.replication import replica_fetch
from tidelog.protocol.api.fetch import FetchPartition


def wanted(index: int = 0, offset: int = 0, epoch: int = 0) -> FetchPartition:
    """What is asked of a partition."""
    return FetchPartition(
        partition=index,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )


class Follower:
    """One connection, while an `async with` lasts."""

    def __init__(self, three, topic) -> None:
        image = three[1].node.metadata.image
        self.port, self.topic_id = three[1].port, topic.topic_id
        self.epoch, self.tags = image.brokers[3].epoch, tags_of(image, 3, 1)

    async def __aenter__(self):
        self.connection = await open_connection(
            "127.0.0.1", self.port, "test", timeout_s=20, tags=self.tags
        )
        return self

    async def __aexit__(self, *_error):
        self.connection.close()
        await self.connection.wait_closed()

    async def fetch(
        self, *partitions: FetchPartition, session=(0, 0), max_wait_ms: int = 0, forgotten=()
    ):
        """Asks for partitions of the topic, and no more for the forgotten ones."""
        message = replica_fetch(
            3,
            self.epoch,
            {self.topic_id: list(partitions)} if partitions else {},
            {self.topic_id: list(forgotten)} if forgotten else None,
            max_bytes=1 << 20,
            max_wait_ms=max_wait_ms,
            session=session,
        )
        return await self.connection.ask(
            message, apis.FETCH, timeout_s=20, least_version=SINCE_VERSION
        )
