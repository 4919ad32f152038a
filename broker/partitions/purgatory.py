"""Who waits for a log's offsets to advance: fetches, acknowledgements, unreadable appends.

Each waits for a log, whatever role that has, and stays when the role changes. Who waits for a role, or for
followers, waits with the leader (`leading/partition_leader.py`), and is answered when that stops.

- A fetch that found too little waits for bytes that it may read (`fetch/delayed_fetch.py`). While
  nothing arrives a waiting fetch costs one timer and no work, however many there are.
- The partitions of fetch sessions wait here between the fetches, too (`fetch/incremental.py`).
- An append above the high watermark waits to be counted, and its bytes to be offered to fetches.
- An acknowledgement waits until its append may be read and is durable, where the topic asks for it.

`note_append` is called with each append, or `appended` if others may read it at once. `advanced` is
called when the high watermark or the durable offset of a log has moved in another way: after a sync or
a checkpoint. Everything runs on the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.storage.log.high_watermark import AS_REPLICATED

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tidelog.storage.log.partition import Appended, Partition


class LogLeader(Protocol):
    """The leader of a log, which knows when an append can be read."""

    def note_append(self, appended: Appended) -> None:
        """Counts an append when it can be read, and wakes followers that wait for it."""

    def flushed(self) -> None:
        """Notes up to where the log is durable."""


class Waiter(Protocol):
    """A fetch, or a partition of a session, that waits for a log: each call returns whether it still does."""

    def arrived(self, partition: Partition, size: int, read_to: int | None, /) -> bool:
        """Counts `size` more bytes that others may read; `read_to` is what it passed to `enter`."""

    def invalidated(self) -> bool:
        """Reads the log again, or leaves it: it may have changed in another way than by an append."""


class _Acknowledgement(NamedTuple):
    """An append, and the future of its producer, which gets it when it is durable."""

    appended: Appended
    answer: asyncio.Future[Appended]


class Purgatory:
    """All who wait for offsets of this broker's logs, by partition."""

    def __init__(self, count: Callable[[Partition, Appended], None]) -> None:
        """`count` is called with every append once others may read it."""
        self._count = count
        # In the order in which they came, with the last stable offset up to which each has read; None
        # for those who wait for all data.
        self._waits: dict[Partition, dict[Waiter, int | None]] = {}
        self._unreadable: dict[Partition, list[Appended]] = {}
        self._acknowledgements: dict[Partition, list[_Acknowledgement]] = {}

    def __len__(self) -> int:
        """Returns for how many partitions fetches wait."""
        return len(self._waits)

    # --- offsets that advance ---------------------------------------------------------------------

    def appended(self, partition: Partition, appended: Appended) -> None:
        """Counts an append that others may read, and wakes the fetches that now have enough."""
        self._count(partition, appended)
        if partition in self._waits and not appended.duplicate:
            self.readable(partition, appended.size)

    def readable(self, partition: Partition, size: int) -> None:
        """Wakes the fetches that have enough with `size` more bytes that others may read."""
        waits = self._waits.get(partition, {})
        gone = [
            each for each, read_to in waits.items() if not each.arrived(partition, size, read_to)
        ]
        for each in gone:
            self.leave(partition, each)

    def advanced(self, partition: Partition) -> None:
        """Notifies those for whom the high watermark and the durable offset have come far enough.

        Appends to a log that is gone are dropped.
        """
        unreadable = self._unreadable.pop(partition, None)
        if unreadable is not None and not partition.is_deleted and partition.offline is None:
            left = []
            for appended in unreadable:
                if appended.last_offset < partition.high_watermark:
                    self.appended(partition, appended)
                else:
                    left.append(appended)
            if left:
                self._unreadable[partition] = left
        acknowledgements = self._acknowledgements.pop(partition, None)
        if acknowledgements is not None:
            offset = partition.durable_offset
            if partition.state.policy is not AS_REPLICATED:  # else acks=1 waits for the disk alone
                offset = min(partition.high_watermark, offset)
            later = []
            for each in acknowledgements:
                if each.appended.last_offset >= offset:
                    later.append(each)
                elif not each.answer.done():
                    each.answer.set_result(each.appended)
            if later:
                self._acknowledgements[partition] = later

    def advanced_anywhere(self) -> None:
        """Does what `advanced` does for every partition: a checkpoint has made all logs durable.

        So appends whose sync has not succeeded so far are read at last.
        """
        for partition in {*self._unreadable, *self._acknowledgements}:
            self.advanced(partition)

    def refuse(self, partition: Partition, error: BaseException) -> None:
        """Fails all acknowledgements of a partition: what they wait for may not be durable, or be cut."""
        for each in self._acknowledgements.pop(partition, ()):
            if not each.answer.done():
                each.answer.set_exception(error)
                each.answer.exception()  # the producer may have left: then nobody asks for it

    # --- appends ----------------------------------------------------------------------------------

    def note_append(self, partition: Partition, appended: Appended) -> None:
        """Does what `appended` does: now, or when the high watermark has passed the append."""
        if appended.last_offset < partition.state.ends[1]:
            self.appended(partition, appended)
        else:
            self._unreadable.setdefault(partition, []).append(appended)

    def add_acknowledgement(
        self, partition: Partition, appended: Appended, answer: asyncio.Future[Appended]
    ) -> None:
        """Adds an answer that gets the append when it is durable and, unless replicas decide, can be read.

        The answer gets the error instead if the sync fails.
        """
        acknowledgement = _Acknowledgement(appended, answer)
        self._acknowledgements.setdefault(partition, []).append(acknowledgement)

    # --- fetches ----------------------------------------------------------------------------------

    def wake(self, partition: Partition) -> None:
        """Wakes all fetches that wait for a partition: it was deleted, for example."""
        for each in [each for each in self._waits.get(partition, ()) if not each.invalidated()]:
            self.leave(partition, each)

    def wake_all(self) -> None:
        """Wakes all fetches: the broker stops."""
        for partition in list(self._waits):
            self.wake(partition)

    def enter(self, partition: Partition, waiter: Waiter, read_to: int | None = None) -> None:
        """Adds a waiter, which is notified of a partition."""
        self._waits.setdefault(partition, {})[waiter] = read_to

    def leave(self, partition: Partition, waiter: Waiter) -> None:
        """Removes a waiter of a partition."""
        waits = self._waits.get(partition)
        if waits is not None:
            waits.pop(waiter, None)
            if not waits:
                del self._waits[partition]
