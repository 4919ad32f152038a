"""The running node: what handlers reach for, wired once.

A node owns the log store, the metadata store, the clock, the metrics, the open connections and those
who wait for data. Lookups raise the error a client should see; handlers only shape answers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from tidelog.broker.fetches.sessions import FetchSessions
from tidelog.broker.garbage import Collector
from tidelog.broker.groups.coordinator import Coordinator
from tidelog.broker.maintenance.clock_watch import ClockWatch
from tidelog.broker.memory.memory import Memory
from tidelog.broker.metrics.time_watch import TimeWatch
from tidelog.broker.network.accepting.connections import Connections
from tidelog.broker.network.accepting.descriptors import Descriptors
from tidelog.broker.network.encoded import EncodedOnce
from tidelog.broker.network.impostors import Impostors
from tidelog.broker.network.turns import Turns
from tidelog.broker.partitions.appends import Appends
from tidelog.broker.partitions.group_sync import GroupSync
from tidelog.broker.partitions.openings import Openings
from tidelog.broker.partitions.waiting import Waiting
from tidelog.broker.pools import Pools
from tidelog.broker.quotas.clients import ClientQuotas
from tidelog.broker.quotas.rates import Windows
from tidelog.broker.security.authorizer import Authorizer, OpenAuthorizer
from tidelog.broker.settings import Settings
from tidelog.broker.topics.controller import Controller
from tidelog.broker.topics.leadership import ANY_EPOCH, check_leader, check_leader_epoch
from tidelog.broker.topics.reconciler import Reconciler
from tidelog.broker.topics.topics import Topics
from tidelog.broker.transactions.coordinator import TransactionCoordinator
from tidelog.config.setting import INT_MAX
from tidelog.protocol.errors import (
    BrokerError,
    ErrorCode,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from uuid import UUID

    from tidelog.broker.clock import Clock
    from tidelog.broker.cluster.cluster import Cluster
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metrics.cluster_watch import ClusterWatch
    from tidelog.broker.metrics.counters import Metrics
    from tidelog.broker.network.accepting.listener import Listener
    from tidelog.broker.replicas.replicas import Replicas
    from tidelog.broker.topics.reconciler import Removed
    from tidelog.config import BrokerConfig
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.partition import Appended, Partition
    from tidelog.storage.log.producers.verification import Guard

log = logging.getLogger("tidelog.node")


_PRODUCER_ID_BLOCK = 1000


class Node:
    """Everything one broker process is."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        store: LogStore,
        metadata: ClusterMetadata,
        metrics: Metrics,
        descriptors: Descriptors | None = None,
    ) -> None:
        """Without `descriptors` there is no limit of them."""
        self.descriptors = descriptors or Descriptors()
        self.settings = Settings(config)
        self.clock = clock
        self.store = store
        self.metadata = metadata
        self.metrics = metrics
        self.clock_watch = ClockWatch(self)
        self.authorizer: Authorizer = OpenAuthorizer()
        self.impostors = Impostors(clock, metrics)
        self.time_watch = TimeWatch(clock)
        self.waiting = Waiting(self._count)
        self.pools = pools = Pools(store.log_dirs)
        syncs = GroupSync(pools.syncs.of, self.waiting, metrics)
        self.memory = memory = Memory(config)
        self.appends = Appends(
            clock,
            self.clock_watch,
            pools.appends,
            pools.first_appends,
            syncs,
            self.waiting,
            memory.records,
        )
        self.openings = Openings(store, self.open_log, pools.reads)
        self.coordinator = Coordinator(self)
        self.transactions = TransactionCoordinator(self)
        self.connections = Connections(self.settings, metrics, memory, self.descriptors)
        self.fetch_sessions = FetchSessions(
            config.fetches.max_incremental_fetch_session_cache_slots,
            config.fetches.fetch_session_cache_max_partitions,
            lambda: int.from_bytes(os.urandom(4)) % INT_MAX + 1,
        )
        self.client_quotas = ClientQuotas(
            Windows(config.limits.quota_window_num, 1000 * config.limits.quota_window_size_seconds),
            Windows(
                config.limits.controller_quota_window_num,
                1000 * config.limits.controller_quota_window_size_seconds,
            ),
        )
        self.collector = Collector(clock.monotonic_s)
        self.turns = Turns(clock.monotonic_s, self.collector)
        self.encoded = EncodedOnce()
        reconciler = Reconciler(
            metadata,
            store,
            self.settings,
            pools.topics,
            clock.now_ms,
            self.clock_watch.deletion_ms,
            removed=self._topic_removed,
            leader_changed=self.waiting.wake,
        )
        controller = Controller(metadata, self.settings, self._unclaimed, self.catch_up)
        self.topics = Topics(controller, reconciler, self.settings, self._forget_topic)
        self.cluster: Cluster | None = None  # None for a broker that is alone
        self.replicas: Replicas | None = None
        self.cluster_watch: ClusterWatch | None = None
        self.listeners: list[Listener] = []  # for clients, in the order of the setting
        self.http: Listener | None = None  # the HTTP port, once it is bound
        self.ready = False
        self._producer_ids = iter(range(0))
        self._producer_ids_lock = asyncio.Lock()

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings, with what was changed while it runs."""
        return self.settings.broker

    @property
    def told(self) -> list[Listener]:
        """The addresses under which other brokers and the commands find this one."""
        return self.listeners if self.http is None else [*self.listeners, self.http]

    def join(self, cluster: Cluster) -> Replicas:
        """Makes this broker one of several, whose logs have replicas on others."""
        from tidelog.broker.replicas.replicas import (
            Replicas,  # a broker that is alone needs none of it
        )

        self.cluster = cluster
        replicas = self.replicas = Replicas(self, cluster)
        self.appends.replicate(replicas.appended, replicas.flushed)
        self.topics.replicate(replicas)
        self.coordinator.join_cluster()
        self.transactions.join_cluster()
        return replicas

    async def catch_up(self) -> None:
        """Updates the image by what other brokers have stored until now; called before a change.

        Another broker may have answered the change before this one, which the image does not show yet.
        A broker that is alone has nothing to catch up with. Raises KafkaStorageError.
        """
        if self.cluster is not None:
            await self.metadata.catch_up()

    # -- lookups --------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition:
        """The partition's log, opened now if need be: for threads; see `opened_partition`.

        Raises UnknownTopicOrPartition, and KafkaStorageError if it is offline or cannot be opened.
        """
        found = self.open_log(topic, index)
        if found is None:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        found.check_online()
        return found

    def open_log(self, topic: str, index: int) -> Partition | None:
        """The partition's log, offline or not, opened now if need be; None if there is none.

        One whose partition.metadata has been damaged gets it back, once its topic is whole: before,
        the creation may be withdrawn, and the log be somebody else's. Raises KafkaStorageError.
        """
        found = self.store.partition(topic, index)
        known = self.metadata.image.topics.get(topic)
        if (
            found is not None
            and found.topic_id is None
            and known is not None
            and self.topics.is_whole(known)
        ):
            try:
                self.store.assign_topic_id(topic, index, known.topic_id)
            except BrokerError as error:  # it is served all the same
                log.warning("%s", error.message, extra={"log": f"{topic}-{index}"})
        return found

    def opened_partition(self, topic: str, index: int) -> Partition:
        """The partition's log if it is open.

        Raises WouldBlock if it is not, UnknownTopicOrPartition, and KafkaStorageError if offline.
        """
        found = self.store.opened_partition(topic, index)
        if found is None:
            if self.store.is_closed(topic, index):
                raise WouldBlock(f"{topic}-{index} has to be opened")
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        if found.state.offline is not None:
            found.check_online()
        return found

    def leader_partition(
        self, topic: str, index: int, epoch: int = ANY_EPOCH, may_block: bool = False
    ) -> Partition:
        """The log of a partition that this broker leads, by the metadata.

        It must be open, unless the caller `may_block`. `epoch` is the leader epoch that the client
        knows. Raises NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, what
        `opened_partition` raises, or `partition` with `may_block`, and UnknownTopicOrPartition while
        the log is still that of a deleted topic of the same name.
        """
        metadata = self.metadata  # looked at here, because every produce and fetch asks
        known = metadata.image.topics.get(topic)
        if (
            known is None
            or not 0 <= index < len(known.assignments)
            or known.assignments[index].leader != metadata.node_id
        ):
            check_leader(metadata, topic, index, epoch)  # raises
        found = self.store.opened_partition(topic, index)
        if found is None or found.state.offline is not None:
            lookup = self.partition if may_block else self.opened_partition
            found = lookup(topic, index)
        log_id = found.state.topic_id
        if known is not None and (
            not self.topics.is_whole(known) if log_id is None else log_id.int != known.topic_id.int
        ):
            # The log of a deleted topic of this name, which is about to be deleted; or one that names
            # no topic, and that a creation in progress will take over if it succeeds.
            raise UnknownTopicOrPartition(f"the log of {topic}-{index} is not created yet")
        if self.replicas is not None:
            self.replicas.check_leading(found)
        if epoch != ANY_EPOCH:
            check_leader_epoch(found, epoch)
        return found

    async def open_leader_partition(self, topic: str, index: int) -> Partition:
        """Returns the log of a partition that this broker leads; a thread opens it if it is closed.

        Raises NotLeaderOrFollower, and what `partition` raises.
        """
        check_leader(self.metadata, topic, index)
        await self.open_partition(topic, index)
        return self.leader_partition(topic, index)

    async def open_partition(self, topic: str, index: int) -> Partition:
        """The partition's log, opened in a thread if need be; raises what `partition` raises."""
        for error in (await self.openings.open([(topic, index)])).values():
            raise error
        return self.opened_partition(topic, index)

    def topic_name(self, topic_id: UUID) -> str:
        """Returns the name of the topic with an id. Raises UnknownTopicId."""
        name = self.metadata.image.topic_name(topic_id)
        if name is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        return name

    def code_for(self, code: ErrorCode, before_storage_errors: bool) -> int:
        """The code to send: clients older than KAFKA_STORAGE_ERROR know it by another name."""
        if before_storage_errors and code == ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return code

    # -- records --------------------------------------------------------------------------------

    def append(
        self,
        partition: Partition,
        records: Buffer,
        produce_version: int,
        *,
        waits: bool = True,
        guard: Guard | None = None,
        internal: bool = False,
    ) -> Appended | asyncio.Future[Appended]:
        """Appends as the leader; see `Appends.append`."""
        return self.appends.append(
            partition, records, produce_version, waits=waits, guard=guard, internal=internal
        )

    async def checkpoint(self) -> None:
        """Makes every log durable, and notifies those who wait of what can be read only now.

        Raises KafkaStorageError.
        """
        try:
            await self.pools.checkpoints.run_to_end(self.store.checkpoint)
        finally:
            self.waiting.advanced_anywhere()

    def offline(self) -> list[Partition]:
        """The logs that a failed disk has put offline."""
        return [each for each in self.store.opened() if each.offline is not None]

    def _count(self, partition: Partition, appended: Appended) -> None:
        """Counts an append that has become readable for consumers."""
        self.metrics.appended(partition.topic, appended)
        if appended.anomaly is not None:
            self.time_watch.note_anomaly(partition, appended, appended.anomaly)

    # -- topics ---------------------------------------------------------------------------------

    def _unclaimed(self, name: str) -> frozenset[int]:
        """The partitions of a name of which a log lies here that names no topic."""
        here = self.store.indexes(name)
        return frozenset(index for index in here if self.store.topic_id(name, index) is None)

    def _topic_removed(self, removed: Removed) -> None:
        """Nothing is left of a topic here: those who wait for its records need not."""
        self.metrics.forget(removed.name)
        self.time_watch.forget(removed.name)
        for partition in removed.partitions:
            self.waiting.wake(partition)

    async def _forget_topic(self, name: str) -> None:
        await self.coordinator.forget_topic(name)

    # -- producers ------------------------------------------------------------------------------

    def roles_changed(self) -> None:
        """Hears that a log on this broker leads now, or leads no more."""
        self.coordinator.roles_changed()
        self.transactions.roles_changed()

    async def next_producer_id(self) -> int:
        """A producer id nobody has had, from a block of the metadata store."""
        async with self._producer_ids_lock:
            for producer_id in self._producer_ids:
                return producer_id
            self._producer_ids = iter(await self.metadata.allocate_producer_ids(_PRODUCER_ID_BLOCK))
            return next(self._producer_ids)
