"""Changes of topics for requests: `TopicAdmin` decides and stores them, then the reconciler applies them.

A call returns when the change is in the metadata and this broker's logs match it. If the logs
cannot be created, the change is rolled back and the error is raised. If the rollback cannot be
written, the topic remains in the metadata with its settings, and later passes complete it.

Nothing is rolled back where other brokers have replicas: they may have created their logs, and appended
records. Logs that this broker cannot create now are created later.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.controller.topics.partition_counts import RequestedPartitions
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from tidelog.broker.controller.topics.topic_admin import TopicAdmin
    from tidelog.broker.logs.reconciler import Reconciler, ReplicaRoles
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.settings import Settings

log = logging.getLogger("tidelog.topics")


class Topics:
    """The topics of this broker, and the changes of them."""

    def __init__(
        self,
        admin: TopicAdmin,
        reconciler: Reconciler,
        settings: Settings,
        on_deleted: Callable[[str], Awaitable[None]],
    ) -> None:
        """`on_deleted` is awaited for the name of every deleted topic when its logs are deleted."""
        self.settings = settings
        self.admin = admin
        self.reconciler = reconciler
        self._on_deleted = on_deleted
        self._reporting = asyncio.Lock()

    def replicate(self, roles: ReplicaRoles) -> None:
        """Creates only the logs of which this broker is a replica; `roles` make them lead and follow."""
        self.reconciler.roles = roles

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        factor: int | None = None,
        assignments: tuple[tuple[int, ...], ...] = (),
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Creates a topic; by default with num.partitions and default.replication.factor.

        `assignments` are the replicas of each partition, if the creator chose them. See
        TopicAdmin.create_topic.

        Raises InvalidTopic, TopicAlreadyExists, InvalidConfig, PolicyViolation,
        InvalidReplicationFactor, InvalidReplicaAssignment, and KafkaStorageError if all logs belong to
        this broker, and cannot be created.
        """
        broker = self.settings.broker
        wanted = RequestedPartitions(
            broker.num_partitions if partitions is None else partitions,
            broker.default_replication_factor if factor is None else factor,
            assignments,
        )
        topic = await self.admin.create_topic(
            name, wanted, configs or {}, validate_only=validate_only
        )
        if not validate_only:
            await self._wait_for_logs(topic, partial(self.admin.roll_back_topic, topic))
        return topic

    async def add_partitions(
        self,
        name: str,
        check: Callable[[Topic], int],
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Adds partitions to a topic (see `TopicAdmin.add_partitions`), and waits until their logs are here.

        Raises what `TopicAdmin.add_partitions` raises, and KafkaStorageError if all logs belong to this
        broker and cannot be created: then the partitions are removed again.
        """
        before, grown = await self.admin.add_partitions(
            name, check, assignments, validate_only=validate_only
        )
        if grown.partitions != before.partitions:
            await self._wait_for_logs(
                grown, partial(self.admin.roll_back_partitions, before, grown)
            )
        return grown

    async def delete(self, name: str) -> Topic:
        """Deletes a topic and its logs.

        Raises UnknownTopicOrPartition, and KafkaStorageError if a log cannot be removed now; then
        it is removed later.
        """
        topic = await self.admin.delete_topic(name)
        await self.reconciler.reconcile()
        await self.report_deleted()
        error = self.reconciler.failure(topic.topic_id)
        if error is not None:
            raise error
        return topic

    async def alter(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool
    ) -> None:
        """Changes a topic's settings, live; None removes one.

        Raises UnknownTopicOrPartition, InvalidConfig.
        """
        await self.admin.alter_topic(name, changes, validate_only=validate_only)
        if not validate_only:
            await self.reconciler.reconcile()

    async def alter_broker(
        self, changes: Mapping[str, str | None], *, of_one: bool = False, validate_only: bool
    ) -> None:
        """Changes dynamic settings of all brokers, or `of_one`: of this one alone.

        New defaults of topics take effect at once. Raises InvalidConfig.
        """
        await self.admin.alter_broker(changes, of_one=of_one, validate_only=validate_only)
        if not validate_only:
            await self.reconciler.reconcile()

    async def unregister_broker(self, broker: int) -> None:
        """Removes the registration of a broker that is gone for good, and its cordon.

        Raises BrokerIdNotRegistered, and InvalidRequest if it runs or has replicas.
        """
        await self.admin.unregister_broker(broker)
        await self.reconciler.reconcile()

    def is_whole(self, topic: Topic) -> bool:
        """Returns whether every log of a topic is there; see `Reconciler.is_whole`."""
        return self.reconciler.is_whole(topic.topic_id)

    async def store_implied_basis(self) -> None:
        """Calls `TopicAdmin.store_implied_basis`."""
        await self.admin.store_implied_basis()

    async def start(self) -> None:
        """Makes the logs match the metadata, at start; failures are logged."""
        await self.reconciler.reconcile()

    async def run(self) -> None:
        """Follows the metadata until cancelled."""
        await self.reconciler.run(self.report_deleted)

    async def stop(self) -> None:
        """Waits for the work in progress; `run` has been cancelled."""
        await self.reconciler.finish()

    async def report_deleted(self) -> None:
        """Awaits `on_deleted` for each deleted topic whose logs are deleted."""
        async with self._reporting:
            while self.reconciler.deleted:
                await self._on_deleted(self.reconciler.deleted[0])
                del self.reconciler.deleted[0]

    async def _wait_for_logs(
        self,
        topic: Topic,
        roll_back: Callable[[AbstractAsyncContextManager[bool]], Awaitable[bool]],
    ) -> None:
        """Waits for the logs of a change; if that fails, rolls the change back and raises the error.

        Raises nothing if a later pass has created the logs before the change was rolled back. Where other
        brokers have replicas, their logs may be there: nothing is rolled back, and nothing raised.
        """
        await self.reconciler.reconcile()
        error = self.reconciler.failure(topic.topic_id)
        only_me = (self.settings.broker.cluster.node_id,)
        if error is None or any(each.replicas != only_me for each in topic.assignments):
            return
        try:
            if not await roll_back(self.reconciler.paused_creation(topic.topic_id)):
                return
            await self.reconciler.reconcile()
            await self.report_deleted()
        except BrokerError as failure:
            log.error(
                "failed creation not rolled back, missing logs created later",
                extra={"topic": topic.name, "reason": failure.message},
            )
        raise error
