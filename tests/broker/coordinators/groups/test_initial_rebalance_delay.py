"""A new group waits for those who start with it: group.initial.rebalance.delay.ms, on the bare machine."""

from __future__ import annotations

import pytest

from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.messages import Answer, Join, Joined, State

DELAY_MS = 3_000


def join(group, who, now_ms, rebalance_ms=10_000):
    request = Join(
        "", who, None, "client", "/here", 60_000, rebalance_ms, "consumer", (("range", b""),)
    )
    return answered(group.join(request, who, now_ms))


def answered(actions):
    """Who is told that the generation is complete."""
    told = [one for one in actions if isinstance(one, Answer)]
    assert all(isinstance(one.outcome, Joined) for one in told)
    return {one.ticket for one in told}


@pytest.mark.parametrize(
    ("rebalance_ms", "joins", "done_ms"),
    [
        pytest.param(10_000, {"a": 0}, 3_000, id="alone"),
        pytest.param(10_000, {"a": 0, "b": 2_900}, 6_000, id="one more has come: wait once more"),
        pytest.param(10_000, {"a": 0, "b": 2_900, "c": 5_900, "d": 8_900}, 10_000, id="at most"),
        pytest.param(3_500, {"a": 0, "b": 2_900}, 3_500, id="the rest of the rebalance timeout"),
        pytest.param(1_000, {"a": 0}, 3_000, id="a shorter rebalance timeout"),
    ],
)
def test_a_new_group_waits_for_more(rebalance_ms, joins, done_ms):
    group = Group("new", initial_delay_ms=DELAY_MS)
    for now_ms in range(0, done_ms, 100):
        assert not answered(group.tick(now_ms)), now_ms
        for who, at_ms in joins.items():
            if at_ms == now_ms:
                assert not join(group, who, now_ms, rebalance_ms)
        assert group.state is State.PREPARING
    assert answered(group.tick(done_ms)) == set(joins)
    assert (group.state, group.generation) == (State.COMPLETING, 1)


def test_only_the_first_generation_waits():
    group = Group("old", initial_delay_ms=DELAY_MS)
    join(group, "a", 0)
    assert answered(group.tick(DELAY_MS)) == {"a"}
    assert not join(group, "b", DELAY_MS + 1)
    request = Join("a", "-", None, "client", "/here", 60_000, 10_000, "consumer", (("range", b""),))
    assert answered(group.join(request, "a", DELAY_MS + 2)) == {"a", "b"}
