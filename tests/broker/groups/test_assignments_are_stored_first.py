"""No member gets an assignment that is not in the log: one who takes over would not know it."""

from __future__ import annotations

import asyncio

from tests.broker.inside import Inside
from tests.broker.members import REBALANCE_IN_PROGRESS, RawMember
from tests.broker.subject import eventually
from tidelog.protocol.errors import NotEnoughReplicas


def _joined(broker):
    """The leader and a second member of a group that waits for its assignment."""
    one, two = RawMember(broker, "g"), RawMember(broker, "g")
    assert one.join_now()["error_code"] == 0
    assert one.sync_now({one.member_id: b"all"})["error_code"] == 0
    joining = two.join()
    eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
    assert one.join_now()["error_code"] == 0
    assert joining.result(60)["error_code"] == 0
    return one, two


class _Slow:
    """The log of groups, whose next write ends when the test says so, and maybe in failure."""

    def __init__(self, broker, error=None):
        self._goes_on = asyncio.Event()
        self._loop, self._log = broker._loop, broker.node.coordinator._log
        self._append, self._error = self._log.append, error
        self._log.append = self._wait

    async def _wait(self, *arguments):
        await self._goes_on.wait()
        if self._error is not None:
            raise self._error
        return await self._append(*arguments)

    def go_on(self):
        self._log.append = self._append
        self._loop.call_soon_threadsafe(self._goes_on.set)


def test_a_member_that_syncs_later_waits_for_the_same_write(tmp_path):
    with Inside(tmp_path) as broker:
        one, two = _joined(broker)
        slow = _Slow(broker)
        first = one.sync({one.member_id: b"1", two.member_id: b"2"})
        eventually(lambda: broker.node.coordinator._storing)
        second = two.sync()
        eventually(
            lambda: broker.node.coordinator.find("g").group.members[two.member_id].has_synced
        )
        assert not first.done()
        assert not second.done()
        slow.go_on()
        assert (first.result(60)["assignment"], second.result(60)["assignment"]) == (b"1", b"2")
        assert not broker.node.coordinator._storing
        one.close()
        two.close()


def test_nobody_gets_an_assignment_that_could_not_be_stored(tmp_path):
    with Inside(tmp_path) as broker:
        one, two = _joined(broker)
        slow = _Slow(broker, NotEnoughReplicas("planted"))
        first = one.sync({one.member_id: b"1", two.member_id: b"2"})
        eventually(lambda: broker.node.coordinator._storing)
        second = two.sync()
        eventually(
            lambda: broker.node.coordinator.find("g").group.members[two.member_id].has_synced
        )
        slow.go_on()
        assert first.result(60)["error_code"] == 15
        assert second.result(60)["error_code"] == REBALANCE_IN_PROGRESS
        one.close()
        two.close()
