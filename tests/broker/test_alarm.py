"""A time at which to call a function, which is set again and again."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tidelog.broker.alarm import Alarm

_PATIENCE_S = 20


class Bell:
    """Notes when it rang, on the loop's clock."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.alarm = Alarm(self._ring)
        self.rang: list[float] = []
        self._heard = asyncio.Event()

    def _ring(self) -> None:
        self.rang.append(self.loop.time())
        self._heard.set()

    async def heard(self) -> float:
        async with asyncio.timeout(_PATIENCE_S):
            await self._heard.wait()
        self._heard.clear()
        return self.rang[-1]


async def test_it_rings_once_and_not_before_its_time():
    bell = Bell()
    at_s = bell.loop.time() + 0.02
    bell.alarm.set(at_s)
    assert await bell.heard() >= at_s
    await asyncio.sleep(0.03)
    assert len(bell.rang) == 1


@pytest.mark.parametrize("first_s", [0.01, 0.05])
async def test_the_time_that_was_set_last_counts(first_s):
    bell = Bell()
    at_s = bell.loop.time() + 0.03
    bell.alarm.set(bell.loop.time() + first_s)
    bell.alarm.set(at_s)
    assert await bell.heard() >= at_s
    await asyncio.sleep(0.04)
    assert len(bell.rang) == 1


async def test_only_a_sooner_time_replaces_another():
    bell = Bell()
    now_s = bell.loop.time()
    bell.alarm.set(now_s + 600)
    bell.alarm.set_sooner(now_s + 0.02)
    bell.alarm.set_sooner(now_s + 500)
    assert await bell.heard() >= now_s + 0.02
    bell.alarm.set_sooner(bell.loop.time() + 0.01)  # nothing is set any more
    await bell.heard()
    assert len(bell.rang) == 2


@pytest.mark.parametrize("end", [Alarm.clear, Alarm.close])
async def test_it_does_not_ring_after_its_end_until_it_is_set_again(end):
    bell = Bell()
    bell.alarm.set(bell.loop.time() + 0.01)
    end(bell.alarm)
    await asyncio.sleep(0.03)
    assert bell.rang == []
    bell.alarm.set(bell.loop.time() + 0.01)
    await bell.heard()


@pytest.mark.parametrize("ahead_s", [-1, 0, 0.0004, 0.0006])
def test_a_time_that_has_come_is_replaced(ahead_s):
    """The loop of uvloop has no timer for what is due within half a millisecond."""

    async def ring():
        bell = Bell()
        bell.alarm.set(bell.loop.time() + ahead_s)
        at_s = bell.loop.time() + 0.02
        bell.alarm.set(at_s)
        assert await bell.heard() >= at_s
        assert len(bell.rang) == 1

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(ring())
