"""The stores under test: in this process, and with several clients."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from unittest import mock

from tests.broker.metadata.contract.calls import Follower, perform
from tidelog.broker.metadata.memory import MemoryStore
from tidelog.broker.metadata.sqlite import store as sqlite_store
from tidelog.broker.metadata.sqlite.lease_clock import LeaseClock
from tidelog.broker.metadata.sqlite.store import SqliteStore

KEPT = 8
POLL_S = 0.001


class InProcess:
    """Stores that this process has opened; each is one client."""

    has_processes = has_troubles = False
    has_service = False  # a server, which may be slow on a busy machine
    barriers = ()  # what became of revisions that stores make for themselves

    def __init__(self, stores):
        self.stores = stores
        self._followers = {}
        self.now_ms = 0

    @property
    def clients(self):
        return range(len(self.stores))

    async def open(self):
        for store in dict.fromkeys(self.stores):
            await store.open()

    async def close(self):
        for follower in self._followers.values():
            await follower.stop()
        for store in dict.fromkeys(self.stores):
            await store.close()

    async def set_time(self, now_ms):
        self.now_ms = now_ms

    async def call(self, client, call):
        return await perform(self.stores[client], call)

    async def follow(self, client, after):
        with contextlib.suppress(KeyError):
            await self._followers.pop(client).stop()
        self._followers[client] = Follower(self.stores[client], after)

    async def told(self, client):
        return self._followers[client].told() if client in self._followers else None

    async def stored_revision(self):
        """The newest revision, read without a call: no lease ends by that."""
        return self.stores[0].state.revision

    async def let_watches_run(self):
        await asyncio.sleep(0)


class Memory(InProcess):
    """One store in memory, which all clients share."""

    def __init__(self, _, seed):
        store = MemoryStore(kept_revisions=KEPT, now_ms=lambda: self.now_ms)
        super().__init__([store] * 3)


class Sqlite(InProcess):
    """Two stores on one file, each with a thread of its own; with either journal."""

    def __init__(self, path, seed):
        self._path = path
        self._has_wal = seed % 2 == 1
        clock = LeaseClock("test", lambda: self.now_ms)
        super().__init__(
            [
                SqliteStore(path, kept_revisions=KEPT, poll_interval_s=POLL_S, clock=clock)
                for _ in range(2)
            ]
        )

    async def open(self):
        with mock.patch.object(sqlite_store, "wal_is_safe", return_value=self._has_wal):
            await super().open()

    async def stored_revision(self):
        with contextlib.closing(sqlite3.connect(self._path)) as db:
            (number,) = db.execute("SELECT value FROM counter WHERE name = 'revision'").fetchone()
        return number

    async def let_watches_run(self):
        await asyncio.sleep(POLL_S)
