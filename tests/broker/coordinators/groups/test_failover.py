"""Groups of three real brokers: who coordinates, and what survives the coordinator.

The clients are raw, so that every error code is seen. A broker that is killed is noticed by its lock,
before its lease ends.
"""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tests.broker.asking import BODIES, VERSIONS, all_versions, codes_in, try_to_create
from tests.broker.cluster.brokers import Brokers
from tests.broker.members import RawMember, all_fetched, commit, commit_once, fetched, settled
from tests.broker.subject import eventually

pytestmark = pytest.mark.slow

NONE, NOT_AVAILABLE, NOT_COORDINATOR = 0, 15, 16
TOPIC = "__consumer_offsets"
ALL = (1, 2, 3)
SETTINGS = {"offsets.topic.num.partitions": 6, "default.replication.factor": 3}


@contextmanager
def brokers_in(directory, *ids, **settings):
    found = Brokers(directory)
    found.start(*ids, settings={**SETTINGS, **settings})
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def cluster(tmp_path):
    """Three brokers, and the topic t."""
    with brokers_in(tmp_path, *ALL) as found:
        create(found, "t")
        yield found


def create(cluster, name, factor=3):
    """Creates a topic, as soon as broker 1 knows enough others."""

    def code():
        return try_to_create(connection, name, factor=factor)["error_code"]

    with cluster[1].connect() as connection:
        eventually(lambda: code() == NONE, 20)


def named_by(cluster, broker, group, version=4):
    """The coordinator of a group as one broker names it, with its right address; or the error."""
    with cluster[broker].connect() as connection:
        found = connection.ask(
            "FindCoordinator", version, key=group, key_type=0, coordinator_keys=[group]
        )
    if version >= 4:
        (found,) = found["coordinators"]
    if found["error_code"] == NONE:
        assert found["port"] == cluster[found["node_id"]].port
    return found["node_id"], found["error_code"]


def coordinator_of(cluster, group, among=ALL):
    """The coordinator of a group, once these brokers agree on one of them and it serves the group."""

    def serving():
        named = {named_by(cluster, broker, group)[0] for broker in among}
        found = named.pop()
        if named or found not in among:
            return None
        with cluster[found].connect() as connection:
            return found if fetched(connection, group, "t")[3] == NONE else None

    return eventually(serving, 30)


def others(*gone):
    return tuple(broker for broker in ALL if broker not in gone)


def commit_once_known(cluster, broker, group, offset):
    """Commits as soon as the broker knows the topic."""
    with cluster[broker].connect() as connection:
        eventually(lambda: commit(connection, group, "t", offset) == NONE, 20)


def test_every_broker_names_the_same_coordinator_and_only_that_serves(cluster):
    groups = [f"g{at}" for at in range(6)]
    homes = {group: coordinator_of(cluster, group) for group in groups}
    assert set(homes.values()) == set(ALL), "one broker coordinates everything"
    for group, home in homes.items():
        named = {
            named_by(cluster, at, group, v) for at in ALL for v in all_versions("FindCoordinator")
        }
        assert named == {(home, NONE)}
        commit_once_known(cluster, home, group, 1)
    for broker in ALL:
        mine = {group for group, home in homes.items() if home == broker}
        with cluster[broker].connect() as connection:
            listed = connection.ask("ListGroups", 4, states_filter=[])
            assert listed["error_code"] == NONE
            assert {each["group_id"] for each in listed["groups"]} == mine
            for group in groups:
                expected = NONE if group in mine else NOT_COORDINATOR
                assert codes_of_every_api(connection, group, with_deletions=False) == {expected}
            elsewhere = next(group for group in groups if group not in mine)
            assert codes_of_every_api(connection, elsewhere) == {NOT_COORDINATOR}


def codes_of_every_api(connection, group, *, with_deletions=True):
    """The errors of one request of each API of groups."""
    codes = {
        commit(connection, group, "t", 1),
        fetched(connection, group, "t")[3],
        fetched(connection, group, "t", version=7)[3],
        connection.ask("DescribeGroups", 5, groups=[group], include_authorized_operations=False)[
            "groups"
        ][0]["error_code"],
    }
    if with_deletions:
        codes |= set(codes_in(connection.ask("DeleteGroups", 2, groups_names=[group])))
        for api in ("OffsetDelete", "Heartbeat", "LeaveGroup", "SyncGroup", "JoinGroup"):
            fields = {**BODIES[api], "group_id": group}
            codes |= set(codes_in(connection.ask(api, VERSIONS[api], **fields)))
    return codes


