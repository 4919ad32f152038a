"""What the garbage collector looks at, and when.

It does not look at the logs that stay, nor for ever past what has gone. Full collections wait while long
requests are under way; the clock is a counter.
"""

from __future__ import annotations

import asyncio
import gc
import uuid

import pytest

from broker.garbage import ALLOWED_S, GROWTH, HELD_S, LEAST_GONE, Collector, Hold
from broker.network.turns import Turns, paced
from config.topic import TopicConfig
from storage.directory.store import LogStore
from tests.broker.network.test_turns import outcome, ticking, until, walk

_STEP_S = 0.00001  # all of a test is over before HELD_S are


class Node:
    """Part of a cycle."""

    def __init__(self):
        self.me = self


def alive():
    return sum(type(each) is Node for each in gc.get_objects())


@pytest.fixture
def settled():
    """A collector that begins with a hundred logs; it is as before afterwards."""
    collector = Collector(lambda: 0.0)
    collector.settle(100)
    yield collector
    gc.unfreeze()
    gc.collect()


def looked_at(kept):
    """How many of the objects a full collection would look at."""
    known = set(map(id, gc.get_objects()))
    return sum(id(each) in known for each in kept)


def test_what_has_grown_is_not_looked_at_again(settled):
    kept = [Node() for _ in range(50)]
    settled.look(100 + GROWTH - 1)
    assert looked_at(kept) == 50
    settled.look(100 + GROWTH)
    assert looked_at(kept) == 0
    more = [Node() for _ in range(50)]
    settled.look(100 + 2 * GROWTH - 1)
    assert looked_at(more) == 50
    settled.look(100 + 2 * GROWTH)
    assert looked_at(more) == 0


def test_garbage_is_collected_before_the_others_are_frozen(settled):
    kept = Node()
    for _ in range(20):
        Node()
    gc.collect(0)  # it is in the next generation
    settled.look(100 + GROWTH)
    gc.unfreeze()
    assert alive() == 1
    assert kept.me is kept


def test_cycles_go_when_many_logs_have_gone(settled):
    kept = [Node() for _ in range(50)]
    most = 100 + LEAST_GONE
    settled.look(most)
    del kept
    gc.collect()
    settled.look(most - LEAST_GONE + 1)
    gc.unfreeze()
    assert alive() == 50, "they were frozen, and too few logs have gone"
    gc.freeze()
    settled.look(most - LEAST_GONE)
    assert alive() == 0
    gc.unfreeze()
    assert alive() == 0


def test_logs_that_come_and_go_are_frozen_once(settled):
    settled.look(100 + GROWTH)
    settled.look(100)
    kept = [Node()]
    settled.look(100 + GROWTH - 1)
    assert looked_at(kept) == 1
    settled.look(100 + GROWTH)
    assert looked_at(kept) == 0


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


# -- long requests -----------------------------------------------------------------------------------


class Cell:
    """What a request leaves many of; each is visited by a full collection."""

    def __init__(self) -> None:
        self.other = None


@pytest.fixture
def full_collections():
    """How many full collections there were since the test began."""
    seen = []

    def note(phase, info):
        if phase == "start" and info["generation"] == 2:
            seen.append(info)

    gc.collect()
    gc.freeze()  # what other tests have left would put a full collection off
    gc.collect()
    gc.callbacks.append(note)
    before = gc.get_threshold()
    yield seen
    gc.callbacks.remove(note)
    gc.unfreeze()
    assert gc.get_threshold() == before, "what was held back has not been allowed again"


def many_cells(count: int = 100_000) -> int:
    """Makes so much that Python would look at everything several times."""
    return len([Cell() for _ in paced(range(count))])


def test_much_that_lives_has_python_look_at_everything(full_collections):
    assert many_cells() == 100_000
    assert full_collections, "the tests below would show nothing"


async def test_no_request_in_slices_has_python_look_at_everything(full_collections):
    turns = ticking(_STEP_S)
    answers = [outcome(turns.serve(many_cells)) for _ in range(2)]
    full_collections.clear()
    assert await asyncio.gather(*answers) == [100_000] * 2
    assert not full_collections


async def test_no_coroutine_in_slices_has_either(full_collections):
    async def pending():
        walk(1_000)
        return many_cells()

    assert await ticking(_STEP_S).in_slices(pending()) == 100_000
    assert not full_collections


async def test_what_a_long_request_goes_on_with_holds_them_back_from_its_beginning():
    """What the request was decoded to is there all the time."""
    turns = ticking()

    async def pending():
        return turns.collector.is_held

    def job(steps):
        walk(steps)
        return turns.in_slices(pending())

    coming = await outcome(turns.serve(lambda: job(100)))
    assert turns.collector.is_held
    assert await coming
    assert not turns.collector.is_held
    assert not await (await outcome(turns.serve(lambda: job(0))))


def test_a_hold_that_nobody_ends_ends_with_who_had_it():
    collector = Collector(lambda: 0.0)
    hold = Hold(collector)
    hold.begin()
    assert collector.is_held
    del hold
    assert not collector.is_held


async def test_requests_that_fail_or_are_given_up_hold_nothing_back(full_collections):
    def fail():
        walk(100)
        raise ValueError("no")

    async def pending():
        walk(1_000_000)

    turns = ticking()
    with pytest.raises(ValueError, match="no"):
        await outcome(turns.serve(fail))
    task = asyncio.ensure_future(turns.in_slices(pending()))
    answer = turns.serve(lambda: walk(1_000_000))
    await asyncio.sleep(0)
    assert turns.collector.is_held
    task.cancel()
    answer.happened.cancel()
    await until(lambda: not turns.are_wanted)
    assert task.cancelled()
    assert not turns.collector.is_held


async def test_what_does_not_take_long_holds_nothing_back():
    turns = Turns(lambda: 0.0, Collector(lambda: 0.0))
    held = []

    def job():
        walk(10)
        held.append(turns.collector.is_held)

    turns.serve(job)
    assert held == [False]


def test_what_never_ends_lets_python_look_now_and_then(full_collections):
    now_s = 1000.0
    collector = Collector(lambda: now_s)
    collector.hold()
    seen = []
    for _ in range(int(3 * (HELD_S + ALLOWED_S))):
        collector.update()
        seen.append(collector.is_held)
        now_s += 1.0
    collector.release()
    assert seen.count(False) == 3 * ALLOWED_S
    assert not collector.is_held
