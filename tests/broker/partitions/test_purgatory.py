"""Who waits for offsets of a log: when each is notified; and nothing left behind."""

import asyncio
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from tidelog.broker.partitions.fetch.delayed_fetch import wait_for_bytes
from tidelog.broker.partitions.purgatory import Purgatory
from tidelog.storage.log.high_watermark import AT_ONCE


class Written(NamedTuple):
    """Stands for the result of an append."""

    size: int
    last_offset: int = 0
    duplicate: bool = False


@pytest.fixture
def counted():
    """The appends that others may read, as they are counted."""
    return []


@pytest.fixture
def waiting(counted):
    return Purgatory(lambda _, appended: counted.append(appended))


async def started(coroutine):
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(0)
    return task


async def test_enough_bytes_wake_a_wait(waiting):
    task = await started(wait_for_bytes(waiting, ["p"], 10, 60))
    waiting.appended("p", Written(4))
    await asyncio.sleep(0)
    assert not task.done()
    waiting.appended("p", Written(6))
    assert await task is True
    assert len(waiting) == 0


async def test_bytes_of_several_partitions_add_up(waiting):
    task = await started(wait_for_bytes(waiting, ["p", "q"], 10, 60))
    waiting.appended("p", Written(5))
    waiting.appended("q", Written(5))
    assert await task is True


async def test_another_partition_wakes_nobody(waiting):
    task = await started(wait_for_bytes(waiting, ["p"], 1, 60))
    waiting.appended("q", Written(100))
    await asyncio.sleep(0)
    done = task.done()
    waiting.wake("p")
    await task
    assert done is False


async def test_time_is_over(waiting):
    assert await wait_for_bytes(waiting, ["p"], 1, 0) is False
    assert len(waiting) == 0


async def test_a_cancelled_wait_leaves_nothing(waiting):
    task = await started(wait_for_bytes(waiting, ["p", "q"], 1, 60))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(waiting) == 0


async def test_wake_all(waiting):
    tasks = [await started(wait_for_bytes(waiting, [name], 1, 60)) for name in "pqr"]
    waiting.wake_all()
    assert await asyncio.gather(*tasks) == [True, True, True]


async def test_a_duplicate_brings_no_bytes(waiting, counted):
    task = await started(wait_for_bytes(waiting, ["p"], 10, 60))
    waiting.appended("p", Written(100, duplicate=True))
    await asyncio.sleep(0)
    assert (task.done(), len(counted)) == (False, 1)
    waiting.wake("p")
    await task


class Log(SimpleNamespace):
    """Stands for a partition, by its offsets."""

    is_deleted = False
    offline = None
    high_watermark = durable_offset = 0
    __hash__ = object.__hash__

    @property
    def state(self):
        return SimpleNamespace(policy=AT_ONCE, ends=(0, self.high_watermark, 0))

    def advance(self, offset):
        self.high_watermark = self.durable_offset = offset


async def test_appends_above_the_high_watermark_wait_for_it(waiting, counted):
    log = Log()
    first, second = Written(10, 0), Written(5, 1)
    waiting.note_append(log, first)
    waiting.note_append(log, second)
    task = await started(wait_for_bytes(waiting, [log], 15, 60))
    waiting.advanced(log)
    assert counted == []
    log.advance(1)
    waiting.advanced(log)
    assert counted == [first]
    await asyncio.sleep(0)
    assert not task.done()
    log.advance(2)
    waiting.advanced_anywhere()
    assert counted == [first, second]
    assert await task is True
    waiting.advanced(log)
    assert counted == [first, second], "counted once"


@pytest.mark.parametrize("lost", [{"is_deleted": True}, {"offline": "a dead disk"}])
def test_appends_to_a_log_that_is_gone_are_dropped(waiting, counted, lost):
    log = Log()
    waiting.note_append(log, Written(10))
    for name, value in lost.items():
        setattr(log, name, value)
    log.advance(1)
    waiting.advanced(log)
    log.is_deleted, log.offline = False, None
    waiting.advanced(log)
    assert counted == []


async def test_an_acknowledgement_waits_for_the_high_watermark_and_for_the_disk(waiting):
    log, loop = Log(), asyncio.get_running_loop()
    answers = [loop.create_future() for _ in range(2)]
    for offset, answer in enumerate(answers):
        waiting.add_acknowledgement(log, Written(1, offset), answer)
    log.high_watermark = 2
    waiting.advanced(log)
    log.high_watermark, log.durable_offset = 0, 2
    waiting.advanced(log)
    assert [answer.done() for answer in answers] == [False, False]
    log.advance(1)
    waiting.advanced(log)
    assert [answer.done() for answer in answers] == [True, False]
    assert answers[0].result().last_offset == 0
    log.advance(2)
    waiting.advanced_anywhere()
    assert answers[1].result().last_offset == 1


async def test_a_failed_sync_fails_every_acknowledgement_but_loses_no_append(waiting, counted):
    log, loop = Log(), asyncio.get_running_loop()
    answer, gone = loop.create_future(), loop.create_future()
    gone.cancel()
    for each in (answer, gone):
        waiting.add_acknowledgement(log, Written(1), each)
    waiting.note_append(log, Written(1))
    waiting.refuse(log, OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        await answer
    log.advance(1)
    waiting.advanced_anywhere()
    assert counted == [Written(1)]
