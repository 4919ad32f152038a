"""What one broker process has, made once and handed to those who need it.

Each room of the broker declares what it needs of this in its `services.py`. Only `server.py` imports this.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidelog.broker.controller.topics.topic_admin import TopicAdmin
from tidelog.broker.controller.topics.topics import Topics
from tidelog.broker.coordinators.groups.coordinator import GroupCoordinator
from tidelog.broker.coordinators.transactions.coordinator import TransactionCoordinator
from tidelog.broker.coordinators.transactions.producer_ids import ProducerIds
from tidelog.broker.lifecycle.sole_member import SoleMember
from tidelog.broker.logs.maintenance.clock_watch import ClockWatch
from tidelog.broker.logs.reconciler import Reconciler
from tidelog.broker.metrics.cluster_watch import ClusterWatch
from tidelog.broker.metrics.time_watch import TimeWatch
from tidelog.broker.network.accepting.connections import Connections
from tidelog.broker.network.accepting.descriptors import Descriptors
from tidelog.broker.network.encoded import EncodedOnce
from tidelog.broker.network.impostors import Impostors
from tidelog.broker.network.memory.garbage import Collector
from tidelog.broker.network.memory.memory import Memory
from tidelog.broker.network.scheduler import Scheduler
from tidelog.broker.partitions.fetch.sessions import FetchSessions
from tidelog.broker.partitions.lookup import Partitions
from tidelog.broker.partitions.produce.appends import Appends
from tidelog.broker.partitions.produce.group_commit import GroupCommit
from tidelog.broker.partitions.purgatory import Purgatory
from tidelog.broker.partitions.sole_replicas import SoleReplicas
from tidelog.broker.pools import Pools
from tidelog.broker.quotas.clients import ClientQuotas
from tidelog.broker.quotas.rates import Windows
from tidelog.broker.security.authorizer import Authorizer, OpenAuthorizer
from tidelog.broker.settings import Settings
from tidelog.config.setting import INT_MAX

if TYPE_CHECKING:
    from tidelog.broker.clock import Clock
    from tidelog.broker.controller.controller_loop import ControllerLoop
    from tidelog.broker.lifecycle.cluster import Cluster
    from tidelog.broker.lifecycle.services import Membership
    from tidelog.broker.logs.reconciler import DeletedTopic
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metrics.counters import Metrics
    from tidelog.broker.network.accepting.listener import Listener
    from tidelog.broker.partitions.leading.partition_leader import PartitionLeader
    from tidelog.broker.partitions.replica_manager import ReplicaManager
    from tidelog.broker.partitions.services import Replication
    from tidelog.config import BrokerConfig
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.partition import Appended, Partition


class Services:
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
        self.purgatory = Purgatory(self._count)
        self.pools = pools = Pools(store.log_dirs)
        # Of logs with followers, where those who append and sync find them.
        self._leaders: dict[Partition, PartitionLeader] = {}
        self.memory = memory = Memory(config)
        self.appends = self._make_appends()
        self.coordinator = GroupCoordinator(self)
        self.producer_ids = ProducerIds(metadata)
        self.transactions = TransactionCoordinator(self, self.producer_ids)
        self.connections = Connections(
            self.settings, metrics, memory, clock, metadata, self.descriptors
        )
        self.fetch_sessions = FetchSessions(
            config.fetches.max_incremental_fetch_session_cache_slots,
            config.fetches.fetch_session_cache_max_partitions,
            lambda: int.from_bytes(os.urandom(4)) % INT_MAX + 1,
        )
        self.client_quotas = _client_quotas(config)
        self.collector = Collector(clock.monotonic_s)
        self.scheduler = Scheduler(clock.monotonic_s, self.collector)
        self.encoded = EncodedOnce()
        self.cluster: Membership = SoleMember(config, metadata, store)
        sole = SoleReplicas(config.cluster.node_id, store, pools.topics, self.impostors)
        self.controller: ControllerLoop | None = None
        self.replicas: Replication = sole
        self.reconciler = self._make_reconciler(sole)
        self.topics = self._make_topics()
        self.partitions = Partitions(store, metadata, self.topics, pools.reads, sole)
        self.cluster_watch = ClusterWatch(metadata)
        self.listeners: list[Listener] = []  # for clients, in the order of the setting
        self.http: Listener | None = None  # the HTTP port, once it is bound
        self.ready = False

    def _make_appends(self) -> Appends:
        syncs = GroupCommit(self.pools.syncs.of, self.purgatory, self._leaders, self.metrics)
        return Appends(
            self.clock,
            self.clock_watch,
            self.pools.appends,
            self.pools.first_appends,
            syncs,
            self.purgatory,
            self._leaders,
            self.memory.records,
        )

    def _make_reconciler(self, sole: SoleReplicas) -> Reconciler:
        return Reconciler(
            self.metadata,
            self.store,
            self.settings,
            self.pools.topics,
            self.clock.now_ms,
            self.clock_watch.deletion_ms,
            sole,
            removed=self._topic_removed,
            leader_changed=self.purgatory.wake,
        )

    def _make_topics(self) -> Topics:
        admin = TopicAdmin(
            self.metadata, self.settings, self._unclaimed, self._for_placing, self.catch_up
        )
        return Topics(admin, self.reconciler, self.settings, self.coordinator.cleanup.delete_topic)

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings, with what was changed while it runs."""
        return self.settings.broker

    @property
    def advertised_listeners(self) -> list[Listener]:
        """The addresses under which other brokers and the commands find this one."""
        return self.listeners if self.http is None else [*self.listeners, self.http]

    def enter(self) -> None:
        """Makes this broker one of several if its metadata are shared, and checks its log directories.

        Raises MetadataError, LogDirectoryError and OSError.
        """
        if self.config.cluster.metadata_store:
            from tidelog.broker.controller.controller_loop import ControllerLoop
            from tidelog.broker.controller.rules import Rules
            from tidelog.broker.lifecycle.cluster import Cluster

            rules = Rules(self.settings)
            cluster = Cluster(self, rules)
            self.controller = ControllerLoop(self, cluster, rules)
            self.join(cluster)
        self.cluster.enter()

    async def start(self) -> None:
        """Registers, and returns when this broker may serve. Raises MetadataError and KafkaStorageError."""
        if self.controller is not None:  # other brokers may wait for it, and this one, too
            self.controller.start()
        await self.cluster.start(self.advertised_listeners)

    async def leave(self) -> None:
        """Closes the logs, and then ends the session and writes into the directories how it ended."""
        failed = {partition.directory.parent for partition in self.partitions.offline()}
        is_flushed = False
        try:
            self.store.close(unlocks=False)  # the next process waits until all is written
            is_flushed = True
        finally:
            if self.controller is not None:
                await self.controller.stop()
            await self.cluster.leave(is_flushed=is_flushed, failed=failed)

    def join(self, cluster: Cluster) -> ReplicaManager:
        """Makes this broker one of several, whose logs have replicas on others."""
        from tidelog.broker.partitions.replica_manager import (
            ReplicaManager,  # a broker that is alone needs none of it
        )

        self.cluster = cluster
        replicas = self.replicas = ReplicaManager(self, cluster, self._leaders)
        self.partitions.leading = replicas
        self.topics.replicate(replicas.assigned)
        return replicas

    async def catch_up(self) -> None:
        """Updates the image by what other brokers have stored until now; called before a change.

        Another broker may have answered the change before this one, which the image does not show yet.
        Raises KafkaStorageError.
        """
        await self.cluster.catch_up()

    def _count(self, partition: Partition, appended: Appended) -> None:
        """Counts an append that has become readable for consumers."""
        self.metrics.appended(partition.topic, appended)
        if appended.anomaly is not None:
            self.time_watch.note_anomaly(partition, appended, appended.anomaly)

    def _unclaimed(self, name: str) -> frozenset[int]:
        """The partitions of a name of which a log lies here that names no topic."""
        here = self.store.indexes(name)
        return frozenset(index for index in here if self.store.topic_id(name, index) is None)

    def _for_placing(self, image: Image) -> Image:
        return self.cluster.for_placing(image)

    def _topic_removed(self, removed: DeletedTopic) -> None:
        """Nothing is left of a topic here: those who wait for its records need not."""
        self.metrics.drop_topic(removed.name)
        self.time_watch.drop_topic(removed.name)
        for partition in removed.partitions:
            self.purgatory.wake(partition)


def _client_quotas(config: BrokerConfig) -> ClientQuotas:
    return ClientQuotas(
        Windows(config.limits.quota_window_num, 1000 * config.limits.quota_window_size_seconds),
        Windows(
            config.limits.controller_quota_window_num,
            1000 * config.limits.controller_quota_window_size_seconds,
        ),
    )
