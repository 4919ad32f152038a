"""The contract of a metadata store: keys, revisions, compare-and-set transactions and a watch.

A store maps keys, which are text, to values, which are bytes. Every transaction that changes
something gets the next revision. A key has the revision that created it and the one that last
modified it; a key that is deleted and created again is a new key. A transaction has comparisons and
operations. It is applied whole if every comparison is true, else not at all, and it is durable when
it returns. `changes` and `watch` return every change in the order of revisions and keys, and never
a part of a revision. A store may drop old changes (`CompactedError`); a reader that needs them
reads everything again.

A lease is a span of time that its holder prolongs. A key may belong to a lease. When a lease ends,
because it was revoked or not prolonged in time, its keys are deleted in one revision, as watches
see. Each call first ends the leases whose time is over. So a lease ends at the first call, of
anybody, at or after its deadline, and never before. A lease proves nothing: it may have ended while
its holder was paused. A write on behalf of a holder compares the revision of the holder's key in the same
transaction.

The contract is that of etcd (its API reference; a lease ends there up to some seconds after its
deadline, and revisions have gaps, because others may use the same etcd). `memory`, `sqlite` and
`etcd` keep it; one test checks all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from tidelog.protocol.errors import ErrorCode, KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

MOST_OPERATIONS = 120
"""The most operations of one transaction; etcd accepts 128."""
MOST_COMPARISONS = 128
"""The most comparisons of one transaction, as in etcd: some for all operations, and one for each."""
KEPT_REVISIONS = 1_000  # the least number of revisions whose changes a store keeps
NO_LEASE = 0


class MetadataError(Exception):
    """The metadata cannot be opened; the text is the reason, as one sentence."""


class CompactedError(Exception):
    """The store no longer has the requested changes; read everything instead."""


class WentBackError(KafkaStorageError, code=ErrorCode.KAFKA_STORAGE_ERROR):
    """The store has an older revision than it had, as after a restore of an older snapshot.

    Keys that were read before must not be mixed with those of the older revision. So the store refuses
    every call until it is opened again, except to keep leases alive.
    """

    def __init__(self, revision: int, known: int) -> None:
        """`revision` is that of the store, `known` the largest one that was read from it."""
        self.revisions = (revision, known)
        super().__init__(
            f"the metadata store has gone back from revision {known} to {revision}, as when an older "
            "snapshot is restored, or all is deleted: stop every broker, then start them again"
        )


class LeaseEndedError(Exception):
    """A transaction puts a key under a lease that has ended; nothing is changed."""


class KeyValue(NamedTuple):
    """One key: its value, the revisions that created it and last modified it, and its lease."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = NO_LEASE


class Snapshot(NamedTuple):
    """All keys with a prefix, in order, at one revision."""

    revision: int
    pairs: tuple[KeyValue, ...]


class Change(NamedTuple):
    """One key after a revision; a value of None means that the revision deleted it."""

    revision: int
    key: str
    value: bytes | None


class Compare(NamedTuple):
    """A condition on a key. Both revisions of a key that does not exist are 0."""

    key: str
    target: Literal["create", "mod"]
    relation: Literal["<", "=", ">"]
    revision: int

    def holds(self, create_revision: int, mod_revision: int) -> bool:
        """Returns whether the condition is true for a key with these revisions."""
        actual = create_revision if self.target == "create" else mod_revision
        if self.relation == "=":
            return actual == self.revision
        return actual < self.revision if self.relation == "<" else actual > self.revision


class Put(NamedTuple):
    """Create a key, or replace its value; from then on it belongs to this lease, or to none."""

    key: str
    value: bytes
    lease: int = NO_LEASE


class Delete(NamedTuple):
    """Delete a key; no effect if there is none."""

    key: str


Operation = Put | Delete


def absent(key: str) -> tuple[Compare, ...]:
    """Returns the condition that a key does not exist."""
    return (Compare(key, "mod", "=", 0),)


def unchanged_since(key: str, revision: int) -> tuple[Compare, ...]:
    """Returns the conditions that a key exists and has not changed since a revision."""
    return (Compare(key, "mod", ">", 0), Compare(key, "mod", "<", revision + 1))


class KeyValueStore(Protocol):
    """The contract of every metadata store.

    Every method but open() raises KafkaStorageError if the store cannot do its work, and its subclass
    WentBackError if the store has gone back; `keep_alive`, `revoke` and `close` do not. If a
    transaction raises it, the outcome is unknown, until another transaction reads the keys.
    """

    async def open(self) -> None:
        """Opens the store, or creates it. Raises MetadataError."""
        ...

    async def close(self) -> None:
        """Finishes the transactions in progress, ends the watches, and closes the store."""
        ...

    async def read(self, prefix: str = "") -> Snapshot:
        """Reads all keys that begin with a prefix, at one revision."""
        ...

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        """Applies the operations if every comparison is true.

        Returns the store's revision after that.

        Returns None if a comparison is false; then nothing is changed. Two operations on one key
        are a ValueError, and so are more operations than MOST_OPERATIONS, or more comparisons than
        MOST_COMPARISONS.
        Operations that change nothing take no revision. Raises LeaseEndedError if every comparison
        is true and an operation names a lease that has ended.
        """
        ...

    async def check_complete(self) -> None:
        """Checks, before another session begins, that the watch has returned every change until now.

        A leader keeps its followers' state in its next session, so no change of it may be lost. The check may
        last longer than a lease. Raises KafkaStorageError.
        """
        ...

    async def grant(self, ttl_ms: int) -> int:
        """Grants a lease, and returns its id, which is above 0 and never used again.

        The lease ends `ttl_ms` after this call and after each `keep_alive`, or later. A span that is
        not above 0 is a ValueError.
        """
        ...

    async def keep_alive(self, lease: int) -> bool:
        """Renews a lease for its whole span; returns False if it has ended."""
        ...

    async def why_no_writes(self) -> str | None:
        """Returns why the store refuses writes though it answers, as a sentence; None if it accepts them.

        Leases may be renewed meanwhile.
        """
        ...

    async def revoke(self, lease: int) -> None:
        """Ends a lease and deletes its keys in one revision; no effect if it has ended."""
        ...

    async def changes(self, after: int) -> list[Change]:
        """Returns the changes after a revision, in order. Raises CompactedError."""
        ...

    def watch(self, after: int) -> AsyncIterator[list[Change]]:
        """Yields the changes after a revision, as they happen; each list has whole revisions.

        Ends when the store is closed. Raises CompactedError.
        """
        ...


def check_span(ttl_ms: int) -> None:
    """Raises ValueError if a lease cannot have this span."""
    if ttl_ms <= 0:
        raise ValueError(f"a lease of {ttl_ms} ms has no time")


def check_transaction(compares: Sequence[Compare], operations: Sequence[Operation]) -> None:
    """Raises ValueError for a transaction that every store refuses.

    That is one that is too large, or has two operations on one key, whose order would be undefined.
    """
    if len(compares) > MOST_COMPARISONS or len(operations) > MOST_OPERATIONS:
        raise ValueError(
            f"a transaction of {len(compares)} comparisons and {len(operations)} operations: a store "
            f"takes at most {MOST_COMPARISONS} and {MOST_OPERATIONS}"
        )
    keys = [operation.key for operation in operations]
    if len(set(keys)) != len(keys):
        raise ValueError("a transaction may name a key once")
