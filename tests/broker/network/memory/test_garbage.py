"""How long collections of garbage take, and what needs none.

A full collection that took long is not repeated for the same objects; there is none while long requests are
under way. What ends in a broker leaves no cycles. The clock is a counter.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import logging
import struct
import time
import uuid
from collections import Counter

import pytest

from tests.broker.inside import Inside
from tests.broker.network.test_scheduler import outcome, ticking, until, walk
from tidelog.broker.network import scheduler
from tidelog.broker.network.memory.garbage import FEW, LONG_S, RARELY_S, THRESHOLDS, Collector, Hold
from tidelog.broker.network.scheduler import Scheduler, at_once, checkpoint
from tidelog.config.topic import TopicConfig
from tidelog.storage.directory.store import LogStore

_MANY = 10_000
_STEP_S = 0.00001  # of a counter in which no collection takes long


class Node:
    """Part of a cycle."""

    def __init__(self):
        self.me = self


def alive():
    return sum(type(each) is Node for each in gc.get_objects())


def collector(collection_s=0.0):
    """One for which every collection takes this long, by its clock."""
    times_s = itertools.count(0.0, collection_s)
    return Collector(lambda: next(times_s))


@pytest.fixture(autouse=True)
def as_before():
    """What Python's collector is told is as before the test, and nothing is frozen."""
    before = gc.get_threshold(), list(gc.callbacks)
    yield
    assert (gc.get_threshold(), list(gc.callbacks)) == before
    gc.unfreeze()
    gc.collect()


def looked_at(kept):
    """How many of the objects a full collection would look at."""
    known = set(map(id, gc.get_objects()))
    return sum(id(each) in known for each in kept)


def test_what_is_there_at_first_is_not_looked_at():
    kept = [Node() for _ in range(50)]
    dead = Node()
    del dead
    with collector().governing():
        assert looked_at(kept) == 0
        gc.unfreeze()
        assert alive() == 50
        assert gc.get_threshold() == THRESHOLDS


@pytest.mark.slow
@pytest.mark.parametrize(("collection_s", "left"), [(LONG_S, 0), (LONG_S * 0.99, 50)])
def test_what_a_long_collection_has_looked_at_is_not_looked_at_again(collection_s, left):
    with collector(collection_s).governing():
        kept = [Node() for _ in range(50)]
        Node()
        gc.collect(1)
        assert looked_at(kept) == 50, "only full collections take long"
        gc.collect()
        assert looked_at(kept) == left
        gc.unfreeze()
        assert alive() == 50, "what was garbage is gone"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objects", "waited_s", "left"), [(0, 0.0, 0), (FEW, 0.0, 1), (FEW, RARELY_S, 0)]
)
def test_cycles_that_were_frozen_go_at_last(objects, waited_s, left, monkeypatch):
    now_s = 0.0
    told = Collector(lambda: now_s)
    with told.governing():
        gc.unfreeze()  # what the test's process has is not counted
        frozen, many = Node(), [Node() for _ in range(objects)]
        now_s += LONG_S
        gc.callbacks[-1]("stop", {"generation": 2})  # as Python does after a collection
        del frozen
        frozen_now = gc.get_freeze_count
        monkeypatch.setattr(gc, "get_freeze_count", lambda: len(many) + 1)
        now_s += waited_s
        told.hold()
        told.look()
        told.release()
        assert frozen_now() > 0, "not while a request is under way"
        told.look()
        gc.unfreeze()
        assert alive() == left + len(many)


def test_a_broker_that_has_ended_governs_nothing():
    ended = collector(LONG_S)
    with ended.governing():
        pass
    kept = [Node()]
    gc.collect()
    assert looked_at(kept) == 1
    ended.hold()
    ended.release()


@pytest.mark.slow
def test_much_that_stays_makes_no_collection_long():
    """Each object is looked at a few times; as much as Python's own thresholds allow takes 40 ms."""
    visited = []

    def note(phase, info):
        if phase == "start":
            visited.append(sum(len(gc.get_objects(each)) for each in range(info["generation"] + 1)))

    now_s = 0.0

    def tell_s():
        """The time that a collection takes, by what it visits: a microsecond for three objects."""
        nonlocal now_s
        now_s += visited[-1] * 3e-7 if visited else 0.0
        return now_s

    gc.callbacks.append(note)
    try:
        with Collector(tell_s).governing():
            visited.clear()
            kept = [Node() for _ in range(400_000)]  # and a dict of each
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 400_000
    assert 5_000 < max(visited) < 40_000


# -- what leaves no cycles ----------------------------------------------------------------------------


def test_a_deleted_log_needs_no_collector(tmp_path):
    store = LogStore([tmp_path], default_config=TopicConfig())
    store.open(0)

    def make(count):
        for index in range(count):
            store.create_partition("t", uuid.UUID(int=7), index, TopicConfig(), 0)
        for index in range(count):
            store.delete_partition("t", index)

    make(2)
    gc.collect()
    gc.disable()
    try:
        make(5)
        assert gc.collect() == 0, "a cycle keeps what was deleted"
    finally:
        gc.enable()
        store.close()


