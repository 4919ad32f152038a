"""Drops the offsets of topics that have been deleted, as one of several brokers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.broker.metadata.image import Image


class DeletedTopics:
    """Compares each image with the one before, on the event loop."""

    def __init__(self, forget_topic: Callable[[str], Awaitable[None]]) -> None:
        """`forget_topic` deletes the offsets of a topic."""
        self._forget_topic = forget_topic
        self._topics: frozenset[str] = frozenset()
        self._forgetting: set[asyncio.Task[None]] = set()

    def look(self, image: Image) -> None:
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
