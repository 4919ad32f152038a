"""Large groups, and what clients leave behind: joins cost the same, refused ones leave nothing."""

from __future__ import annotations

import sys

import pytest

from tests.broker.asking import create, new_name
from tests.broker.conftest import healthy
from tests.broker.coordinators.transactions.requests import Transactional
from tests.broker.members import commit, join_once
from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.members import MOST_PENDING
from tidelog.broker.coordinators.groups.messages import Answer, Join, State
from tidelog.protocol.group_errors import InconsistentGroupProtocol, MemberIdRequired

SESSION_MS, REBALANCE_MS = 45_000, 60_000
PROTOCOLS = (("range", b"x"), ("sticky", b"y"))


def join(number, member_id="", *, protocols=PROTOCOLS, kind="consumer", needs_id=False):
    new_id = f"m{number}"
    timeouts = (SESSION_MS, REBALANCE_MS)
    return Join(member_id, new_id, None, "c", "/h", *timeouts, kind, protocols, needs_id=needs_id)


def rejoined(size):
    """Lines of our code that run while ten members of a stable group join again."""
    group = Group("g", initial_delay_ms=3_000)
    for number in range(size):
        group.join(join(number), object(), 0)
    while group.state is State.PREPARING:  # it waits longer as long as it grows
        group.tick(group.next_deadline_ms())
    assert len(group.members) == size
    group.sync(group.leader, None, group.generation, (None, None), {}, object(), REBALANCE_MS)
    assert group.state is State.STABLE
    for number in range(size // 2):
        group.join(join(number, f"m{number}"), object(), REBALANCE_MS)
        group.next_deadline_ms()
    lines = 0

    def trace(frame, event, _argument):
        nonlocal lines
        if "groups" not in frame.f_code.co_filename:
            return None
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for number in range(size // 2, size // 2 + 10):
            group.join(join(number, f"m{number}"), object(), REBALANCE_MS)
            group.next_deadline_ms()
    finally:
        sys.settrace(before)
    assert group.state is State.PREPARING
    return lines


def test_a_join_costs_the_same_in_a_large_group():
    assert rejoined(1_000) <= rejoined(50) * 1.2


@pytest.mark.parametrize("size", [1, 7])
def test_the_next_deadline_is_exact(size):
    """As if every member was looked at, through joins, heartbeats, expiry and rebalances."""
    group = Group("g")

    def expected():
        due = [each.deadline_ms for each in group.members.values() if not each.is_waiting]
        due += group.pending.values()
        due += [at for at in (group.join_deadline_ms, group.sync_deadline_ms) if at is not None]
        return min(due, default=None)

    now_ms = 0
    for round_number in range(4):
        for number in range(size):
            now_ms += 10
            member_id = f"m{number}" if f"m{number}" in group.members else ""
            group.join(join(number, member_id), object(), now_ms)
            assert group.next_deadline_ms() == expected()
        now_ms += REBALANCE_MS
        group.tick(now_ms)
        assert group.next_deadline_ms() == expected()
        for number, member in enumerate(list(group.members)):
            now_ms += 7
            group.sync(member, None, group.generation, (None, None), {}, object(), now_ms)
            assert group.next_deadline_ms() == expected()
            if number % 2:
                group.heartbeat(member, None, group.generation, now_ms)
        with pytest.raises(MemberIdRequired):
            group.join(join(100 + round_number, needs_id=True), object(), now_ms)
        assert group.next_deadline_ms() == expected()
        group.tick(now_ms + SESSION_MS - 20)
        assert group.next_deadline_ms() == expected()


def test_protocols_that_all_support_are_known_as_members_change_theirs():
    group = Group("g")
    group.join(join(1), object(), 0)
    group.join(join(2, protocols=(("sticky", b""),)), object(), 0)
    with pytest.raises(InconsistentGroupProtocol):
        group.join(join(3, protocols=(("range", b""),)), object(), 0)
    group.join(join(2, "m2", protocols=(("sticky", b""), ("range", b""))), object(), 0)
    group.join(join(3, protocols=(("range", b""),)), object(), 0)
    with pytest.raises(InconsistentGroupProtocol):
        group.join(join(4, protocols=(("sticky", b""),)), object(), 0)
    (*_, answer) = group.join(join(1, "m1"), object(), 0)
    assert isinstance(answer, Answer)
    assert group.protocol == "range"


def test_ids_that_nobody_joins_with_are_bounded():
    group = Group("g")
    for number in range(MOST_PENDING + 5):
        with pytest.raises(MemberIdRequired):
            group.join(join(number, needs_id=True), object(), number)
    assert len(group.pending) == MOST_PENDING
    assert group.next_deadline_ms() == 5 + SESSION_MS
    group.tick(MOST_PENDING + 5 + SESSION_MS)
    assert (group.pending, group.next_deadline_ms()) == ({}, None)


def test_refused_joins_leave_no_group_behind(connection):
    def groups():
        return {each["group_id"] for each in connection.ask("ListGroups", 2)["groups"]}

    names = [new_name("refused") for _ in range(3)]
    for name in names:
        answer = join_once(connection, name, version=2, protocols=[])
        assert answer["error_code"] == 23
    assert groups().isdisjoint(names)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    with healthy(tmp_path_factory.mktemp("small"), {"max.groups": 5}) as subject:
        yield subject


class TestLimits:
    """A broker of five groups."""

    def test_more_groups_are_refused_until_one_is_deleted(self, small):
        with small.connect() as connection:
            create(connection, "t")
            here = {each["group_id"] for each in connection.ask("ListGroups", 2)["groups"]}
            for number in range(5):
                if f"g{number}" not in here:
                    assert commit(connection, f"g{number}", "t", 1) == 0
            assert commit(connection, "one-more", "t", 1) == 44
            assert join_once(connection, "one-more")["error_code"] == 44
            assert commit(connection, "g0", "t", 2) == 0
            assert len(connection.ask("ListGroups", 2)["groups"]) == 5
            answer = connection.ask("DeleteGroups", 1, groups_names=["g0"])
            assert [each["error_code"] for each in answer["results"]] == [0]
            assert commit(connection, "one-more", "t", 1) == 0

    def test_ids_have_a_length(self, small):
        with small.connect() as connection:
            assert join_once(connection, "g" * 1_025)["error_code"] == 24
            answer = join_once(connection, "g1", version=5, group_instance_id="i" * 250)
            assert answer["error_code"] == 42
            assert Transactional(connection, "x" * 1_025).init() == 42
            assert Transactional(connection, "x" * 1_024).init() == 0
            connection.client_id = "c" * 20_000
            answer = join_once(connection, "g1")
            assert answer["error_code"] == 0
            assert len(answer["member_id"]) < 300
