"""Guards of transactions that begin: the coordinator must know of a partition first (KIP-890).

The first transactional batch of a producer that has no transaction open in a partition is appended
only with a guard. Whoever appends takes the guard, asks the coordinator whether the partition
belongs to the transaction, and appends with it. Data or a marker of the producer that comes between
makes the guard outdated, so a batch that is late begins no transaction that nobody will end.

While the coordinator is asked, the lowest sequence that came is remembered: a batch of a later
sequence is refused until that one is stored (KAFKA-14920).

Where the coordinator is not asked (transaction.partition.verification.enable=false), UNVERIFIED stands
for the guard.
"""

from __future__ import annotations

from typing import Final

_MOST_GUARDS = 10_000


class Guard:
    """The verification of one producer's next transaction; it is compared by identity."""

    __slots__ = ("epoch", "lowest_sequence", "producer_id", "raises_epoch")

    def __init__(
        self, producer_id: int, epoch: int, lowest_sequence: int, *, raises_epoch: bool
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        # The producer's epoch rises with each transaction (transaction.version 2).
        self.raises_epoch = raises_epoch

    def take(self, epoch: int, first_sequence: int, *, raises_epoch: bool) -> None:
        """Takes into account that one more batch waits for the verification."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, first_sequence
            self.raises_epoch = raises_epoch
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, first_sequence)


UNVERIFIED: Final = Guard(-1, -1, -1, raises_epoch=False)
"""Stands for the guard of a batch that may begin a transaction of which no coordinator was asked."""


class Guards:
    """The guards of a partition by producer id. Not thread-safe."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[int, Guard] = {}

    def guard(
        self, producer_id: int, epoch: int, first_sequence: int, *, raises_epoch: bool
    ) -> Guard:
        """Returns the producer's guard, a new one if it has none."""
        guard = self._guards.get(producer_id)
        if guard is None:
            if len(self._guards) >= _MOST_GUARDS:
                # Those of refused transactions remain. One that is dropped too early costs its
                # producer a transaction, and no data.
                del self._guards[next(iter(self._guards))]
            guard = Guard(producer_id, epoch, first_sequence, raises_epoch=raises_epoch)
            self._guards[producer_id] = guard
        else:
            guard.take(epoch, first_sequence, raises_epoch=raises_epoch)
        return guard

    def is_current(self, producer_id: int, guard: Guard | None) -> bool:
        """Returns whether neither data nor a marker has come since the guard was taken."""
        return guard is not None and self._guards.get(producer_id) is guard

    def data_came(self, producer_id: int) -> None:
        """Makes the guard outdated: the transaction is open now."""
        self._guards.pop(producer_id, None)

    def marker_came(self, producer_id: int, epoch: int) -> None:
        """Makes the guard outdated: it was of the transaction that has ended.

        Not if the epoch rises with each transaction, and the guard is of the epoch that the marker
        has begun (KAFKA-18575).
        """
        guard = self._guards.get(producer_id)
        if guard is not None and not (guard.raises_epoch and guard.epoch == epoch):
            del self._guards[producer_id]
