"""A timer knows its time, also where the event loop has no timer for it."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from tidelog.broker.timer import Timer

_PATIENCE_S = 20


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("ahead_s", [-1, 0, 0.0004, 0.02])
def test_a_timer_knows_its_time_and_can_be_cancelled(new_loop, ahead_s):
    async def run():
        called: asyncio.Queue[str] = asyncio.Queue()
        at_s = asyncio.get_running_loop().time() + ahead_s
        cancelled = Timer(at_s, called.put_nowait, "cancelled")
        kept = Timer(at_s, called.put_nowait, "kept")
        assert (cancelled.at_s, kept.at_s) == (at_s, at_s)
        cancelled.cancel()
        async with asyncio.timeout(_PATIENCE_S):
            assert await called.get() == "kept"
        await asyncio.sleep(0.01)
        assert called.empty()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
