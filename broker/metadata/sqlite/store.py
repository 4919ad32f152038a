"""The embedded metadata store: one SQLite file beside the logs.

A transaction is synced before it returns, so it survives kill -9 and a power loss. One that did not
return is applied whole or not at all. One thread owns the connection. Several stores, also of
several processes on one machine, may have the same file open: the watch of each sees the commits of
the others after `poll_interval_s`, or 16 times that if nobody has committed for a while. It reads
the database only if the commit mark has changed.

Leases end by one clock that all these processes share (`lease_clock`). A call that finds that a lease
is over ends it, in a transaction that holds the write lock, before its own work. A lease of
an earlier boot is over, because its holder ended with that boot. A store without `peers` makes the
clock when there is a lease.

`PRAGMA user_version` is the layout of the tables (`tables`). A file of an older layout is
migrated in one transaction (`migration`); one of a newer layout is refused.

Write-ahead logging is used only if the SQLite library is known to be free of the WAL-reset bug,
which can lose commits when two connections write. Otherwise the file has a rollback journal.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tidelog.broker.metadata.sqlite import migration, tables
from tidelog.broker.metadata.sqlite.commit_mark import CommitMark
from tidelog.broker.metadata.sqlite.lease_clock import machine_lease_clock
from tidelog.broker.metadata.store import (
    KEPT_REVISIONS,
    CompactedError,
    LeaseEndedError,
    MetadataError,
    check_span,
    check_transaction,
)
from tidelog.broker.metadata.watching import Watches
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage import permissions, reserves

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from tidelog.broker.metadata.liveness.peers import Peers
    from tidelog.broker.metadata.sqlite.lease_clock import LeaseClock
    from tidelog.broker.metadata.store import Change, Compare, Operation, Snapshot

    Work = Callable[[sqlite3.Connection], "Result"]

Result = TypeVar("Result")

log = logging.getLogger("tidelog.metadata")


class _Refusal(NamedTuple):
    """Why a call has changed nothing. The leases that ended before it stay ended."""

    error: CompactedError | LeaseEndedError


_BUSY_TIMEOUT_S = 10.0
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
        clock: LeaseClock | None = None,
        peers: Peers | None = None,
        blocked_after_s: float | None = None,
    ) -> None:
        """Names the file for `open`. Without an interval, commits of others are not watched.

        All stores of a file have the same clock; by default it is the machine's. With `peers` the watches
        of the other stores see a commit at once, and this store theirs. If a write waits for longer than
        `blocked_after_s`, the log names the process that blocks it.
        """
        self._path = path
        self._kept_revisions = kept_revisions
        self._poll_interval_s = poll_interval_s
        self._clock = clock
        self._peers = peers
        self._patience_s = blocked_after_s
        self._logged_blocker = ""  # the process that blocks writes, until one succeeds
        self._db: sqlite3.Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # on which the watches are
        self._notified_revision = (
            0  # the newest revision of this store of which watches and peers know
        )
        self._mark = CommitMark(path)
        self._watches = Watches()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")

    async def open(self) -> None:
        """See `KeyValueStore`."""
        self._loop = asyncio.get_running_loop()
        await self._run(self._open)
        if self._peers is not None:
            try:
                await self._peers.open(self._watches.notify)
            except BaseException:
                await self.close()
                raise

    async def close(self) -> None:
        """See `KeyValueStore`."""
        self._watches.close()
        if self._peers is not None:
            await self._peers.close()
        await self._run(self._close)
        self._mark.close()
        self._thread.shutdown()

    async def read(self, prefix: str = "") -> Snapshot:
        """See `KeyValueStore`."""
        return await self._call(lambda db: tables.read(db, prefix))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        """See `KeyValueStore`."""
        check_transaction(compares, operations)
        conditions, changes, kept = tuple(compares), tuple(operations), self._kept_revisions
        return await self._call(
            lambda db: tables.transact(db, conditions, changes, kept), writes=True
        )

    async def changes(self, after: int) -> list[Change]:
        """See `KeyValueStore`."""
        return await self._call(lambda db: tables.changes(db, after))

    def watch(self, after: int) -> AsyncIterator[list[Change]]:
        """See `KeyValueStore`."""
        return self._watches.watch(after, self.changes, self._poll_interval_s, self._mark.read)

    async def check_complete(self) -> None:
        """See `KeyValueStore`. Watches lose nothing."""

    async def grant(self, ttl_ms: int) -> int:
        """See `KeyValueStore`."""
        check_span(ttl_ms)
        return await self._call(
            lambda db: tables.grant(db, ttl_ms, self._lease_clock()), writes=True
        )

    async def keep_alive(self, lease: int) -> bool:
        """See `KeyValueStore`."""
        return await self._call(
            lambda db: tables.keep_alive(db, lease, self._lease_clock()), writes=True
        )

    async def why_no_writes(self) -> str | None:
        """See `KeyValueStore`. Returns None: only a write would find out."""
        return None

    async def revoke(self, lease: int) -> None:
        """See `KeyValueStore`."""
        await self._call(lambda db: tables.end_lease(db, lease, self._kept_revisions), writes=True)

    async def _call(self, work: Work[Result], *, writes: bool = False) -> Result:
        """Runs work in the thread, in a transaction. Raises KafkaStorageError.

        May be called on another event loop than the broker's: the session is renewed on one of its own.
        """
        run = self._run(lambda: self._in_transaction(work, writes=writes))
        if not writes or self._patience_s is None:
            return await run
        timer = asyncio.get_running_loop().call_later(self._patience_s, self._log_blocker)
        try:
            result = await run
        finally:
            timer.cancel()
        self._logged_blocker = ""
        return result

    def _log_blocker(self) -> None:
        """Logs the process that blocks a write; once, until a write succeeds again."""
        why = self._describe_blocker()
        if why != self._logged_blocker:
            self._logged_blocker = why
            log.error("metadata write blocked", extra={"reason": why})

    def _describe_blocker(self) -> str:
        # Loaded here, because a broker that is alone seldom needs it.
        from tidelog.broker.metadata.liveness.lock_holders import describe_blocker

        return describe_blocker(self._path) or "no other process holds the lock of the metadata"

    # -- in the thread --------------------------------------------------------------------------

    async def _run(self, work: Callable[[], Result]) -> Result:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError:  # the thread has ended
            raise KafkaStorageError("the metadata store is closed") from None

    def _in_transaction(
        self,
        work: Work[Result],
        *,
        writes: bool,
    ) -> Result:
        """Ends the leases that are over, and does the work, in one transaction.

        On a full disk, deletes the reserve files of the log directories and tries again.
        """
        db = self._db
        if db is None:
            raise KafkaStorageError("the metadata store is closed")
        try:
            try:
                result, newest = self._attempt(db, work, writes=writes)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL or not reserves.give_up(
                    self._path
                ):
                    raise
                result, newest = self._attempt(db, work, writes=writes)
        except sqlite3.Error as error:
            why = f"{error}: {self._describe_blocker()}" if _is_busy(error) else str(error)
            raise KafkaStorageError(f"the metadata in {self._path} failed: {why}") from error
        if (
            newest > self._notified_revision and self._loop is not None
        ):  # a lease that is kept alive changes no key
            self._notified_revision = (
                newest  # the watches are woken also if the caller no longer waits
            )
            self._loop.call_soon_threadsafe(self._notify)
        if isinstance(result, _Refusal):
            raise result.error
        return result

    def _attempt(
        self, db: sqlite3.Connection, work: Work[Result], *, writes: bool
    ) -> tuple[Result | _Refusal, int]:
        """Does the work; returns its result and the newest revision, 0 if nothing has changed.

        Raises sqlite3.Error, and then nothing has changed.
        """
        if not writes:
            with db:
                db.execute("BEGIN")
                if not self._is_any_lease_due(db):
                    return work(db), 0
        with db:
            # A transaction that begins with a read could find the file locked when it writes.
            db.execute("BEGIN IMMEDIATE")
            before = db.total_changes
            if tables.has_leases(db):
                tables.end_due_leases(db, self._lease_clock(), self._kept_revisions)
            result = _outcome(work, db)
            return result, tables.revision(db) if db.total_changes > before else 0

    def _is_any_lease_due(self, db: sqlite3.Connection) -> bool:
        return tables.has_leases(db) and tables.is_any_lease_due(db, self._lease_clock())

    def _lease_clock(self) -> LeaseClock:
        """Returns the clock, which only leases need. Raises KafkaStorageError if there is none."""
        if self._clock is None:
            try:
                self._clock = machine_lease_clock()
            except MetadataError as error:
                raise KafkaStorageError(str(error)) from None
        return self._clock

    def _notify(self) -> None:
        self._watches.notify()
        if self._peers is not None:
            self._peers.notify_commit()

    def _open(self) -> None:
        if self._peers is not None and self._clock is None:
            self._clock = machine_lease_clock()  # a broker that shares the file has a lease
        try:
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
            _keep_to_owner(self._path)
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


def _keep_to_owner(path: Path) -> None:
    """Denies other users access to the file: their reads would block writes. SQLite copies the mode."""
    permissions.keep_to_owner(path)
    for suffix in ("-journal", "-wal", "-shm"):
        permissions.close_to_others(path.with_name(path.name + suffix))


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY


def _outcome(work: Work[Result], db: sqlite3.Connection) -> Result | _Refusal:
    """Does the work. A refusal is returned, so that the transaction is committed all the same."""
    try:
        return work(db)
    except (CompactedError, LeaseEndedError) as error:
        return _Refusal(error)


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
