"""Decides changes of topics and settings: checks each, and writes it to the metadata only.

The reconciler applies changes to the logs of this broker. If the image on which a change was
decided has been replaced meanwhile, the change is decided again on the newest image.
"""

from __future__ import annotations

import asyncio
import logging
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from tidelog.broker.controller.topics.partition_counts import check_room
from tidelog.broker.metadata import own_configs
from tidelog.broker.metadata.cluster import ChangedMeanwhileError
from tidelog.broker.metadata.image import Topic
from tidelog.broker.metadata.names import new_id
from tidelog.broker.settings import (
    KEEP,
    broker_changes,
    differing,
    is_internal,
    merged,
    replacing_implied,
    topic_changes,
)
from tidelog.protocol.errors import InvalidPartitions, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from tidelog.broker.controller.topics.partition_counts import RequestedPartitions
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.metadata.store import Compare
    from tidelog.broker.settings import Settings

log = logging.getLogger("tidelog.topics")


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _in_order(
    decide: Callable[Concatenate[TopicAdmin, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[TopicAdmin, Parameters], Coroutine[Any, Any, Result]]:
    """Returns a method whose calls run one after another, in the order in which they were made.

    The lock only keeps this order: a request that creates a topic again must find the deletion that
    was requested before it. Safety comes from the metadata's compare-and-set.
    """

    @wraps(decide)
    async def ordered(
        self: TopicAdmin, /, *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        async with self.order:
            await self._catch_up()
            return await decide(self, *arguments, **named)

    return ordered


class TopicAdmin:
    """Changes of topics, of their settings and of the broker's settings."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        settings: Settings,
        unclaimed: Callable[[str], frozenset[int]],
        for_placing: Callable[[Image], Image],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`unclaimed` returns the partitions of a name whose logs are here without a topic id.

        `for_placing` returns an image whose registrations are those of possible replicas.
        `catch_up` updates the image by what other brokers have changed.
        """
        self._catch_up = catch_up
        self._metadata = metadata
        self._settings = settings
        self._unclaimed, self._for_placing = unclaimed, for_placing
        self.order = asyncio.Lock()

    @_in_order
    async def create_topic(
        self,
        name: str,
        wanted: RequestedPartitions,
        configs: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Creates a topic; with `validate_only` only returns the topic that would be created.

        A topic whose directories already hold logs without a topic id deletes none of their records
        unless `configs` say otherwise. Raises InvalidTopic, TopicAlreadyExists, InvalidConfig,
        PolicyViolation if there are too many, InvalidReplicationFactor, InvalidReplicaAssignment, and
        NotController if the topic is large and this broker has no session.
        """
        given = {**(KEEP if self._unclaimed(name) else {}), **topic_changes(configs)}
        _, brought = self._settings.settled(name, given, image=self._metadata.image)
        settings = {**given, **brought}
        while True:
            self._metadata.check_name(name)
            partitions, conditions = self._placed(wanted)
            check_room(self._settings.broker, self._metadata.image, name, len(partitions))
            if not is_internal(name):
                self._settings.check_room(self._metadata.image, {}, settings)
            topic = Topic(name, new_id(), partitions, settings)
            if validate_only:
                return topic
            try:
                topic = await self._metadata.add_topic(topic, conditions=conditions)
            except ChangedMeanwhileError:
                continue
            log.info("topic created", extra={"topic": name, "partitions": topic.partitions})
            return topic

    def _placed(
        self, wanted: RequestedPartitions
    ) -> tuple[tuple[PartitionRecord, ...], Sequence[Compare]]:
        """Returns the first states of a topic's partitions, and the comparisons that must hold for them."""
        from tidelog.broker.controller.topics import (
            placing,  # few brokers create a topic soon after the start
        )

        return placing.of_new_topic(self._for_placing(self._metadata.image), wanted, self._cordoned)

    @_in_order
    async def add_partitions(
        self,
        name: str,
        check: Callable[[Topic], int],
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> tuple[Topic, Topic]:
        """Adds partitions to a topic; returns the topic before and after.

        `check` gets the current topic and returns the new number of partitions; the current number
        changes nothing. `assignments` are the replicas of each new one, if a client chose them.
        Raises what `check` raises, UnknownTopicOrPartition, PolicyViolation if there are too many,
        InvalidReplicationFactor, InvalidReplicaAssignment, and InvalidPartitions if the directory of
        a new partition holds a log that names no topic: the topic's retention must not delete its data.
        """
        while True:
            image = self._metadata.image
            topic = self._known(name)
            partitions = check(topic)
            if partitions == topic.partitions:
                return topic, topic
            for index in sorted(self._unclaimed(name)):
                if topic.partitions <= index < partitions:
                    raise InvalidPartitions(f"a log that is no topic's lies here as {name}-{index}")
            added, conditions = self._added(topic, partitions - topic.partitions, assignments)
            check_room(self._settings.broker, image, name, len(added))
            if validate_only:
                return topic, topic
            try:
                grown = await self._metadata.set_partitions(
                    name, partitions, since=image, placed=added, conditions=conditions
                )
            except ChangedMeanwhileError:
                continue
            log.info("partitions added", extra={"topic": name, "partitions": partitions})
            return topic, grown

    def _added(
        self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> tuple[tuple[PartitionRecord, ...], Sequence[Compare]]:
        """Returns the first states of added partitions, and the comparisons that must hold for them."""
        from tidelog.broker.controller.topics import placing

        return placing.of_added(
            self._for_placing(self._metadata.image), topic, count, assignments, self._cordoned
        )

    @property
    def _cordoned(self) -> frozenset[int]:
        return self._settings.cordoned(self._metadata.image)

    @_in_order
    async def delete_topic(self, name: str) -> Topic:
        """Deletes a topic; returns it as it was. Raises UnknownTopicOrPartition."""
        topic = await self._metadata.delete_topic(name)
        log.info("topic deleted", extra={"topic": name})
        return topic

    @_in_order
    async def alter_topic(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Changes a topic's settings; None removes one.

        Raises UnknownTopicOrPartition, InvalidConfig, and PolicyViolation if the settings are too large.
        """
        changes = replacing_implied(topic_changes(changes))
        while True:
            image = self._metadata.image
            topic = self._known(name)
            _, brought = self._settings.settled(
                name, merged(topic.configs, changes), changes, image
            )
            altered = differing(topic.configs, {**changes, **brought})
            self._settings.check_room(image, topic.configs, altered)
            if validate_only or not altered:
                return  # mirroring tools repeat the same change
            try:
                await self._metadata.alter_topic_configs(name, altered, since=image)
            except ChangedMeanwhileError:
                continue
            log.info("topic settings changed", extra={"topic": name, "changes": altered})
            return

    @_in_order
    async def alter_broker(
        self,
        changes: Mapping[str, str | None],
        *,
        of_one: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Changes dynamic settings of all brokers, or `of_one`: of this one; None removes one.

        Raises InvalidConfig, and PolicyViolation if the settings are too large.
        """
        changes = replacing_implied(broker_changes(changes))
        metadata, settings = self._metadata, self._settings
        while True:
            image = metadata.image
            if of_one:
                current, wanted = own_configs.of(image, metadata.node_id), dict(changes)
                settings.check_own(image, current, changes)
                if any(value is not None for value in differing(current, wanted).values()):
                    own_configs.check_readable(image)
            else:
                current = image.broker_configs
                wanted = settings.settled_broker(current, changes, image)
            altered = differing(current, wanted)
            settings.check_room(image, current, altered)
            if validate_only or not altered:
                return
            if of_one:
                if not await own_configs.alter(metadata, altered, since=image):
                    continue
            else:
                try:
                    await metadata.alter_broker_configs(altered, since=image)
                except ChangedMeanwhileError:
                    continue
            log.info("broker settings changed", extra={"changes": altered, "of_one": of_one})
            return

    @_in_order
    async def unregister_broker(self, broker: int) -> None:
        """Removes the registration of a broker that is gone for good, and its cordon.

        Raises BrokerIdNotRegistered, and InvalidRequest if it runs or has replicas.
        """
        from tidelog.broker.lifecycle.unregistration import (
            unregister,  # a broker alone rarely needs it
        )

        metadata = self._metadata
        while True:
            image = metadata.image
            configs = self._settings.without_cordon(image.broker_configs, broker)
            forgotten = unregister(image, metadata.node_id, broker, configs)
            if await metadata.transact(forgotten.compares, forgotten.operations) is not None:
                break
        for topic_id in list(metadata.image.deletions):
            await metadata.deletion_done(topic_id, broker)
        log.info("broker unregistered", extra={"broker": broker})

    async def store_implied_basis(self) -> None:
        """Stores the retention basis, at start, if event-time retention is every topic's default.

        Stores it as a dynamic setting: the records that it protects must not be deleted when the
        default is removed from the properties file again. Raises InvalidConfig.
        """
        brought = self._settings.settled_broker(self._metadata.image.broker_configs, {})
        if brought:
            await self._metadata.alter_broker_configs(brought)
            log.warning("retention basis stored as broker setting", extra={"changes": brought})

    @_in_order
    async def roll_back_topic(
        self, topic: Topic, paused_creation: AbstractAsyncContextManager[bool]
    ) -> bool:
        """Deletes a topic whose logs could not be created, unless it is gone already.

        No logs of it are created while it is `paused_creation`, which returns whether any are missing.
        Returns False, and deletes nothing, if none are: while this call waited for others, a later
        pass has created the logs, and clients may have written to them.
        """
        async with paused_creation as is_incomplete:
            if not is_incomplete:
                return False
            try:
                await self._metadata.delete_topic(topic.name, topic.topic_id)
            except UnknownTopicOrPartition:
                return True
            log.warning("topic creation rolled back", extra={"topic": topic.name})
            return True

    @_in_order
    async def roll_back_partitions(
        self, before: Topic, grown: Topic, paused_creation: AbstractAsyncContextManager[bool]
    ) -> bool:
        """Removes partitions whose logs could not be created, unless the topic has changed again.

        Returns False, and removes nothing, if no log is missing; see `roll_back_topic`.
        """
        async with paused_creation as is_incomplete:
            while is_incomplete:
                image = self._metadata.image
                now = image.topics_by_id.get(grown.topic_id)
                if now is None or now.partitions != grown.partitions:
                    return True
                try:
                    await self._metadata.set_partitions(grown.name, before.partitions, since=image)
                except ChangedMeanwhileError:
                    continue
                log.warning("creation of partitions rolled back", extra={"topic": grown.name})
                return True
            return False

    def _known(self, name: str) -> Topic:
        topic = self._metadata.image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return topic
