"""Fetches that wait: woken by bytes, by a change, or by the time; and nothing left behind."""

import asyncio

import pytest

from broker.partitions.waiting import Waiting


@pytest.fixture
def waiting():
    return Waiting()


async def started(coroutine):
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0)
    return task


async def test_enough_bytes_wake_a_wait(waiting):
    task = await started(waiting.wait(["p"], 10, 60))
    waiting.notify("p", 4)
    await asyncio.sleep(0)
    assert not task.done()
    waiting.notify("p", 6)
    assert await task is True
    assert len(waiting) == 0


async def test_bytes_of_several_partitions_add_up(waiting):
    task = await started(waiting.wait(["p", "q"], 10, 60))
    waiting.notify("p", 5)
    waiting.notify("q", 5)
    assert await task is True


async def test_another_partition_wakes_nobody(waiting):
    task = await started(waiting.wait(["p"], 1, 60))
    waiting.notify("q", 100)
    await asyncio.sleep(0)
    done = task.done()
    waiting.wake("p")
    await task
    assert done is False


async def test_time_is_over(waiting):
    assert await waiting.wait(["p"], 1, 0) is False
    assert len(waiting) == 0


async def test_a_cancelled_wait_leaves_nothing(waiting):
    task = await started(waiting.wait(["p", "q"], 1, 60))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(waiting) == 0


async def test_wake_all(waiting):
    tasks = [await started(waiting.wait([name], 1, 60)) for name in "pqr"]
    waiting.wake_all()
    assert await asyncio.gather(*tasks) == [True, True, True]
