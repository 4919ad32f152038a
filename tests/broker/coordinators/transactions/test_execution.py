"""The markers of many partitions are written in slices; the clock of the slices is a counter."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace

from tests.broker.network.test_scheduler import ticking, until
from tidelog.broker.clock import ManualClock
from tidelog.broker.coordinators.transactions.execution import Execution
from tidelog.broker.coordinators.transactions.messages import SendMarkers
from tidelog.protocol.transaction_log import ProducerIdAndEpoch
from tidelog.storage.log.partition import Appended

COUNT = 200


class Runtime:
    """Has one id, whose epoch is known, until another broker has it."""

    def __init__(self) -> None:
        self.is_coordinator, self.tasks = True, []

    def has(self, _entry) -> bool:
        return self.is_coordinator

    def spawn(self, work) -> None:
        self.tasks.append(asyncio.ensure_future(work))


class Machine:
    """Notes the markers; the last one asks for nothing."""

    pending_state, transactional_id = "PREPARE_COMMIT", "id"

    def __init__(self) -> None:
        self.marked = []

    def marker_written(self, name, _now):
        self.marked.append(name)
        return []


class Markers:
    """Writes each marker at once."""

    def begin(self, *_, **__) -> Appended:
        return Appended(0, 0, -1, 0, 1, 78, duplicate=False, converted=False)


def sending(count: int):
    """An execution that has been asked for the markers of so many partitions."""
    node = SimpleNamespace(clock=ManualClock(0), scheduler=ticking())
    runtime, machine = Runtime(), Machine()
    execution = Execution(node, runtime, Markers(), None)
    entry = SimpleNamespace(transaction=machine, epoch=0, settled=set(), not_before_ms=0)
    names = frozenset(("t", index) for index in range(count))
    execution.act(entry, [SendMarkers(ProducerIdAndEpoch(1, 0), is_commit=True, partitions=names)])
    return runtime, machine


async def test_a_few_markers_are_written_at_once():
    _, machine = sending(3)
    assert machine.marked == [("t", 0), ("t", 1), ("t", 2)]


async def test_many_markers_give_way_to_the_loop():
    _, machine = sending(COUNT)
    seen = [0, len(machine.marked)]  # after each round of the loop
    for _ in range(10 * COUNT):
        await asyncio.sleep(0)
        seen.append(len(machine.marked))
    assert sorted(machine.marked) == [("t", index) for index in range(COUNT)]
    assert max(after - before for before, after in pairwise(seen)) < COUNT // 10


async def test_markers_end_when_another_broker_coordinates_the_id():
    runtime, machine = sending(COUNT)
    await until(lambda: machine.marked)
    runtime.is_coordinator = False
    seen = len(machine.marked)
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert len(machine.marked) <= seen + 1
