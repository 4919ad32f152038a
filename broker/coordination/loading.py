"""Carries out what `ownership.py` asks for: partitions are read in a thread, one after another.

What was read counts only if the ownership still waits for it when it is there. A partition that is
resigned is dropped at once, whatever is being read meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Generic, TypeVar

from tidelog.broker.coordination.ownership import Load, Resign
from tidelog.broker.folded_log import folded
from tidelog.protocol.group_errors import CoordinatorLoadInProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.broker.coordination.ownership import Action, Ownership
    from tidelog.broker.coordination.services import Services

log = logging.getLogger("tidelog.coordination")

_WAIT_S = 5.0
"""How long a request waits for a partition to be read: less than any client waits for an answer."""

Read = TypeVar("Read")


class Loader(Generic[Read]):
    """Reads the partitions that a coordinator takes over, and drops those that it resigns."""

    def __init__(
        self,
        services: Services,
        topic: str,
        ownership: Ownership,
        *,
        read: Callable[[int, Callable[[], bool]], Read],
        loaded: Callable[[Load, Read], None],
        resigned: Callable[[Sequence[int]], None],
    ) -> None:
        """`read` is called in a thread, the other two on the event loop.

        `read` gets a partition, and what says whether it goes on; its result is useless once that
        is false. `loaded` gets what was read for a load that counts, `resigned` the partitions to
        drop.
        """
        self._services = services
        self._topic = topic
        self._ownership = ownership
        self._read = read
        self._loaded = loaded
        self._resigned = resigned
        self._queue: asyncio.Queue[Load] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._new: list[str] = []  # loaded partitions that have not been logged

    async def until_loaded(self, check: Callable[[], object]) -> None:
        """Waits while `check` raises CoordinatorLoadInProgress, for a few seconds at most.

        Raises whatever `check` raises then. librdkafka gives up a commit after three such errors,
        which is 0.3 s. A consumer of kafkajs that gets one when it joins starts anew.
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
            names = [f"{self._topic}-{index}" for index in resigned]
            log.info("coordinator unloaded partitions", extra=folded(names))
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
        maintenance = self._services.pools.maintenance
        where = {"log": f"{self._topic}-{load.partition}"}
        try:
            read = await maintenance.run_to_end(self._read, load.partition, self._goes_on(load))
        except Exception as error:
            log.exception("coordinator failed to load partition", extra=where)
            self._ownership.on_failed(load, str(error))
            self._wake()
            return
        if not self._ownership.is_wanted(load):
            log.info("coordinator discarded loaded partition", extra={**where, "epoch": load.epoch})
            return
        self._loaded(load, read)
        self._ownership.on_loaded(load)
        self._wake()
        self._new.append(where["log"])
        if not self._ownership.is_loading:
            log.info("coordinator loaded partitions", extra=folded(self._new))
            self._new.clear()

    def _goes_on(self, load: Load) -> Callable[[], bool]:
        """Returns what says, in a thread, whether anybody still waits for a load."""
        return lambda: self._services.ready and self._ownership.is_wanted(load)
