"""Serving goes on while the disk is slow: no request waits for work of others that waits for it.

A node with real stores and a real listener runs on the loop of the test; its clients are threads. The disk
underneath does not finish one sync until it is told to. With a checkpoint, a round of retention, trims, a
deletion of a topic, or producers in flush mode standing still in that sync, all else is asked and has to
be answered before the disk is let go. So it is with reads of one partition: while it is opened, while its
producers, times or an index are read from its log. Planted: locks held too long, and work on the loop.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import threading
from concurrent.futures import Executor, Future
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest
import pytest_asyncio

from tests.broker import asking
from tests.oracle import recordset, wire
from tests.oracle.recordset import Rec
from tidelog.broker import pools
from tidelog.broker.clock import ManualClock
from tidelog.broker.http.application import start_http
from tidelog.broker.maintenance.retention_rounds import delete_due
from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network.accepting.listener import Listener
from tidelog.broker.network.accepting.sockets import listen
from tidelog.broker.network.connection import Connection
from tidelog.broker.node import Node
from tidelog.broker.partitions.openings import Openings
from tidelog.broker.topics.startup import open_topics
from tidelog.config import BrokerConfig
from tidelog.storage import files
from tidelog.storage.directory.lifecycle import PartitionLifecycle
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.partition import Partition
from tidelog.storage.log.reader import Reader
from tidelog.storage.log.retention.retainer import Retainer

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE_S = 60
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
        self._wait()
        super().sync(number)

    def _wait(self):
        if not self._may_go.is_set():
            self.waiting.release()
            if not self._may_go.wait(self.hold_s):
                self.is_overdue = True
                self._may_go.set()


class SlowReads(SlowDisk):
    """It is the reads from files of topic `slow` that do not end."""

    def sync(self, number):
        files.System.sync(self, number)

    def read(self, number, size, position):
        if "/slow-0/" in os.readlink(f"/proc/self/fd/{number}"):
            self._wait()
        return super().read(number, size, position)


class Serving:
    """A node that is served by the loop of the test."""

    def __init__(self, directory, disk):
        self.directory, self.disk = directory, disk
        self.config = BrokerConfig()

    @asynccontextmanager
    async def running(self):
        metadata = local_metadata(self.directory / "tidelog.sqlite")
        await metadata.open()
        self.store = LogStore([self.directory], default_config=self.config.topic_defaults)
        self.clock = ManualClock(1_000_000)
        self.node = Node(self.config, self.clock, self.store, metadata, Metrics())
        await open_topics(self.node)
        listening, http = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
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
            http.close()
            self.node.pools.stop()
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
        request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
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
    return [serving.node.topics.delete("going")]


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
        await serve_meanwhile(serving, under_way)


async def serve_meanwhile(serving, under_way):
    """Ask for everything that does not stand still, then let go; what stood still must end well."""
    for topic in ("same", "other"):
        for _ in range(4):  # segments roll
            await serving.ask(produced, topic)
        await serving.ask(found, topic)
    await asyncio.gather(*(serving.ask(found, "long") for _ in range(4)))
    await serving.ask(asking.fetch, "durable", 3)
    await serving.ask(asking.topic_id_of, "same")
    await _in_thread(serving.page)
    assert not serving.disk.is_overdue, "somebody waited for the disk"
    assert not any(each.done() for each in under_way)
    serving.disk.go()
    await asyncio.gather(*under_way)


async def run(directory, disk, work):
    before = files.use(disk)
    try:
        await play(directory, disk, work)
    finally:
        files.use(before)


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.__name__)
async def test_serving_goes_on_while_the_disk_stands_still(tmp_path, work):
    await run(tmp_path, SlowDisk(), work)


# --- reads of one partition that come to stand still ---


class Slow(NamedTuple):
    """What is missing in the directory of `slow`, whether it has been opened, and who asks then."""

    missing: tuple[str, ...]
    is_open: bool
    asked: tuple[Callable, ...]


def fetched(connection):
    """Somewhere in the first segment, which is sealed."""
    assert asking.fetch(connection, "slow", 2)["records"]


def looked_up(connection):
    assert asking.list_offset(connection, "slow", 1_000)["offset"] >= 0


def start_asked(connection):
    assert asking.list_offset(connection, "slow", -2)["offset"] >= 0


def epoch_asked(connection):
    answer = connection.ask(
        "OffsetForLeaderEpoch",
        4,
        replica_id=-1,
        topics=[{"topic": "slow", "partitions": [{"partition": 0, "leader_epoch": 0}]}],
    )["topics"][0]["partitions"][0]
    assert (answer["error_code"], answer["end_offset"] > 0) == (0, True)


def trimmed(connection):
    trim(connection, "slow", 0)


def appended(connection):
    produced(connection, "slow")


def appended_idempotently(connection):
    data = recordset.batch([Rec(1_000, b"x")], producer_id=7, producer_epoch=0, base_sequence=0)
    assert asking.produce(connection, "slow", data)["error_code"] == 0


EVERYTHING = (appended, fetched, looked_up, start_asked, epoch_asked, trimmed)
SLOW = {
    "opening": Slow(("*.index",), is_open=False, asked=EVERYTHING),
    "opening what another wrote": Slow(
        ("*.index", "*.appendtimes", "partition.times"), is_open=False, asked=EVERYTHING
    ),
    "producers": Slow(("*.snapshot",), is_open=True, asked=(appended_idempotently, appended)),
    "times": Slow(("partition.times",), is_open=True, asked=(appended,)),
    "index": Slow(("00000000000000000000.*index",), is_open=True, asked=(fetched,)),
    "foreign": Slow(("partition.times",), is_open=True, asked=(looked_up,)),
}


async def play_slow(directory, disk, slow):
    """The same with reads, in a second life that lacks something of what the first left behind."""
    for pattern in slow.missing:
        missing = list((directory / "slow-0").glob(pattern))
        assert missing
        for path in missing:
            path.unlink()
    async with Serving(directory, disk).running() as serving:
        if slow.is_open:
            await serving.ask(asking.fetch, "slow", 8)
        disk.stop()
        under_way = [asyncio.ensure_future(serving.ask(each)) for each in slow.asked]
        await _in_thread(lambda: disk.waiting.acquire(timeout=PATIENCE_S))
        await serve_meanwhile(serving, under_way)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def first_life(tmp_path_factory):
    """A log directory that a broker has left."""
    directory = tmp_path_factory.mktemp("first-life")
    async with Serving(directory, SlowDisk()).running() as serving:
        await serving.topics()
        await serving.ask(asking.create, "slow", **{"segment.bytes": "6000000"})
        for _ in range(8):
            await serving.ask(produced, "slow", size=900_000)
    return directory


async def run_slow(first_life, directory, disk, slow):
    shutil.copytree(first_life, directory, dirs_exist_ok=True)
    before = files.use(disk)
    try:
        await play_slow(directory, disk, slow)
    finally:
        files.use(before)


@pytest.mark.parametrize("slow", SLOW)
async def test_serving_goes_on_while_a_log_is_read(tmp_path, first_life, slow):
    await run_slow(first_life, tmp_path, SlowReads(), SLOW[slow])


# --- planted: each must be noticed ---


def appends_wait_for_flushes(monkeypatch):
    flush = Partition.flush

    def locked(partition):
        with partition.state.append_lock:
            return flush(partition)

    monkeypatch.setattr(Partition, "flush", locked)


def appends_wait_for_retention(monkeypatch):
    apply_retention = Retainer.apply_retention

    def locked(retainer, now_ms):
        with retainer._state.append_lock:
            return apply_retention(retainer, now_ms)

    monkeypatch.setattr(Retainer, "apply_retention", locked)


class AtOnce(Executor):
    """Runs what it is given on the spot."""

    def submit(self, work, /, *arguments, **more):
        done = Future()
        done.set_result(work(*arguments, **more))
        return done


def what_waits_for_the_disk_runs_on_the_loop(monkeypatch):
    monkeypatch.setattr(pools, "ThreadPoolExecutor", lambda *_, **__: AtOnce())


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
async def test_a_stall_is_noticed(tmp_path, monkeypatch, plant, work):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="waited for the disk"):
        await run(tmp_path, SlowDisk(hold_s=1), work)


def partitions_are_opened_on_the_loop(monkeypatch):
    async def open_now(openings, names):
        return openings._open(openings.closed(names))

    monkeypatch.setattr(Openings, "open", open_now)


def partitions_are_opened_under_the_lock(monkeypatch):
    open_partition = PartitionLifecycle.open

    def locked(lifecycle, key):
        with lifecycle._table.changing:
            return open_partition(lifecycle, key)

    monkeypatch.setattr(PartitionLifecycle, "open", locked)


def appends_read_on_the_loop(monkeypatch):
    open_log = Partition.__init__

    def opened(partition, *arguments, **more):
        open_log(partition, *arguments, **more)
        partition.state.is_read = True

    monkeypatch.setattr(Partition, "__init__", opened)


def fetches_read_on_the_loop(monkeypatch):
    read = Reader.read

    def whatever_it_takes(reader, *arguments, may_block=True, **more):
        return read(reader, *arguments, **more)

    monkeypatch.setattr(Reader, "read", whatever_it_takes)


def lookups_read_on_the_loop(monkeypatch):
    monkeypatch.setattr(Reader, "_check_cached", lambda *_: None)


@pytest.mark.parametrize(
    ("plant", "slow"),
    [
        (partitions_are_opened_on_the_loop, "opening"),
        (partitions_are_opened_under_the_lock, "opening"),
        (appends_read_on_the_loop, "producers"),
        (appends_read_on_the_loop, "times"),
        (fetches_read_on_the_loop, "index"),
        (lookups_read_on_the_loop, "foreign"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
async def test_a_stall_in_reading_is_noticed(tmp_path, monkeypatch, first_life, plant, slow):
    plant(monkeypatch)
    with pytest.raises(AssertionError, match="waited for the disk"):
        await run_slow(first_life, tmp_path, SlowReads(hold_s=1), SLOW[slow])