def test_offsets_and_generations_survive_a_killed_coordinator(cluster):
    """Members of a stable group go on: the same ids, generation and parts, and no rebalance."""
    home = coordinator_of(cluster, "g")
    members = [
        RawMember(cluster[home], "g"),
        RawMember(cluster[home], "g", instance="static"),
    ]
    parts = settled(*members)
    generation = members[0].generation
    with cluster[home].connect() as connection:
        eventually(lambda: members[0].commit("t", 7) == NONE)
        assert all_fetched(connection, "g") == {("t", 0): 7}
    cluster[home].kill()
    heir = coordinator_of(cluster, "g", others(home))
    for member in members:
        member.close()
        member.connection = cluster[heir].connect()
        assert member.heartbeat() == NONE
    assert [each.sync_now()["assignment"] for each in members] == [
        parts[each.member_id] for each in members
    ]
    assert members[0].commit("t", 8) == NONE
    assert all_fetched(members[0].connection, "g") == {("t", 0): 8}
    old_id, members[1].member_id = members[1].member_id, ""
    assert members[1].join_now()["error_code"] == NONE  # a static member that has restarted
    assert members[1].member_id != old_id
    assert members[1].generation == generation
    for member in members:
        member.close()


def test_who_waits_is_told_when_its_coordinator_hands_over(cluster):
    home = coordinator_of(cluster, "g")
    one, two = RawMember(cluster[home], "g"), RawMember(cluster[home], "g")
    settled(one)
    waiting = two.join()
    eventually(lambda: one.heartbeat() == 27)
    assert cluster[home].stop() == 0
    assert waiting.result(60)["error_code"] == NOT_COORDINATOR
    heir = coordinator_of(cluster, "g", others(home))
    assert heir != home
    one.close()
    two.close()


def test_a_commit_waits_for_the_replicas_that_are_in_sync(tmp_path):
    with brokers_in(tmp_path, *ALL, **{"offsets.commit.timeout.ms": 500}) as cluster:
        create(cluster, "t")
        home = coordinator_of(cluster, "g")
        commit_once_known(cluster, home, "g", 1)
        for broker in others(home):
            cluster[broker].pause()
        try:
            with cluster[home].connect() as connection:
                assert commit_once(connection, "g", "t", 2) == NOT_AVAILABLE
                assert all_fetched(connection, "g") == {("t", 0): 1}
        finally:
            for broker in others(home):
                cluster[broker].resume()


def test_a_coordinator_that_was_paused_serves_no_more(tmp_path):
    with brokers_in(tmp_path, *ALL, **{"broker.session.timeout.ms": 4000}) as cluster:
        create(cluster, "t")
        home = coordinator_of(cluster, "g")
        commit_once_known(cluster, home, "g", 1)
        with cluster[home].connect() as connection:
            cluster[home].pause()
            heir = coordinator_of(cluster, "g", others(home))
            commit_once_known(cluster, heir, "g", 2)
            cluster[home].resume()
            assert fetched(connection, "g", "t")[3] == NOT_COORDINATOR
            assert commit(connection, "g", "t", 3) == NOT_COORDINATOR
        assert coordinator_of(cluster, "g") in ALL


def test_replicas_are_added_when_brokers_come(tmp_path):
    with brokers_in(tmp_path, 1) as cluster:
        create(cluster, "t", factor=1)
        assert named_by(cluster, 1, "g") == (1, NONE)
        eventually(lambda: named_by(cluster, 1, "g")[1] == NONE)
        commit_once_known(cluster, 1, "g", 1)
        cluster.start(2, 3, settings=SETTINGS)

        def is_raised(image):
            found = image.topics[TOPIC].assignments
            return all(sorted(each.isr) == [1, 2, 3] and not each.adding for each in found)

        cluster.eventually(is_raised, 60)
        cluster[1].kill()
        with cluster[coordinator_of_rest(cluster)].connect() as connection:
            assert all_fetched(connection, "g") == {("t", 0): 1}


def coordinator_of_rest(cluster):
    return coordinator_of(cluster, "g", others(1))
