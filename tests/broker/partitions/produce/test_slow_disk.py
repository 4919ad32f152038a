"""Serving goes on while the disk is slow: no request waits for work of others that waits for it.

A broker runs in this process. The disk underneath does not finish one sync until it is let go. With a
checkpoint, a round of retention, trims, a deletion of a topic, or producers in flush mode standing still in
that sync, all else is asked and has to be answered before the disk is let go. So it is with reads of one
partition: while it is opened, while its producers, times or an index are read from its log. Injected: locks
held too long, and work on the loop.
"""

from __future__ import annotations

import os
import shutil
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.broker import asking
from tests.broker.inside import Inside
from tests.oracle import recordset
from tests.oracle.recordset import Rec
from tidelog.broker import pools
from tidelog.broker.clock import ManualClock
from tidelog.broker.logs.maintenance.retention_rounds import delete_due
from tidelog.storage import files
from tidelog.storage.log.partition import Partition
from tidelog.storage.log.reader import Reader

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
        self.may_go = threading.Event()
        self.may_go.set()

    def stop(self):
        self.may_go.clear()

    def go(self):
        self.may_go.set()

    def sync(self, number):
        self.wait()
        super().sync(number)

    def wait(self):
        if not self.may_go.is_set():
            self.waiting.release()
            if not self.may_go.wait(self.hold_s):
                self.is_overdue = True
                self.may_go.set()


class NoDisk(SlowDisk):
    """No sync takes any time."""

    def sync(self, number):
        pass

    sync_data = sync_file_system = sync


class SlowReads(SlowDisk):
    """It is the reads from files of topic `slow` that do not end."""

    def sync(self, number):
        files.System.sync(self, number)

    def read(self, number, size, position):
        if "/slow-0/" in os.readlink(f"/proc/self/fd/{number}"):
            self.wait()
        return super().read(number, size, position)


def ask(broker, what, *arguments, **more):
    """Calls something with a connection of its own."""
    with broker.connect() as connection:
        return what(connection, *arguments, **more)


def produced(connection, topic, *, partition=0, size=4_000):
    """Produces one record; it must be acknowledged."""
    data = recordset.batch([Rec(1_000, b"x" * size)])
    answer = asking.produce(connection, topic, data, partition=partition)
    assert answer["error_code"] == 0, answer


def found(connection, topic):
    """Fetches and looks up in a topic."""
    assert asking.fetch(connection, topic, 3)["records"]
    assert asking.list_offset(connection, topic, 500)["offset"] >= 0
    assert asking.list_offset(connection, topic, -3)["offset"] >= 0


@contextmanager
def running(directory, disk):
    """A broker on a disk, which is let go in the end."""
    before = files.use(disk)
    try:
        with Inside(directory, ManualClock(1_000_000)) as broker:
            try:
                yield broker
            finally:
                disk.go()
    finally:
        files.use(before)


@pytest.fixture(scope="module")
def first_life(tmp_path_factory):
    """A log directory that a broker has left: a topic of each kind that is asked for or worked on."""
    directory = tmp_path_factory.mktemp("first-life")
    with running(directory, NoDisk()) as broker, broker.connect() as connection:
        asking.create(connection, "same", partitions=8, **SMALL)
        asking.create(connection, "other", **SMALL)
        asking.create(connection, "going", **SMALL)
        asking.create(connection, "durable", **SMALL, **{"flush.messages": "1"})
        asking.create(connection, "long", **{"segment.bytes": "900000"})
        asking.create(connection, "slow", **{"segment.bytes": "6000000"})
        for topic in ("same", "other", "going", "durable"):
            for _ in range(4):
                produced(connection, topic)
        for _ in range(6):
            produced(connection, "long", size=200_000)
        for _ in range(8):
            produced(connection, "slow", size=900_000)
    return directory


def second_life(first_life, directory, disk, missing=()):
    """A broker with what the first has left behind, but for some files of `slow`."""
    shutil.copytree(first_life, directory, dirs_exist_ok=True)
    for pattern in missing:
        paths = list((directory / "slow-0").glob(pattern))
        assert paths
        for path in paths:
            path.unlink()
    return running(directory, disk)


def serve_meanwhile(broker, disk, work):
    """Has work stand still, asks for everything else, lets go; the disk must have been first."""
    with ThreadPoolExecutor(16) as threads:
        disk.stop()
        under_way = [threads.submit(each) for each in work]
        assert disk.waiting.acquire(timeout=PATIENCE_S)
        with broker.connect() as connection:
            for topic in ("same", "other"):
                for _ in range(4):  # segments roll
                    produced(connection, topic)
                found(connection, topic)
            list(threads.map(lambda _: ask(broker, found, "long"), range(4)))
            asking.fetch(connection, "durable", 3)
            asking.topic_id_of(connection, "same")
        assert broker.page("/metrics")[0] == 200
        assert not disk.is_overdue, "somebody waited for the disk"
        assert not any(each.done() for each in under_way)
        disk.go()
        for each in under_way:
            each.result()


