"""The offsets of topics that are deleted one after another, as one of several brokers sees it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from tests.broker.network.test_scheduler import until
from tidelog.broker.coordinators.groups.cleanup import Cleanup
from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata


class Offsets:
    """Deletes nothing of the topic `slow` until the test opens the gate, as a log that cannot be written."""

    def __init__(self) -> None:
        self.gate, self.deleted = asyncio.Event(), []

    async def delete(self, group_id, names):
        if names[0][0] == "slow":
            await self.gate.wait()
        self.deleted.append((group_id, *names))


def made(*topics):
    """The cleanup of a group that has an offset of each topic, none of which is in the image any more."""
    entry = GroupMetadata(Group("g", 0, 10), dict.fromkeys((topic, 0) for topic in topics))
    runtime = SimpleNamespace(entries={"g": entry}, has=lambda _entry: True)
    services = SimpleNamespace(metadata=SimpleNamespace(image=SimpleNamespace(topics={})))
    offsets = Offsets()
    return Cleanup(services, SimpleNamespace(runtime=runtime), offsets, None, None), offsets


async def test_a_deleted_topic_does_not_wait_for_one_that_was_deleted_before():
    cleanup, offsets = made("slow", "quick")
    deleting = asyncio.ensure_future(cleanup.delete_topics())
    for left in ({"slow": 0, "quick": 0}, {"quick": 0}, {}):
        cleanup.image_changed(SimpleNamespace(topics=left))
    await until(lambda: offsets.deleted)
    assert offsets.deleted == [("g", ("quick", 0))]
    offsets.gate.set()
    await until(lambda: len(offsets.deleted) == 2)
    deleting.cancel()
    await asyncio.wait([deleting])


async def test_the_deletion_of_offsets_ends_with_the_broker():
    cleanup, offsets = made("slow")
    before = asyncio.all_tasks()
    deleting = asyncio.ensure_future(cleanup.delete_topics())
    for left in ({"slow": 0}, {}):
        cleanup.image_changed(SimpleNamespace(topics=left))
    for _ in range(20):
        await asyncio.sleep(0)
    deleting.cancel()
    await asyncio.wait([deleting])
    assert (asyncio.all_tasks(), offsets.deleted) == (before, [])
