"""Requests that come between the death of a leader and the start of the next one: they wait for it.

A client that finds the old leader, or none, asks again after a back-off that doubles each
time, which is longer than an election takes. So a broker that knows that a leader has gone, and that
another replica can be elected, answers when that has happened. A request waits for a moment only: what
follows on the same connection waits too, and a follower should not ask in vain for long.

Many requests may wait while the loop has an election to do. So one task checks all of them, and
only when something has changed; a partition is judged once per change.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from uuid import UUID

    from tidelog.broker.lifecycle.cluster import Cluster
    from tidelog.broker.metadata.brokers.members import LiveBroker
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.partitions.leading.leaders import Leaders
    from tidelog.broker.partitions.leading.partition_leader import PartitionLeader
    from tidelog.protocol.topic_partition import TopicIdPartition, TopicPartition

LONGEST_WAIT_S = 1.0
_LOOK_S = 0.02  # a broker that seemed to have died, and has not, changes no image


class EarlyFetch(Protocol):
    """A follower's fetch of a partition that this broker is about to lead."""

    @property
    def name(self) -> TopicIdPartition:
        """The partition."""

    def led_by(self, led: PartitionLeader) -> None:
        """Passes the fetch to the leader that has started."""

    def does_not_come(self) -> None:
        """Refuses it: the leader does not start soon."""


