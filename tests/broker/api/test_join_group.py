"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup over the wire, in every version and with every refusal."""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions, new_name
from tests.broker.inside import Inside, begin_to_read
from tests.broker.members import LOAD_IN_PROGRESS, RawMember, fetched, settled, state_of
from tests.broker.subject import eventually
from tidelog.broker.coordinators import runtime

NONE, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, INVALID_GROUP_ID = 0, 22, 23, 24
UNKNOWN_MEMBER_ID, INVALID_SESSION_TIMEOUT, REBALANCE_IN_PROGRESS = 25, 26, 27
MESSAGE_TOO_LARGE, MEMBER_ID_REQUIRED, GROUP_MAX_SIZE_REACHED, FENCED_INSTANCE_ID = 10, 79, 81, 82


@pytest.fixture
def member(broker):
    made = []

    def make(group, **more):
        made.append(RawMember(broker, group, **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("version", all_versions("JoinGroup"))
def test_a_group_of_two_lives_and_ends(member, connection, version):
    group = new_name("group")
    one, two = member(group, version=version), member(group, version=version)
    assert one.join_now()["error_code"] == NONE
    second = two.join()
    eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
    first = one.join_now()
    assert [each["metadata"] for each in first["members"]] == [b"one", b"one"]
    assert second.result()["members"] == []
    assert (first["generation_id"], second.result()["generation_id"]) == (2, 2)
    if version >= 7:
        assert (first["protocol_type"], first["protocol_name"]) == ("consumer", "range")
    parts = {one.member_id: b"1", two.member_id: b"2"}
    waiting = two.sync()
    assert one.sync_now(parts)["assignment"] == b"1"
    assert waiting.result()["assignment"] == b"2"
    assert state_of(connection, group) == "Stable"
    assert (one.heartbeat(), two.heartbeat()) == (NONE, NONE)
    assert one.heartbeat(generation_id=1) == ILLEGAL_GENERATION
    assert one.heartbeat(member_id="nobody") == UNKNOWN_MEMBER_ID
    assert two.leave()["error_code"] == NONE
    assert one.heartbeat() == REBALANCE_IN_PROGRESS
    assert one.join_now()["generation_id"] == 3
    assert one.leave()["error_code"] == NONE
    assert state_of(connection, group) == "Empty"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"group_id": ""}, INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "somebody"}, UNKNOWN_MEMBER_ID),
    ],
)
def test_joins_that_are_refused(member, given, code):
    answer = member(new_name("group"))._join(**given)
    assert (answer["error_code"], answer["generation_id"], answer["members"]) == (code, -1, [])


def test_who_founds_a_group_does_not_wait_for_who_was_given_an_id(member):
    group = new_name("group")
    given, founder = member(group), member(group)
    answer = given._join()
    assert (answer["error_code"], answer["protocol_name"]) == (MEMBER_ID_REQUIRED, None)
    assert founder.join_now()["generation_id"] == 1, "or it waits for the other's session to end"
    given.member_id = answer["member_id"]
    joining = given.join()
    eventually(lambda: founder.heartbeat() == REBALANCE_IN_PROGRESS)
    assert founder.join_now()["generation_id"] == joining.result()["generation_id"] == 2


@pytest.mark.parametrize("version", all_versions("JoinGroup"))
def test_a_join_that_fails_while_it_waits_tells_the_id_kafka_tells(member, connection, version):
    group = new_name("group")
    one, two = member(group, version=version), member(group, version=version)
    one.join_now()
    waiting = two.join()
    eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
    again = one.join_now()
    assert (again["error_code"], waiting.result()["error_code"]) == (NONE, NONE)
    waiting = two.join(protocols=[{"name": "range", "metadata": b"news"}])
    eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
    connection.ask("LeaveGroup", 1, group_id=group, member_id=two.member_id)
    answer = waiting.result()
    assert (answer["error_code"], answer["member_id"]) == (UNKNOWN_MEMBER_ID, "")
    assert answer["protocol_name"] == (None if version >= 7 else "")


def test_a_static_join_that_is_replaced_while_it_waits_is_told_its_id(member, connection):
    group = new_name("group")
    one, two, back = member(group), member(group, instance="i"), member(group, instance="i")
    one.join_now()
    first = two.join()
    eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
    told = connection.ask("DescribeGroups", 5, groups=[group])["groups"][0]["members"]
    (known,) = [each["member_id"] for each in told if each["group_instance_id"] == "i"]
    second = back.join()
    answer = first.result()
    assert (answer["error_code"], answer["member_id"]) == (FENCED_INSTANCE_ID, known)
    assert one.join_now()["error_code"] == second.result()["error_code"] == NONE


