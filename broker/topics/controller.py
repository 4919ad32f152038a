"""Decides changes of topics and settings: checks each, and writes it to the metadata and nowhere else.

What a change means for the logs of this broker is the reconciler's work. A change that is decided on an
image that somebody else has replaced meanwhile is decided again on the newest one.
"""

from __future__ import annotations

import asyncio
import logging
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from broker.metadata.cluster import ChangedMeanwhileError
from broker.metadata.image import Topic
from broker.metadata.names import new_id
from broker.metadata.records import PartitionRecord
from broker.topics.settings import KEEP, differing, merged
from broker.unenforced_settings import warn_unenforced
from protocol.errors import InvalidPartitions, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from broker.metadata.cluster import ClusterMetadata
    from broker.topics.settings import Settings

log = logging.getLogger("tidelog.topics")


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def _in_order(
    decide: Callable[Concatenate[Controller, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Controller, Parameters], Coroutine[Any, Any, Result]]:
    """Have a change decided after those that this broker was asked for before.

    Order is all that the lock gives: a request that creates a topic anew must find the deletion
    written that was asked for before it. Safety is the metadata's compare-and-set.
    """

    @wraps(decide)
    async def ordered(
        self: Controller, /, *arguments: Parameters.args, **named: Parameters.kwargs
    ) -> Result:
        async with self.order:
            return await decide(self, *arguments, **named)

    return ordered


class Controller:
    """Changes of topics, their settings and the broker's."""

    def __init__(
        self,
        metadata: ClusterMetadata,
        settings: Settings,
        unclaimed: Callable[[str], frozenset[int]],
    ) -> None:
        """`unclaimed` tells of which partitions of a name a log lies here that names no topic."""
        self._metadata = metadata
        self._settings = settings
        self._unclaimed = unclaimed
        self.order = asyncio.Lock()

    @_in_order
    async def create_topic(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        *,
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic; with `validate_only` only return what would be created.

        A topic that takes over logs which name no topic keeps everything unless `configs` say otherwise.
        Raises InvalidTopic, TopicAlreadyExists, InvalidConfig.
        """
        given = {**(KEEP if self._unclaimed(name) else {}), **configs}
        _, brought = self._settings.settled(name, given)
        settings = {**given, **brought}
        if validate_only:
            self._metadata.check_name(name)
            leader = PartitionRecord.led_by(self._metadata.node_id)
            return Topic(name, new_id(), (leader,) * partitions, settings)
        topic = await self._metadata.create_topic(name, partitions, settings)
        log.info("topic created", extra={"topic": name, "partitions": partitions})
        warn_unenforced(given, topic=name)
        return topic

    @_in_order
    async def adopt_topic(self, topic: Topic) -> None:
        """Create a topic whose logs are here already. Raises InvalidTopic, TopicAlreadyExists."""
        await self._metadata.add_topic(topic)

    @_in_order
    async def add_partitions(self, name: str, check: Callable[[Topic], int]) -> tuple[Topic, Topic]:
        """Give a topic more partitions; return it as it was and as it is.

        `check` says how many there are to be, given the topic as it is; as many as there are change nothing.
        Raises what it raises, UnknownTopicOrPartition, and InvalidPartitions where a log that names no
        topic lies in the way: the topic's retention must not begin on it.
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
            try:
                grown = await self._metadata.set_partitions(name, partitions, since=image)
            except ChangedMeanwhileError:
                continue
            log.info("partitions added", extra={"topic": name, "partitions": partitions})
            return topic, grown

    @_in_order
    async def delete_topic(self, name: str) -> Topic:
        """Delete a topic; return what it was. Raises UnknownTopicOrPartition."""
        topic = await self._metadata.delete_topic(name)
        log.info("topic deleted", extra={"topic": name})
        return topic

    @_in_order
    async def alter_topic(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change a topic's settings; None removes one.

        Raises UnknownTopicOrPartition, InvalidConfig.
        """
        while True:
            image = self._metadata.image
            topic = self._known(name)
            _, brought = self._settings.settled(name, merged(topic.configs, changes))
            altered = differing(topic.configs, {**changes, **brought})
            if validate_only or not altered:
                return  # mirrors say the same again and again
            try:
                await self._metadata.alter_topic_configs(name, altered, since=image)
            except ChangedMeanwhileError:
                continue
            log.info("topic settings changed", extra={"topic": name, "changes": altered})
            warn_unenforced(altered, topic=name)
            return

    @_in_order
    async def alter_broker(
        self, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change the brokers' dynamic settings; None removes one. Raises InvalidConfig."""
        while True:
            image = self._metadata.image
            settled = self._settings.settled_broker(image.broker_configs, changes)
            altered = differing(image.broker_configs, settled)
            if validate_only or not altered:
                return
            try:
                await self._metadata.alter_broker_configs(altered, since=image)
            except ChangedMeanwhileError:
                continue
            log.info("broker settings changed", extra={"changes": altered})
            warn_unenforced(altered)
            return

    async def keep_basis(self) -> None:
        """At start: where event-time retention is every topic's default, keep the basis it brings.

        It goes among the settings changed while the broker ran: what it protects must not be deleted when
        the default is taken out of the properties file again. Raises InvalidConfig.
        """
        brought = self._settings.settled_broker(self._metadata.image.broker_configs, {})
        if brought:
            await self._metadata.alter_broker_configs(brought)
            log.warning("broker setting kept for good", extra={"changes": brought})

    @_in_order
    async def withdraw_topic(self, topic: Topic) -> None:
        """Delete a topic whose logs could not be made, unless it is gone already."""
        try:
            await self._metadata.delete_topic(topic.name, topic.topic_id)
        except UnknownTopicOrPartition:
            return
        log.warning("topic withdrawn", extra={"topic": topic.name})

    @_in_order
    async def withdraw_partitions(self, before: Topic, grown: Topic) -> None:
        """Take back partitions whose logs could not be made, unless the topic has changed again."""
        while True:
            image = self._metadata.image
            now = image.topics_by_id.get(grown.topic_id)
            if now is None or now.partitions != grown.partitions:
                return
            try:
                await self._metadata.set_partitions(grown.name, before.partitions, since=image)
            except ChangedMeanwhileError:
                continue
            log.warning("partitions withdrawn", extra={"topic": grown.name})
            return

    def _known(self, name: str) -> Topic:
        topic = self._metadata.image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return topic
