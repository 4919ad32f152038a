"""The runtime of a coordinator: it owns partitions, loads them, writes to them, and keeps deadlines.

A coordinator has a runtime and gives it a clock and itself. The runtime holds the entries, one for each
key, of the partitions that this broker leads, and refuses keys of all others: NOT_COORDINATOR, or
COORDINATOR_LOAD_IN_PROGRESS until their partition has been read. The state machines are the coordinator's.

Source: Kafka's CoordinatorRuntime as of 4.1.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tidelog.broker.coordination.deadlines import Deadlines
from tidelog.broker.coordination.internal_topic import InternalTopic
from tidelog.broker.coordination.loading import Loader
from tidelog.broker.coordination.ownership import Ownership
from tidelog.protocol.errors import BrokerError
from tidelog.protocol.group_errors import CoordinatorLoadInProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from tidelog.broker.clock import Clock
    from tidelog.broker.coordination.following import Following
    from tidelog.broker.coordination.internal_topic import Declared
    from tidelog.broker.coordination.ownership import Load
    from tidelog.broker.coordination.services import Services
    from tidelog.broker.metadata.image import Image


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

    def read(self, index: int, is_wanted: Callable[[], bool]) -> ReadT:
        """Reads a partition. The result is useless once `is_wanted` returns False."""

    def load(self, load: Load, read: ReadT) -> None:
        """Adds the entries that were read of a partition to those of the runtime."""

    def unload(self, indexes: set[int], entries: Sequence[EntryT_contra]) -> None:
        """Ends what waits for entries that another broker coordinates now; the runtime has dropped them."""

    def deadline_reached(self, entry: EntryT_contra) -> None:
        """Handles the deadline of an entry."""

    def image_changed(self, image: Image) -> None:
        """Handles a new image of the metadata, as one of several brokers."""


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
        self._services, self._declared = services, declared
        self._coordinator = coordinator
        self.ownership = Ownership(is_alone=True)
        self.topic = InternalTopic(services, declared, clock, self.ownership)
        self.loader: Loader[ReadT] = Loader(
            services,
            declared.name,
            self.ownership,
            read=coordinator.read,
            loaded=coordinator.load,
            resigned=self._unload,
        )
        self.entries: dict[str, EntryT] = {}
        self._deadlines = Deadlines(clock, self._deadline_reached)
        self._following: Following | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    # -- start and stop -------------------------------------------------------------------------

    def join_cluster(self) -> None:
        """Coordinates only the keys of partitions that this broker leads, of several brokers."""
        # A broker that is alone needs none of it.
        from tidelog.broker.coordination.following import Following

        self.ownership.join()
        self._following = Following(
            self._services,
            self._declared.name,
            self._declared.replication_factor,
            self.ownership,
            carry_out=self.loader.carry_out,
            image_changed=self._coordinator.image_changed,
        )

    def roles_changed(self) -> None:
        """Loads or unloads partitions after a log on this broker begins or stops leading."""
        if self._following is not None:
            self._following.wake()

    def start(self, *loops: Coroutine[Any, Any, None]) -> None:
        """Starts to load partitions, the deadlines, and loops of the coordinator that run until `stop`."""
        if self._following is not None:
            loops += (self._following.run(),)
        elif not self.topic.is_missing:
            self.loader.carry_out(self.ownership.begin_alone(self.topic.partitions()))
        loops += (self.loader.run(), self._deadlines.run())
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
        if not self.ownership.serves_all:
            self.topic.epoch_of(key)
        return self.entries.get(key)

    async def get_loaded(self, key: str) -> EntryT | None:
        """Like `get`, after the key's partition has been read; waits for that a few seconds at most."""
        await self.loader.until_loaded(partial(self.get, key))
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

    def _unload(self, indexes: Sequence[int]) -> None:
        gone, index_of = set(indexes), self.topic.index_of
        entries = [each for key, each in self.entries.items() if index_of(key) in gone]
        for each in entries:
            self.delete(each)
        self._coordinator.unload(gone, entries)

    # -- deadlines ------------------------------------------------------------------------------

    def schedule(self, entry: EntryT, at_ms: int | None) -> None:
        """Sets the next deadline of an entry, in ms of the clock that never goes back.

        An earlier one stays. None changes nothing.
        """
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
