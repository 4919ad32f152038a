"""What partitions need of the broker, and what they are for those above; `boot.py` makes both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tidelog.broker.controller.topics.services import Services as Below
from tidelog.broker.network.services import Replication as BelowReplication
from tidelog.broker.network.services import Senders as BelowSenders

if TYPE_CHECKING:
    import asyncio
    from collections.abc import (
        Awaitable,
        Callable,
        Collection,
        Coroutine,
        Iterable,
        Mapping,
        Sequence,
    )
    from uuid import UUID

    from tidelog.broker.metadata.brokers.records import Endpoint
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.metrics.time_watch import TimeWatch
    from tidelog.broker.network.accepting.connections import Connections
    from tidelog.broker.network.answers import Pending
    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.fetch.sessions import FetchSessions
    from tidelog.broker.partitions.lookup import Partitions
    from tidelog.broker.partitions.produce.appends import Appends
    from tidelog.broker.partitions.purgatory import Purgatory
    from tidelog.broker.partitions.replication.leader import Leader
    from tidelog.protocol.api.fetch import FetchRequest, FetchResponse
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.log.partition import Appended, Partition


class Senders(BelowSenders, Protocol):
    """The brokers that send requests to this one, and this one as the sender of requests to them."""

    def tags_for(self, receiver: int) -> bytes:
        """Returns the tags of this broker's requests to another one."""

    async def catch_up(self) -> bool:
        """Updates the image; returns whether it shows what is stored since the call."""


