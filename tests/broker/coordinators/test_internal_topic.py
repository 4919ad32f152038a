"""The topic of a coordinator while it is being made: whoever needs it waits until its logs are there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from tidelog.broker.coordinators.internal_topic import Declared, InternalTopic

DECLARED = Declared("__internal", 3, 1, 1 << 20, "uncompressed", 1_000)


class Topics:
    """Creates a topic as the broker does: first in the metadata, then its logs."""

    def __init__(self) -> None:
        self.named: dict[str, object] = {}
        self.logs_may_come = asyncio.Event()
        self.is_whole = False
        self.created = 0

    async def create(self, name, **_how):
        self.created += 1
        self.named[name] = object()
        await self.logs_may_come.wait()
        self.is_whole = True


async def turns():
    """Lets every task go as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_who_comes_while_it_is_made_waits_for_its_logs():
    async def run():
        topics = Topics()
        image = SimpleNamespace(topics=topics.named, brokers={}, offline={})
        metadata = SimpleNamespace(image=image)
        settings = SimpleNamespace(cordoned=lambda _: frozenset())
        node = SimpleNamespace(topics=topics, metadata=metadata, settings=settings)
        topic = InternalTopic(node, DECLARED, None, None)
        first = asyncio.create_task(topic.create())
        await turns()
        assert not topic.is_missing
        second = asyncio.create_task(topic.create())
        await turns()
        assert not second.done(), "the logs were not there"
        topics.logs_may_come.set()
        await asyncio.gather(first, second)
        assert topics.is_whole
        await topic.create()
        assert topics.created == 1

    asyncio.run(run())
