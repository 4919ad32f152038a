"""The embedded metadata store: one SQLite file beside the logs.

A transaction is synced before it returns, so it survives kill -9 and a power loss. One that did not
return is applied whole or not at all. One thread owns the connection. Several stores, also of
several processes on one machine, may have the same file open: the watch of each sees the commits of
the others after `poll_interval_s`, or 16 times that if nobody has committed for a while. It reads
the database only if the commit mark has changed.

Tables: `kv` holds the keys with both revisions, `change` the changes of the last revisions,
`counter` the newest revision and the revision up to which changes are no longer kept. `PRAGMA
user_version` is the layout. A file of an older layout is migrated in one transaction (`migration`);
one of a newer layout is refused.

Write-ahead logging is used only if the SQLite library is known to be free of the WAL-reset bug,
which can lose commits when two connections write. Otherwise the file has a rollback journal.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from broker.metadata import migration
from broker.metadata.commit_mark import CommitMark
from broker.metadata.store import (
    KEPT_REVISIONS,
    Change,
    CompactedError,
    KeyValue,
    MetadataError,
    Put,
    Snapshot,
    check_operations,
)
from broker.metadata.watching import Watches
from protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from broker.metadata.store import Compare, Operation

Result = TypeVar("Result")

_BUSY_TIMEOUT_S = 10.0
_REVISION, _COMPACTED = "revision", "compacted"
# The first release of each branch with the fix of the WAL-reset bug; newer branches all have it.
_WAL_FIXED = {(3, 44): 6, (3, 50): 7, (3, 51): 3}
_FIRST_FIXED_BRANCH = (3, 52)


def wal_is_safe(version: tuple[int, int, int]) -> bool:
    """Returns whether a release of SQLite has the fix of the WAL-reset bug."""
    branch, patch = version[:2], version[2]
    if branch >= _FIRST_FIXED_BRANCH:
        return True
    return branch in _WAL_FIXED and patch >= _WAL_FIXED[branch]


class SqliteStore:
    """A KeyValueStore in a file."""

    def __init__(
        self,
        path: Path,
        *,
        kept_revisions: int = KEPT_REVISIONS,
        poll_interval_s: float | None = 1.0,
    ) -> None:
        """Names the file for `open`. Without an interval, commits of others are not watched."""
        self._path = path
        self._kept_revisions = kept_revisions
        self._poll_interval_s = poll_interval_s
        self._db: sqlite3.Connection | None = None
        self._mark = CommitMark(path)
        self._watches = Watches()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")

    async def open(self) -> None:
        """See `KeyValueStore`."""
        await self._run(self._open)

    async def close(self) -> None:
        """See `KeyValueStore`."""
        self._watches.close()
        await self._run(self._close)
        self._mark.close()
        self._thread.shutdown()

    async def read(self, prefix: str = "") -> Snapshot:
        """See `KeyValueStore`."""
        return await self._run(lambda: self._guarded(lambda db: _read(db, prefix)))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        """See `KeyValueStore`."""
        check_operations(operations)
        loop = asyncio.get_running_loop()
        return await self._run(lambda: self._transact(loop, tuple(compares), tuple(operations)))

    async def changes(self, after: int) -> list[Change]:
        """See `KeyValueStore`."""
        return await self._run(lambda: self._guarded(lambda db: _changes(db, after)))

    def watch(self, after: int) -> AsyncIterator[list[Change]]:
        """See `KeyValueStore`."""
        return self._watches.watch(after, self.changes, self._poll_interval_s, self._mark.read)

    # -- in the thread --------------------------------------------------------------------------

    async def _run(self, work: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError:  # the thread has ended
            raise KafkaStorageError("the metadata store is closed") from None

    def _guarded(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        """Runs work in one transaction. Raises KafkaStorageError."""
        db = self._db
        if db is None:
            raise KafkaStorageError("the metadata store is closed")
        try:
            with db:
                db.execute("BEGIN")
                return work(db)
        except sqlite3.Error as error:
            raise KafkaStorageError(f"the metadata in {self._path} failed: {error}") from error

    def _transact(
        self,
        loop: asyncio.AbstractEventLoop,
        compares: tuple[Compare, ...],
        operations: tuple[Operation, ...],
    ) -> int | None:
        db = self._db
        if db is None:
            raise KafkaStorageError("the metadata store is closed")
        try:
            with db:
                # A transaction that begins with a read could find the file locked when it writes.
                db.execute("BEGIN IMMEDIATE")
                if not all(_holds(db, compare) for compare in compares):
                    return None
                revision = _apply(db, operations, self._kept_revisions)
        except sqlite3.Error as error:
            raise KafkaStorageError(f"the metadata in {self._path} failed: {error}") from error
        loop.call_soon_threadsafe(self._watches.notify)  # also if the caller no longer waits
        return revision

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(
                self._path,
                timeout=_BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
        except (sqlite3.Error, OSError) as error:
            raise MetadataError(f"cannot open the metadata in {self._path}: {error}") from None
        try:
            _prepare(db, self._path)
        except sqlite3.Error as error:
            db.close()
            raise MetadataError(f"cannot read the metadata in {self._path}: {error}") from None
        except BaseException:
            db.close()
            raise
        self._db = db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """Configures the connection, and migrates the file to the newest layout."""
    (layout,) = db.execute("PRAGMA user_version").fetchone()
    if layout > migration.LAYOUT:
        raise MetadataError(
            f"the metadata in {path} was written by a newer tidelog (layout {layout}, "
            f"this one knows {migration.LAYOUT})"
        )
    mode = "WAL" if wal_is_safe(sqlite3.sqlite_version_info) else "TRUNCATE"
    db.execute(f"PRAGMA journal_mode = {mode}")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA mmap_size = 0")
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":  # a topic without its settings might lose records to retention
        raise MetadataError(f"the metadata in {path} is damaged: {' '.join(found.split())}")
    if layout < migration.LAYOUT:
        with db:
            db.execute("BEGIN IMMEDIATE")
            try:
                migration.migrate(db)
            except (TypeError, ValueError) as error:  # a value that is not a number or an id
                raise MetadataError(f"the metadata in {path} is damaged: {error}") from None


def _counter(db: sqlite3.Connection, name: str) -> int:
    (value,) = db.execute("SELECT value FROM counter WHERE name = ?", (name,)).fetchone() or (None,)
    if not isinstance(value, int):
        raise sqlite3.DatabaseError(f"the counter of {name} is missing")
    return value


def _read(db: sqlite3.Connection, prefix: str) -> Snapshot:
    rows = db.execute(
        "SELECT key, value, create_revision, mod_revision FROM kv "
        "WHERE substr(key, 1, ?) = ? ORDER BY key",
        (len(prefix), prefix),
    )
    pairs = tuple(KeyValue(key, bytes(value), *revisions) for key, value, *revisions in rows)
    return Snapshot(_counter(db, _REVISION), pairs)


def _changes(db: sqlite3.Connection, after: int) -> list[Change]:
    compacted = _counter(db, _COMPACTED)
    if after < compacted:
        raise CompactedError(f"changes up to revision {compacted} are forgotten")
    rows = db.execute(
        "SELECT revision, key, value FROM change WHERE revision > ? ORDER BY revision, key",
        (after,),
    )
    return [Change(*row) for row in rows]


def _holds(db: sqlite3.Connection, compare: Compare) -> bool:
    found = db.execute(
        "SELECT create_revision, mod_revision FROM kv WHERE key = ?", (compare.key,)
    ).fetchone()
    return compare.holds(*(found or (0, 0)))


def _apply(db: sqlite3.Connection, operations: Sequence[Operation], kept: int) -> int:
    """Applies the operations as the next revision; returns the newest revision."""
    revision = _counter(db, _REVISION) + 1
    made: list[Change] = []
    for each in operations:
        if isinstance(each, Put):
            db.execute(
                "INSERT INTO kv VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE "
                "SET value = excluded.value, mod_revision = excluded.mod_revision",
                (each.key, each.value, revision, revision),
            )
            made.append(Change(revision, each.key, each.value))
        elif db.execute("DELETE FROM kv WHERE key = ?", (each.key,)).rowcount:
            made.append(Change(revision, each.key, None))
    if not made:
        return revision - 1
    db.executemany("INSERT INTO change VALUES (?, ?, ?)", made)
    compacted = max(_counter(db, _COMPACTED), revision - kept)
    db.execute("DELETE FROM change WHERE revision <= ?", (compacted,))
    db.executemany(
        "UPDATE counter SET value = ? WHERE name = ?",
        [(revision, _REVISION), (compacted, _COMPACTED)],
    )
    return revision