class PendingElections(Protocol):
    """The elections of which this broker knows that they are near."""

    def coming(self, names: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns those of the partitions that this broker is about to lead."""

    async def led(self, names: Collection[TopicPartition]) -> None:
        """Returns when this broker leads the partitions, or another one does; or after a moment."""

    def is_near(self, topics: Iterable[Topic]) -> bool:
        """Returns whether a partition of these topics is about to get a new leader."""

    def elected(self, topics: Callable[[], Iterable[Topic]]) -> Awaitable[None]:
        """Returns when `topics`, as each image has them, wait for no leader; or after a moment."""


class ConsumerReads(Protocol):
    """From where one fetch of a consumer reads."""

    def partition(self, topic: str, index: int, epoch: int, may_block: bool) -> Partition:
        """Returns the log of a partition that this broker leads or follows."""

    def preferred(self, partition: Partition, offset: int) -> int:
        """Returns the broker from which the consumer should read instead; -1 if none."""


class LedPartition(Protocol):
    """A partition that this broker leads."""

    @property
    def leader(self) -> Leader: ...

    def check_leading(self) -> None:
        """Checks an answer that only the leader sends. Raises NotLeaderOrFollower."""


class Follower(Protocol):
    """How far a follower of a partition is, as its leader knows."""

    @property
    def broker(self) -> int: ...

    @property
    def lag(self) -> int | None:
        """The records that it lacks; None before its first fetch in this leader epoch."""

    @property
    def caught_up_ms_ago(self) -> int | None:
        """None if it never had the whole log."""


class Replication(BelowReplication, Protocol):
    """The replicas of this broker's logs: `ReplicaManager`, or `SoleReplicas` where there are no others."""

    @property
    def senders(self) -> Senders: ...

    @property
    def pending_elections(self) -> PendingElections: ...

    @property
    def all_suspended(self) -> bool:
        """Whether this broker leads, and every leader here is suspended."""

    def check_end_known(self, partition: Partition) -> None:
        """Raises NotLeaderOrFollower and OffsetNotAvailable, if an earlier leader may have been beyond."""

    def check_append(self, partition: Partition, acks: int) -> None:
        """Checks an append of a client. Raises NotLeaderOrFollower and NotEnoughReplicas."""

    def check_own_append(self, partition: Partition) -> None:
        """Checks an append of the broker's own, as `check_append` one with acks=all."""

    def acknowledged(
        self, partition: Partition, appended: Appended | asyncio.Future[Appended], timeout_ms: int
    ) -> Appended | asyncio.Future[Appended]:
        """Returns an append with the acks of all, or a future of it; see `ReplicaManager.acknowledged`."""

    def acknowledged_by_leader(
        self, partition: Partition, pending: asyncio.Future[Appended]
    ) -> asyncio.Future[Appended]:
        """Returns a future that ends with the append, if this leader still answers clients (acks=1)."""

    async def deleted_everywhere(self, partition: Partition, offset: int, timeout_ms: int) -> int:
        """Returns the low watermark when all live replicas have deleted what is before an offset."""

    def reads_of(self, rack: str, listener: str) -> ConsumerReads | None:
        """Returns from where a consumer reads; None if always from the leader."""

    def answer_follower(
        self, request: FetchRequest, context: Context
    ) -> FetchResponse | Coroutine[Any, Any, FetchResponse] | Pending:
        """Answers what claims to be a fetch of a follower. Raises ClusterAuthorizationFailed."""

    async def is_of_broker(self, context: Context) -> bool | None:
        """Returns whether a request comes from the broker that it names; None if it names none.

        Raises ClusterAuthorizationFailed for a wrong proof.
        """

    def check_leads(self, topic_id: UUID, index: int) -> None:
        """Raises NotLeaderOrFollower unless this broker serves a partition that it leads by the metadata."""

    def led_epochs(self, topic: Topic) -> Mapping[tuple[UUID, int], tuple[int, int]]:
        """Returns the partitions of a topic that this broker leads, unless they are suspended.

        Each with its leader epoch, and how often it was suspended in it.
        """

    async def leaders_changed(self, since: int) -> int:
        """Returns how often leaders here have changed, once that is another number than `since`."""

    def check_leads_in(self, topic_id: UUID, index: int, epoch: int) -> None:
        """Raises NotLeaderOrFollower unless this broker serves a partition as its leader in an epoch."""

    def acknowledges_at_once(self, partition: Partition) -> bool:
        """Whether an append has the acks of all as soon as it is written."""

    def leader_epoch(self, topic: Topic, index: int) -> int:
        """Returns the leader epoch of a partition for clients, wherever its leader is."""

    def unread_epochs(self, topic: Topic, indexes: Iterable[int], /) -> Sequence[TopicPartition]:
        """Returns the partitions whose leader epochs have to be read from closed logs first."""

    def led_by_id(self, topic_id: UUID, index: int) -> LedPartition | None:
        """Returns the leader of a partition, if it may have followers and is here."""

    def followed_log(self, topic_id: UUID, index: int) -> Partition | None:
        """Returns the log of a partition that follows here. Raises KafkaStorageError if it is offline."""

    def followers_of(self, topic_id: UUID, index: int) -> Sequence[Follower] | None:
        """Returns how far the followers of a partition are; None if another broker leads it."""

    def is_suspended(self, topic_id: UUID, index: int) -> bool:
        """Returns whether this broker leads a partition, and does not know whether another one does."""

    def suspended_logs(self) -> list[str]:
        """Returns the partitions whose leaders here answer no client, as topic-number."""

    def throttled_rate(self, side: str) -> float:
        """Returns the bytes a second of throttled replication, as `leader` or `follower`."""

    def endpoint(self, broker: int) -> Endpoint | None:
        """Returns where another broker listens; None if it is not registered."""

    async def run(self) -> None:
        """Watches the leaders as time passes, until it is cancelled."""

    async def close(self) -> None:
        """Ends everything; returns when nothing works on a log any more."""


class Services(Below, Protocol):
    """What requests on partitions need."""

    @property
    def appends(self) -> Appends: ...

    @property
    def connections(self) -> Connections: ...

    @property
    def fetch_sessions(self) -> FetchSessions: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def purgatory(self) -> Purgatory: ...

    @property
    def replicas(self) -> Replication: ...

    @property
    def time_watch(self) -> TimeWatch: ...
