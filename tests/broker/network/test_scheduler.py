"""Requests in slices, and the queue of those who have had their turn; the clock is a counter."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from tidelog.broker.coordinators.groups.committed import Commit, Committed, Committer
from tidelog.broker.network.answers import Pending
from tidelog.broker.network.memory.garbage import Collector
from tidelog.broker.network.scheduler import (
    ROUND_S,
    SLICE_S,
    Scheduler,
    at_once,
    checkpoint,
    listed,
)
from tidelog.broker.timer import timeout


def ticking(step_s: float = 0.001) -> Scheduler:
    """A queue for which each look at the clock takes `step_s`."""
    seconds = count()

    def now_s() -> float:
        return next(seconds) * step_s

    return Scheduler(now_s, Collector(now_s))


async def outcome(answer):
    """What a job has returned in the end."""
    while isinstance(answer, Pending):
        await answer.happened
        answer = answer.finish()
    return answer


async def iterations_of(answer) -> int:
    """How often the loop has polled its sockets until an answer was there."""
    done = asyncio.ensure_future(outcome(answer))
    polled = 0
    while not done.done():
        await asyncio.sleep(0)
        polled += 1
    done.result()
    return polled


async def until(condition):
    """Lets the loop go on until something holds."""
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came")


async def walk(items: int) -> int:
    for _ in range(items):
        await checkpoint()
    return items


async def test_what_does_not_take_long_is_answered_at_once():
    assert ticking(0.0).serve(walk(1_000)) == 1_000


async def test_what_takes_long_gives_way_to_the_loop():
    answer = ticking().serve(walk(1_000))
    assert isinstance(answer, Pending)
    assert await iterations_of(answer) > 100


async def test_two_that_take_long_share_the_loop():
    scheduler, seen = ticking(), []

    async def job(name):
        for _ in range(100):
            seen.append(name)
            await checkpoint()

    await asyncio.gather(*(outcome(scheduler.serve(job(name))) for name in "ab"))
    longest = max(
        len(run) for run in "".join(seen).replace("ab", "a b").replace("ba", "b a").split()
    )
    assert longest <= 2 + SLICE_S / 0.001


async def test_an_error_is_raised_where_the_answer_is_asked_for():
    async def fail(items):
        await walk(items)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ticking(0.0).serve(fail(10))
    with pytest.raises(ValueError, match="no"):
        await outcome(ticking().serve(fail(100)))


async def test_one_for_which_nobody_waits_ends_at_its_next_turn():
    ended = []

    async def job():
        try:
            await walk(1_000_000)
        except asyncio.CancelledError:
            ended.append(True)
            raise

    answer = ticking().serve(job())
    await asyncio.sleep(0)
    answer.happened.cancel()
    await until(lambda: ended)


async def test_every_step_of_a_coroutine_may_pause():
    async def pending():
        first = await walk(200)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0.001)
        return first + await walk(200)

    assert await iterations_of(ticking().serve(pending())) > 50  # however short the wait is


@pytest.mark.parametrize("items", [0, 200])
async def test_a_time_limit_needs_no_task(items):
    async def pending():
        await walk(items)
        with pytest.raises(TimeoutError):
            async with timeout(0.001):
                await asyncio.get_running_loop().create_future()
        return await walk(200)

    assert await outcome(ticking().serve(pending())) == 200


async def test_what_waits_for_nothing_has_no_task():
    async def job():
        return asyncio.current_task()

    scheduler = ticking(0.0)
    assert await asyncio.ensure_future(job()) is not None
    seen = []
    asyncio.get_running_loop().call_soon(lambda: seen.append(scheduler.serve(job())))
    await until(lambda: seen)
    assert seen == [None]


def test_in_a_thread_a_coroutine_runs_at_once():
    assert at_once(walk(1_000)) == 1_000

    async def waiting(loop):
        await loop.create_future()

    loop = asyncio.new_event_loop()
    with pytest.raises(RuntimeError, match="waits for something"):
        at_once(waiting(loop))
    loop.close()


async def test_a_list_is_made_in_steps():
    answer = ticking().serve(listed(range(10_000)))
    assert await iterations_of(answer) > 20
    assert answer.finish() == list(range(10_000))
    assert await listed(range(10), lambda each: each % 2) == [1, 3, 5, 7, 9]


async def test_a_coroutine_in_slices_can_be_cancelled():
    seen = []

    async def pending():
        try:
            await walk(1_000_000)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.ensure_future(ticking().in_slices(pending()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_who_is_new_comes_before_those_who_have_had_a_turn():
    scheduler, seen = ticking(), []
    for name in "abc":
        scheduler.join(lambda name=name: seen.append(name))
    scheduler.join(lambda: seen.append("new"), is_new=True)
    await until(lambda: not scheduler.has_round)
    assert seen.index("new") <= 1
    assert sorted(seen) == ["a", "b", "c", "new"]


async def test_a_turn_that_fails_does_not_end_the_queue(caplog):
    scheduler, seen = ticking(), []

    def fail():
        raise ValueError("broken")

    scheduler.join(fail)
    scheduler.join(lambda: seen.append(1))
    await until(lambda: not scheduler.has_round)
    assert seen == [1]
    assert "broken" in caplog.text


async def test_making_the_records_of_a_long_commit_gives_way():
    offsets = {("t", index): Committed(index, -1, "", 0) for index in range(1_000)}
    committer = Committer()
    answer = ticking().serve(Commit.of_many("g", committer, offsets))
    assert await iterations_of(answer) > 100


async def test_nothing_goes_on_after_the_end():
    scheduler = ticking()
    answers = [scheduler.serve(walk(1_000_000)) for _ in range(3)]
    await asyncio.sleep(0)
    scheduler.close()
    await until(lambda: not scheduler.has_round)
    assert not any(answer.happened.done() for answer in answers)
    for answer in answers:
        answer.happened.cancel()


# -- rounds: all who are served between two polls of the sockets share one time ---------------------

_STEP_S = 0.0001
_MOST_S = ROUND_S + 2 * SLICE_S  # a round, and what is over before it is noticed


class Work:
    """A clock that only work moves, and how far it has moved at most in one round of the loop."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.longest_s = 0.0
        self.scheduler = Scheduler(self._seconds, Collector(self._seconds))

    def _seconds(self) -> float:
        return self.now_s

    async def walk(self, steps: int) -> int:
        for _ in range(steps):
            self.now_s += _STEP_S
            await checkpoint()
        return steps

    async def walk_in_steps(self, steps: int) -> int:
        for _ in range(4):
            await self.walk(steps // 4)
            happened = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(happened.set_result, None)
            await happened
        return steps

    async def watch(self) -> None:
        """Notes the longest round, until cancelled."""
        while True:
            began_s = self.now_s
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, self.now_s - began_s)


async def hold_of(work: Work, *pending) -> float:
    """The longest hold of the loop in seconds while all of these are served."""
    watching = asyncio.ensure_future(work.watch())
    await asyncio.sleep(0)
    assert await asyncio.gather(*pending) == [400] * len(pending)
    watching.cancel()
    return work.longest_s


async def test_many_coroutines_that_begin_at_once_share_a_round():
    work = Work()
    pending = [work.scheduler.in_slices(work.walk_in_steps(400)) for _ in range(20)]
    assert await hold_of(work, *pending) < _MOST_S


async def test_many_requests_that_come_at_once_share_a_round():
    work = Work()

    async def begin():
        return await outcome(work.scheduler.serve(work.walk(400)))

    assert await hold_of(work, *(begin() for _ in range(20))) < _MOST_S


async def test_many_short_requests_make_those_after_them_queue():
    work = Work()
    for _ in range(100):
        if work.scheduler.is_crowded(work.now_s):
            break
        work.scheduler.serve(work.walk(4))
    assert work.now_s < 1.5 * ROUND_S
    await until(lambda: not work.scheduler.has_round)