def test_no_protocol_or_type_in_common(member):
    group = new_name("group")
    one, two = member(group), member(group)
    settled(one)
    two.protocols = [("sticky", b"")]
    assert two._join()["error_code"] == INCONSISTENT_GROUP_PROTOCOL
    assert one.heartbeat() == NONE
    two.protocols, two.kind = one.protocols, "connect"
    assert two._join()["error_code"] == INCONSISTENT_GROUP_PROTOCOL


def test_a_protocol_that_is_offered_twice_is_known_once(member):
    """Kafka fails inside, and never answers."""
    one = member(new_name("group"))
    one.protocols = [("range", b"once"), ("range", b"twice")]
    settled(one)
    assert one.sync_now()["error_code"] == NONE


def test_a_sync_says_the_protocol_it_means(member):
    one = member(new_name("group"))
    settled(one)
    assert one.sync_now(protocol_name="sticky")["error_code"] == INCONSISTENT_GROUP_PROTOCOL
    assert one.sync_now(protocol_type="connect")["error_code"] == INCONSISTENT_GROUP_PROTOCOL
    assert one.sync_now(generation_id=7)["error_code"] == ILLEGAL_GENERATION
    assert one.sync_now()["assignment"] == b"part of " + one.member_id.encode()


def test_a_static_member_is_back_without_a_rebalance(member, connection):
    group = new_name("group")
    one, two = member(group, instance="i-1"), member(group, instance="i-2")
    parts = settled(one, two)
    again = member(group, instance="i-2")
    answer = again.join_now()
    assert (answer["error_code"], answer["generation_id"]) == (NONE, two.generation)
    assert again.member_id != two.member_id
    assert again.sync_now()["assignment"] == parts[two.member_id]
    assert (two.heartbeat(), one.heartbeat()) == (FENCED_INSTANCE_ID, NONE)
    assert two.sync_now()["error_code"] == FENCED_INSTANCE_ID
    assert two.leave()["members"][0]["error_code"] == FENCED_INSTANCE_ID
    answer = connection.ask(
        "LeaveGroup",
        5,
        group_id=group,
        members=[
            {"member_id": "", "group_instance_id": "i-2", "reason": "removed"},
            {"member_id": "", "group_instance_id": "i-9", "reason": "removed"},
        ],
    )
    codes = [each["error_code"] for each in answer["members"]]
    assert (answer["error_code"], codes) == (NONE, [NONE, UNKNOWN_MEMBER_ID])
    assert one.heartbeat() == REBALANCE_IN_PROGRESS


def test_a_static_leader_that_is_back_does_not_assign(member):
    group = new_name("group")
    one = member(group, instance="i-1")
    parts = settled(one)
    again = member(group, instance="i-1")
    answer = again.join_now()
    assert (answer["skip_assignment"], len(answer["members"])) == (True, 1)
    older = member(group, instance="i-1", version=5)
    answer = older.join_now()
    assert (answer["leader"], answer["members"]) == (again.member_id, [])
    assert older.sync_now()["assignment"] == parts[one.member_id]


def test_a_group_has_room_for_so_many_whose_sessions_end_by_the_brokers_clock(start):
    broker = start({"clock": "manual", "clock.scope": "all", "group.max.size": "2"})
    with broker.connect() as connection:
        one, two, late = (RawMember(broker, "timed", version=3, session_ms=10_000) for _ in "123")
        settled(one, two)
        assert late.join_now()["error_code"] == GROUP_MAX_SIZE_REACHED
        broker.clock.step(9_000)
        assert one.heartbeat() == NONE
        broker.clock.step(9_000)
        eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
        assert one.join_now()["error_code"] == NONE
        assert len(one.join_now()["members"]) == 1
        broker.clock.step(10_000)
        eventually(lambda: state_of(connection, "timed") == "Empty")
        for member in (one, two, late):
            member.close()


def member_count(connection, group):
    fields = {"groups": [group], "include_authorized_operations": False}
    return len(connection.ask("DescribeGroups", 5, **fields)["groups"][0]["members"])


def test_a_member_that_comes_back_to_a_full_group_is_none_any_longer(start):
    """Nobody waits for who is told that there is no room: the others go on without it, at once."""
    broker = start({"group.max.size": "2"})
    first, second, third = (
        RawMember(broker, "full", session_ms=60_000, rebalance_ms=300_000) for _ in range(3)
    )
    settled(first, second)
    with broker.connect() as connection:
        joining = [first.join()]
        eventually(lambda: second.heartbeat() == REBALANCE_IN_PROGRESS)
        joining.append(third.join())
        eventually(lambda: member_count(connection, "full") == 3)
        refused = second.join_now()
    assert (refused["error_code"], refused["member_id"]) == (GROUP_MAX_SIZE_REACHED, "")
    assert [each.result(timeout=60)["error_code"] for each in joining] == [NONE, NONE]
    assert second.heartbeat() == UNKNOWN_MEMBER_ID
    for member in (first, second, third):
        member.close()


