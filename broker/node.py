"""The running node: what handlers reach for, wired once.

A node owns the log store, the metadata store, the clock, the metrics, the open connections and those
who wait for data. Lookups raise the error a client should see; handlers only shape answers.
"""

from __future__ import annotations

import asyncio
import logging
from types import MappingProxyType
from typing import TYPE_CHECKING

from broker.groups.coordinator import Coordinator
from broker.metadata.image import Topic
from broker.metadata.names import new_id
from broker.metadata.records import PartitionRecord
from broker.metrics.time_watch import TimeWatch
from broker.partitions.appends import Appends
from broker.partitions.commits import Commits
from broker.partitions.openings import Openings
from broker.partitions.waiting import Waiting
from broker.pools import Pools
from broker.security.authorizer import Authorizer
from broker.topics.adoption import KEEP
from broker.topics.forecast import say_what_goes
from broker.topics.leadership import leadership
from broker.unenforced_settings import warn_unenforced
from config import ConfigError, reconfigured, topic_config
from protocol.errors import (
    BrokerError,
    ErrorCode,
    FencedLeaderEpoch,
    InvalidConfig,
    InvalidPartitions,
    KafkaStorageError,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from storage.time.retention import APPEND_BASIS
from storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from broker.clock import Clock
    from broker.metadata.cluster import ClusterMetadata
    from broker.metrics.counters import Metrics
    from broker.network.connection import Connection
    from config import BrokerConfig, TopicConfig
    from storage.directory.store import LogStore
    from storage.log.partition import Appended, Partition

log = logging.getLogger("tidelog.node")

Buffer = bytes | bytearray | memoryview

_PRODUCER_ID_BLOCK = 1000
# Answers that slow readers leave in memory: beyond the first, fetches shrink towards the second.
_UNSENT_BYTES = 256 << 20
_LEAST_FETCH_BYTES = 64 << 10
# What is so on the broker's own topics: of a group the last commit counts, whatever a clock showed then.
_INTERNAL: Mapping[str, str] = MappingProxyType(
    {"message.format.version": "3.0", "compaction.strategy": "offset"}
)
# What event-time retention brings along where no basis is given: on a topic, and on the broker.
_BASIS: Mapping[str, str] = MappingProxyType({"retention.time.basis": APPEND_BASIS})
_BROKER_BASIS: Mapping[str, str] = MappingProxyType({"log.retention.time.basis": APPEND_BASIS})
_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


class Node:
    """Everything one broker process is."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        store: LogStore,
        metadata: ClusterMetadata,
        metrics: Metrics,
    ) -> None:
        self.config = config
        self._start_config = config  # what the start gave, without what was changed since
        self.clock = clock
        self.store = store
        self.metadata = metadata
        self.metrics = metrics
        self.authorizer = Authorizer()
        self.time_watch = TimeWatch(clock)
        self.waiting = Waiting()
        self.pools = pools = Pools(store.log_dirs)
        commits = Commits(pools.syncs.of, metrics)
        self.appends = Appends(clock, pools.appends, pools.first_appends, commits, self._appended)
        self.openings = Openings(store, self.open_log, pools.reads)
        self.coordinator = Coordinator(self)
        self.connections: set[Connection] = set()
        self.unsent_bytes = 0  # answers that wait for their peers to read
        self.ready = False
        self._producer_ids = iter(range(0))
        self._producer_ids_lock = asyncio.Lock()
        self._changing = (
            asyncio.Lock()
        )  # metadata and logs change together, one change after another

    # -- connections ----------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Take a connection in, unless max.connections are open."""
        if len(self.connections) >= self.config.max_connections:
            self.metrics.connections_refused += 1
            return False
        self.connections.add(connection)
        self.metrics.connections_made += 1
        return True

    def forget(self, connection: Connection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)

    def close_idle(self) -> int:
        """Close what has been silent for connections.max.idle.ms; returns how many."""
        oldest_s = self.clock.monotonic_s() - self.config.connections_max_idle_ms / 1000
        idle = [c for c in self.connections if c.last_active_s < oldest_s and not c.is_busy]
        for connection in idle:
            connection.expire()
        return len(idle)

    def fetch_room(self) -> int:
        """How many bytes of records one answer may carry now: less when peers do not read theirs."""
        return min(
            self.config.fetch_max_bytes, max(_LEAST_FETCH_BYTES, _UNSENT_BYTES - self.unsent_bytes)
        )

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

        One whose partition.metadata has been damaged gets it back. Raises KafkaStorageError.
        """
        found = self.store.partition(topic, index)
        known = self.metadata.image.topics.get(topic)
        if found is not None and found.topic_id is None and known is not None:
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
        found.check_online()
        return found

    def leader_partition(self, topic: str, index: int) -> Partition:
        """The log of a partition that this broker leads, if it is open.

        Raises NotLeaderOrFollower, and what `opened_partition` raises.
        """
        leadership(self.metadata.image, self.config.node_id, topic, index)
        return self.opened_partition(topic, index)

    async def open_partition(self, topic: str, index: int) -> Partition:
        """The partition's log, opened in a thread if need be; raises what `partition` raises."""
        for error in (await self.openings.open([(topic, index)])).values():
            raise error
        return self.opened_partition(topic, index)

    def topic_name(self, topic_id: UUID) -> str:
        """The name of a topic; raises UnknownTopicId."""
        topic = self.metadata.image.topics_by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        return topic.name

    def is_internal(self, topic: str) -> bool:
        """Whether the topic is the broker's own."""
        return topic in _INTERNAL_TOPICS

    def check_leader_epoch(self, partition: Partition, epoch: int) -> None:
        """Compare the epoch a client believes in with ours (KIP-320).

        Raises FencedLeaderEpoch for an older one, UnknownLeaderEpoch for one from the future.
        """
        if epoch in (-1, partition.leader_epoch):
            return
        if epoch < partition.leader_epoch:
            raise FencedLeaderEpoch(f"epoch {epoch} ended; it is {partition.leader_epoch} now")
        raise UnknownLeaderEpoch(f"epoch {epoch} is not known yet; it is {partition.leader_epoch}")

    def code_for(self, code: ErrorCode, before_storage_errors: bool) -> int:
        """The code to send: clients older than KAFKA_STORAGE_ERROR know it by another name."""
        if before_storage_errors and code == ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return code

    # -- records --------------------------------------------------------------------------------

    def append(
        self, partition: Partition, records: Buffer, produce_version: int, *, waits: bool = True
    ) -> Appended | asyncio.Future[Appended]:
        """Append as the leader; see `Appends.append`."""
        return self.appends.append(partition, records, produce_version, waits=waits)

    async def checkpoint(self) -> None:
        """Make every log durable, and notify those who wait of what can be read only now.

        Raises KafkaStorageError.
        """
        try:
            await self.pools.checkpoints.run_to_end(self.store.checkpoint)
        finally:
            self.appends.notify_late()

    def offline(self) -> list[Partition]:
        """The logs that a failed disk has put offline."""
        return [each for each in self.store.opened() if each.offline is not None]

    def _appended(self, partition: Partition, appended: Appended) -> None:
        """Count what may be read now and notify those who wait for it."""
        self.metrics.appended(partition.topic, appended)
        if appended.anomaly is not None:
            self.time_watch.note_anomaly(partition, appended, appended.anomaly)
        if not appended.duplicate:
            self.waiting.notify(partition, appended.size)

    # -- topics ---------------------------------------------------------------------------------

    def config_of_topic(
        self, name: str, overrides: Mapping[str, str], broker: BrokerConfig | None = None
    ) -> TopicConfig:
        """The topic's settings over the broker's; raises InvalidConfig with the sentence.

        The broker's own topics are in the newest format, and of each key the last record counts,
        whatever anybody sets.
        """
        if self.is_internal(name):
            overrides = {**overrides, **_INTERNAL}
        try:
            return topic_config(self.config if broker is None else broker, overrides)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None

    def settled(
        self, name: str, overrides: Mapping[str, str]
    ) -> tuple[TopicConfig, Mapping[str, str]]:
        """What a topic's own settings come to, and those that they bring along.

        Event-time retention without a basis brings retention.time.basis=append. That stays when event
        time is switched off again, or old data just written would go all at once. Raises InvalidConfig.
        """
        config = self.config_of_topic(name, overrides)
        if not config.lacks_basis:
            return config, {}
        return self.config_of_topic(name, {**overrides, **_BASIS}), _BASIS

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Make a topic: its metadata first, then its logs.

        Raises InvalidTopic, TopicAlreadyExists, InvalidConfig.
        """
        async with self._changing:
            given = {**self._settings_that_keep(name), **(configs or {})}
            config, brought = self.settled(name, given)
            count = self.config.num_partitions if partitions is None else partitions
            settings = {**given, **brought}
            self.metadata.check_name(name)
            if validate_only:
                leaders = (PartitionRecord.led_by(self.config.node_id),) * count
                return Topic(name, new_id(), leaders, settings)
            # For a log that is taken over: once there is a topic, it is judged by its settings.
            self.store.set_config(name, config)
            topic = await self.metadata.create_topic(name, count, settings)
            try:
                await self.pools.topics.run(self.create_logs, topic, config)
            except BrokerError:
                await self.metadata.delete_topic(name)
                await self.metadata.deletion_done(topic.topic_id)  # what lies here is not of it
                raise
        log.info("topic created", extra={"topic": name, "partitions": topic.partitions})
        warn_unenforced(given, topic=name)
        return topic

    async def add_partitions(self, name: str, check: Callable[[Topic], int]) -> Topic:
        """Give a topic more partitions: its metadata first, then their logs.

        `check` says how many there are to be, given the topic as it is; as many as there are change nothing.
        Raises what it raises, UnknownTopicOrPartition, KafkaStorageError, and InvalidPartitions where a log
        that is nobody's lies in the way: the topic's retention must not begin on it. Then the topic is as it
        was.
        """
        async with self._changing:
            topic = self.metadata.image.topics.get(name)
            if topic is None:
                raise UnknownTopicOrPartition(f"there is no topic {name}")
            partitions = check(topic)
            if partitions == topic.partitions:
                return topic
            for index in self.store.indexes(name) & set(range(topic.partitions, partitions)):
                if self.store.topic_id(name, index) is None:
                    raise InvalidPartitions(f"a log that is no topic's lies here as {name}-{index}")
            grown = await self.metadata.set_partitions(name, partitions)
            try:
                config = self._config_under(self.config, topic)
                await self.pools.topics.run(self.create_logs, grown, config)
            except BrokerError:
                await self.metadata.set_partitions(name, topic.partitions)
                raise
        log.info("partitions added", extra={"topic": name, "partitions": partitions})
        return grown

    def _settings_that_keep(self, name: str) -> Mapping[str, str]:
        """Settings that delete nothing, for a topic of which a log lies here that is nobody's."""
        here = self.store.indexes(name)
        return KEEP if any(self.store.topic_id(name, index) is None for index in here) else {}

    def create_logs(self, topic: Topic, config: TopicConfig) -> list[int]:
        """Give every partition of a topic its log; returns those that were made.

        A log that names no topic is taken over. One that names another is somebody's data, and is
        renamed to `-stray`: it is in the way, and not ours to remove. Raises KafkaStorageError,
        and then has made nothing.
        """
        here = self.store.indexes(topic.name)
        made: list[int] = []
        try:
            for index in range(topic.partitions):
                if index in here and self._is_log_of(topic, index):
                    continue
                self.store.create_partition(
                    topic.name, topic.topic_id, index, config, self.clock.now_ms()
                )
                made.append(index)
        except KafkaStorageError:
            for index in made:
                self.store.delete_partition(topic.name, index)
            raise
        return made

    def _is_log_of(self, topic: Topic, index: int) -> bool:
        """Whether a log that lies here is the topic's, or is made so, for it is nobody's."""
        found = self.store.topic_id(topic.name, index)
        if found == topic.topic_id:
            return True
        where = {"log": f"{topic.name}-{index}", "topic_id": str(found)}
        if found is None:
            log.warning("log without a topic id taken over", extra=where)
            self.store.assign_topic_id(topic.name, index, topic.topic_id)
            return True
        away = self.store.set_aside(topic.name, index)
        log.error("log of another topic set aside", extra={**where, "directory": str(away)})
        return False

    def topic_configs(self) -> dict[str, TopicConfig]:
        """Take on what was changed in earlier lives, and say every topic's settings, at start.

        Raises InvalidConfig if the broker's own do not fit together.
        """
        self.config = self._reconfigured(self.metadata.image.broker_configs)
        self.store.default_config = self.config.topic_defaults
        topics = self.metadata.image.topics.values()
        return {topic.name: self._config_under(self.config, topic) for topic in topics}

    def _config_under(self, broker: BrokerConfig, topic: Topic) -> TopicConfig:
        """A topic's settings over a broker's; the broker's alone where they no longer fit.

        Nothing is deleted then: the topic may have asked to keep more than the broker does.
        """
        try:
            return self.config_of_topic(topic.name, topic.configs, broker)
        except InvalidConfig as error:
            log.error(  # noqa: TRY400 - the sentence says it
                "topic goes by the broker's settings, and nothing of it is deleted: %s",
                error.message,
                extra={"topic": topic.name},
            )
            return self.config_of_topic(topic.name, KEEP, broker)

    async def keep_basis(self) -> None:
        """At start: where event-time retention is every topic's default, keep the basis it brings.

        It goes among the settings changed while the broker ran: what it protects must not be deleted when
        the default is taken out of the properties file again.
        """
        config = self._reconfigured(self.metadata.image.broker_configs)
        if config.topic_defaults.lacks_basis:
            await self.metadata.alter_broker_configs(_BROKER_BASIS)
            log.warning("broker setting kept for good", extra={"changes": dict(_BROKER_BASIS)})

    def open_topics(self, configs: Mapping[str, TopicConfig]) -> None:
        """Give every topic of the metadata its logs, at start; `configs` are from topic_configs."""
        topics = self.metadata.image.topics
        for name, config in configs.items():
            try:
                self.create_logs(topics[name], config)
            except KafkaStorageError as error:
                log.error(  # noqa: TRY400 - the sentence says it
                    "topic is not whole: %s", error.message, extra={"topic": name}
                )

    async def delete_topic(self, name: str) -> Topic:
        """Remove a topic: its metadata first, then its logs. Raises UnknownTopicOrPartition."""
        async with self._changing:
            topic = await self.metadata.delete_topic(name)
            opened = [each for each in self.store.opened() if each.topic == name]
            await self.pools.topics.run(self.store.delete_topic, name)
            await self.metadata.deletion_done(topic.topic_id)
            self.metrics.forget(name)
            self.time_watch.forget(name)
            for partition in opened:
                self.waiting.wake(partition)
        await self.coordinator.forget_topic(name)
        log.info("topic deleted", extra={"topic": name})
        return topic

    async def alter_topic(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        """Change a topic's settings, live; None removes one.

        Raises UnknownTopicOrPartition, InvalidConfig.
        """
        async with self._changing:
            topic = self.metadata.image.topics.get(name)
            if topic is None:
                raise UnknownTopicOrPartition(f"there is no topic {name}")
            config, brought = self.settled(name, _merged(topic.configs, changes))
            if validate_only:
                return
            changes = _differing(topic.configs, {**changes, **brought})
            if not changes:
                return  # mirrors say the same again and again
            await say_what_goes(self, {name: (self._config_under(self.config, topic), config)})
            await self.metadata.alter_topic_configs(name, changes)
            warn_unenforced(changes, topic=name)
            self.store.set_config(name, config)
        log.info("topic settings changed", extra={"topic": name, "changes": dict(changes)})

    async def alter_broker(self, changes: Mapping[str, str | None], *, validate_only: bool) -> None:
        """Change the broker's dynamic settings; the topics' defaults among them take effect at once.

        Raises InvalidConfig.
        """
        async with self._changing:
            config = self._reconfigured(_merged(self.metadata.image.broker_configs, changes))
            if config.topic_defaults.lacks_basis:
                changes = {**changes, **_BROKER_BASIS}
                config = self._reconfigured(_merged(self.metadata.image.broker_configs, changes))
            changes = _differing(self.metadata.image.broker_configs, changes)
            if validate_only or not changes:
                return
            both = {
                topic.name: (
                    self._config_under(self.config, topic),
                    self._config_under(config, topic),
                )
                for topic in self.metadata.image.topics.values()
            }
            await say_what_goes(self, both)
            await self.metadata.alter_broker_configs(changes)
            warn_unenforced(changes)
            self.config = config
            self.store.default_config = config.topic_defaults
            for name, (_, changed) in both.items():
                self.store.set_config(name, changed)
        log.info("broker settings changed", extra={"changes": dict(changes)})

    def _reconfigured(self, changes: Mapping[str, str]) -> BrokerConfig:
        try:
            return reconfigured(self._start_config, changes)
        except ConfigError as error:
            raise InvalidConfig(str(error)) from None

    async def next_producer_id(self) -> int:
        """A producer id nobody has had, from a block of the metadata store."""
        async with self._producer_ids_lock:
            for producer_id in self._producer_ids:
                return producer_id
            self._producer_ids = iter(await self.metadata.allocate_producer_ids(_PRODUCER_ID_BLOCK))
            return next(self._producer_ids)


def _differing(
    settings: Mapping[str, str], changes: Mapping[str, str | None]
) -> dict[str, str | None]:
    """The changes that change anything."""
    return {name: value for name, value in changes.items() if settings.get(name) != value}


def _merged(settings: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Settings after changes; None removes one."""
    return {k: v for k, v in {**settings, **changes}.items() if v is not None}
