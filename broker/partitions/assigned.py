"""The partitions that the metadata assign to this broker, each in its role.

`apply` applies each image of the metadata after the reconciler has made its logs. `follow_sessions` ends
all roles when the session of this broker has ended; the image of the next session begins them again.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.metadata.image import changed_partitions, changed_topics
from tidelog.broker.partitions.partition import ServedPartition
from tidelog.broker.partitions.replication.isr_change import cannot_store
from tidelog.broker.partitions.replication.messages import Assignment, LeaderRules
from tidelog.broker.partitions.views import brokers_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.partitions.partition import PartitionContext
    from tidelog.broker.partitions.replication.quota import ReplicationQuotas
    from tidelog.broker.partitions.senders import Senders
    from tidelog.broker.partitions.services import Services
    from tidelog.protocol.topic_partition import TopicIdPartition

log = logging.getLogger("tidelog.replicas")

AT_ONCE = 100  # partitions
_RETRY_S = 1.0


class AssignedPartitions:
    """Every partition that has a replica here."""

    def __init__(
        self,
        services: Services,
        context: PartitionContext,
        quotas: ReplicationQuotas,
        senders: Senders,
    ) -> None:
        self._services, self._context, self._cluster = services, context, context.cluster
        self._quotas, self._senders = quotas, senders
        self._lag_time_max_ms = services.config.replication.replica_lag_time_max_ms
        self.by_name: dict[TopicIdPartition, ServedPartition] = {}
        self._reconciled: Image | None = None  # the image that the logs are of
        self._applied: Image | None = None
        self._turn = asyncio.Lock()  # one image is applied at a time
        self._session = -1  # in which the replicas have their roles
        # Those that were released, until nothing works on their logs.
        self._leaving: dict[TopicIdPartition, asyncio.Task[None]] = {}

    async def apply(self, image: Image) -> None:
        """Applies an image whose logs are here. Without a session nothing leads or follows.

        Yields to other work after some partitions each, and stops if the session ends or another one begins.
        """
        async with self._turn:
            await self._apply(image)

    async def _apply(self, image: Image) -> None:
        is_done = False
        try:
            for _ in self._applying(image):
                await asyncio.sleep(0)
            is_done = True
        finally:
            if not is_done:
                self._applied = None  # the next image is applied whole

    async def follow_sessions(self) -> None:
        """Ends all roles with each session of this broker, and begins those of the next, until cancelled.

        A new session has the roles of the image that the reconciler has applied.
        """
        seen = 0
        while True:
            changes = await self._cluster.session_changed(seen)
            try:
                if self._cluster.epoch < 0:
                    self.stop_all("the broker session is lost")
                async with self._turn:
                    if self._reconciled is not None:
                        await self._apply(self._reconciled)
            except Exception:
                log.exception("roles of a broker session not changed, retrying")
                await asyncio.sleep(_RETRY_S)
            else:
                seen = changes

    def _applying(self, image: Image) -> Iterator[None]:
        """Applies the roles that an image assigns to the replicas here; yields after every few."""
        self._reconciled = image
        self._quotas.apply(image, self._services.config, self._services.store.config_of)
        cluster = self._cluster
        live = image.brokers.get(cluster.me)
        if cluster.epoch < 0 or live is None or live.epoch != cluster.epoch:
            return
        if live.record.is_fenced:
            self._lead_nothing("this broker is fenced")
        before = self._applied if self._session == cluster.epoch else None
        is_other_view = before is None or _health(before) != _health(image)
        self._applied = image
        self._session = session = cluster.epoch
        if is_other_view:
            self._context.brokers = brokers_of(image)
            self._senders.observe(image)
        settings = None if before is None else before.broker_configs
        since = None if is_other_view or settings != image.broker_configs else before
        seen = 0
        for topic in changed_topics(image, since):
            changed = list(changed_partitions(image, topic, since))
            for at in range(0, len(changed), AT_ONCE):
                some = changed[at : at + AT_ONCE]
                self._apply_topic(image, topic, some, may_lead=not live.record.is_fenced)
                seen += len(some)
                if seen >= AT_ONCE:
                    seen = 0
                    yield
                    if not self._session == session == cluster.epoch:
                        return

    def _apply_topic(
        self, image: Image, topic: Topic, indexes: Iterable[int], *, may_lead: bool
    ) -> None:
        me, rules = self._cluster.me, self._rules(topic)
        for index in indexes:
            name, record = (topic.topic_id, index), topic.assignments[index]
            replica = self.by_name.get(name)
            if me not in record.replicas:
                if replica is not None:
                    replica.stop("another broker has this replica now")
                continue
            if record.leader == me and not may_lead:
                continue
            if replica is None:
                after = self._leaving.get(name)
                replica = self.by_name[name] = ServedPartition(
                    self._context, name, topic.name, after
                )
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
        for replica in self.by_name.values():
            if replica.led is not None:
                replica.stop(reason)

    def release(self, names: Collection[TopicIdPartition]) -> list[asyncio.Task[None]]:
        """Ends the roles of partitions whose logs go; returns what still works on their logs.

        Such work may last as long as opening a log, which is read after a crash.
        """
        for name in names:
            replica = self.by_name.pop(name, None)
            if replica is None:
                continue
            replica.stop("the replica is gone")
            if replica.is_busy:
                work = asyncio.get_running_loop().create_task(replica.finish())
                self._leaving[name] = work
                work.add_done_callback(partial(self._left, name))
        return [self._leaving[name] for name in names if name in self._leaving]

    def _left(self, name: TopicIdPartition, work: asyncio.Task[None]) -> None:
        if self._leaving.get(name) is work:
            del self._leaving[name]

    def leaving(self) -> Collection[TopicIdPartition]:
        """Returns the partitions that have been released, and on whose logs something still works."""
        return self._leaving.keys()

    def here(self) -> Collection[TopicIdPartition]:
        """Returns the partitions that have a role here, or shall have one."""
        return self.by_name.keys()

    def mine(self, topic: Topic) -> list[int]:
        """Returns the partitions of a topic that have a replica here."""
        me = self._cluster.me
        return [index for index, record in enumerate(topic.assignments) if me in record.replicas]

    def foreign(self, topic: Topic, here: Iterable[int]) -> list[int]:
        """Returns those of the partitions that have no replica here, in their order."""
        return sorted(set(here).difference(self.mine(topic)))

    async def lead(self, topic: Topic) -> None:
        """Changes nothing: `apply` begins the leader epochs."""

    def stop_all(self, reason: str) -> None:
        """Ends all roles."""
        self._session = -1
        for replica in self.by_name.values():
            replica.stop(reason)

    async def finish(self) -> None:
        """Returns when nothing works on a log any more; `stop_all` was called."""
        for replica in list(self.by_name.values()):
            await replica.finish()
        if self._leaving:
            await asyncio.wait(self._leaving.values())


def _health(image: Image) -> tuple[object, object]:
    """Returns what leaders depend on of the brokers in an image."""
    return image.brokers, image.offline
