"""What one broker of several coordinates: it follows the metadata and its logs.

After each change of the metadata, and of the role of a log, it compares what this broker leads with
what `ownership.py` knows. If this broker is the controller, it also adds replicas to the internal
topic when there are more brokers (`raising.py`).

A broker that is alone imports nothing of this.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from tidelog.broker.coordination.raising import raising

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from tidelog.broker.coordination.ownership import Action, Ownership
    from tidelog.broker.coordination.services import Services
    from tidelog.broker.metadata.image import Image, Topic

log = logging.getLogger("tidelog.coordination")

_RETRY_S = 1.0


class Following:
    """Keeps a coordinator up with the cluster, on the event loop."""

    def __init__(
        self,
        services: Services,
        topic: str,
        replication_factor: int,
        ownership: Ownership,
        *,
        carry_out: Callable[[Iterable[Action]], None],
        followed: Callable[[Image], None] = lambda _image: None,
    ) -> None:
        """`carry_out` gets what the ownership asks for, `followed` each image after that."""
        self._services = services
        self._topic = topic
        self._replication_factor = replication_factor
        self._ownership = ownership
        self._carry_out = carry_out
        self._followed = followed
        self._news = asyncio.Event()
        # Of logs that lead: the leader epoch, and how often it was suspended in it.
        self._led: dict[tuple[UUID, int], tuple[int, int]] = {}

    def look_again(self) -> None:
        """The image is newer, or the role of a log has changed."""
        self._news.set()

    async def run(self) -> None:
        """Follows until cancelled."""
        hearing = asyncio.get_running_loop().create_task(self._hear_images())
        try:
            while True:
                self._news.clear()
                image = self._services.metadata.image
                try:
                    self._follow(image)
                    self._followed(image)
                    await self._raise_replicas(image)
                except Exception:  # the loop must not end
                    log.exception("a coordinator does not follow the metadata")
                    await asyncio.sleep(_RETRY_S)
                    continue
                await self._news.wait()
        finally:
            hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hearing

    async def _hear_images(self) -> None:
        metadata = self._services.metadata
        while True:
            await metadata.newer_image(metadata.image.revision)
            self._news.set()

    def _follow(self, image: Image) -> None:
        """Tells the ownership what this broker leads, by the metadata and by its logs."""
        topic = image.topics.get(self._topic)
        by_image = {} if topic is None else _led_by(self._services.metadata.node_id, topic)
        self._carry_out(self._ownership.on_image(topic and topic.topic_id, by_image))
        led = {} if topic is None else self._led_logs(topic)
        for key, known in self._led.items():
            if led.get(key) != known:
                self._carry_out(self._ownership.on_stopped(*key))
        for key, known in led.items():
            if self._led.get(key) != known:
                self._carry_out(self._ownership.on_led(*key, known[0]))
        self._led = led

    def _led_logs(self, topic: Topic) -> dict[tuple[UUID, int], tuple[int, int]]:
        """Returns the topic's logs that lead now, and are not suspended.

        What a log has is read again after a suspension, however short: it may have taken records
        whose writers were refused.
        """
        replicas = self._services.replicas
        assert replicas is not None
        found = {}
        for index in range(topic.partitions):
            led = replicas.led_by_id(topic.topic_id, index)
            if led is not None and not led.leader.is_suspended:
                leader = led.leader
                found[topic.topic_id, index] = leader.leader_epoch, leader.suspensions
        return found

    async def _raise_replicas(self, image: Image) -> None:
        """Adds replicas to the topic, if this broker is the controller. Raises KafkaStorageError."""
        metadata = self._services.metadata
        if image.controller is None or image.controller.broker != metadata.node_id:
            return
        cordoned = self._services.settings.cordoned(image)
        for transaction in raising(image, self._topic, self._replication_factor, cordoned):
            if await metadata.transact(transaction.compares, transaction.operations):
                changes = len(transaction.changes)
                log.info("replicas added", extra={"topic": self._topic, "partitions": changes})


def _led_by(broker: int, topic: Topic) -> dict[int, int]:
    """Returns the leader epochs of the partitions that a broker leads."""
    return {
        index: record.leader_epoch
        for index, record in enumerate(topic.assignments)
        if record.leader == broker
    }
