"""The roles of a topic of many partitions begin and end in slices: all others have their turn meanwhile.

The work is counted in lines of the code of roles that the event loop executes.
"""

from __future__ import annotations

import asyncio
import sys
import threading

from tests.broker.polls import Polls
from tests.broker.replicas.inside import brokers, eventually

PARTITIONS = 600
_COUNTED = ("replicas.py", "local_replica.py", "leader.py", "led.py")
_MOST_LINES = 12_000


class RoleLines:
    """Lines of the code of roles that this thread has executed."""

    def __init__(self):
        self.count = 0
        self._thread = threading.get_ident()

    def trace(self, frame, event, _):
        if threading.get_ident() != self._thread:
            return None
        if event == "call" and not frame.f_code.co_filename.endswith(_COUNTED):
            return None
        self.count += event == "line"
        return self.trace


async def test_a_topic_of_many_partitions_comes_and_goes_in_slices(tmp_path):
    lines = RoleLines()
    async with brokers(tmp_path, 1) as one:
        mine = one.any.replicas
        polls = Polls(asyncio.get_running_loop(), lambda: lines.count)

        async def most_lines(work):
            before = sys.gettrace()
            sys.settrace(lines.trace)
            await asyncio.sleep(0)
            polls.forget()
            try:
                await work()
            finally:
                sys.settrace(before)
            return polls.longest

        async def come():
            await one.create("t", [(1,)] * PARTITIONS)
            await eventually(lambda: len(mine.here()) == PARTITIONS)

        async def go():
            await one.any.node.metadata.delete_topic("t")
            await eventually(lambda: not mine.here() and not mine.leaving())

        for work in (come, mine._tick, go):
            assert 0 < await most_lines(work) < _MOST_LINES
