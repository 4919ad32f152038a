"""The replication of logs that have one replica, which is this broker's: there is nobody to wait for.

Promises what `broker/partitions` promises, for an ISR of this broker: an append has the acks of all as soon
as it is written, the log leads as long as it is open, and no request comes from a follower.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.broker.lifecycle.leadership import known_leader_epoch
from tidelog.protocol.sender import NO_TAGS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any, NoReturn
    from uuid import UUID

    from tidelog.broker.metadata.brokers.records import Endpoint
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.network.context import Context
    from tidelog.broker.network.impostors import Impostors
    from tidelog.broker.pools import Pool
    from tidelog.protocol.api.fetch import FetchRequest
    from tidelog.protocol.message import RequestHeader
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.partition import Appended, Partition

log = logging.getLogger("tidelog.topics")


class SoleReplicas:
    """Every partition, where no other broker has a replica of any."""

    all_suspended = False

    def __init__(self, broker: int, store: LogStore, pool: Pool, impostors: Impostors) -> None:
        """Leader epochs begin in `pool`."""
        self._broker, self._store, self._pool = broker, store, pool
        self._impostors = impostors
        self._applied: Image | None = None
        self._changed = asyncio.Event()  # replaced with each image
        self.senders = _NoSenders()
        self.pending_elections = _NoElections()

    # --- metadata ---------------------------------------------------------------------------------

    async def apply(self, image: Image) -> None:
        """Notes that the logs of an image are here, which lead from their opening on."""
        self._applied = image
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def mine(self, topic: Topic) -> list[int]:
        """Returns the partitions of a topic whose logs belong here: all."""
        return list(range(topic.partitions))

    def foreign(self, topic: Topic, here: Iterable[int]) -> list[int]:
        """Returns the partitions whose logs belong to other brokers: none."""
        return []

    async def lead(self, topic: Topic) -> None:
        """Begins the leader epochs of the metadata in the logs that this broker leads."""
        led = [
            index
            for index, record in enumerate(topic.assignments)
            if record.leader == self._broker and record.leader_epoch > 0
        ]
        if led:
            await self._pool.run(self._begin_leader_epochs, topic, led)

    def _begin_leader_epochs(self, topic: Topic, indexes: Iterable[int]) -> None:
        """Begins epochs in a thread, because an append may be in progress."""
        for index in indexes:
            epoch = topic.assignments[index].leader_epoch
            if self._store.begin_leader_epoch(topic.name, index, epoch) is not None:
                log.info(
                    "leader epoch started", extra={"log": f"{topic.name}-{index}", "epoch": epoch}
                )

    def here(self) -> Collection[tuple[UUID, int]]:
        """Returns the partitions that have a role which ends before their logs go: none."""
        return ()

    def leaving(self) -> Collection[tuple[UUID, int]]:
        """Returns the partitions on whose logs something still works: none."""
        return ()

    def release(self, names: Collection[tuple[UUID, int]]) -> list[asyncio.Task[None]]:
        """Ends no role."""
        return []

    # --- what handlers ask ------------------------------------------------------------------------

    def check_leading(self, partition: Partition) -> None:
        """Accepts an answer that only the leader sends."""

    def check_leads(self, topic_id: UUID, index: int) -> None:
        """Accepts an answer that only the leader sends, which this broker is."""

    def led_epochs(self, topic: Topic) -> dict[tuple[UUID, int], tuple[int, int]]:
        """Returns the partitions of a topic whose logs are here: they never suspend."""
        here = self._applied and self._applied.topics_by_id.get(topic.topic_id)
        return {
            (topic.topic_id, index): (record.leader_epoch, 0)
            for index, record in enumerate(topic.assignments[: here.partitions if here else 0])
            if record.leader == self._broker
        }

    async def leaders_changed(self, since: int) -> int:
        """Returns the revision of the image whose logs are here, once that is not `since`."""
        while self._applied is None or self._applied.revision == since:
            await self._changed.wait()
        return self._applied.revision

    def check_leads_in(self, topic_id: UUID, index: int, epoch: int) -> None:
        """Accepts an answer that only the leader sends: only this broker changes epochs."""

    def acknowledges_at_once(self, partition: Partition) -> bool:
        """Returns True."""
        return True

    def leader_epoch(self, topic: Topic, index: int) -> int:
        """Returns the leader epoch of a partition: that of its log if it is ahead of the metadata."""
        return known_leader_epoch(self._store, topic, index)

    def unread_epochs(self, topic: Topic, indexes: Iterable[int]) -> list[TopicPartition]:
        """Returns the partitions whose leader epochs have to be read from closed logs first."""
        name, epoch_of = topic.name, self._store.leader_epoch
        return [(name, index) for index in indexes if epoch_of(name, index) is None]

    def check_end_known(self, partition: Partition) -> None:
        """Accepts an answer that depends on the log's end: no leader was beyond it."""

    def check_append(self, partition: Partition, acks: int) -> None:
        """Accepts an append: as in Kafka, an ISR needs no more members than there are replicas."""

    def check_own_append(self, partition: Partition) -> None:
        """Accepts an append of the broker's own."""

    def acknowledged(
        self, partition: Partition, appended: Appended | asyncio.Future[Appended], timeout_ms: int
    ) -> Appended | asyncio.Future[Appended]:
        """Returns the append: all replicas have it."""
        return appended

    def acknowledged_by_leader(
        self, partition: Partition, pending: asyncio.Future[Appended]
    ) -> asyncio.Future[Appended]:
        """Returns the append: nobody else can have been elected meanwhile."""
        return pending

    async def deleted_everywhere(self, partition: Partition, offset: int, timeout_ms: int) -> int:
        """Returns the log start, which is the low watermark."""
        return partition.log_start_offset

    def reads_of(self, rack: str, listener: str) -> None:
        """Returns None: consumers read from the leader."""

    def answer_follower(self, request: FetchRequest, context: Context) -> NoReturn:
        """Raises ClusterAuthorizationFailed: there is no follower."""
        claim = request.replica_state
        raise self._impostors.refuse(context, claim.replica_id if claim else request.replica_id)

    async def is_of_broker(self, context: Context) -> bool | None:
        """Returns None: no other broker can be named by a request."""
        return None

    # --- what is shown ----------------------------------------------------------------------------

    def led_by_id(self, topic_id: UUID, index: int) -> None:
        """Returns None: there is no machine that leads."""

    def followed_log(self, topic_id: UUID, index: int) -> None:
        """Returns None: no log follows."""

    def followers_of(self, topic_id: UUID, index: int) -> list[Any]:
        """Returns the followers of a partition: none."""
        return []

    def is_suspended(self, topic_id: UUID, index: int) -> bool:
        """Returns False: nobody else can lead."""
        return False

    def suspended_logs(self) -> list[str]:
        """Returns the partitions that are suspended: none."""
        return []

    def throttled_rate(self, side: str) -> float:
        """Returns the bytes a second of throttled replication: none."""
        return 0

    def endpoint(self, broker: int) -> Endpoint | None:
        """Returns where another broker listens: there is none."""
        return None

    async def run(self) -> None:
        """Returns at once: no leader depends on the time."""

    async def close(self) -> None:
        """Ends nothing."""


class _NoSenders:
    """No other broker sends requests here, or gets any from here."""

    def is_proven(self, header: RequestHeader) -> bool:
        return False

    def believes(self, claim: Any) -> bool:
        return False

    def tags_for(self, receiver: int) -> bytes:
        return NO_TAGS

    async def catch_up(self) -> bool:
        """Returns True: nobody else changes the metadata."""
        return True


class _NoElections:
    """No leader is elected: the one replica leads."""

    def coming(self, names: Iterable[TopicPartition]) -> list[TopicPartition]:
        return []

    async def led(self, names: Collection[TopicPartition]) -> None:
        """Returns at once."""

    def is_near(self, topics: Iterable[Topic]) -> bool:
        return False

    async def elected(self, topics: Callable[[], Iterable[Topic]]) -> None:
        """Returns at once."""
