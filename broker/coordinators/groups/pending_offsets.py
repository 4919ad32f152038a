"""Offsets of a group that open transactions have sent: no client reads them before the commit (KIP-98).

Each request is one batch of the log, with the id of its producer. A batch counts as pending from
before it is written until the transaction ends. A commit puts its offsets among the committed ones,
where the record with the greater offset in the log wins (KAFKA-5247); an abort drops them. A deleted
offset is dropped here, too.

Nothing here waits or reads a clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from tidelog.broker.coordinators.groups.committed import Committed
    from tidelog.broker.coordinators.internal_topic import Log
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.time.trusted_clock import Change

NOT_STORED = -1


class _Counted:
    """The partitions that batches have, each once for every batch that has it.

    Nearly all are in one batch. So what is done for each of tens of thousands is done by sets.
    """

    __slots__ = ("_more", "names")

    def __init__(self) -> None:
        self.names: set[TopicPartition] = set()
        self._more: dict[TopicPartition, int] = {}  # how many batches beside the first one have it

    def add(self, names: Collection[TopicPartition]) -> None:
        """Counts the partitions of a batch."""
        for name in self.names.intersection(names):
            self._more[name] = self._more.get(name, 0) + 1
        self.names.update(names)

    def discard(self, names: Collection[TopicPartition]) -> None:
        """Counts the partitions of a batch no longer."""
        stay = self._more.keys() & names if self._more else ()
        for name in stay:
            left = self._more.pop(name) - 1
            if left:
                self._more[name] = left
        self.names.difference_update(set(names).difference(stay) if stay else names)


class PendingBatch:
    """The offsets of one request, and where they are in the log."""

    __slots__ = ("base_offset", "counted_by", "is_committed", "log", "names", "offsets")

    def __init__(
        self, offsets: Mapping[TopicPartition, Committed], base_offset: int = NOT_STORED
    ) -> None:
        """`offsets` are in the order of their records."""
        self.names = tuple(offsets)
        self.offsets = dict(offsets)
        self.counted_by: list[_Counted] = []  # where its partitions are counted
        self.log: Log | None = None  # None: each offset has its own
        self.base_offset = base_offset
        self.is_committed = False  # the transaction was committed before the batch was acknowledged

    def drop(self, names: Iterable[TopicPartition]) -> None:
        """Removes the offsets of partitions: they were deleted."""
        gone = set(names).intersection(self.offsets)
        for name in gone:
            del self.offsets[name]
        for counted in self.counted_by:
            counted.discard(gone)

    def correct(self, change: Change) -> None:
        """Corrects the times of commits, after the clock has changed."""
        for name, committed in self.offsets.items():
            self.offsets[name] = committed.corrected(change)

    @property
    def is_stored(self) -> bool:
        """Whether it is known where the records are."""
        return self.base_offset != NOT_STORED

    @property
    def is_whole(self) -> bool:
        """Whether no offset of the batch was deleted."""
        return len(self.offsets) == len(self.names)

    def stored(self, log: Log, base_offset: int) -> None:
        """Notes where the records are."""
        self.log, self.base_offset = log, base_offset

    def placed(self) -> Iterator[tuple[TopicPartition, Committed]]:
        """Yields the offsets with where their records are, once that is known."""
        log, offsets = self.log, self.offsets
        for at, name in enumerate(self.names, self.base_offset):
            committed = offsets.get(name)
            if committed is not None:
                yield name, committed if log is None else committed.placed(at, log)


class PendingOffsets:
    """The pending offsets of one group, by producer id."""

    __slots__ = ("_batches", "_counted")

    def __init__(self) -> None:
        self._batches: dict[int, list[PendingBatch]] = {}
        self._counted = _Counted()

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __contains__(self, name: object) -> bool:
        return name in self._counted.names

    @property
    def producer_ids(self) -> Iterable[int]:
        """The producers that have pending offsets."""
        return self._batches.keys()

    def names(self) -> set[TopicPartition]:
        """Returns the partitions that have pending offsets."""
        return set(self._counted.names)

    def add(self, producer_id: int, batch: PendingBatch) -> None:
        """Adds a batch, before or after it is written."""
        self._batches.setdefault(producer_id, []).append(batch)
        self._counted.add(batch.offsets)
        batch.counted_by.append(self._counted)

    def withdraw(self, producer_id: int, batch: PendingBatch) -> None:
        """Removes a batch that could not be written."""
        batches = self._batches.get(producer_id, [])
        if batch in batches:
            batches.remove(batch)
            self._uncount(batch)
            if not batches:
                del self._batches[producer_id]

    def of(self, names: Iterable[TopicPartition]) -> list[PendingBatch]:
        """Returns the batches that have offsets of any of these partitions."""
        wanted = self._counted.names.intersection(names)
        if not wanted:
            return []
        return [batch for batch in self.all() if not wanted.isdisjoint(batch.offsets)]

    def end(self, producer_id: int, marker_offset: int) -> list[PendingBatch]:
        """Removes and returns the batches of a producer before a marker at an offset of the log."""
        batches = self._batches.pop(producer_id, [])
        later = [batch for batch in batches if batch.base_offset > marker_offset]
        if later:
            self._batches[producer_id] = later
        ended = [batch for batch in batches if batch.base_offset < marker_offset]
        for batch in ended:
            self._uncount(batch)
        return ended

    def _uncount(self, batch: PendingBatch) -> None:
        self._counted.discard(batch.offsets)
        batch.counted_by.remove(self._counted)

    def correct(self, change: Change) -> None:
        """Corrects the times of commits, after the clock has changed."""
        for batch in self.all():
            batch.correct(change)

    def all(self) -> list[PendingBatch]:
        """Returns the batches of all producers."""
        return [batch for batches in self._batches.values() for batch in batches]