class PendingElections:
    """The elections of which this broker knows that they are near."""

    def __init__(
        self, metadata: ClusterMetadata, cluster: Cluster, leaders: Leaders[PartitionLeader]
    ) -> None:
        self._metadata, self._cluster, self._leaders = metadata, cluster, leaders
        # The requests that wait, with a function that returns whether they still have to.
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._looking: asyncio.Task[None] | None = None  # while requests wait
        self._will_look = False
        self._verdicts = _Verdicts()
        # Fetches of followers, in their order.
        self._fetches: defaultdict[TopicIdPartition, dict[EarlyFetch, None]] = defaultdict(dict)
        self._deadlines: dict[EarlyFetch, float] = {}  # of the loop's clock, in their order
        self._timer: asyncio.TimerHandle | None = None  # for the first of them

    def begun(self, led: PartitionLeader) -> None:
        """Ends the waits for a partition that leads here from now on."""
        for fetch in self._fetches.pop(led.name, ()):
            del self._deadlines[fetch]
            fetch.led_by(led)
        if self._waiting and not self._will_look:  # once for all that begin together
            self._will_look = True
            asyncio.get_running_loop().call_soon(self._look)

    # --- metadata ---------------------------------------------------------------------------------

    def is_near(self, topics: Iterable[Topic]) -> bool:
        """Returns whether a partition of these topics is about to get a new leader."""
        near = self._verdicts.near(self._metadata.image, frozenset(self._metadata.perhaps_dead()))
        return bool(near) and any(topic.topic_id in near for topic in topics)

    async def elected(self, topics: Callable[[], Iterable[Topic]]) -> None:
        """Returns when `topics`, as each image has them, wait for no leader; or after a moment."""
        await self._wait(lambda: self.is_near(topics()))

    # --- what only the leader does ----------------------------------------------------------------

    def coming(self, names: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Returns those of the partitions that this broker is about to lead."""
        topics = self._metadata.image.topics
        return [(name, index) for name, index in names if self.is_coming(topics.get(name), index)]

    async def led(self, names: Collection[TopicPartition]) -> None:
        """Returns when this broker leads the partitions, or another one does; or after a moment."""
        await self._wait(lambda: bool(self.coming(names)))

    def is_coming(self, topic: Topic | None, index: int) -> bool:
        """Returns whether this broker is about to lead a partition."""
        image, me = self._metadata.image, self._metadata.node_id
        if topic is None or not 0 <= index < len(topic.assignments):
            return False
        if self._cluster.epoch < 0:
            return False  # without a session it leads nothing
        record = topic.assignments[index]
        if record.leader == me:
            return (topic.topic_id, index) not in self._leaders.by_name
        return me in record.isr and _is_near(image, self._metadata.perhaps_dead(), record)

    def park(self, fetch: EarlyFetch) -> None:
        """Keeps a follower's fetch until the partition is led here, or for a moment."""
        self._fetches[fetch.name][fetch] = None
        loop = asyncio.get_running_loop()
        self._deadlines[fetch] = loop.time() + LONGEST_WAIT_S
        if self._timer is None:
            self._timer = loop.call_later(LONGEST_WAIT_S, self._refuse_overdue)

    def unpark(self, fetch: EarlyFetch) -> None:
        """Drops a fetch that waits no more."""
        fetches = self._fetches.get(fetch.name)
        if fetches is not None and fetch in fetches:
            del fetches[fetch], self._deadlines[fetch]
            if not fetches:
                del self._fetches[fetch.name]

    def _refuse_overdue(self) -> None:
        """Refuses followers that have waited for long: this broker does not lead."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for fetch, deadline_s in list(self._deadlines.items()):
            if deadline_s > now_s:
                self._timer = loop.call_at(deadline_s, self._refuse_overdue)
                return
            self.unpark(fetch)
            fetch.does_not_come()

    # --- waiting ----------------------------------------------------------------------------------

    async def _wait(self, awaits: Callable[[], bool]) -> None:
        if not awaits():
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(LONGEST_WAIT_S, _end, waiter)
        self._waiting[waiter] = awaits
        if self._looking is None:
            self._looking = loop.create_task(self._look_at_changes())
        try:
            await waiter
        finally:
            timer.cancel()
            del self._waiting[waiter]
            if not self._waiting and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look_at_changes(self) -> None:
        """Checks all requests that wait, whenever something has changed."""
        metadata, seen = self._metadata, None
        while True:
            revision = metadata.image.revision
            found = revision, frozenset(metadata.perhaps_dead()), self._cluster.epoch
            if found != seen:
                seen = found
                self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await metadata.newer_image(revision)

    def _look(self) -> None:
        self._will_look = False
        for waiter, awaits in self._waiting.items():
            if not waiter.done() and not awaits():
                waiter.set_result(None)


class _Verdicts:
    """Which topics are about to get a new leader, judged once for each change."""

    def __init__(self) -> None:
        self._image: Image | None = None
        self._brokers: Mapping[int, LiveBroker] | None = None
        self._perhaps_dead: frozenset[int] = frozenset()
        self._by_topic: dict[UUID, tuple[Topic, bool]] = {}
        self._near: frozenset[UUID] = frozenset()

    def near(self, image: Image, perhaps_dead: frozenset[int]) -> frozenset[UUID]:
        """Returns the ids of the topics of which a partition is about to get a new leader."""
        has_same_brokers = image.brokers is self._brokers and perhaps_dead == self._perhaps_dead
        if has_same_brokers and image is self._image:
            return self._near
        before = self._by_topic if has_same_brokers else {}
        self._by_topic = {}
        for topic_id, topic in image.topics_by_id.items():
            known = before.get(topic_id)
            if known is None or known[0] is not topic:
                known = (
                    topic,
                    any(_is_near(image, perhaps_dead, each) for each in topic.assignments),
                )
            self._by_topic[topic_id] = known
        self._near = frozenset(name for name, (_, is_near) in self._by_topic.items() if is_near)
        self._image, self._brokers, self._perhaps_dead = image, image.brokers, perhaps_dead
        return self._near


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _is_near(image: Image, perhaps_dead: Collection[int], record: PartitionRecord) -> bool:
    """Returns whether a partition's leader is gone, and another replica can be elected."""
    live = image.brokers
    if record.leader in live and record.leader not in perhaps_dead:
        return False
    return any(
        broker in live and broker not in perhaps_dead and not live[broker].record.is_fenced
        for broker in record.isr
    )