def test_a_group_keeps_its_type_while_somebody_is_expected(member, connection):
    """All have left, but one was given an id: until it is over nobody of another type may come in."""
    group = new_name("group")
    one, expected, other = member(group), member(group, version=4), member(group, version=3)
    settled(one)
    assert expected._join()["error_code"] == MEMBER_ID_REQUIRED
    waiting = one.join()
    eventually(lambda: state_of(connection, group) == "PreparingRebalance")
    fields = {"group_id": group, "member_id": one.member_id}
    assert connection.ask("LeaveGroup", 2, **fields)["error_code"] == NONE
    assert waiting.result(timeout=60)["error_code"] == UNKNOWN_MEMBER_ID
    other.kind = "connect"
    assert other.join_now()["error_code"] == INCONSISTENT_GROUP_PROTOCOL


def test_an_id_made_of_the_longest_name_can_be_kept_and_told(member, connection):
    group, name = new_name("group"), "ü" * 249
    one = member(group, instance=name)
    settled(one)
    assert name.startswith(one.member_id[:100])
    assert len(one.member_id.encode()) < 300
    answer = connection.ask("DescribeGroups", 4, groups=[group])
    assert [each["member_id"] for each in answer["groups"][0]["members"]] == [one.member_id]


def test_an_assignment_too_large_to_be_kept_is_refused_for_good(member):
    """Whoever was told to try again would do so for ever; with less the group goes on."""
    one = member(new_name("group"))
    assert one.join_now()["error_code"] == NONE
    assert one.sync_now({one.member_id: b"x" * 2_000_000})["error_code"] == MESSAGE_TOO_LARGE
    assert one.heartbeat() == REBALANCE_IN_PROGRESS
    assert one.join_now()["error_code"] == NONE
    assert one.sync_now({one.member_id: b"x" * 100_000})["assignment"] == b"x" * 100_000


def test_members_of_a_group_that_is_being_read_carry_on(tmp_path):
    """A Java client gives up at COORDINATOR_LOAD_IN_PROGRESS where Kafka never says it."""
    with Inside(tmp_path) as broker:
        member = RawMember(broker, "loaded")
        settled(member)
        ownership = broker.node.coordinator.runtime.ownership
        loads = begin_to_read(ownership)
        assert member.heartbeat() == NONE
        assert member.heartbeat(generation_id=member.generation + 1) == NONE
        assert member.sync_now()["error_code"] == REBALANCE_IN_PROGRESS
        assert all(map(ownership.on_loaded, loads))
        assert member.heartbeat(generation_id=member.generation + 1) == ILLEGAL_GENERATION
        assert member.sync_now()["error_code"] == NONE
        member.close()


def test_who_joins_waits_for_the_group_to_be_read(tmp_path, monkeypatch):
    """A consumer of kafkajs starts anew at COORDINATOR_LOAD_IN_PROGRESS."""
    with Inside(tmp_path) as broker:
        one, two = RawMember(broker, "loaded"), RawMember(broker, "other")
        settled(one)
        assert two.heartbeat() == UNKNOWN_MEMBER_ID
        runtime_of_groups = broker.node.coordinator.runtime
        with broker.connect() as connection:
            assert fetched(connection, "loaded", "t")[3] == NONE
            loads = begin_to_read(runtime_of_groups.ownership)
            joining = one.join()
            for _ in range(20):
                assert fetched(connection, "loaded", "t")[3] == LOAD_IN_PROGRESS
        assert not joining.done()
        assert all(map(runtime_of_groups.ownership.on_loaded, loads))
        broker._loop.call_soon_threadsafe(runtime_of_groups.carry_out, ())
        assert joining.result(60)["error_code"] == NONE
        begin_to_read(runtime_of_groups.ownership)
        monkeypatch.setattr(runtime, "_WAIT_S", 0.1)
        assert two.join_now()["error_code"] == LOAD_IN_PROGRESS  # after that time
        one.close()
        two.close()


def test_who_waits_is_told_when_the_broker_stops(start):
    broker = start()
    one, two = RawMember(broker, "stopped"), RawMember(broker, "stopped", version=3)
    settled(one)
    waiting = two.join()
    eventually(lambda: one.heartbeat() == REBALANCE_IN_PROGRESS)
    assert broker.stop() == 0
    assert waiting.result(timeout=60)["error_code"] == 15
    one.close()
    two.close()
