"""A metadata store in memory, for tests and simulations: it keeps the contract, without durability.

`MemoryState` is the contract as plain calls that take effect at once, so the order of a
simulation's calls is the order of their effects. `MemoryStore` is a `KeyValueStore` around one.
The time is the caller's `now_ms`; without it no time passes and no lease ends by itself.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.store import (
    KEPT_REVISIONS,
    NO_LEASE,
    Change,
    CompactedError,
    Delete,
    KeyValue,
    LeaseEndedError,
    Put,
    Snapshot,
    check_span,
    check_transaction,
)
from tidelog.broker.metadata.watching import Watches
from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tidelog.broker.metadata.store import Compare, Operation


class _Lease(NamedTuple):
    ttl_ms: int
    deadline_ms: int


def _standing_still() -> int:
    return 0


class MemoryState:
    """Keys, leases and changes. See `KeyValueStore` for what each call promises."""

    def __init__(
        self,
        *,
        kept_revisions: int = KEPT_REVISIONS,
        now_ms: Callable[[], int] = _standing_still,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`now_ms` never goes back; `on_change` is called after each revision."""
        self.revision = 0
        self._kept_revisions = kept_revisions
        self._now_ms = now_ms
        self._on_change = on_change
        self._pairs: dict[str, KeyValue] = {}
        self._changes: list[Change] = []
        self._compacted = 0  # changes up to this revision are no longer kept
        self._leases: dict[int, _Lease] = {}
        self._last_lease = NO_LEASE

    def read(self, prefix: str = "") -> Snapshot:
        """See `KeyValueStore`."""
        self.end_leases()
        pairs = (pair for key, pair in sorted(self._pairs.items()) if key.startswith(prefix))
        return Snapshot(self.revision, tuple(pairs))

    def transact(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        """See `KeyValueStore`."""
        check_transaction(compares, operations)
        self.end_leases()
        if not all(self._holds(compare) for compare in compares):
            return None
        for each in operations:
            if isinstance(each, Put) and each.lease != NO_LEASE and each.lease not in self._leases:
                raise LeaseEndedError(f"lease {each.lease} has ended")
        self._apply(operations)
        return self.revision

    def changes(self, after: int) -> list[Change]:
        """See `KeyValueStore`."""
        self.end_leases()
        if after < self._compacted:
            raise CompactedError(f"changes up to revision {self._compacted} are forgotten")
        return [change for change in self._changes if change.revision > after]

    def grant(self, ttl_ms: int) -> int:
        """See `KeyValueStore`."""
        check_span(ttl_ms)
        self.end_leases()
        self._last_lease += 1
        self._leases[self._last_lease] = _Lease(ttl_ms, self._now_ms() + ttl_ms)
        return self._last_lease

    def keep_alive(self, lease: int) -> bool:
        """See `KeyValueStore`."""
        self.end_leases()
        held = self._leases.get(lease)
        if held is None:
            return False
        self._leases[lease] = _Lease(held.ttl_ms, self._now_ms() + held.ttl_ms)
        return True

    def revoke(self, lease: int) -> None:
        """See `KeyValueStore`."""
        self.end_leases()
        self._end(lease)

    def end_leases(self) -> None:
        """Ends the leases whose time is over, in the order of their deadlines."""
        now_ms = self._now_ms()
        due = [
            (held.deadline_ms, lease)
            for lease, held in self._leases.items()
            if held.deadline_ms <= now_ms
        ]
        for _, lease in sorted(due):
            self._end(lease)

    def next_deadline_ms(self) -> int | None:
        """Returns when the first lease ends unless it is prolonged; None without leases."""
        return min((held.deadline_ms for held in self._leases.values()), default=None)

    def _end(self, lease: int) -> None:
        if self._leases.pop(lease, None) is not None:
            self._apply([Delete(key) for key, pair in self._pairs.items() if pair.lease == lease])

    def _holds(self, compare: Compare) -> bool:
        pair = self._pairs.get(compare.key)
        if pair is None:
            return compare.holds(0, 0)
        return compare.holds(pair.create_revision, pair.mod_revision)

    def _apply(self, operations: Sequence[Operation]) -> None:
        """Applies the operations as the next revision, if they change anything."""
        revision = self.revision + 1
        made: list[Change] = []
        for each in sorted(operations, key=attrgetter("key")):
            before = self._pairs.pop(each.key, None)
            if isinstance(each, Put):
                created = revision if before is None else before.create_revision
                pair = KeyValue(each.key, each.value, created, revision, each.lease)
                self._pairs[each.key] = pair
                made.append(Change(revision, each.key, each.value))
            elif before is not None:
                made.append(Change(revision, each.key, None))
        if not made:
            return
        self.revision = revision
        self._changes += made
        self._compacted = max(self._compacted, revision - self._kept_revisions)
        self._changes = [each for each in self._changes if each.revision > self._compacted]
        self._on_change()


class MemoryStore:
    """A KeyValueStore in this process. Its calls never suspend, but for the watch."""

    def __init__(
        self,
        *,
        kept_revisions: int = KEPT_REVISIONS,
        now_ms: Callable[[], int] = _standing_still,
    ) -> None:
        """`now_ms` is the time by which leases end, in milliseconds since any start."""
        self._watches = Watches()
        self._state = MemoryState(
            kept_revisions=kept_revisions, now_ms=now_ms, on_change=self._watches.notify
        )
        self._is_open = False

    @property
    def state(self) -> MemoryState:
        """The keys and leases. Raises KafkaStorageError if the store is closed."""
        if not self._is_open:
            raise KafkaStorageError("the metadata store is closed")
        return self._state

    async def open(self) -> None:
        """See `KeyValueStore`."""
        self._is_open = True

    async def close(self) -> None:
        """See `KeyValueStore`."""
        self._is_open = False
        self._watches.close()

    async def read(self, prefix: str = "") -> Snapshot:
        """See `KeyValueStore`."""
        return self.state.read(prefix)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        """See `KeyValueStore`."""
        return self.state.transact(compares, operations)

    async def changes(self, after: int) -> list[Change]:
        """See `KeyValueStore`."""
        return self.state.changes(after)

    def watch(self, after: int) -> AsyncIterator[list[Change]]:
        """See `KeyValueStore`."""
        return self._watches.watch(after, self.changes)

    async def check_complete(self) -> None:
        """See `KeyValueStore`. Watches lose nothing."""

    async def grant(self, ttl_ms: int) -> int:
        """See `KeyValueStore`."""
        return self.state.grant(ttl_ms)

    async def keep_alive(self, lease: int) -> bool:
        """See `KeyValueStore`."""
        return self.state.keep_alive(lease)

    async def why_no_writes(self) -> str | None:
        """See `KeyValueStore`. Returns None: only a write would find out."""
        return None

    async def revoke(self, lease: int) -> None:
        """See `KeyValueStore`."""
        self.state.revoke(lease)
