"""All replicas of this broker: what the rest of the broker asks of them.

Which there are is in `assigned.py`, by the metadata; those that lead are in `leading/leaders.py`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.broker.logging.folded_log import FoldedLog
from tidelog.broker.partitions.assigned import AT_ONCE, AssignedPartitions
from tidelog.broker.partitions.fetch.consumers import ConsumerReads
from tidelog.broker.partitions.fetch.followers import proven
from tidelog.broker.partitions.fetch.followers.session import SessionContext
from tidelog.broker.partitions.fetch.followers.sessions import FollowerSessions
from tidelog.broker.partitions.following.fetch_request import FetcherContext
from tidelog.broker.partitions.following.fetchers import Fetchers
from tidelog.broker.partitions.following.leader_clocks import LeaderClocks
from tidelog.broker.partitions.following.partition_follower import FollowerContext
from tidelog.broker.partitions.leading.isr_changes import IsrChanges
from tidelog.broker.partitions.leading.leaders import Leaders
from tidelog.broker.partitions.leading.partition_leader import LeaderContext, PartitionLeader
from tidelog.broker.partitions.leading.pending_elections import PendingElections
from tidelog.broker.partitions.leading.shared_reads import SharedReads
from tidelog.broker.partitions.partition import PartitionContext
from tidelog.broker.partitions.replication.quota import ReplicationQuotas
from tidelog.broker.partitions.role_transitions import RoleTransitions
from tidelog.broker.partitions.senders import Senders
from tidelog.broker.partitions.views import endpoint_of, followers_of
from tidelog.protocol.errors import NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable
    from typing import Any
    from uuid import UUID

    from tidelog.broker.lifecycle.cluster import Cluster
    from tidelog.broker.metadata.brokers.records import Endpoint
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.network.answers import Pending
    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.following.partition_follower import PartitionFollower
    from tidelog.broker.partitions.services import Services
    from tidelog.broker.partitions.views import FollowerLag
    from tidelog.protocol.api.fetch import FetchRequest, FetchResponse
    from tidelog.protocol.topic_partition import TopicIdPartition, TopicPartition
    from tidelog.storage.log.partition import Appended, Partition

log = logging.getLogger("tidelog.replicas")

_ACKS_ALL = -1


class ReplicaManager:
    """Every partition that has a replica here."""

    def __init__(
        self, services: Services, cluster: Cluster, led: dict[Partition, PartitionLeader]
    ) -> None:
        """Follows the sessions of the broker until `close`.

        `led` gets the leaders by log, for those who append.
        """
        self._services, self._metadata, self._cluster = services, services.metadata, cluster
        self._monotonic_s = services.clock.monotonic_s
        self._folded = FoldedLog(log)
        self._quotas = ReplicationQuotas(cluster.me, services.config)
        self.senders = Senders(services, cluster)
        self.leaders, self._led = Leaders(led), led
        self.pending_elections = PendingElections(services.metadata, cluster, self.leaders)
        self._isr_changes = IsrChanges(services.metadata, cluster)
        reads = SharedReads()
        self._sessions = FollowerSessions(
            SessionContext(
                services,
                self.leaders,
                self.pending_elections,
                reads,
                self._quotas,
                self.now_ms,
            )
        )
        clocks = LeaderClocks(services.clock.now_ms)
        self.fetching = self._fetching(clocks)
        self.fetchers = Fetchers(self.fetching)
        self.following = FollowerContext(
            services.purgatory,
            services.pools,
            services.memory.records,
            clocks,
            services.clock.now_ms,
            self._folded,
        )
        self.assigned = AssignedPartitions(
            services, self._partitions(reads), self._quotas, self.senders
        )
        config = services.config
        session_ms = config.cluster.broker_session_timeout_ms
        self._tick_s = min(session_ms / 3, config.replication.replica_lag_time_max_ms / 2) / 1000
        loop = asyncio.get_running_loop()
        self._following_sessions = loop.create_task(self.assigned.follow_sessions())

    def _fetching(self, clocks: LeaderClocks) -> FetcherContext:
        services, config = self._services, self._services.config
        received = services.memory.received
        session_ms = config.cluster.broker_session_timeout_ms
        return FetcherContext(
            self._cluster,
            services.metadata,
            self.senders,
            self._quotas,
            clocks,
            received,
            services.clock.monotonic_s,
            config.newest_magic,
            # Each fetch shows a leader that is cut off from the metadata that it is followed.
            min(config.replication.replica_fetch_wait_max_ms, session_ms // 3),
            min(config.replication.replica_fetch_response_max_bytes, received.limit_bytes),
            config.replication.replica_fetch_max_bytes,
        )

    def _partitions(self, reads: SharedReads) -> PartitionContext:
        services = self._services
        leading = LeaderContext(
            self.leaders,
            services.purgatory,
            self._isr_changes,
            reads,
            self._folded,
            self.now_ms,
        )
        return PartitionContext(
            self._cluster,
            services.appends,
            services.clock_watch,
            RoleTransitions(services),
            leading,
            self.pending_elections,
            self.following,
            self.fetchers,
            brokers={},
        )

    # --- roles ------------------------------------------------------------------------------------

    def led(self, partition: Partition) -> PartitionLeader | None:
        """Returns the leader of a partition, if this broker leads it."""
        return self._led.get(partition)

    def led_by_id(self, topic_id: UUID, index: int) -> PartitionLeader | None:
        """Returns the leader of a partition by its topic's id, if this broker leads it."""
        return self.leaders.by_name.get((topic_id, index))

    def is_suspended(self, topic_id: UUID, index: int) -> bool:
        """Returns whether this broker leads a partition, and does not know whether another one does."""
        led = self.leaders.by_name.get((topic_id, index))
        return led is not None and led.leader.is_suspended

    def followed_by_id(self, topic_id: UUID, index: int) -> PartitionFollower | None:
        """Returns the follower of a partition by its topic's id, if this broker follows its leader."""
        replica = self.assigned.by_name.get((topic_id, index))
        return None if replica is None else replica.followed

    def followed_log(self, topic_id: UUID, index: int) -> Partition | None:
        """Returns the log of a partition that follows here. Raises KafkaStorageError if it is offline."""
        followed = self.followed_by_id(topic_id, index)
        if followed is None or followed.is_stopped:
            return None
        followed.partition.check_online()
        return followed.partition

    def followers_of(self, topic_id: UUID, index: int) -> list[FollowerLag] | None:
        """Returns how far the followers of a partition are; None if it is not led here."""
        led = self.led_by_id(topic_id, index)
        return None if led is None else followers_of(led.leader, self.now_ms())

    def suspended_logs(self) -> list[str]:
        """Returns the partitions whose leaders here answer no client, as topic-number."""
        return self.leaders.suspended_logs

    @property
    def all_suspended(self) -> bool:
        """Whether this broker leads, and every leader here is suspended."""
        return self.leaders.are_all_suspended

    def throttled_rate(self, side: str) -> float:
        """Returns the bytes a second of throttled replication, as `leader` or `follower`."""
        quota = self._quotas.leader if side == "leader" else self._quotas.follower
        return 0 if quota is None else quota.per_second(self.now_ms())

    def endpoint(self, broker: int) -> Endpoint | None:
        """Returns where another broker listens; None if it is not registered."""
        return endpoint_of(self._metadata.image, broker)

    # --- time -------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Returns milliseconds of a monotonic clock."""
        return int(self._monotonic_s() * 1000)

    async def tick(self) -> None:
        """Passes the time to every leader, and yields to other work after some each."""
        for number, led in enumerate(list(self._led.values()), 1):
            if self._led.get(led.partition) is led:
                led.tick()
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
        self.leaders.log_suspensions()

    async def run(self) -> None:
        """Ticks until it is cancelled."""
        while True:
            await asyncio.sleep(self._tick_s)
            try:
                await self.tick()
            except Exception:
                log.exception("check of partition leaders failed")

    async def close(self) -> None:
        """Ends everything; returns when nothing works on a log any more."""
        self._following_sessions.cancel()
        await asyncio.wait([self._following_sessions])
        self.assigned.stop_all("the broker stops")
        await self.senders.close()
        await self._isr_changes.close()
        await self.assigned.finish()
        await self.fetchers.close()
        self._folded.flush()

    # --- what handlers ask ------------------------------------------------------------------------

    def check_leading(self, partition: Partition) -> None:
        """Checks an answer that only the leader sends. Raises NotLeaderOrFollower."""
        self._led_of(partition).check_leading()

    def check_leads(self, topic_id: UUID, index: int) -> None:
        """Raises NotLeaderOrFollower unless this broker serves a partition as its leader."""
        led = self.led_by_id(topic_id, index)
        if led is None:
            raise NotLeaderOrFollower
        led.check_leading()

    async def leaders_changed(self, since: int) -> int:
        """Returns how often leaders here have changed, once that is not `since`; see `Leaders.changed`."""
        return await self.leaders.changed(since)

    def led_epochs(self, topic: Topic) -> dict[TopicIdPartition, tuple[int, int]]:
        """Returns the partitions of a topic that this broker leads, unless they are suspended.

        Each with its leader epoch, and how often it was suspended in it.
        """
        by_name = self.leaders.by_name
        return {
            name: (led.leader.leader_epoch, led.leader.suspensions)
            for name in ((topic.topic_id, index) for index in range(topic.partitions))
            if (led := by_name.get(name)) is not None and not led.leader.is_suspended
        }

    def check_leads_in(self, topic_id: UUID, index: int, epoch: int) -> None:
        """Raises NotLeaderOrFollower unless this broker serves a partition as its leader in an epoch."""
        led = self.led_by_id(topic_id, index)
        if led is None or led.leader.leader_epoch != epoch:
            raise NotLeaderOrFollower(f"partition {index} is not led here in epoch {epoch}")
        led.check_leading()

    def acknowledges_at_once(self, _partition: Partition) -> bool:
        """Returns False: the leader decides after each append whether others have it."""
        return False

    def leader_epoch(self, topic: Topic, index: int) -> int:
        """Returns the leader epoch of a partition, which the metadata know."""
        return topic.assignments[index].leader_epoch

    def unread_epochs(self, _topic: Topic, _indexes: Iterable[int]) -> list[TopicPartition]:
        """Returns the partitions whose leader epochs have to be read from closed logs: none."""
        return []

    def check_end_known(self, partition: Partition) -> None:
        """Checks an answer that depends on the log's end (KIP-207).

        Raises NotLeaderOrFollower and OffsetNotAvailable.
        """
        self._led_of(partition).leader.check_end_known(self.now_ms())

    async def deleted_everywhere(self, partition: Partition, offset: int, timeout_ms: int) -> int:
        """Waits until all live replicas have deleted the records before an offset (KIP-107).

        Returns the low watermark. Raises NotLeaderOrFollower and RequestTimedOut.
        """
        return await self._led_of(partition).deleted_everywhere(offset, timeout_ms)

    def check_append(self, partition: Partition, acks: int) -> None:
        """Checks an append. Raises NotLeaderOrFollower and NotEnoughReplicas."""
        self._led_of(partition).check_append(acks)

    def check_own_append(self, partition: Partition) -> None:
        """Checks an append of the broker's own. Raises NotLeaderOrFollower and NotEnoughReplicas."""
        self._led_of(partition).check_append(_ACKS_ALL)

    def answer_follower(
        self, request: FetchRequest, context: Context
    ) -> FetchResponse | Coroutine[Any, Any, FetchResponse] | Pending:
        """Answers a request that claims to be a follower's fetch; raises what `proven.answer` raises."""
        return proven.answer(self._services, self.senders, self._sessions, request, context)

    async def is_of_broker(self, context: Context) -> bool | None:
        """Returns whether a request comes from the broker that it names; None if it names none.

        Raises ClusterAuthorizationFailed for a wrong proof.
        """
        if context.header.sender is None:
            return None
        return await proven.is_of_broker(self.senders, context)

    def reads_of(self, rack: str, listener: str) -> ConsumerReads:
        """Returns from where a consumer reads, which names its rack, and came by a listener."""
        return ConsumerReads(self._services, self, rack, listener)

    def acknowledged(
        self,
        partition: Partition,
        appended: Appended | asyncio.Future[Appended],
        timeout_ms: int,
    ) -> Appended | asyncio.Future[Appended]:
        """Returns the append, or a future that ends when all in-sync replicas have its records (acks=all).

        Raises NotLeaderOrFollower, NotEnoughReplicasAfterAppend and RequestTimedOut, or the future does.
        """
        led = self._led_of(partition)
        if isinstance(appended, asyncio.Future):
            return asyncio.ensure_future(_acknowledged_later(led, appended, timeout_ms))
        return led.acknowledged(appended, timeout_ms)

    def acknowledged_by_leader(
        self, partition: Partition, pending: asyncio.Future[Appended]
    ) -> asyncio.Future[Appended]:
        """Returns a future that ends with the append, if this leader still answers clients (acks=1).

        The future raises what the append raises, and NotLeaderOrFollower. Raises NotLeaderOrFollower.
        """
        return asyncio.ensure_future(_acknowledged_by_leader(self._led_of(partition), pending))

    def _led_of(self, partition: Partition) -> PartitionLeader:
        led = self._led.get(partition)
        if led is None:
            raise NotLeaderOrFollower
        return led


async def _acknowledged_later(
    led: PartitionLeader, pending: asyncio.Future[Appended], timeout_ms: int
) -> Appended:
    answer = led.acknowledged(await pending, timeout_ms)
    return await answer if isinstance(answer, asyncio.Future) else answer


async def _acknowledged_by_leader(
    led: PartitionLeader, pending: asyncio.Future[Appended]
) -> Appended:
    appended = await pending
    led.check_leading()
    return appended
