"""The controller loop: claims the controller's key, and stores what `broker/controller` decides.

Every broker that has a session tries to become the controller. Two controllers at once do no harm,
because each transaction compares what it was decided on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.controller import controller
from tidelog.broker.controller.sessions import Sessions
from tidelog.broker.logging.folded_log import folded
from tidelog.broker.metadata.store import MOST_OPERATIONS, LeaseEndedError
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Generator

    from tidelog.broker.controller.rules import Rules
    from tidelog.broker.lifecycle.services import Services
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metadata.transactions import PartitionChange, Transaction

log = logging.getLogger("tidelog.cluster")

_TICK_S = 1.0  # who is settled changes with time
_RETRY_S = 0.1
_SAME = -2  # the leader of before
_AT_ONCE = 8  # transactions under way: the store makes them durable together


class _Outcome(Enum):
    """How a transaction ended, as far as is known."""

    STORED = auto()
    REFUSED = auto()  # decided on something that has changed
    UNKNOWN = auto()  # decided again, once the image shows what is so


class Member(Protocol):
    """This broker in its cluster: its session, by which it may write."""

    me: int
    epoch: int

    @property
    def lease_id(self) -> int:
        """The lease in the metadata store to which the keys of this session belong."""

    def now_ms(self) -> int:
        """Returns milliseconds of the monotonic clock by which the lease is measured."""

    def session_ended(self) -> None:
        """Ends the session, because the store has ended its lease."""

    async def session_changed(self, since: int) -> int:
        """Returns how often a session has begun or ended, once that is not `since`."""


class ControllerLoop:
    """The loop in which a broker becomes the controller, and works as it."""

    def __init__(self, services: Services, cluster: Member, rules: Rules) -> None:
        self._metadata, self._cluster = services.metadata, cluster
        self.rules = rules
        config = services.config.cluster
        settle_ms = config.leader_imbalance_check_interval_seconds * 1000
        self.sessions = Sessions(
            lease_ms=0,  # the lock of a process proves that it has ended
            settle_ms=settle_ms if config.auto_leader_rebalance_enable else None,
        )
        self._limit = MOST_OPERATIONS
        self._seen: object = None  # on what nothing had to be written
        self._quiet: tuple[Image, object] | None = None  # the same, as the controller, and of whom
        self._controller_epoch = 0  # the last controller epoch of this broker
        self._stored: list[PartitionChange] = []  # and not logged yet
        self._updates = asyncio.Event()  # a newer image, or another session
        self._work: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Decides on each new image and session, and as time passes, until `stop`."""
        loop = asyncio.get_running_loop()
        work = (self._run(), self._follow_images(), self._follow_sessions())
        self._work = [loop.create_task(each) for each in work]

    async def stop(self) -> None:
        """Ends what `start` has begun, if it has."""
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    async def _follow_images(self) -> None:
        while True:
            await self._metadata.newer_image(self._metadata.image.revision)
            self._updates.set()

    async def _follow_sessions(self) -> None:
        changes = 0
        while True:
            changes = await self._cluster.session_changed(changes)
            self._updates.set()

    async def _run(self) -> None:
        while True:
            self._updates.clear()
            image = self._metadata.image
            try:
                self.sessions.observe(image, self._cluster.now_ms())
                if await self._store_decisions(image):
                    continue
            except Exception:
                log.exception("controller failed, retrying")
                await asyncio.sleep(_RETRY_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S if self._is_controller(image) else None):
                    await self._updates.wait()

    def _is_controller(self, image: Image) -> bool:
        return image.controller is not None and image.controller.broker == self._cluster.me

    async def _store_decisions(self, image: Image) -> bool:
        """Stores what has to change now; returns whether there was anything."""
        now_ms = self._cluster.now_ms()
        settled, awaited = self.sessions.settled(now_ms), self.sessions.awaited(now_ms)
        looked_at = (image.revision, settled, awaited, self._cluster.epoch)
        if self._cluster.epoch < 0 or looked_at == self._seen:
            return False
        found = await self._transactions(image, settled, awaited)
        if not found:
            self._seen = looked_at
            return False
        await self._store_all(found)
        return True

    async def _transactions(
        self, image: Image, settled: frozenset[int], awaited: frozenset[int]
    ) -> list[Transaction]:
        cluster = self._cluster
        if image.controller is None:
            claim = controller.claim(image, cluster.me, cluster.epoch, cluster.lease_id)
            return [] if claim is None else [claim]
        if not self._is_controller(image):
            return []
        if self._controller_epoch != image.controller.epoch:
            self._controller_epoch = image.controller.epoch
            log.info("broker became controller", extra={"epoch": self._controller_epoch})
        self.rules.keep_only(image.topics)
        concerned = (image.controller.epoch, settled, awaited)
        quiet, then = self._quiet or (None, None)
        steps = controller.transactions(
            image,
            image.controller.epoch,
            self.rules,
            settled=settled,
            awaited=awaited,
            limit=self._limit,
            since=quiet if concerned == then else None,
        )
        found = await _gradually(steps)
        if not found:
            self._quiet = (image, concerned)
        return found

    async def _store_all(self, found: list[Transaction]) -> None:
        """Stores transactions in their order, several at once; none after one that was not stored.

        Each compares all that it was decided on, so none depends on another.
        """
        left = iter(found)
        ended: list[_Outcome] = []

        async def store_one_after_another() -> None:
            for transaction in left:
                ended.append(await self._store(transaction))
                if set(ended) != {_Outcome.STORED}:
                    return

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_AT_ONCE, len(found))):
                    group.create_task(store_one_after_another())
        finally:
            self._log_stored()
        if _Outcome.REFUSED in ended:
            self._limit = max(1, self._limit // 2)
        elif _Outcome.STORED in ended:
            self._limit = MOST_OPERATIONS
        if _Outcome.UNKNOWN in ended:
            await asyncio.sleep(_RETRY_S)
        try:
            await self._metadata.catch_up()
        except BrokerError as error:
            log.warning("controller image not updated yet", extra={"reason": error.message})
            await asyncio.sleep(_RETRY_S)

    async def _store(self, transaction: Transaction) -> _Outcome:
        try:
            revision = await self._metadata.store.transact(
                transaction.compares, transaction.operations
            )
        except LeaseEndedError:
            self._cluster.session_ended()
            return _Outcome.UNKNOWN
        except BrokerError as error:
            log.warning(
                "outcome of controller change unknown, deciding again",
                extra={"why": transaction.why, "reason": error.message},
            )
            return _Outcome.UNKNOWN
        if revision is None:
            return _Outcome.REFUSED
        self._stored += transaction.changes
        return _Outcome.STORED

    def _log_stored(self) -> None:
        """Logs which partitions have changed, and why: one line for each reason and new leader."""
        stored, self._stored = self._stored, []
        topics = self._metadata.image.topics_by_id
        names: defaultdict[tuple[str, int], list[str]] = defaultdict(list)
        for change in stored:
            after, topic = change.after, topics.get(change.topic_id)
            name = f"{'a deleted topic' if topic is None else topic.name}-{change.partition}"
            leader = after.leader if after.leader_epoch != change.before.leader_epoch else _SAME
            names[change.why, leader].append(name)
            log.debug(
                "partition changed",
                extra={
                    "log": name,
                    "leader": after.leader,
                    "leader_epoch": after.leader_epoch,
                    "isr": list(after.isr),
                    "why": change.why,
                },
            )
        for (why, leader), partitions in names.items():
            of_leader = {} if leader == _SAME else {"leader": leader}
            log.info("partitions changed", extra=folded(partitions, **of_leader, why=why))


async def _gradually(steps: Generator[None, None, list[Transaction]]) -> list[Transaction]:
    """Returns what a generator returns, and gives way after each of its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: list[Transaction] = end.value
            return found
        await asyncio.sleep(0)
