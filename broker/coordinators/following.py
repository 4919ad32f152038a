"""What a broker coordinates: it follows the metadata and its logs.

After each change of the metadata, and of the role of a log, it compares what this broker leads with
the partitions of `ownership.py`. If this broker is the controller, it also adds replicas to the internal
topic when there are more brokers (`raising.py`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from tidelog.broker.coordinators.ownership import Action, Ownership
    from tidelog.broker.coordinators.services import Services
    from tidelog.broker.metadata.image import Image

log = logging.getLogger("tidelog.coordinators")

_RETRY_S = 1.0


class Following:
    """Follows the cluster for a coordinator, on the event loop."""

    def __init__(
        self,
        services: Services,
        topic: str,
        replication_factor: int,
        ownership: Ownership,
        *,
        carry_out: Callable[[Iterable[Action]], None],
        image_changed: Callable[[Image], None],
    ) -> None:
        """`carry_out` gets what the ownership asks for, `image_changed` each image after that."""
        self._services = services
        self._topic = topic
        self._replication_factor = replication_factor
        self._ownership = ownership
        self._carry_out = carry_out
        self._image_changed = image_changed
        self._changed = asyncio.Event()
        # What a log has is read again after a suspension, however short: it may have taken records whose
        # writers were refused.
        self._led: Mapping[tuple[UUID, int], tuple[int, int]] = {}

    async def run(self) -> None:
        """Follows until cancelled."""
        loop = asyncio.get_running_loop()
        awaited = [loop.create_task(self._await_images()), loop.create_task(self._await_leaders())]
        try:
            while True:
                self._changed.clear()
                image = self._services.metadata.image
                try:
                    self._follow(image)
                    self._image_changed(image)
                    await self._raise_replicas(image)
                except Exception:  # the loop must not end
                    where = {"topic": self._topic}
                    log.exception("coordinator failed to follow metadata", extra=where)
                    await asyncio.sleep(_RETRY_S)
                    continue
                await self._changed.wait()
        finally:
            for each in awaited:
                each.cancel()
            await asyncio.gather(*awaited, return_exceptions=True)

    async def _await_images(self) -> None:
        metadata = self._services.metadata
        while True:
            await metadata.newer_image(metadata.image.revision)
            self._changed.set()

    async def _await_leaders(self) -> None:
        seen, replicas = 0, self._services.replicas
        while True:
            seen = await replicas.leaders_changed(seen)
            self._changed.set()

    def _follow(self, image: Image) -> None:
        """Passes to the ownership what this broker leads, by the metadata and by its logs."""
        topic = image.topics.get(self._topic)
        own, assignments = self._services.metadata.node_id, topic.assignments if topic else ()
        by_image = {
            at: each.leader_epoch for at, each in enumerate(assignments) if each.leader == own
        }
        self._carry_out(self._ownership.on_image(topic and topic.topic_id, by_image))
        led = {} if topic is None else self._services.replicas.led_epochs(topic)
        for key, known in self._led.items():
            if led.get(key) != known:
                self._carry_out(self._ownership.on_stopped(*key))
        for key, known in led.items():
            if self._led.get(key) != known:
                self._carry_out(self._ownership.on_led(*key, known[0]))
        self._led = led

    async def _raise_replicas(self, image: Image) -> None:
        """Adds replicas to the topic, if this broker is the controller. Raises KafkaStorageError."""
        metadata = self._services.metadata
        if image.controller is None or image.controller.broker != metadata.node_id:
            return
        topic = image.topics.get(self._topic)
        if topic is None or len(image.brokers) <= min(
            len(each.replicas) for each in topic.assignments
        ):
            return
        # Loaded here, because as a rule there are as many replicas as there are brokers.
        from tidelog.broker.coordinators.raising import raising

        cordoned = self._services.settings.cordoned(image)
        for transaction in raising(image, self._topic, self._replication_factor, cordoned):
            if await metadata.transact(transaction.compares, transaction.operations):
                changes = len(transaction.changes)
                log.info(
                    "internal topic replicas added",
                    extra={"topic": self._topic, "partitions": changes},
                )
