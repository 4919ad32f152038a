"""Changes of topics for requests: the controller decides them, then the reconciler applies them.

A call returns when the change is in the metadata and this broker's logs match it. If the logs
cannot be created, the controller's change is withdrawn and the error is raised. If the withdrawal
cannot be written, the topic remains in the metadata with its settings, and later passes complete
it.

One of several brokers withdraws nothing: the others may have made their logs, and taken records.
The logs that it cannot make now are made later, as those of the others are.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.topics.partition_counts import Wanted
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.settings import Settings
    from tidelog.broker.topics.controller import Controller
    from tidelog.broker.topics.reconciler import Reconciler, Roles

log = logging.getLogger("tidelog.topics")


class Topics:
    """The topics of this broker, and the changes of them."""

    def __init__(
        self,
        controller: Controller,
        reconciler: Reconciler,
        settings: Settings,
        forget: Callable[[str], Awaitable[None]],
    ) -> None:
        """`forget` is awaited for every deleted topic when its logs are gone."""
        self.settings = settings
        self.controller = controller
        self.reconciler = reconciler
        self._forget = forget
        self._forgetting = asyncio.Lock()

    def replicate(self, replicas: Roles) -> None:
        """Makes the logs of this broker's replicas alone, and lets them lead and follow."""
        self.reconciler.replicas = replicas

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

        `assignments` are the replicas of each partition, if the creator chose them. A broker that
        is alone is the only replica of each. See Controller.create_topic.

        Raises InvalidTopic, TopicAlreadyExists, InvalidConfig, PolicyViolation,
        InvalidReplicationFactor, InvalidReplicaAssignment, and KafkaStorageError if the logs of a
        broker that is alone cannot be created.
        """
        broker = self.settings.broker
        wanted = Wanted(
            broker.num_partitions if partitions is None else partitions,
            broker.default_replication_factor if factor is None else factor,
            assignments,
        )
        topic = await self.controller.create_topic(
            name, wanted, configs or {}, validate_only=validate_only
        )
        if not validate_only:
            await self._made(topic, partial(self.controller.withdraw_topic, topic))
        return topic

    async def adopt(self, topic: Topic) -> None:
        """Creates a topic whose logs were found here; never withdrawn, because its logs are data.

        Raises InvalidTopic, TopicAlreadyExists, KafkaStorageError.
        """
        await self.controller.adopt_topic(topic)
        await self.reconciler.reconcile()
        error = self.reconciler.failure(topic.topic_id)
        if error is not None:
            raise error

    async def add_partitions(
        self,
        name: str,
        check: Callable[[Topic], int],
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Adds partitions to a topic; see Controller.add_partitions.

        Raises what that raises, and KafkaStorageError if the logs of a broker that is alone cannot
        be created.
        """
        before, grown = await self.controller.add_partitions(
            name, check, assignments, validate_only=validate_only
        )
        if grown.partitions != before.partitions:
            await self._made(grown, partial(self.controller.withdraw_partitions, before, grown))
        return grown

    async def delete(self, name: str) -> Topic:
        """Deletes a topic and its logs.

        Raises UnknownTopicOrPartition, and KafkaStorageError if a log cannot be removed now; then
        it is removed later.
        """
        topic = await self.controller.delete_topic(name)
        await self.reconciler.reconcile()
        await self.forget_removed()
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
        await self.controller.alter_topic(name, changes, validate_only=validate_only)
        if not validate_only:
            await self.reconciler.reconcile()

    async def alter_broker(
        self, changes: Mapping[str, str | None], *, of_one: bool = False, validate_only: bool
    ) -> None:
        """Changes dynamic settings of all brokers, or `of_one`: of this one alone.

        New defaults of topics take effect at once. Raises InvalidConfig.
        """
        await self.controller.alter_broker(changes, of_one=of_one, validate_only=validate_only)
        if not validate_only:
            await self.reconciler.reconcile()

    async def unregister_broker(self, broker: int) -> None:
        """Forgets a broker that is gone for good, and closes it to new replicas no more.

        Raises BrokerIdNotRegistered, and InvalidRequest if it runs or has replicas.
        """
        await self.controller.unregister_broker(broker)
        await self.reconciler.reconcile()

    def is_whole(self, topic: Topic) -> bool:
        """Returns whether every log of a topic is there; see `Reconciler.is_whole`."""
        return self.reconciler.is_whole(topic.topic_id)

    @property
    def served(self) -> Mapping[str, Topic]:
        """The topics whose settings are in force here, by name, with every change that returned."""
        return self.reconciler.served

    async def keep_basis(self) -> None:
        """Calls `Controller.keep_basis`."""
        await self.controller.keep_basis()

    async def start(self) -> None:
        """Makes the logs match the metadata, at start; failures are logged."""
        await self.reconciler.reconcile()

    async def run(self) -> None:
        """Follows the metadata until cancelled."""
        await self.reconciler.run(self.forget_removed)

    async def stop(self) -> None:
        """Waits for the work in progress; `run` has been cancelled."""
        await self.reconciler.finish()

    async def forget_removed(self) -> None:
        """Calls `forget` for deleted topics whose logs are gone."""
        async with self._forgetting:
            while self.reconciler.removed:
                await self._forget(self.reconciler.removed[0])
                del self.reconciler.removed[0]

    async def _made(
        self,
        topic: Topic,
        withdraw: Callable[[AbstractAsyncContextManager[bool]], Awaitable[bool]],
    ) -> None:
        """Waits for the logs of a change; if that fails, withdraws the change and raises the error.

        Nothing is raised if a later pass has created the logs before the change was withdrawn. One
        of several brokers neither withdraws nor raises.
        """
        await self.reconciler.reconcile()
        error = self.reconciler.failure(topic.topic_id)
        if error is None or self.settings.broker.cluster.metadata_store:
            return
        try:
            if not await withdraw(self.reconciler.held_back(topic.topic_id)):
                return
            await self.reconciler.reconcile()
            await self.forget_removed()
        except BrokerError as failure:
            log.error(
                "failed creation not rolled back, missing logs created later",
                extra={"topic": topic.name, "reason": failure.message},
            )
        raise error
