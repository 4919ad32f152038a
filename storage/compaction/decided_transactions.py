"""Decides which transactional batches a cleaning drops: aborted data, and markers without data.

It follows a pass over batches in the order of the log, with the aborted transactions that the
`.txnindex` files name. Consumers of committed records never see aborted data, so it is dropped. A
marker is dropped after its delete horizon once no data of its transaction is left; until then the
index of the cleaned segment names the transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.records import survivors

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.segment.transaction_index import Aborted


class Transactions:
    """The transactions met on a pass over a log, from its first offset on."""

    def __init__(self, aborted: Iterable[Aborted], from_offset: int) -> None:
        """Of `aborted`, those that end at `from_offset` or later count."""
        wanted = [each for each in aborted if each.last_offset >= from_offset]
        self._coming = sorted(wanted, key=lambda each: -each.first_offset)
        self._aborted: dict[int, Aborted] = {}  # that have begun, by producer id
        self._has_data: set[int] = set()  # producer ids with aborted batches so far
        self._committed: set[int] = set()  # producer ids with other transactional batches so far
        self.still_named: list[Aborted] = []  # transactions with data; see `take_named`

    def is_aborted(self, batch: Batch) -> bool:
        """Returns whether a data batch belongs to an aborted transaction."""
        self._reach(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._has_data.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def is_marker_idle(self, buffer: Buffer, batch: Batch) -> bool:
        """Returns whether no remaining batch depends on a control batch."""
        self._reach(batch.last_offset)
        kind, producer_id = survivors.marker_of(buffer, batch), batch.producer_id
        if kind == survivors.ABORT:
            transaction = self._aborted.pop(producer_id, None)
            if transaction is None or producer_id not in self._has_data:
                return True
            self._has_data.discard(producer_id)
            self.still_named.append(transaction)
            return False
        if kind == survivors.COMMIT:
            was_there = producer_id in self._committed
            self._committed.discard(producer_id)
            return not was_there
        return False

    def take_named(self) -> list[Aborted]:
        """Returns the aborted transactions with data whose markers were met since the last call."""
        named, self.still_named = self.still_named, []
        return named

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            transaction = self._coming.pop()
            self._aborted.setdefault(transaction.producer_id, transaction)
