"""A metadata store in memory, for tests and simulations: it keeps the contract, without durability.

Every call takes effect at once, so the order of a simulation's calls is the order of their effects.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from broker.metadata.store import (
    KEPT_REVISIONS,
    Change,
    CompactedError,
    Delete,
    KeyValue,
    Snapshot,
    check_operations,
)
from broker.metadata.watching import Watches
from protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from broker.metadata.store import Compare, Operation


class MemoryStore:
    """A KeyValueStore in this process."""

    def __init__(self, *, kept_revisions: int = KEPT_REVISIONS) -> None:
        self._kept_revisions = kept_revisions
        self._pairs: dict[str, KeyValue] = {}
        self._changes: list[Change] = []
        self._revision = 0
        self._compacted = 0  # changes up to this revision are no longer kept
        self._watches = Watches()
        self._is_open = False

    async def open(self) -> None:
        """See `KeyValueStore`."""
        self._is_open = True

    async def close(self) -> None:
        """See `KeyValueStore`."""
        self._is_open = False
        self._watches.close()

    async def read(self, prefix: str = "") -> Snapshot:
        """See `KeyValueStore`."""
        self._check_open()
        pairs = (pair for key, pair in sorted(self._pairs.items()) if key.startswith(prefix))
        return Snapshot(self._revision, tuple(pairs))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        """See `KeyValueStore`."""
        self._check_open()
        check_operations(operations)
        if not all(self._holds(compare) for compare in compares):
            return None
        revision = self._revision + 1
        made = [
            Change(revision, each.key, None if isinstance(each, Delete) else each.value)
            for each in sorted(operations, key=attrgetter("key"))
            if not isinstance(each, Delete) or each.key in self._pairs
        ]
        if made:
            self._apply(revision, made)
        return self._revision

    async def changes(self, after: int) -> list[Change]:
        """See `KeyValueStore`."""
        self._check_open()
        if after < self._compacted:
            raise CompactedError(f"changes up to revision {self._compacted} are forgotten")
        return [change for change in self._changes if change.revision > after]

    def watch(self, after: int) -> AsyncIterator[list[Change]]:
        """See `KeyValueStore`."""
        return self._watches.watch(after, self.changes)

    def _check_open(self) -> None:
        if not self._is_open:
            raise KafkaStorageError("the metadata store is closed")

    def _holds(self, compare: Compare) -> bool:
        pair = self._pairs.get(compare.key)
        return compare.holds(0, 0) if pair is None else compare.holds(*pair[2:])

    def _apply(self, revision: int, made: list[Change]) -> None:
        for _, key, value in made:
            if value is None:
                del self._pairs[key]
            else:
                before = self._pairs.get(key)
                created = revision if before is None else before.create_revision
                self._pairs[key] = KeyValue(key, value, created, revision)
        self._revision = revision
        self._changes += made
        self._compacted = max(self._compacted, revision - self._kept_revisions)
        self._changes = [each for each in self._changes if each.revision > self._compacted]
        self._watches.notify()
