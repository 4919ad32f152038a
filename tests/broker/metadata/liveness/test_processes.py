"""Brokers with one metadata file, as processes: a death is seen at once, a pause by the lease."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tidelog.broker.metadata.brokers.records import live_key
from tidelog.broker.metadata.liveness.broker_lock import is_held
from tidelog.broker.metadata.liveness.peers import Peers
from tidelog.broker.metadata.local import shared_store
from tidelog.broker.metadata.sqlite.store import SqliteStore
from tidelog.broker.metadata.store import MetadataError, Put

ROOT = Path(__file__).parents[4]
LONG_MS = 600_000  # no test waits for this lease to end
BROKER = """
import asyncio, json, sys, uvloop
from pathlib import Path
from tidelog.broker.metadata.brokers.records import live_key
from tidelog.broker.metadata.liveness.registration import register
from tidelog.broker.metadata.local import shared_store
from tidelog.broker.metadata.store import MetadataError, Put

async def main(path, number, ttl_ms):
    store = shared_store(Path(path), number)
    try:
        await store.open()
    except MetadataError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    registered = await register(store, Put(live_key(number), b"{}"), ttl_ms)
    print(json.dumps(registered), flush=True)
    while True:
        await asyncio.sleep(ttl_ms / 3000)
        if not await store.keep_alive(registered.lease):
            print(json.dumps("lease ended"), flush=True)
            registered = await register(store, Put(live_key(number), b"{}"), ttl_ms)

uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
"""


@pytest.fixture
def path(tmp_path):
    # Longer than the address of a socket may be.
    return tmp_path / ("long" * 30) / "tidelog.sqlite"


class Broker:
    """A process that is a broker of the file."""

    def __init__(self, process):
        self.process = process

    async def said(self):
        async with asyncio.timeout(30):
            return json.loads(await self.process.stdout.readline())

    async def kill(self):
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def broker(path, number, ttl_ms=LONG_MS):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BROKER, str(path), str(number), str(ttl_ms)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    started = Broker(process)
    try:
        yield started
    finally:
        if process.returncode is None:
            await started.kill()


@asynccontextmanager
async def opened(path, number):
    store = shared_store(path, number)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def next_change(store, after, holds):
    async with asyncio.timeout(10):
        async for changes in store.watch(after):
            found = [change for change in changes if holds(change)]
            if found:
                return found[0]
    return None


async def test_a_killed_broker_loses_its_key_long_before_its_lease(path):
    async with opened(path, 1) as store, broker(path, 2) as other:
        lease, epoch = await other.said()
        (pair,) = (await store.read(live_key(2))).pairs
        assert (pair.lease, pair.create_revision) == (lease, epoch)
        await other.kill()
        gone = await next_change(store, epoch, lambda change: change.value is None)
        assert (gone.key, gone.revision) == (live_key(2), epoch + 1)
        assert await store.keep_alive(lease) is False


async def test_a_broker_that_starts_again_does_not_wait_for_its_lease(path):
    """Nobody else is there to see the death: the start itself replaces the key."""
    async with broker(path, 2) as killed:
        _, epoch = await killed.said()
        await killed.kill()
    async with broker(path, 2) as again:
        lease, next_epoch = await again.said()
        assert next_epoch == epoch + 2
        async with opened(path, 1) as store:
            (pair,) = (await store.read(live_key(2))).pairs
            assert (pair.lease, pair.create_revision) == (lease, next_epoch)
            changes = await store.changes(epoch)
            assert [(each.key, each.value is None) for each in changes] == [
                (live_key(2), True),
                (live_key(2), False),
            ]


async def test_a_broker_that_starts_removes_those_that_died_before(path):
    async with broker(path, 2) as killed:
        _, epoch = await killed.said()
        await killed.kill()
    async with opened(path, 1) as store:
        gone = await next_change(store, epoch, lambda change: change.value is None)
        assert gone.key == live_key(2)


async def test_a_broker_that_hangs_keeps_its_lock_and_loses_its_lease(path):
    async with opened(path, 1) as store, broker(path, 2, 600) as other:
        _, epoch = await other.said()
        other.process.send_signal(signal.SIGSTOP)
        own = await store.grant(60_000)

        async def keep_alive():  # as each broker does; whoever calls ends what is over
            while True:
                await store.keep_alive(own)
                await asyncio.sleep(0.05)

        keeping = asyncio.create_task(keep_alive())
        gone = await next_change(store, epoch, lambda change: change.value is None)
        assert gone.key == live_key(2)
        assert is_held(path.parent, 2)
        other.process.send_signal(signal.SIGCONT)
        assert await other.said() == "lease ended"
        back = await next_change(store, gone.revision, lambda change: change.value is not None)
        assert back.key == live_key(2)
        keeping.cancel()


async def test_one_process_at_a_time_is_a_broker(path):
    async with broker(path, 2) as first:
        await first.said()
        async with broker(path, 2) as second:
            message = (await second.said())["error"]
        assert f"broker 2 is running already: process {first.process.pid} holds " in message
        store = shared_store(path, 2)
        with pytest.raises(MetadataError, match="is running already"):
            await store.open()
    async with opened(path, 2):
        pass


async def test_a_commit_is_noticed_at_once_by_every_peer(path):
    """The watch looks at the file only after hours: it is the byte that wakes it."""

    async def on_death(_):
        raise AssertionError("nobody has died here")

    peers = [Peers(path.parent, number, on_death) for number in (1, 2, 3)]
    stores = [SqliteStore(path, peers=each, poll_interval_s=3_600) for each in peers]
    for store in stores:
        await store.open()
    try:
        for writer in stores:
            after = (await writer.read()).revision
            watching = [
                asyncio.create_task(next_change(store, after, lambda _: True)) for store in stores
            ]
            await asyncio.sleep(0.05)  # until they wait
            assert await writer.transact((), (Put("a", b""),)) == after + 1
            assert [(await each).revision for each in watching] == [after + 1] * 3
    finally:
        for store in stores:
            await store.close()


async def test_a_clean_stop_leaves_no_socket_and_no_lock(path):
    async with opened(path, 1):
        assert is_held(path.parent, 1)
        assert (path.parent / "broker-1.sock").exists()
    assert not is_held(path.parent, 1)
    assert not (path.parent / "broker-1.sock").exists()
