"""Serving goes on while the disk is slow: no request waits for background work that waits for it.

A node with real stores and a real listener runs on the loop of the test; its clients are threads. The disk
underneath does not finish one sync until it is told to. With a checkpoint, a round of retention, trims, a
deletion of a topic, or producers in flush mode standing still in that sync, all else is asked and has to
be answered before the disk is let go. Planted: locks held too long, and work on the loop.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import pytest

from broker import node
from broker.clock import ManualClock
from broker.connection import Connection
from broker.http import start_http
from broker.metadata.local import LocalMetadataStore
from broker.metrics import Metrics
from broker.node import Listener, Node
from broker.retention import delete_due
from broker.server import _listen
from config import BrokerConfig
from storage import files
from storage.partition import Partition
from storage.store import LogStore
from tests.broker import asking
from tests.oracle import recordset, wire
from tests.oracle.recordset import Rec

PATIENCE_S = 30
SMALL = {"segment.bytes": "10000", "retention.ms": "-1"}


class SlowDisk(files.System):
    """From `stop` to `go` no sync ends; one that had to wait for `hold_s` says so and ends."""

    def __init__(self, hold_s=PATIENCE_S):
        self.hold_s = hold_s
        self.is_overdue = False
        self.waiting = threading.Semaphore(0)
        self._may_go = threading.Event()
        self._may_go.set()

    def stop(self):
        self._may_go.clear()

    def go(self):
        self._may_go.set()

    def sync(self, number):
        if not self._may_go.is_set():
            self.waiting.release()
            if not self._may_go.wait(self.hold_s):
                self.is_overdue = True
                self._may_go.set()
        super().sync(number)


class Serving:
    """A node that is served by the loop of the test."""

    def __init__(self, directory, disk):
        self.directory, self.disk = directory, disk
        self.config = BrokerConfig()

    @asynccontextmanager
    async def running(self):
        metadata = LocalMetadataStore(self.directory / "tidelog.sqlite")
        await metadata.open()
        self.store = LogStore([self.directory], default_config=self.config.topic_defaults)
        self.clock = ManualClock(1_000_000)
        self.node = Node(self.config, self.clock, self.store, metadata, Metrics())
        self.store.open(self.clock.now_ms(), self.node.topic_configs())
        listening, http = _listen("127.0.0.1", 0), _listen("127.0.0.1", 0)
        port = listening.getsockname()[1]
        listener = Listener("PLAINTEXT", "127.0.0.1", port, ("127.0.0.1", port))
        loop = asyncio.get_running_loop()
        server = await loop.create_server(partial(Connection, self.node, listener), sock=listening)
        page = loop.create_task(start_http(self.node, http))
        self.bootstrap = f"127.0.0.1:{port}"
        self.metrics_port = http.getsockname()[1]
        self.node.ready = True
        try:
            yield self
        finally:
            self.disk.go()
            server.close()
            for connection in list(self.node.connections):
                connection.abort()
            await asyncio.sleep(0)
            if page.done():
                await page.result().cleanup()
            else:
                page.cancel()
                await asyncio.wait([page])
            self.node.executor.shutdown()
            self.node.syncing.shutdown()
            self.store.close()
            await metadata.close()

    async def ask(self, what, *arguments, **more):
        """Call something with a connection of its own, in a thread."""

        def asked():
            with wire.Connection(self.bootstrap, timeout_s=PATIENCE_S) as connection:
                return what(connection, *arguments, **more)

        return await _in_thread(asked)

    async def topics(self):
        """One of each kind: what is asked for, what is worked on."""
        await self.ask(asking.create, "same", partitions=8, **SMALL)
        await self.ask(asking.create, "other", **SMALL)
        await self.ask(asking.create, "going", **SMALL)
        await self.ask(asking.create, "durable", **SMALL, **{"flush.messages": "1"})
        await self.ask(asking.create, "long", **{"segment.bytes": "4000000"})
        for topic in ("same", "other", "going", "durable"):
            for _ in range(4):
                await self.ask(produced, topic)
        for partition in range(1, 8):
            await self.ask(produced, "same", partition=partition)
        for _ in range(6):
            await self.ask(produced, "long", size=900_000)

    def page(self):
        """What Prometheus gets."""
        request = b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.metrics_port), PATIENCE_S) as peer:
            peer.sendall(request)
            answer = b"".join(iter(lambda: peer.recv(65_536), b""))
        assert b" 200 " in answer.partition(b"\r\n")[0]
        return answer


async def _in_thread(work):
    """Run in a thread that is nobody's: the pools of the broker are part of what is tested."""
    loop, answer = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def run():
        try:
            result = work()
        except BaseException as error:
            loop.call_soon_threadsafe(answer.set_exception, error)
        else:
            loop.call_soon_threadsafe(answer.set_result, result)

    threading.Thread(target=run, daemon=True).start()
    return await answer


