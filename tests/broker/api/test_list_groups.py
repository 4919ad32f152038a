"""ListGroups and DescribeGroups: what is there, filtered, in every version's shape."""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions, new_name
from tests.broker.members import RawMember, settled

GROUP_ID_NOT_FOUND = 69
READ, DELETE, DESCRIBE = 3, 6, 8


@pytest.fixture
def group(broker):
    one = RawMember(broker, new_name("listed"), instance="i")
    one.kind = "connect"
    settled(one)
    yield one
    one.close()


def listed(connection, version, states=(), types=()):
    answer = connection.ask(
        "ListGroups", version, states_filter=list(states), types_filter=list(types)
    )
    assert answer["error_code"] == 0
    return {each["group_id"]: each for each in answer["groups"]}


@pytest.mark.parametrize("version", all_versions("ListGroups"))
def test_a_group_is_listed(connection, group, version):
    found = listed(connection, version)[group.group]
    assert found["protocol_type"] == "connect"
    if version >= 4:
        assert found["group_state"] == "Stable"
    if version >= 5:
        assert found["group_type"] == "classic"


def test_filters_do_not_mind_case(connection, group):
    assert group.group in listed(connection, 5, ["sTABLE", "Empty"], ["CLASSIC"])
    assert group.group not in listed(connection, 5, ["Empty"])
    assert group.group not in listed(connection, 5, [], ["consumer"])


@pytest.mark.parametrize("version", all_versions("DescribeGroups"))
def test_a_group_is_described(connection, group, version):
    answer = connection.ask(
        "DescribeGroups",
        version,
        groups=[group.group, "not-there", ""],
        include_authorized_operations=True,
    )
    found, missing, nameless = answer["groups"]
    assert (found["error_code"], found["group_state"]) == (0, "Stable")
    assert (found["protocol_type"], found["protocol_data"]) == ("connect", "range")
    (member,) = found["members"]
    assert (member["member_id"], member["client_id"]) == (group.member_id, "oracle")
    assert member["client_host"] == "/127.0.0.1"
    assert member["member_metadata"] == b"one"
    assert member["member_assignment"] == b"part of " + group.member_id.encode()
    if version >= 4:
        assert member["group_instance_id"] == "i"
    code = GROUP_ID_NOT_FOUND if version >= 6 else 0
    assert (missing["error_code"], missing["group_state"]) == (code, "Dead")
    assert nameless["error_code"] == code, "a group without a name may keep offsets"
    if version >= 3:
        assert found["authorized_operations"] == {READ, DELETE, DESCRIBE}


@pytest.mark.parametrize("version", all_versions("DeleteGroups"))
def test_a_group_that_is_named_twice_is_answered_once(connection, version):
    names = ["not-there", "", "not-there"]
    answer = connection.ask("DeleteGroups", version, groups_names=names)
    assert [(each["group_id"], each["error_code"]) for each in answer["results"]] == [
        ("not-there", GROUP_ID_NOT_FOUND),
        ("", GROUP_ID_NOT_FOUND),
    ]
