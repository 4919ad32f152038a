"""The contract of a metadata store: keys, revisions, compare-and-set transactions and a watch.

A store maps keys, which are text, to values, which are bytes. Every transaction that changes
something gets the next revision. A key remembers the revision that created it and the one that last
modified it; a key that is deleted and made again is a new key. A transaction names what must be
true and what is then to be done. It happens whole or not at all, and when it has returned, it is
durable. `changes` and `watch` tell every change in the order of revisions and keys, and never a
part of a revision. A store may forget old changes (`CompactedError`); who needs them reads
everything again.

The contract is that of etcd without leases. Leases come with the first store that really ends them.
`memory` and `sqlite` keep the contract; one test holds both to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

KEPT_REVISIONS = 1_000  # whose changes a store remembers, at least


class MetadataError(Exception):
    """The metadata cannot be opened; the text says why in one sentence."""


class CompactedError(Exception):
    """The store has forgotten the changes asked for; read everything instead."""


class KeyValue(NamedTuple):
    """One key as it is: its value, and the revisions that created it and last modified it."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Snapshot(NamedTuple):
    """All keys under a prefix, in order, as they were at one revision."""

    revision: int
    pairs: tuple[KeyValue, ...]


class Change(NamedTuple):
    """One key as a revision left it; a value of None says that the revision deleted it."""

    revision: int
    key: str
    value: bytes | None


class Compare(NamedTuple):
    """Something that must be true of a key. Both revisions of a key that does not exist are 0."""

    key: str
    target: Literal["create", "mod"]
    relation: Literal["<", "=", ">"]
    revision: int

    def holds(self, create_revision: int, mod_revision: int) -> bool:
        """Tell whether it is true of a key with these revisions."""
        actual = create_revision if self.target == "create" else mod_revision
        if self.relation == "=":
            return actual == self.revision
        return actual < self.revision if self.relation == "<" else actual > self.revision


class Put(NamedTuple):
    """Create a key, or replace its value."""

    key: str
    value: bytes


class Delete(NamedTuple):
    """Delete a key; nothing if there is none."""

    key: str


Operation = Put | Delete


def absent(key: str) -> tuple[Compare, ...]:
    """Compare that a key does not exist."""
    return (Compare(key, "mod", "=", 0),)


def unchanged_since(key: str, revision: int) -> tuple[Compare, ...]:
    """Compare that a key exists and is as it was at a revision."""
    return (Compare(key, "mod", ">", 0), Compare(key, "mod", "<", revision + 1))


class KeyValueStore(Protocol):
    """What every metadata store does.

    Everything but open() raises KafkaStorageError when the store cannot keep its promise. After a
    transaction raised it, the outcome is unknown: only another transaction can settle it.
    """

    async def open(self) -> None:
        """Make the store, or find it. Raises MetadataError."""
        ...

    async def close(self) -> None:
        """Finish transactions under way, end the watches, and let go of everything."""
        ...

    async def read(self, prefix: str = "") -> Snapshot:
        """Read all keys that begin with a prefix, at one revision."""
        ...

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        """Do the operations if every comparison is true; return the store's revision after that.

        None says that a comparison is false, and nothing was done. A key may be named by one
        operation only (ValueError). Operations that change nothing take no revision.
        """
        ...

    async def changes(self, after: int) -> list[Change]:
        """Return what changed after a revision, in order. Raises CompactedError."""
        ...

    def watch(self, after: int) -> AsyncIterator[list[Change]]:
        """Yield what changes after a revision, as it happens; each list is of whole revisions.

        Ends when the store is closed. Raises CompactedError.
        """
        ...


def check_operations(operations: Sequence[Operation]) -> None:
    """Raise ValueError where two operations are about one key: their order would be a guess."""
    keys = [operation.key for operation in operations]
    if len(set(keys)) != len(keys):
        raise ValueError("a transaction may name a key once")
