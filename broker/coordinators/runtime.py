"""The runtime of a coordinator: it owns partitions, loads them, writes to them, and keeps deadlines.

A coordinator has a runtime, and hands it a clock and itself. The runtime holds the entries, one for each
key, of the partitions that this broker leads, and refuses keys of all others: NOT_COORDINATOR, or
COORDINATOR_LOAD_IN_PROGRESS until their partition has been read. The state machines are the coordinator's.

Partitions are read in a thread, one after another, as `ownership.py` asks. What was read counts only if the
ownership still waits for it when it is there; a partition that is resigned is dropped at once.

Source: Kafka's CoordinatorRuntime as of 4.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tidelog.broker.coordinators.deadlines import Deadlines
from tidelog.broker.coordinators.following import Following
from tidelog.broker.coordinators.internal_topic import InternalTopic
from tidelog.broker.coordinators.ownership import Load, Ownership, Resign
from tidelog.broker.logging.folded_log import folded
from tidelog.broker.timer import timeout
from tidelog.protocol.errors import BrokerError
from tidelog.protocol.group_errors import CoordinatorLoadInProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from tidelog.broker.clock import Clock
    from tidelog.broker.coordinators.internal_topic import Declared
    from tidelog.broker.coordinators.ownership import Action
    from tidelog.broker.coordinators.services import Services
    from tidelog.broker.metadata.image import Image
    from tidelog.storage.log.partition import Partition

log = logging.getLogger("tidelog.coordinators")

_WAIT_S = 5.0
"""How long a request waits for a partition to be read: less than any client waits for an answer."""


class Entry(Protocol):
    """The state of one key, and the coordinator epoch in which it was loaded or created."""

    epoch: int

    @property
    def key(self) -> str:
        """The group id, or the transactional id."""


EntryT = TypeVar("EntryT", bound=Entry)
ReadT = TypeVar("ReadT")
EntryT_contra = TypeVar("EntryT_contra", bound=Entry, contravariant=True)


class Coordinator(Protocol[EntryT_contra, ReadT]):
    """What a runtime calls: `read` in a thread, all else on the event loop."""

    def read(self, partition: Partition, end_offset: int, is_wanted: Callable[[], bool]) -> ReadT:
        """Reads a partition below an offset. The result is useless once `is_wanted` returns False."""

    def load(self, load: Load, read: ReadT) -> None:
        """Adds the entries that were read of a partition to those of the runtime."""

    def unload(self, indexes: set[int], entries: Sequence[EntryT_contra]) -> None:
        """Ends what waits for entries that another broker coordinates now; the runtime has dropped them."""

    def deadline_reached(self, entry: EntryT_contra) -> None:
        """Handles the deadline of an entry."""

    def image_changed(self, image: Image) -> None:
        """Handles a new image of the metadata."""


class Runtime(Generic[EntryT, ReadT]):
    """The entries of one coordinator, and the partitions that they are kept in."""

    def __init__(
        self,
        services: Services,
        declared: Declared,
        clock: Clock,
        coordinator: Coordinator[EntryT, ReadT],
    ) -> None:
        """`clock` stamps the records and measures the deadlines."""
        self._services = services
        self._coordinator = coordinator
        self.ownership = Ownership()
        self.topic = InternalTopic(services, declared, clock, self.ownership)
        self._loads: asyncio.Queue[Load] = asyncio.Queue()
        self._loaded: list[str] = []  # the partitions that have not been logged
        self._changed = asyncio.Event()  # replaced when it is set
        self.entries: dict[str, EntryT] = {}
        self._deadlines = Deadlines(clock, self._deadline_reached)
        self._following = Following(
            services,
            declared.name,
            declared.replication_factor,
            self.ownership,
            carry_out=self.carry_out,
            image_changed=coordinator.image_changed,
        )
        self._loops: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # -- start and stop -------------------------------------------------------------------------

    def start(self, *loops: Coroutine[Any, Any, None]) -> None:
        """Starts to load partitions, the deadlines, and loops of the coordinator that run until `stop`."""
        loops += (self._following.run(), self.load_partitions(), self._deadlines.run())
        self._loops = [asyncio.get_running_loop().create_task(each) for each in loops]

    async def stop(self) -> None:
        """Ends the loops; tasks go on, see `finish`."""
        for each in self._loops:
            each.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Starts a task, which the runtime refers to until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, *, cancels: bool) -> None:
        """Waits for all tasks, or `cancels` them first."""
        if cancels:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- entries --------------------------------------------------------------------------------

    def get(self, key: str) -> EntryT | None:
        """Returns the entry of a key; None if there is none.

        Raises NotCoordinator, CoordinatorLoadInProgress and CoordinatorNotAvailable.
        """
        self.topic.epoch_of(key)
        return self.entries.get(key)

    async def get_loaded(self, key: str) -> EntryT | None:
        """Like `get`, after the key's partition has been read; waits for that a few seconds at most.

        librdkafka gives up a commit after three CoordinatorLoadInProgress, which is 0.3 s. A consumer of
        kafkajs that is refused so when it joins starts anew.
        """
        with contextlib.suppress(CoordinatorLoadInProgress):
            return self.get(key)
        with contextlib.suppress(TimeoutError):
            async with timeout(_WAIT_S):
                while True:
                    await self._changed.wait()
                    with contextlib.suppress(CoordinatorLoadInProgress):
                        return self.get(key)
        return self.get(key)

    def all(self) -> list[EntryT]:
        """Returns every entry. Raises CoordinatorLoadInProgress until all partitions have been read."""
        if self.ownership.is_loading:
            raise CoordinatorLoadInProgress(f"{self.topic.name} is being read")
        return list(self.entries.values())

    def has(self, entry: EntryT) -> bool:
        """Returns whether an entry is still the one of its key."""
        return self.entries.get(entry.key) is entry

    def delete(self, entry: EntryT) -> None:
        """Deletes an entry and its deadline, unless the key has another one by now."""
        if self.has(entry):
            del self.entries[entry.key]
            self._deadlines.delete(entry.key)

    # -- loading --------------------------------------------------------------------------------

    def carry_out(self, actions: Iterable[Action]) -> None:
        """Drops the entries of partitions that are resigned; queues the partitions that are to be read."""
        actions = list(actions)
        resigned = {action.partition for action in actions if isinstance(action, Resign)}
        if resigned:
            self._unload(resigned)
        for action in actions:
            if isinstance(action, Load):
                self._loads.put_nowait(action)
        self._wake()

    def _unload(self, indexes: set[int]) -> None:
        index_of = self.topic.index_of
        entries = [each for key, each in self.entries.items() if index_of(key) in indexes]
        for each in entries:
            self.delete(each)
        self._coordinator.unload(indexes, entries)
        names = [f"{self.topic.name}-{index}" for index in sorted(indexes)]
        self._loaded = [each for each in self._loaded if each not in names]
        log.info("coordinator unloaded partitions", extra=folded(names))

    async def load_partitions(self) -> None:
        """Loads the partitions that are queued, until it is cancelled."""
        while True:
            load = await self._loads.get()
            if self.ownership.is_wanted(load):
                await self._load(load)
                self._wake()

    async def _load(self, load: Load) -> None:
        name = f"{self.topic.name}-{load.partition}"
        try:
            read = await self._services.pools.maintenance.run_to_end(self._read, load)
        except Exception as error:
            log.exception("coordinator failed to load partition", extra={"log": name})
            self.ownership.on_failed(load, str(error))
            return
        if not self.ownership.is_wanted(load):
            where = {"log": name, "epoch": load.epoch}
            log.info("coordinator discarded loaded partition", extra=where)
            return
        self._coordinator.load(load, read)
        self.ownership.on_loaded(load)
        self._loaded.append(name)
        if not self.ownership.is_loading:
            log.info("coordinator loaded partitions", extra=folded(self._loaded))
            self._loaded.clear()

    def _read(self, load: Load) -> ReadT:
        """Reads a partition in a thread, to the log's end.

        A leader may just have been elected: its whole log becomes readable, and every record that was
        acknowledged is in it.
        """
        partition = self._services.partitions.get(self.topic.name, load.partition)
        end_offset = partition.log_end_offset

        def is_wanted() -> bool:
            return self._services.ready and self.ownership.is_wanted(load)

        return self._coordinator.read(partition, end_offset, is_wanted)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # -- deadlines ------------------------------------------------------------------------------

    def schedule(self, entry: EntryT, at_ms: int | None) -> None:
        """Sets the next deadline of an entry, in ms of the clock that never goes back.

        An earlier one stays. None changes nothing, nor does an entry that has been deleted.
        """
        if self.has(entry):
            self._deadlines.set(entry.key, at_ms)

    def _deadline_reached(self, key: str) -> None:
        entry = self.entries.get(key)
        if entry is not None:
            self._coordinator.deadline_reached(entry)


def resolve(ticket: asyncio.Future[Any], outcome: object) -> None:
    """Answers a waiting request with a result or an error, unless it has been answered."""
    if ticket.done():
        return
    if isinstance(outcome, BrokerError):
        ticket.set_exception(outcome)
    else:
        ticket.set_result(outcome)
