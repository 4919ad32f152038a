"""Fetches that wait: woken by bytes, by a change, or by the time; and nothing left behind."""

import asyncio

import pytest

from broker.partitions.waiting import Waiting


@pytest.fixture
def waiting():
    return Waiting()


def run(coroutine):
    return asyncio.run(coroutine)


async def started(coroutine):
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0)
    return task


def test_enough_bytes_wake_a_wait(waiting):
    async def scenario():
        task = await started(waiting.wait(["p"], 10, 60))
        waiting.told("p", 4)
        await asyncio.sleep(0)
        assert not task.done()
        waiting.told("p", 6)
        return await task

    assert run(scenario()) is True
    assert len(waiting) == 0


def test_bytes_of_several_partitions_add_up(waiting):
    async def scenario():
        task = await started(waiting.wait(["p", "q"], 10, 60))
        waiting.told("p", 5)
        waiting.told("q", 5)
        return await task

    assert run(scenario()) is True


def test_another_partition_wakes_nobody(waiting):
    async def scenario():
        task = await started(waiting.wait(["p"], 1, 60))
        waiting.told("q", 100)
        await asyncio.sleep(0)
        done = task.done()
        waiting.wake("p")
        await task
        return done

    assert run(scenario()) is False


def test_time_is_over(waiting):
    assert run(waiting.wait(["p"], 1, 0)) is False
    assert len(waiting) == 0


def test_a_cancelled_wait_leaves_nothing(waiting):
    async def scenario():
        task = await started(waiting.wait(["p", "q"], 1, 60))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario())
    assert len(waiting) == 0


def test_wake_all(waiting):
    async def scenario():
        tasks = [await started(waiting.wait([name], 1, 60)) for name in "pqr"]
        waiting.wake_all()
        return await asyncio.gather(*tasks)

    assert run(scenario()) == [True, True, True]
