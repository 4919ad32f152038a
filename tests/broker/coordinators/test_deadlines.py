"""The timer of a coordinator: keys that come and go leave nothing behind."""

from __future__ import annotations

import asyncio
import tracemalloc

from tidelog.broker.clock import ManualClock
from tidelog.broker.coordinators.deadlines import Deadlines


async def test_keys_that_were_deleted_do_not_fill_the_heap():
    reached = []
    clock = ManualClock(5_000)
    now_ms = clock.steady_ms()
    deadlines = Deadlines(clock, reached.append)
    for number in range(3):
        deadlines.set(f"kept-{number}", now_ms - 3 + number)
    tracemalloc.start()
    for number in range(20_000):
        deadlines.set(f"gone-{number}", now_ms + 3_600_000)
        deadlines.delete(f"gone-{number}")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 500_000  # some 150 bytes for each of the 20,000 otherwise
    running = asyncio.ensure_future(deadlines.run())
    await asyncio.sleep(0)
    running.cancel()
    assert reached == [f"kept-{number}" for number in range(3)]
