"""The roles of a topic of many partitions begin and end in slices: all others have their turn meanwhile.

The work is counted in lines of the code of roles that the event loop executes. What happens to many
partitions at once is one line of the log.
"""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from tests.broker.partitions.inside import brokers, eventually
from tests.broker.polls import Polls

PARTITIONS = 600
_COUNTED = ("assigned.py", "partitions/partition.py", "leader.py", "leaders.py")
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


@pytest.mark.slow
async def test_a_topic_of_many_partitions_comes_and_goes_in_slices(tmp_path):
    lines = RoleLines()
    async with brokers(tmp_path, 1) as one:
        mine = one.any.replicas.assigned
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
            await eventually(lambda: len(mine.here()) == PARTITIONS, deadline_s=60)

        async def go():
            await one.any.node.metadata.delete_topic("t")
            await eventually(lambda: not mine.here() and not mine.leaving(), deadline_s=60)

        for work in (come, one.any.replicas.tick, go):
            assert 0 < await most_lines(work) < _MOST_LINES


async def test_a_change_of_many_partitions_is_a_line_with_their_number(two, caplog):
    count = 120

    def of(message):
        found = [each for each in caplog.records if each.message == message]
        return sum(each.partitions for each in found)

    caplog.set_level("INFO")
    await two.create("t", [(1, 2)] * count)
    await eventually(lambda: of("partition leaders started") == count)
    await eventually(lambda: of("partition followers started") == count)
    await two[1].lose_session()
    await eventually(lambda: of("partition leaders stopped") == count)
    told = [each for each in caplog.records if each.name.startswith("tidelog.")]
    # A window of a second each: on a busy machine a change takes several.
    assert len(told) < count
    started = next(each for each in told if each.message == "partition leaders started")
    assert started.logs.startswith("t-")
    shown = [str(vars(each)) for each in told]
    assert not any(
        str(topic_id) in line for topic_id, _ in two[1].replicas.assigned.here() for line in shown
    )