def produced(connection, topic, *, partition=0, size=4_000, timestamp=1_000):
    """Produce one record; it must be acknowledged."""
    data = recordset.batch([Rec(timestamp, b"x" * size)])
    answer = asking.produce(connection, topic, data, partition=partition)
    assert answer["error_code"] == 0, answer
    return answer["base_offset"]


def found(connection, topic):
    """Fetch and look up in a topic."""
    assert asking.fetch(connection, topic, 3)["records"]
    assert asking.list_offset(connection, topic, 500)["offset"] >= 0
    assert asking.list_offset(connection, topic, -3)["offset"] >= 0


# --- background work that comes to stand still in a sync ---


def checkpoint(serving):
    return [asyncio.to_thread(serving.store.checkpoint)]


def retention(serving):
    config = serving.store.partition("same", 0).config
    serving.store.set_config("same", replace(config, retention_bytes=5_000))
    return [asyncio.to_thread(delete_due, serving.node)]


def trims(serving):
    """As many as there are partitions, so that any pool they might exhaust is exhausted."""
    one = partial(serving.ask, trim)
    return [one("same", partition) for partition in range(8)]


def deletion(serving):
    return [serving.node.delete_topic("going")]


def flush_mode(serving):
    return [serving.ask(produced, "durable") for _ in range(8)]


def trim(connection, topic, partition):
    answer = connection.ask(
        "DeleteRecords",
        2,
        topics=[{"name": topic, "partitions": [{"partition_index": partition, "offset": 1}]}],
        timeout_ms=60_000,
    )["topics"][0]["partitions"][0]
    assert answer["error_code"] == 0, answer


WORK = [checkpoint, retention, trims, deletion, flush_mode]


async def play(directory, disk, work):
    """Have work stand still, ask for everything else, let go; the disk must have been first."""
    async with Serving(directory, disk).running() as serving:
        await serving.topics()
        disk.stop()
        under_way = [asyncio.ensure_future(each) for each in work(serving)]
        await _in_thread(lambda: disk.waiting.acquire(timeout=PATIENCE_S))
        for topic in ("same", "other"):
            for _ in range(4):  # segments roll
                await serving.ask(produced, topic)
            await serving.ask(found, topic)
        await asyncio.gather(*(serving.ask(found, "long") for _ in range(4)))
        await serving.ask(asking.fetch, "durable", 3)
        await serving.ask(asking.topic_id_of, "same")
        await _in_thread(serving.page)
        assert not disk.is_overdue, "somebody waited for the disk"
        assert not any(each.done() for each in under_way)
        disk.go()
        await asyncio.gather(*under_way)


def run(directory, disk, work):
    before = files.use(disk)
    try:
        asyncio.run(play(directory, disk, work))
    finally:
        files.use(before)


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
def test_serving_goes_on_while_the_disk_stands_still(tmp_path, work):
    run(tmp_path, SlowDisk(), work)


# --- planted: each must be noticed ---


def appends_wait_for_flushes(monkeypatch):
    flush = Partition.flush

    def locked(partition):
        with partition._append_lock:
            return flush(partition)

    monkeypatch.setattr(Partition, "flush", locked)


def appends_wait_for_retention(monkeypatch):
    apply_retention = Partition.apply_retention

    def locked(partition, now_ms):
        with partition._append_lock:
            return apply_retention(partition, now_ms)

    monkeypatch.setattr(Partition, "apply_retention", locked)


class AtOnce(Executor):
    """Runs what it is given on the spot."""

    def submit(self, work, /, *arguments, **more):
        done = Future()
        done.set_result(work(*arguments, **more))
        return done


def what_waits_for_the_disk_runs_on_the_loop(monkeypatch):
    def pool(*, max_workers, thread_name_prefix):
        if thread_name_prefix == "sync":
            return AtOnce()
        return ThreadPoolExecutor(max_workers, thread_name_prefix)

    monkeypatch.setattr(node, "ThreadPoolExecutor", pool)


@pytest.mark.parametrize(
    ("plant", "work"),
    [
        (appends_wait_for_flushes, checkpoint),
        (appends_wait_for_retention, retention),
        (what_waits_for_the_disk_runs_on_the_loop, trims),
        (what_waits_for_the_disk_runs_on_the_loop, flush_mode),
    ],
    ids=lambda value: value.__name__,
)
def test_a_stall_is_noticed(tmp_path, monkeypatch, plant, work):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="waited for the disk"):
        run(tmp_path, SlowDisk(hold_s=1), work)
