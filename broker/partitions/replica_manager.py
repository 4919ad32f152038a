"""All replicas of this broker, and what the rest of the broker asks of them.

`apply` takes each image of the metadata after the reconciler has made its logs. `stop_all` ends
everything when the session of this broker has ended; the image of the next session begins it again.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.folded_log import FoldedLog
from tidelog.broker.metadata.image import changed_partitions, changed_topics
from tidelog.broker.partitions.fetch.consumers import ConsumerReads
from tidelog.broker.partitions.fetch.followers import proven
from tidelog.broker.partitions.fetch.followers.session import SESSIONLESS, FollowerSession
from tidelog.broker.partitions.fetch.followers.shared_reads import SharedReads
from tidelog.broker.partitions.following.fetcher import Fetcher
from tidelog.broker.partitions.following.leader_clocks import LeaderClocks
from tidelog.broker.partitions.leading.isr_changes import IsrChanges
from tidelog.broker.partitions.leading.pending_elections import PendingElections
from tidelog.broker.partitions.leading.suspensions import Suspensions
from tidelog.broker.partitions.partition import ServedPartition
from tidelog.broker.partitions.replication.isr_change import cannot_store
from tidelog.broker.partitions.replication.messages import Assignment, LeaderRules
from tidelog.broker.partitions.replication_quotas import ReplicationQuotas
from tidelog.broker.partitions.role_transitions import RoleTransitions
from tidelog.broker.partitions.senders import Senders
from tidelog.broker.partitions.views import brokers_of, followers_of
from tidelog.protocol.errors import NotLeaderOrFollower

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
    from typing import Any
    from uuid import UUID

    from tidelog.broker.cluster.cluster import Cluster
    from tidelog.broker.metadata.brokers.records import Endpoint
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.network.answers import Pending
    from tidelog.broker.network.context import ClientConnection, Context
    from tidelog.broker.partitions.following.partition_follower import PartitionFollower
    from tidelog.broker.partitions.leading.partition_leader import PartitionLeader
    from tidelog.broker.partitions.partition import Name
    from tidelog.broker.partitions.replication.messages import BrokerView
    from tidelog.broker.partitions.services import Services
    from tidelog.broker.partitions.views import FollowerLag
    from tidelog.protocol.api.fetch import FetchRequest, FetchResponse
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.log.partition import Appended, Partition

log = logging.getLogger("tidelog.replicas")

_AT_ONCE = 100  # partitions
_ACKS_ALL = -1


class ReplicaManager:
    """Every partition that has a replica here."""

    waits_for_others = True

    def __init__(
        self, services: Services, cluster: Cluster, roles_changed: Callable[[], None]
    ) -> None:
        """`roles_changed` is called when a log here leads, or stops leading."""
        self._roles_changed = roles_changed
        self._services = services
        self.cluster = cluster
        self.metadata = services.metadata
        self.purgatory = services.purgatory
        self.appends = services.appends
        self.pools = services.pools
        self.monotonic_s = services.clock.monotonic_s
        self.clock_ms = services.clock.now_ms
        self.clock_watch = services.clock_watch
        self.leader_clocks = LeaderClocks(self.clock_ms)
        self.quotas = ReplicationQuotas(cluster.me, services.config)
        self.senders = Senders(services, cluster)
        self.folded = FoldedLog(log)
        self.role_transitions = RoleTransitions(services)
        self.isr_changes = IsrChanges(self)
        self.pending_elections = PendingElections(self, services.metadata)
        self.shared_reads = SharedReads()
        self.suspensions = Suspensions()
        config = services.config.replication
        self._lag_time_max_ms = config.replica_lag_time_max_ms
        self.newest_magic = services.config.newest_magic
        self.partition_max_bytes = config.replica_fetch_max_bytes
        self.received = received = services.memory.received
        self.unpacked = services.memory.records
        self.response_max_bytes = min(config.replica_fetch_response_max_bytes, received.limit_bytes)
        session_ms = services.config.cluster.broker_session_timeout_ms
        # Each fetch shows a leader that is cut off from the metadata that it is followed.
        self.fetch_wait_ms = min(config.replica_fetch_wait_max_ms, session_ms // 3)
        self._tick_s = min(session_ms / 3, config.replica_lag_time_max_ms / 2) / 1000
        self._replicas: dict[Name, ServedPartition] = {}
        self._led: dict[Partition, PartitionLeader] = {}
        self._led_by_name: dict[Name, PartitionLeader] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._fetches: dict[PartitionFollower, Fetcher] = {}
        self._reconciled: Image | None = None  # the image that the logs are of
        self._applied: Image | None = None
        self._session = -1  # in which the replicas have their roles
        self._view: BrokerView = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._leaving: dict[Name, asyncio.Task[None]] = {}  # until nothing works on their logs
        self._followers: dict[ClientConnection, FollowerSession] = {}
        cluster.on_session(self._session_begun, self.stop_all)

    # --- metadata ---------------------------------------------------------------------------------

    async def apply(self, image: Image) -> None:
        """Takes an image whose logs are here. Without a session nothing leads or follows.

        Gives way after some partitions each. What ends or begins a session meanwhile goes first.
        """
        is_done = False
        try:
            for _ in self._applying(image):
                await asyncio.sleep(0)
            is_done = True
        finally:
            if not is_done and self._applied is image:
                self._applied = None  # the next image is applied whole

    def _applying(self, image: Image) -> Iterator[None]:
        """Gives the replicas on this broker the roles that an image assigns; yields after every few."""
        self._reconciled = image
        self.quotas.apply(image, self._services.config, self._services.store.config_of)
        cluster = self.cluster
        live = image.brokers.get(cluster.me)
        if cluster.epoch < 0 or live is None or live.epoch != cluster.epoch:
            return
        if live.record.is_fenced:
            self._lead_nothing("this broker is fenced")
        before = self._applied if self._session == cluster.epoch else None
        is_other_view = before is None or _standing(before) != _standing(image)
        self._applied = image
        self._session = session = cluster.epoch
        if is_other_view:
            self._view = brokers_of(image)
            self.senders.observe(image)
        settings = None if before is None else before.broker_configs
        since = None if is_other_view or settings != image.broker_configs else before
        seen = 0
        for topic in changed_topics(image, since):
            changed = list(changed_partitions(image, topic, since))
            for at in range(0, len(changed), _AT_ONCE):
                some = changed[at : at + _AT_ONCE]
                self._apply_topic(image, topic, some, may_lead=not live.record.is_fenced)
                seen += len(some)
                if seen >= _AT_ONCE:
                    seen = 0
                    yield
                    if self._session != session or self._applied is not image:
                        return

    def mine(self, topic: Topic) -> list[int]:
        """Returns the partitions of a topic that have a replica here."""
        me = self.cluster.me
        return [index for index, record in enumerate(topic.assignments) if me in record.replicas]

    def foreign(self, topic: Topic, here: Iterable[int]) -> list[int]:
        """Returns those of the partitions that have no replica here, in their order."""
        return sorted(set(here).difference(self.mine(topic)))

    async def lead(self, topic: Topic) -> None:
        """Changes nothing: `apply` begins the leader epochs."""

    def _session_begun(self, _epoch: int) -> None:
        """Takes the roles of a new session, once the reconciler has applied its image."""
        if self._reconciled is not None:
            for _ in self._applying(self._reconciled):
                pass

    def _apply_topic(
        self, image: Image, topic: Topic, indexes: Iterable[int], *, may_lead: bool
    ) -> None:
        me, rules = self.cluster.me, self._rules(topic)
        for index in indexes:
            name, record = (topic.topic_id, index), topic.assignments[index]
            replica = self._replicas.get(name)
            if me not in record.replicas:
                if replica is not None:
                    replica.stop("another broker has this replica now")
                continue
            if record.leader == me and not may_lead:
                continue
            if replica is None:
                after = self._leaving.get(name)
                replica = self._replicas[name] = ServedPartition(self, name, topic.name, after)
            unable = cannot_store(image, record.replicas, *name)
            replica.assign(
                Assignment(record, topic.mod_revisions[index]),
                rules._replace(cannot_store=unable) if unable else rules,
            )

    def _rules(self, topic: Topic) -> LeaderRules:
        config = self._services.store.config_of(topic.name)
        return LeaderRules(
            config.min_insync_replicas,
            self._lag_time_max_ms,
            config.flush_messages == 1,
            allows_unclean=config.unclean_leader_election_enable,
        )

    def _lead_nothing(self, reason: str) -> None:
        for replica in self._replicas.values():
            if replica.led is not None:
                replica.stop(reason)

    def release(self, names: Collection[Name]) -> list[asyncio.Task[None]]:
        """Ends the roles of partitions whose logs go; returns what still works on their logs.

        That may last as long as a log is opened, which reads it after a crash.
        """
        for name in names:
            replica = self._replicas.pop(name, None)
            if replica is None:
                continue
            replica.stop("the replica is gone")
            if replica.is_busy:
                work = asyncio.get_running_loop().create_task(replica.finish())
                self._leaving[name] = work
                work.add_done_callback(partial(self._left, name))
        return [self._leaving[name] for name in names if name in self._leaving]

    def _left(self, name: Name, work: asyncio.Task[None]) -> None:
        if self._leaving.get(name) is work:
            del self._leaving[name]

    def leaving(self) -> Collection[Name]:
        """Returns the partitions that have been released, and on whose logs something still works."""
        return self._leaving.keys()

    def here(self) -> Collection[Name]:
        """Returns the partitions that have a role here, or shall have one."""
        return self._replicas.keys()

    def view(self) -> BrokerView:
        """Returns the brokers that are registered."""
        return self._view

    def endpoint(self, broker: int) -> Endpoint | None:
        """Returns where another broker listens; None if it is not registered."""
        live = self.metadata.image.brokers.get(broker)
        return live.record.endpoints[0] if live is not None and live.record.endpoints else None

    # --- roles ------------------------------------------------------------------------------------

    def led(self, partition: Partition) -> PartitionLeader | None:
        """Returns the leader of a partition, if this broker leads it."""
        return self._led.get(partition)

    def led_by_id(self, topic_id: UUID, index: int) -> PartitionLeader | None:
        """Returns the leader of a partition by its topic's id, if this broker leads it."""
        return self._led_by_name.get((topic_id, index))

    def is_suspended(self, topic_id: UUID, index: int) -> bool:
        """Returns whether this broker leads a partition, and does not know whether another one does."""
        led = self._led_by_name.get((topic_id, index))
        return led is not None and led.leader.is_suspended

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

    def followed_by_id(self, topic_id: UUID, index: int) -> PartitionFollower | None:
        """Returns the follower of a partition by its topic's id, if this broker follows its leader."""
        replica = self._replicas.get((topic_id, index))
        return None if replica is None else replica.followed

    def leads(self, led: PartitionLeader) -> None:
        """Notes that a partition leads from now on."""
        self._led[led.partition] = self._led_by_name[led.name] = led
        self._roles_changed()

    def leads_no_more(self, led: PartitionLeader) -> None:
        """Notes that a partition has stopped leading."""
        if self._led.get(led.partition) is led:
            del self._led[led.partition], self._led_by_name[led.name]
            self.suspensions.forget(led)
            self._roles_changed()

    def suspended(self, led: PartitionLeader) -> None:
        """Notes that a leader answers no client for now: what it coordinates is dropped."""
        self.suspensions.begin(led)
        self._roles_changed()

    def resumed(self, led: PartitionLeader) -> None:
        """Notes that a leader answers clients again: what it coordinates is read again."""
        self.suspensions.end(led)
        self._roles_changed()

    def suspended_logs(self) -> list[str]:
        """Returns the partitions whose leaders here answer no client, as topic-number."""
        return sorted(self.suspensions.names())

    def throttled_rate(self, side: str) -> float:
        """Returns the bytes a second of throttled replication, as `leader` or `follower`."""
        quota = self.quotas.leader if side == "leader" else self.quotas.follower
        return 0 if quota is None else quota.per_second(self.now_ms())

    @property
    def all_suspended(self) -> bool:
        """Whether this broker leads, and every leader here is suspended."""
        return bool(self._led) and len(self.suspensions) == len(self._led)

    def stepped_down(self, led: PartitionLeader) -> None:
        """Notes that a leader has stepped down by itself; the image will say who leads."""
        replica = self._replicas.get(led.name)
        if replica is not None and replica.led is led:
            replica.led = None

    def is_in_sync(self, name: Name) -> bool:
        """Returns whether the replica of a partition here is in sync, by the newest metadata."""
        topic_id, index = name
        topic = self.metadata.image.topics_by_id.get(topic_id)
        if topic is None or index >= topic.partitions:
            return False
        return self.cluster.me in topic.assignments[index].isr

    def follows(self, followed: PartitionFollower) -> None:
        """Begins to fetch a partition that follows from now on."""
        leader = followed.follower.leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = Fetcher(self, leader)
        self._fetches[followed] = fetcher
        fetcher.add(followed)

    def follows_no_more(self, followed: PartitionFollower) -> None:
        """Ends the fetches of a partition that has stopped following."""
        fetcher = self._fetches.pop(followed, None)
        if fetcher is None:
            return
        fetcher.discard(followed)
        if not fetcher and self._fetchers.get(fetcher.leader) is fetcher:
            del self._fetchers[fetcher.leader]
            task = asyncio.get_running_loop().create_task(fetcher.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def ask_again(self, followed: PartitionFollower) -> None:
        """Lets a partition be fetched again."""
        fetcher = self._fetches.get(followed)
        if fetcher is not None:
            fetcher.ask_again(followed)

    def ask_later(self, followed: PartitionFollower, seconds: float) -> None:
        """Lets a partition be fetched again after a while."""
        asyncio.get_running_loop().call_later(seconds, followed.go_on)

    def stop_all(self, reason: str) -> None:
        """Ends all roles, because the session has ended."""
        self._session = -1
        for replica in self._replicas.values():
            replica.stop(reason)

    # --- time -------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """Returns milliseconds of a monotonic clock."""
        return int(self.monotonic_s() * 1000)

    async def tick(self) -> None:
        """Tells every leader the time, and gives way after some each."""
        for number, led in enumerate(list(self._led.values()), 1):
            if self._led.get(led.partition) is led:
                led.tick()
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        self.suspensions.log(len(self._led))

    async def run(self) -> None:
        """Ticks until it is cancelled."""
        while True:
            await asyncio.sleep(self._tick_s)
            try:
                await self.tick()
            except Exception:
                log.exception("partition leaders not checked")

    async def close(self) -> None:
        """Ends everything; returns when nothing works on a log any more."""
        self.stop_all("the broker stops")
        await self.senders.close()
        await self.isr_changes.close()
        for replica in list(self._replicas.values()):
            await replica.finish()
        if ending := [*self._closing, *self._leaving.values()]:
            await asyncio.wait(ending)
        self.folded.flush()

    # --- what handlers ask ------------------------------------------------------------------------

    def check_leading(self, partition: Partition) -> None:
        """Checks an answer that only the leader gives. Raises NotLeaderOrFollower."""
        self._led_of(partition).check_leading()

    def check_leads(self, topic_id: UUID, index: int) -> None:
        """Raises NotLeaderOrFollower unless this broker serves a partition as its leader."""
        led = self.led_by_id(topic_id, index)
        if led is None:
            raise NotLeaderOrFollower
        led.check_leading()

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
        return proven.answer(self._services, self, request, context)

    async def is_of_broker(self, context: Context) -> bool | None:
        """Returns whether a request comes from the broker that it names; None if it names none.

        Raises ClusterAuthorizationFailed for a wrong proof.
        """
        if context.header.sender is None:
            return None
        return await proven.is_of_broker(self, context)

    def follower_session(
        self, connection: ClientConnection, request: FetchRequest
    ) -> FollowerSession:
        """Returns what the follower at the other end of a connection asks for."""
        if request.session_epoch == SESSIONLESS:
            return FollowerSession(self._services, self)
        session = self._followers.get(connection)
        if session is None:
            session = self._followers[connection] = FollowerSession(self._services, self)
            connection.on_lost = partial(self._follower_left, connection)
        return session

    def _follower_left(self, connection: ClientConnection) -> None:
        self._followers.pop(connection).close()

    def reads_of(self, rack: str, listener: str) -> ConsumerReads:
        """Returns from where a consumer reads, which names its rack, and came by a listener."""
        return ConsumerReads(self._services, self, rack, listener)

    def appended(self, partition: Partition, appended: Appended) -> None:
        """Tells the leader of an append to its log; it is counted when it can be read."""
        led = self._led.get(partition)
        if led is None:
            return  # the epoch has ended: the records may be truncated
        if not appended.duplicate:
            self.purgatory.wait_until_readable(partition, appended)
        led.appended()

    def flushed(self, partition: Partition) -> None:
        """Tells the leader of a sync of its log."""
        led = self._led.get(partition)
        if led is not None:
            led.flushed()
        self.purgatory.advanced(partition)

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


def _standing(image: Image) -> tuple[object, object]:
    """Returns what an image says of brokers that leaders look at."""
    return image.brokers, image.offline


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