# --- background work that comes to stand still in a sync ---


def checkpoint(broker):
    return [broker.node.store.checkpoint]


def retention(broker):
    store = broker.node.store
    store.set_config("same", replace(store.partition("same", 0).config, retention_bytes=5_000))
    return [partial(delete_due, broker.node)]


def trims(broker):
    """As many as there are partitions, so that any pool they might exhaust is exhausted."""
    return [partial(ask, broker, trim, "same", partition) for partition in range(8)]


def deletion(broker):
    def delete(connection):
        connection.ask("DeleteTopics", 4, topic_names=["going"], timeout_ms=60_000)

    return [partial(ask, broker, delete)]


def flush_mode(broker):
    return [partial(ask, broker, produced, "durable") for _ in range(8)]


def trim(connection, topic, partition=0):
    assert asking.delete_records(connection, topic, 1, partition=partition)[0] == 0


def run(first_life, directory, disk, work):
    with second_life(first_life, directory, disk) as broker:
        with broker.connect() as connection:
            for topic in ("other", "going", "durable"):
                produced(connection, topic)
            for partition in range(8):
                produced(connection, "same", partition=partition)
        serve_meanwhile(broker, disk, work(broker))


WORK = [
    checkpoint,
    *(
        pytest.param(each, marks=pytest.mark.slow)
        for each in (retention, trims, deletion, flush_mode)
    ),
]


@pytest.mark.parametrize("work", WORK)
def test_serving_goes_on_while_the_disk_stands_still(tmp_path, first_life, work):
    run(first_life, tmp_path, SlowDisk(), work)


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
    trim(connection, "slow")


def appended(connection):
    produced(connection, "slow")


def appended_idempotently(connection):
    data = recordset.batch([Rec(1_000, b"x")], producer_id=7, producer_epoch=0, base_sequence=0)
    assert asking.produce(connection, "slow", data)["error_code"] == 0


EVERYTHING = (appended, fetched, looked_up, start_asked, epoch_asked, trimmed)
SLOW = {
    "opening what another wrote": Slow(
        ("*.index", "*.appendtimes", "partition.times"), is_open=False, asked=EVERYTHING
    ),
    "opening": Slow(("*.index",), is_open=False, asked=EVERYTHING),
    "producers": Slow(("*.snapshot",), is_open=True, asked=(appended_idempotently, appended)),
    "times": Slow(("partition.times",), is_open=True, asked=(appended,)),
    "index": Slow(("00000000000000000000.*index",), is_open=True, asked=(fetched,)),
    "foreign": Slow(("partition.times",), is_open=True, asked=(looked_up,)),
}


def run_slow(first_life, directory, disk, slow):
    with second_life(first_life, directory, disk, slow.missing) as broker:
        if slow.is_open:
            ask(broker, asking.fetch, "slow", 8)
        serve_meanwhile(broker, disk, [partial(ask, broker, each) for each in slow.asked])


@pytest.mark.parametrize(
    "slow",
    [
        "opening",
        *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW if each != "opening"),
    ],
)
def test_serving_goes_on_while_a_log_is_read(tmp_path, first_life, slow):
    run_slow(first_life, tmp_path, SlowReads(), SLOW[slow])


# --- injected: each must be noticed ---


def appends_wait_for_flushes(monkeypatch):
    flush = Partition.flush

    def locked(partition):
        with partition.state.append_lock:
            return flush(partition)

    monkeypatch.setattr(Partition, "flush", locked)


class AtOnce(Executor):
    """Runs what it is given on the spot."""

    def submit(self, work, /, *arguments, **more):
        done = Future()
        done.set_result(work(*arguments, **more))
        return done


def what_waits_for_the_disk_runs_on_the_loop(monkeypatch):
    monkeypatch.setattr(pools, "ThreadPoolExecutor", lambda *_, **__: AtOnce())


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inject", "work"),
    [
        (appends_wait_for_flushes, checkpoint),
        (what_waits_for_the_disk_runs_on_the_loop, trims),
        (what_waits_for_the_disk_runs_on_the_loop, "opening"),
        (appends_read_on_the_loop, "producers"),
        (fetches_read_on_the_loop, "index"),
    ],
)
def test_a_stall_is_noticed(tmp_path, monkeypatch, first_life, inject, work):
    inject(monkeypatch)
    play, disk = (run_slow, SlowReads) if work in SLOW else (run, SlowDisk)
    with pytest.raises(AssertionError, match="waited for the disk"):
        play(first_life, tmp_path, disk(hold_s=1), SLOW.get(work, work))
