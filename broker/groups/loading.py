"""Carries out what `ownership.py` asks for: partitions are read in a thread, one after another.

What was read counts only if the ownership still waits for it when it is there. A partition that is
resigned is dropped at once, whatever is being read meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from broker.groups.offsets_topic import TOPIC
from broker.groups.ownership import Load, Resign
from protocol.group_errors import CoordinatorLoadInProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from broker.groups.group import Group
    from broker.groups.offsets_topic import GroupLog
    from broker.groups.ownership import Action, Ownership
    from broker.groups.store import Loading
    from broker.node import Node

log = logging.getLogger("tidelog.groups")

_WAIT_S = 5.0
"""How long a request waits for a partition to be read: less than any client waits for an answer."""


class GroupLoader:
    """Reads the partitions that a coordinator takes over, and lets go of those that it resigns."""

    def __init__(
        self,
        node: Node,
        group_log: GroupLog,
        ownership: Ownership,
        make: Callable[[str], Group],
        *,
        loaded: Callable[[Load, Loading], None],
        resigned: Callable[[Sequence[int]], None],
    ) -> None:
        """`make` creates a group; the other two are called on the event loop.

        `loaded` gets what was read for a load that counts, `resigned` the partitions to drop.
        """
        self._node = node
        self._log = group_log
        self._ownership = ownership
        self._make = make
        self._loaded = loaded
        self._resigned = resigned
        self._queue: asyncio.Queue[Load] = asyncio.Queue()
        self._changed = asyncio.Event()

    async def until_loaded(self, check: Callable[[], object]) -> None:
        """Waits while `check` raises CoordinatorLoadInProgress, for a few seconds at most.

        Raises whatever `check` raises then. librdkafka gives up a commit after three such errors,
        which is 0.3 s. A consumer of kafkajs that is told so when it joins starts anew.
        """
        with contextlib.suppress(CoordinatorLoadInProgress):
            check()
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_S):
                while True:
                    await self._changed.wait()
                    with contextlib.suppress(CoordinatorLoadInProgress):
                        check()
                        return
        check()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def carry_out(self, actions: Iterable[Action]) -> None:
        """Drops what is resigned, and puts what is to be read into the queue."""
        self._wake()
        actions = list(actions)
        resigned = [action.partition for action in actions if isinstance(action, Resign)]
        if resigned:
            self._resigned(resigned)
        for action in actions:
            if isinstance(action, Load):
                self._queue.put_nowait(action)

    async def run(self) -> None:
        """Reads what is in the queue, until cancelled."""
        while True:
            load = await self._queue.get()
            if self._ownership.is_wanted(load):
                await self._load(load)

    async def _load(self, load: Load) -> None:
        maintenance = self._node.pools.maintenance
        where = {"log": f"{TOPIC}-{load.partition}"}
        try:
            loading = await maintenance.run_to_end(self._read, load)
        except Exception as error:
            log.exception("groups cannot be read", extra=where)
            self._ownership.on_failed(load, str(error))
            self._wake()
            return
        if not self._ownership.is_wanted(load):
            log.info("groups were read too late", extra={**where, "epoch": load.epoch})
            return
        self._loaded(load, loading)
        self._ownership.on_loaded(load)
        self._wake()
        if not self._ownership.is_loading:
            log.info("groups loaded")

    def _read(self, load: Load) -> Loading:
        """Reads a partition, in a thread; ends early when nobody waits for it any more."""
        return self._log.read(
            load.partition,
            self._make,
            goes_on=lambda: self._node.ready and self._ownership.is_wanted(load),
            to_log_end=not self._ownership.is_alone,
        )
