"""Static members (KIP-345) that have not returned, on the bare machine."""

from __future__ import annotations

import pytest

from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.messages import Join, State


def _join(group, who, now_ms, *, instance_id=None, member_id="", rebalance_ms=0):
    request = Join(
        member_id,
        who,
        instance_id,
        "client",
        "/here",
        60_000,
        rebalance_ms,
        "consumer",
        (("range", b""),),
    )
    return group.join(request, who, now_ms)


@pytest.mark.parametrize("rebalance_ms", [0, -1, -(2**31)])
def test_a_tick_moves_the_deadline_without_a_rebalance_timeout(rebalance_ms):
    group = Group("g")
    _join(group, "static", 0, instance_id="i", rebalance_ms=rebalance_ms)
    _join(group, "dynamic", 0, rebalance_ms=rebalance_ms)
    _join(group, "static", 0, instance_id="i", member_id="static", rebalance_ms=rebalance_ms)
    assert group.state is State.COMPLETING
    group.sync("static", "i", group.generation, (None, None), {"static": b""}, "ticket", 0)
    now_ms = 1
    group.tick(now_ms)
    assert list(group.members) == ["static"]  # the other one has not synced in time
    assert group.state is State.PREPARING
    while group.members:
        due_ms = group.next_deadline_ms()
        assert due_ms > now_ms  # or the broker would call `tick` for ever
        now_ms = due_ms
        group.tick(now_ms)
    assert now_ms == 60_000  # the session of the static member expires
