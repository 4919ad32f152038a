"""The tables of the metadata file, and each call of the contract as one SQLite transaction.

`kv` holds the keys with both revisions and their lease, `change` the changes of the last revisions,
`lease` the leases that have not ended, and `counter` the newest revision, the revision up to which
changes are no longer kept, and the newest lease. Every function works in the transaction of its
caller. A missing counter raises sqlite3.DatabaseError.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from tidelog.broker.metadata.store import (
    NO_LEASE,
    Change,
    CompactedError,
    Delete,
    KeyValue,
    LeaseEndedError,
    Put,
    Snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.metadata.sqlite.lease_clock import LeaseClock
    from tidelog.broker.metadata.store import Compare, Operation

_REVISION, _COMPACTED, _LEASE = "revision", "compacted", "lease"
# A lease is over at its deadline, or if its deadline is of another boot: where the system does not
# name its boots, that is seen only when the deadline is further away than the lease is long.
_DUE = "FROM lease WHERE deadline_ms <= :now OR clock <> :clock OR deadline_ms - ttl_ms > :now"


def revision(db: sqlite3.Connection) -> int:
    """Returns the newest revision."""
    return _counter(db, _REVISION)


def read(db: sqlite3.Connection, prefix: str) -> Snapshot:
    """Returns all keys that begin with a prefix."""
    rows = db.execute(
        "SELECT key, value, create_revision, mod_revision, lease FROM kv "
        "WHERE substr(key, 1, ?) = ? ORDER BY key",
        (len(prefix), prefix),
    )
    pairs = tuple(KeyValue(key, bytes(value), *numbers) for key, value, *numbers in rows)
    return Snapshot(revision(db), pairs)


def changes(db: sqlite3.Connection, after: int) -> list[Change]:
    """Returns the changes after a revision, in order. Raises CompactedError."""
    compacted = _counter(db, _COMPACTED)
    if after < compacted:
        raise CompactedError(f"changes up to revision {compacted} are forgotten")
    rows = db.execute(
        "SELECT revision, key, value FROM change WHERE revision > ? ORDER BY revision, key",
        (after,),
    )
    return [Change(*row) for row in rows]


def transact(
    db: sqlite3.Connection, compares: Sequence[Compare], operations: Sequence[Operation], kept: int
) -> int | None:
    """Applies the operations if every comparison is true; see `KeyValueStore.transact`."""
    if not all(_holds(db, compare) for compare in compares):
        return None
    for each in operations:
        if isinstance(each, Put) and each.lease != NO_LEASE and not _is_lease(db, each.lease):
            raise LeaseEndedError(f"lease {each.lease} has ended")
    return _apply(db, operations, kept)


def grant(db: sqlite3.Connection, ttl_ms: int, clock: LeaseClock) -> int:
    """Grants a lease and returns its id."""
    lease = _counter(db, _LEASE) + 1
    _set_counters(db, {_LEASE: lease})
    row = (lease, ttl_ms, clock.now_ms() + ttl_ms, clock.name)
    db.execute("INSERT INTO lease VALUES (?, ?, ?, ?)", row)
    return lease


def keep_alive(db: sqlite3.Connection, lease: int, clock: LeaseClock) -> bool:
    """Renews a lease; returns False if it has ended."""
    update = "UPDATE lease SET deadline_ms = ? + ttl_ms, clock = ? WHERE id = ?"
    return db.execute(update, (clock.now_ms(), clock.name, lease)).rowcount > 0


def has_leases(db: sqlite3.Connection) -> bool:
    """Returns whether a lease has not ended yet."""
    return db.execute("SELECT 1 FROM lease LIMIT 1").fetchone() is not None


def is_any_lease_due(db: sqlite3.Connection, clock: LeaseClock) -> bool:
    """Returns whether a lease is over that nobody has ended yet."""
    return db.execute(f"SELECT 1 {_DUE} LIMIT 1", _time(clock)).fetchone() is not None


def end_due_leases(db: sqlite3.Connection, clock: LeaseClock, kept: int) -> None:
    """Ends the leases that are over, in the order of their deadlines."""
    rows = db.execute(f"SELECT id {_DUE} ORDER BY deadline_ms, id", _time(clock))
    for (lease,) in rows.fetchall():
        end_lease(db, lease, kept)


def end_lease(db: sqlite3.Connection, lease: int, kept: int) -> None:
    """Ends a lease and deletes its keys as one revision; no effect if it has ended."""
    if db.execute("DELETE FROM lease WHERE id = ?", (lease,)).rowcount:
        keys = db.execute("SELECT key FROM kv WHERE lease = ?", (lease,)).fetchall()
        _apply(db, [Delete(key) for (key,) in keys], kept)


def _apply(db: sqlite3.Connection, operations: Sequence[Operation], kept: int) -> int:
    """Applies the operations as the next revision; returns the newest revision."""
    number = revision(db) + 1
    made: list[Change] = []
    for each in operations:
        if isinstance(each, Put):
            db.execute(
                "INSERT INTO kv VALUES (?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
                "value = excluded.value, mod_revision = excluded.mod_revision, "
                "lease = excluded.lease",
                (each.key, each.value, number, number, each.lease),
            )
            made.append(Change(number, each.key, each.value))
        elif db.execute("DELETE FROM kv WHERE key = ?", (each.key,)).rowcount:
            made.append(Change(number, each.key, None))
    if not made:
        return number - 1
    db.executemany("INSERT INTO change VALUES (?, ?, ?)", made)
    compacted = max(_counter(db, _COMPACTED), number - kept)
    db.execute("DELETE FROM change WHERE revision <= ?", (compacted,))
    _set_counters(db, {_REVISION: number, _COMPACTED: compacted})
    return number


def _holds(db: sqlite3.Connection, compare: Compare) -> bool:
    found = db.execute(
        "SELECT create_revision, mod_revision FROM kv WHERE key = ?", (compare.key,)
    ).fetchone()
    return compare.holds(*(found or (0, 0)))


def _is_lease(db: sqlite3.Connection, lease: int) -> bool:
    return db.execute("SELECT 1 FROM lease WHERE id = ?", (lease,)).fetchone() is not None


def _time(clock: LeaseClock) -> dict[str, int | str]:
    return {"now": clock.now_ms(), "clock": clock.name}


def _counter(db: sqlite3.Connection, name: str) -> int:
    (value,) = db.execute("SELECT value FROM counter WHERE name = ?", (name,)).fetchone() or (None,)
    if not isinstance(value, int):
        raise sqlite3.DatabaseError(f"the counter of {name} is missing")
    return value


def _set_counters(db: sqlite3.Connection, values: dict[str, int]) -> None:
    db.executemany(
        "UPDATE counter SET value = ? WHERE name = ?",
        [(value, name) for name, value in values.items()],
    )
