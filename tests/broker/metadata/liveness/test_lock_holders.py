"""Who holds the lock of the metadata is named: real processes, real SQLite locks, real signals."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from tests.broker.subject import eventually
from tidelog.broker.metadata.liveness.broker_lock import BrokerLock
from tidelog.broker.metadata.liveness.lock_holders import (
    SqliteLockHolder,
    describe_blocker,
    holders,
    is_stopped,
)
from tidelog.broker.metadata.sqlite.store import SqliteStore
from tidelog.broker.metadata.store import Put
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage import lock_file

BEGIN = """
import sqlite3, sys
store = sqlite3.connect(sys.argv[1], isolation_level=None)
for each in sys.argv[2:]:
    store.execute(each)
print("begun", flush=True)
sys.stdin.read()
"""
WRITES, READS = ("BEGIN IMMEDIATE",), ("BEGIN", "SELECT * FROM t")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "tidelog.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as store:
        store.execute("CREATE TABLE t (x)")
    return path


@pytest.fixture
def begun():
    """Starts processes that have each begun a transaction; they end with the test."""
    with contextlib.ExitStack() as stack:

        def start(path, statements):
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", BEGIN, path, *statements],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            assert process.stdout.readline() == "begun\n"
            return process

        yield start


def stop(process):
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: is_stopped(process.pid))


def test_nobody_holds_the_lock_of_a_file_that_is_not_used(path, tmp_path):
    assert holders(path) == []
    assert describe_blocker(path) is None
    assert holders(tmp_path / "missing") == []


def test_a_writer_and_a_reader_hold_it(path, begun):
    writer, reader = begun(path, WRITES), begun(path, READS)
    found = holders(path)
    assert SqliteLockHolder(writer.pid, is_shared=False) in found
    assert SqliteLockHolder(reader.pid, is_shared=True) in found
    assert {each.pid for each in found} == {writer.pid, reader.pid}
    assert describe_blocker(path) == f"process {writer.pid} holds the lock of the metadata"
    writer.kill()
    writer.wait()
    assert describe_blocker(path) == f"process {reader.pid} holds the lock of the metadata"


def test_one_that_is_stopped_is_named_before_those_that_wait_for_it(path, begun):
    writer, reader = begun(path, WRITES), begun(path, READS)
    assert not is_stopped(reader.pid)
    stop(reader)
    expected = f"process {reader.pid} is stopped and holds the lock of the metadata"
    assert describe_blocker(path) == expected
    stop(writer)
    assert "are stopped and hold the lock" in describe_blocker(path)


def test_with_write_ahead_logging_only_writers_are_in_the_way(path, begun):
    """Every connection has a shared lock on the file then."""
    with contextlib.closing(sqlite3.connect(path)) as store:
        store.execute("PRAGMA journal_mode = WAL")
        reader = begun(path, READS)
        assert describe_blocker(path) is None
        stop(reader)
        assert describe_blocker(path) is None
        writer = begun(path, WRITES)
        assert holders(path) == [SqliteLockHolder(writer.pid, is_shared=False)]


def test_this_process_is_not_in_its_own_way(path):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as store:
        store.execute("BEGIN IMMEDIATE")
        assert {each.pid for each in holders(path)} == {os.getpid()}
        assert describe_blocker(path) is None


def test_without_a_list_of_locks_nobody_is_found(path, begun, tmp_path, monkeypatch):
    begun(path, WRITES)
    monkeypatch.setattr(lock_file, "_LOCKS", tmp_path / "missing")
    assert describe_blocker(path) is None


async def test_a_broker_is_named_by_its_id(path, begun):
    writer = begun(path, WRITES)
    mine = BrokerLock(path.parent, 7)
    await mine.acquire()
    try:
        (path.parent / "broker-7.lock").write_text(f"{writer.pid}\n")
        named = f"broker 7 (process {writer.pid}) holds the lock of the metadata"
        assert describe_blocker(path) == named
    finally:
        mine.release()


async def test_a_change_that_waits_for_long_says_for_whom_and_once(tmp_path, begun, caplog):
    path = tmp_path / "kept.sqlite"
    store = SqliteStore(path, blocked_after_s=0.02)
    await store.open()
    try:
        writer = begun(path, WRITES)
        caplog.clear()
        changes = [
            asyncio.ensure_future(store.transact((), (Put(name, b"x"),))) for name in ("a", "b")
        ]
        async with asyncio.timeout(60):
            while not caplog.messages:  # noqa: ASYNC110 - what it waits for has no event
                await asyncio.sleep(0.01)
        assert not any(change.done() for change in changes)
        writer.kill()
        writer.wait()
        assert await asyncio.gather(*changes) == [1, 2]
        said = f"process {writer.pid} holds the lock of the metadata"
        (logged,) = caplog.records
        assert (logged.getMessage(), logged.reason) == ("metadata write blocked", said)
    finally:
        await store.close()


async def test_a_change_that_fails_for_a_lock_names_its_holder_and_whose_it_is(
    tmp_path, begun, monkeypatch
):
    monkeypatch.setattr("tidelog.broker.metadata.sqlite.store._BUSY_TIMEOUT_S", 0.02)
    path = tmp_path / "kept.sqlite"
    store = SqliteStore(path)
    await store.open()
    try:
        reader = begun(path, ("BEGIN", "SELECT * FROM kv"))
        owner = os.geteuid()
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
        named = f"process {reader.pid} of user {owner} holds the lock of the metadata"
        with pytest.raises(KafkaStorageError, match=named):
            await store.transact((), (Put("a", b"x"),))
    finally:
        await store.close()
