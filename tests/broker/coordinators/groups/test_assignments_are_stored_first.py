"""No member gets an assignment that is not in the log: one who takes over would not know it."""

from __future__ import annotations

import asyncio
import threading

from tests.broker.inside import Inside
from tests.broker.members import REBALANCE_IN_PROGRESS, RawMember
from tests.broker.subject import eventually
from tidelog.broker.coordinators.internal_topic import InternalTopic
from tidelog.protocol.errors import NotEnoughReplicas


def _joined(broker):
    """The leader and a second member of a group that waits for its assignment."""
    one, two = RawMember(broker, "g"), RawMember(broker, "g")
    assert one.join_now()["error_code"] == 0
    held = broker.node.coordinator.groups.held
    before = held.counted
    assert one.sync_now({one.member_id: b"all"})["error_code"] == 0
    assert held.counted == before + len(b"all")
    joining = two.join()
    eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
    assert one.join_now()["error_code"] == 0
    assert joining.result(60)["error_code"] == 0
    return one, two


class _Slow:
    """The next write to the log of groups ends when the test says so, and maybe in failure."""

    def __init__(self, monkeypatch, error=None):
        self.is_writing = False
        self._goes_on = threading.Event()
        append = InternalTopic.append

        async def wait(*arguments):
            monkeypatch.undo()
            self.is_writing = True
            await asyncio.to_thread(self._goes_on.wait, 60)
            if error is not None:
                raise error
            return await append(*arguments)

        monkeypatch.setattr(InternalTopic, "append", wait)
        self.go_on = self._goes_on.set


def _both_sync(broker, one, two, slow):
    """The leader syncs, and once its assignment is being written the second member does."""
    first = one.sync({one.member_id: b"1", two.member_id: b"2"})
    eventually(lambda: slow.is_writing)
    second = two.sync()
    eventually(lambda: broker.node.coordinator.get("g").group.members[two.member_id].has_synced)
    return first, second


def test_a_member_that_syncs_later_waits_for_the_same_write(tmp_path, monkeypatch):
    with Inside(tmp_path) as broker:
        one, two = _joined(broker)
        slow = _Slow(monkeypatch)
        first, second = _both_sync(broker, one, two, slow)
        assert not first.done()
        assert not second.done()
        slow.go_on()
        assert (first.result(60)["assignment"], second.result(60)["assignment"]) == (b"1", b"2")
        one.close()
        two.close()


def test_nobody_gets_an_assignment_that_could_not_be_stored(tmp_path, monkeypatch):
    with Inside(tmp_path) as broker:
        one, two = _joined(broker)
        slow = _Slow(monkeypatch, NotEnoughReplicas("injected"))
        first, second = _both_sync(broker, one, two, slow)
        slow.go_on()
        assert first.result(60)["error_code"] == 15
        assert second.result(60)["error_code"] == REBALANCE_IN_PROGRESS
        one.close()
        two.close()
