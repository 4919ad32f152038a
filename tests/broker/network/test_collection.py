"""Full collections of garbage wait while long requests are under way; the clock is a counter."""

from __future__ import annotations

import asyncio
import gc

import pytest

from broker.network.collection import ALLOWED_S, HELD_S, Collection
from broker.network.turns import Turns, paced
from tests.broker.network.test_turns import outcome, ticking, until, walk

_STEP_S = 0.00001  # all of a test is over before HELD_S are


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
    assert turns.collection.is_held
    task.cancel()
    answer.happened.cancel()
    await until(lambda: not turns.are_wanted)
    assert task.cancelled()
    assert not turns.collection.is_held


async def test_what_does_not_take_long_holds_nothing_back():
    turns = Turns(lambda: 0.0)
    held = []

    def job():
        walk(10)
        held.append(turns.collection.is_held)

    turns.serve(job)
    assert held == [False]


def test_what_never_ends_lets_python_look_now_and_then(full_collections):
    now_s = 1000.0
    collection = Collection(lambda: now_s)
    collection.hold()
    seen = []
    for _ in range(int(3 * (HELD_S + ALLOWED_S))):
        collection.update()
        seen.append(collection.is_held)
        now_s += 1.0
    collection.release()
    assert seen.count(False) == 3 * ALLOWED_S
    assert not collection.is_held