def garbage(broker):
    """The types of the objects in cycles that nobody refers to any more, made by our own code."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        broker.call(gc.collect)  # on the event loop: what it runs has ended
        return Counter(
            type(each).__name__
            for each in gc.garbage
            if type(each).__module__.startswith("tidelog.")
        )
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def ask_much(broker):
    """Requests that are answered, refused and broken off, and pages; all connections end."""
    topic = {"name": "t", "num_partitions": 3, "replication_factor": 1}
    commit = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    with broker.connect() as connection:
        connection.ask("ApiVersions", 0)
        connection.ask("CreateTopics", 0, topics=[topic], timeout_ms=60_000)
        connection.ask("Metadata", 1, topics=[{"name": "t"}])
        connection.ask("ListOffsets", 1, replica_id=-1, topics=[])
        connection.ask(
            "OffsetCommit",
            0,
            group_id="g",
            topics=[{"name": "t", "partitions": [commit]}],
        )
        connection.ask("DeleteTopics", 0, topic_names=["t"], timeout_ms=60_000)
    with broker.connect() as connection:
        connection.send(struct.pack(">i", 100) + b"half")
    with broker.connect() as connection:
        connection.send(struct.pack(">i", 7) + b"garbage")
        assert connection.receive() is None, "it is closed"
    with broker.connect() as connection:
        names = b"".join(struct.pack(">h", 1) + b"n" for _ in range(45_000))
        asked = struct.pack(">hhihi", 3, 1, 1, -1, 45_001) + names + b"\0"  # half a length
        connection.send(struct.pack(">i", len(asked)) + asked)
        assert connection.receive() is None, "it is closed when most of it has been decoded"
    assert broker.page("/metrics")[0] == 200


@pytest.mark.slow
def test_what_ends_needs_no_collector(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduler, "FIRST_S", 0.0)  # a request pauses as soon as it can
    # pytest keeps what is logged, with the errors.
    monkeypatch.setattr(logging.getLogger("tidelog"), "propagate", False)
    with Inside(tmp_path) as broker:
        ask_much(broker)  # which imports what it needs
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                ask_much(broker)
            ends_s = time.monotonic() + 60
            while list(broker.node.connections) and time.monotonic() < ends_s:
                time.sleep(0.01)
            assert garbage(broker) == {}
        finally:
            gc.enable()


# -- long requests -----------------------------------------------------------------------------------


class Cell:
    """What a request leaves many of; each is visited by a full collection."""

    def __init__(self) -> None:
        self.other = None


@pytest.fixture
def full_collections():
    """The full collections since the test began that have visited many objects."""
    seen = []

    def note(phase, info):
        if phase == "start" and info["generation"] == 2 and len(gc.get_objects()) > _MANY:
            seen.append(info)

    gc.collect()
    gc.freeze()  # what other tests have left would put a full collection off
    gc.collect()
    gc.callbacks.append(note)
    yield seen
    gc.callbacks.remove(note)


async def many_cells(count: int = 100_000) -> int:
    """Makes so much that Python would look at everything several times."""
    cells = []
    for _ in range(count):
        cells.append(Cell())
        await checkpoint()
    return len(cells)


def test_much_that_lives_has_python_look_at_everything(full_collections):
    assert at_once(many_cells()) == 100_000
    assert full_collections, "the tests below would show nothing"


@pytest.mark.slow
async def test_no_request_in_slices_has_python_look_at_everything(full_collections):
    scheduler = ticking(_STEP_S)
    with scheduler.collector.governing():
        answers = [outcome(scheduler.serve(many_cells())) for _ in range(2)]
        full_collections.clear()
        assert await asyncio.gather(*answers) == [100_000] * 2
        assert not full_collections
        assert gc.get_threshold() == THRESHOLDS


@pytest.mark.slow
async def test_no_coroutine_in_slices_has_either(full_collections):
    async def pending():
        await walk(1_000)
        return await many_cells()

    scheduler = ticking(_STEP_S)
    with scheduler.collector.governing():
        full_collections.clear()
        assert await scheduler.in_slices(pending()) == 100_000
        assert not full_collections


@pytest.mark.slow
def test_what_has_become_old_meanwhile_is_not_looked_at_if_it_is_much(full_collections):
    told = collector()
    with told.governing():
        full_collections.clear()
        told.hold()
        little = [Node()]
        told.release()
        assert looked_at(little) == 1
        told.hold()
        told.hold()
        much = [Node() for _ in range(50_000)]
        told.release()
        assert looked_at(much[:50]) == 50, "another request is under way"
        told.release()
        assert looked_at(much[:50]) == 0
        assert not full_collections


async def test_what_a_long_request_goes_on_with_holds_them_back_from_its_beginning():
    """What the request was decoded to is there all the time."""
    scheduler = ticking()

    async def pending():
        await asyncio.sleep(0.001)
        return scheduler.collector.is_held

    async def job(steps):
        await walk(steps)
        return await pending()

    coming = scheduler.serve(job(100))
    assert scheduler.collector.is_held
    assert await outcome(coming)
    assert not scheduler.collector.is_held
    assert not await outcome(Scheduler(lambda: 0.0, scheduler.collector).serve(job(0)))


def test_a_hold_that_nobody_ends_ends_with_who_had_it():
    collector = Collector(lambda: 0.0)
    hold = Hold(collector)
    hold.begin()
    assert collector.is_held
    del hold
    assert not collector.is_held


async def test_requests_that_fail_or_are_given_up_hold_nothing_back(full_collections):
    async def fail():
        await walk(100)
        raise ValueError("no")

    scheduler = ticking()
    with pytest.raises(ValueError, match="no"):
        await outcome(scheduler.serve(fail()))
    task = asyncio.ensure_future(scheduler.in_slices(walk(1_000_000)))
    answer = scheduler.serve(walk(1_000_000))
    await asyncio.sleep(0)
    assert scheduler.collector.is_held
    task.cancel()
    answer.happened.cancel()
    await until(lambda: not scheduler.collector.is_held)
    await until(task.done)
    assert task.cancelled()


async def test_what_does_not_take_long_holds_nothing_back():
    scheduler = Scheduler(lambda: 0.0, Collector(lambda: 0.0))
    held = []

    async def job():
        await walk(10)
        held.append(scheduler.collector.is_held)

    scheduler.serve(job())
    assert held == [False]
