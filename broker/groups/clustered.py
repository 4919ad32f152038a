"""The groups of one broker of several: which it coordinates follows the metadata and its logs.

After each change of the metadata, and of the role of a log, it compares what this broker leads with
what `ownership.py` knows. If this broker is the controller, it also adds replicas to
__consumer_offsets when there are more brokers (`raising.py`). Offsets of topics that have been
deleted are dropped by whoever coordinates their groups.

A broker that is alone imports nothing of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from broker.groups.offsets_topic import TOPIC
from broker.groups.raising import raising

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from uuid import UUID

    from broker.groups.ownership import Action, Ownership
    from broker.metadata.image import Image, Topic
    from broker.node import Node

log = logging.getLogger("tidelog.groups")

_RETRY_S = 1.0


class ClusterGroups:
    """Keeps a coordinator up with the cluster, on the event loop."""

    def __init__(
        self,
        node: Node,
        ownership: Ownership,
        carry_out: Callable[[Iterable[Action]], None],
        forget_topic: Callable[[str], Awaitable[None]],
    ) -> None:
        """`carry_out` gets what the ownership asks for; `forget_topic` is for deleted topics."""
        self._node = node
        self._ownership = ownership
        self._carry_out = carry_out
        self._forget_topic = forget_topic
        self._news = asyncio.Event()
        self._led: dict[tuple[UUID, int], int] = {}  # the leader epochs of logs that lead
        self._topics: frozenset[str] = frozenset()
        self._forgetting: set[asyncio.Task[None]] = set()

    def look_again(self) -> None:
        """The image is newer, or the role of a log has changed."""
        self._news.set()

    async def run(self) -> None:
        """Follows until cancelled."""
        hearing = asyncio.get_running_loop().create_task(self._hear_images())
        try:
            while True:
                self._news.clear()
                image = self._node.metadata.image
                try:
                    self._follow(image)
                    self._forget_deleted(image)
                    await self._raise_replicas(image)
                except Exception:  # the loop must not end
                    log.exception("groups do not follow the metadata")
                    await asyncio.sleep(_RETRY_S)
                    continue
                await self._news.wait()
        finally:
            hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hearing

    async def _hear_images(self) -> None:
        metadata = self._node.metadata
        while True:
            await metadata.newer_image(metadata.image.revision)
            self._news.set()

    def _follow(self, image: Image) -> None:
        """Tells the ownership what this broker leads, by the metadata and by its logs."""
        topic = image.topics.get(TOPIC)
        by_image = {} if topic is None else _led_by(self._node.metadata.node_id, topic)
        self._carry_out(self._ownership.on_image(topic and topic.topic_id, by_image))
        led = {} if topic is None else self._led_logs(topic)
        for key, epoch in self._led.items():
            if led.get(key) != epoch:
                self._carry_out(self._ownership.on_stopped(*key))
        for key, epoch in led.items():
            if self._led.get(key) != epoch:
                self._carry_out(self._ownership.on_led(*key, epoch))
        self._led = led

    def _led_logs(self, topic: Topic) -> dict[tuple[UUID, int], int]:
        """Returns the leader epochs of the topic's logs that lead now."""
        replicas = self._node.replicas
        assert replicas is not None
        found = {}
        for index in range(topic.partitions):
            led = replicas.led_by_id(topic.topic_id, index)
            if led is not None:
                found[topic.topic_id, index] = led.leader.leader_epoch
        return found

    def _forget_deleted(self, image: Image) -> None:
        """Drops the offsets of topics that have been deleted since the image before.

        A name that has a topic again keeps its offsets: they may have been committed for that.
        """
        gone, self._topics = self._topics - image.topics.keys(), frozenset(image.topics)
        if gone:
            task = asyncio.get_running_loop().create_task(self._forget(sorted(gone)))
            self._forgetting.add(task)
            task.add_done_callback(self._forgetting.discard)

    async def _forget(self, topics: list[str]) -> None:
        for topic in topics:
            await self._forget_topic(topic)

    async def _raise_replicas(self, image: Image) -> None:
        """Adds replicas to the topic, if this broker is the controller. Raises KafkaStorageError."""
        metadata = self._node.metadata
        if image.controller is None or image.controller.broker != metadata.node_id:
            return
        wanted = self._node.config.offsets_topic_replication_factor
        cordoned = self._node.settings.cordoned(image)
        for transaction in raising(image, TOPIC, wanted, cordoned):
            if await metadata.transact(transaction.compares, transaction.operations):
                changes = len(transaction.changes)
                log.info("replicas added", extra={"topic": TOPIC, "partitions": changes})


def _led_by(broker: int, topic: Topic) -> dict[int, int]:
    """Returns the leader epochs of the partitions that a broker leads."""
    return {
        index: record.leader_epoch
        for index, record in enumerate(topic.assignments)
        if record.leader == broker
    }
