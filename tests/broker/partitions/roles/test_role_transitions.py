"""Thousands of roles that change at once: in slices on the loop, together in threads, and by disk."""

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from tidelog.broker.partitions.role_transitions import RoleTransitions
from tidelog.broker.pools import SyncPools
from tidelog.protocol.errors import KafkaStorageError

A, B = Path("/a"), Path("/b")
MANY = 1_000


@pytest.fixture
def pools():
    made = SyncPools([A, B])
    yield made
    made.stop()


@pytest.fixture
def work(pools):
    return RoleTransitions(SimpleNamespace(pools=SimpleNamespace(syncs=pools)))


def log_in(directory, number=0):
    return SimpleNamespace(directory=directory / f"t-{number}")


async def turns_of_the_loop(task):
    """How often the loop turns until a task has ended."""
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_a_few_changes_begin_at_once_and_many_one_after_another(work):
    begun = []

    async def change(number):
        await work.turn()
        begun.append(number)

    async def changes(numbers):
        await asyncio.gather(*map(change, numbers))

    assert await turns_of_the_loop(asyncio.create_task(changes(range(5)))) < 6
    assert await turns_of_the_loop(asyncio.create_task(changes(range(5, MANY)))) > MANY / 50
    assert begun == list(range(MANY))


async def test_each_learns_how_its_own_work_has_ended(work):
    done = []

    def begin(number):
        done.append(number)
        if number % 10 == 3:
            raise KafkaStorageError(str(number))

    ended = await asyncio.gather(
        *(work.run(log_in(A, number), begin, number) for number in range(MANY)),
        return_exceptions=True,
    )
    assert sorted(done) == list(range(MANY))
    assert [number for number, error in enumerate(ended) if error is None] == [
        number for number in range(MANY) if number % 10 != 3
    ]
    assert ended[13].message == "13"


async def test_the_loop_hears_of_what_has_ended_in_slices(work):
    go_on = threading.Event()
    waiting = [asyncio.ensure_future(work.run(log_in(A), go_on.wait)) for _ in range(8)]
    waiting += [asyncio.ensure_future(work.run(log_in(A), int)) for _ in range(MANY)]
    await asyncio.sleep(0)
    go_on.set()
    most, before = 0, 0
    while before < len(waiting):
        await asyncio.sleep(0)
        now = sum(each.done() for each in waiting)
        most, before = max(most, now - before), now
    assert most <= 100


async def test_a_disk_that_does_not_answer_holds_up_no_other_one(work):
    answers = threading.Event()
    stuck = [asyncio.ensure_future(work.run(log_in(A), answers.wait)) for _ in range(20)]
    await asyncio.gather(*(work.run(log_in(B), int) for _ in range(20)))
    assert not any(each.done() for each in stuck)
    answers.set()
    await asyncio.gather(*stuck)


async def test_who_no_longer_waits_holds_up_nobody(work):
    answers = threading.Event()
    first = asyncio.ensure_future(work.run(log_in(A), answers.wait))
    second = asyncio.ensure_future(work.run(log_in(A), int))
    await asyncio.sleep(0)
    first.cancel()
    answers.set()
    await second
    await asyncio.gather(*(work.run(log_in(A), int) for _ in range(20)))


async def test_few_logs_of_a_directory_are_opened_at_a_time():
    under_way, most = {A: 0, B: 0}, {A: 0, B: 0}

    async def open_partition(topic, index):
        where = directory_of(topic, index)
        under_way[where] += 1
        most[where] = max(most[where], under_way[where])
        await asyncio.sleep(0)
        under_way[where] -= 1
        return index

    def directory_of(_topic, index):
        return B if index % 2 else A

    store = SimpleNamespace(is_closed=lambda _, index: index != 7, directory_of=directory_of)
    partitions = SimpleNamespace(open=open_partition, opened=lambda *_: "open already")
    node = SimpleNamespace(store=store, partitions=partitions)
    work = RoleTransitions(node)
    found = await asyncio.gather(*(work.open("t", index) for index in range(20)))
    assert found == [index if index != 7 else "open already" for index in range(20)]
    assert most == {A: 2, B: 2}
