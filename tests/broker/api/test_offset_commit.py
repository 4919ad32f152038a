"""OffsetCommit, OffsetFetch, OffsetDelete: every version, every refusal, restarts and expiry."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.broker.asking import all_versions, create, new_name, new_topic
from tests.broker.inside import Inside, begin_to_read
from tests.broker.members import (
    LOAD_IN_PROGRESS,
    RawMember,
    all_fetched,
    commit,
    commit_fields,
    commit_once,
    fetched,
    settled,
    state_of,
)
from tests.broker.subject import eventually
from tidelog.broker.api import offset_delete
from tidelog.protocol.group_records import partition_of

NONE, UNKNOWN_TOPIC, METADATA_TOO_LARGE, ILLEGAL_GENERATION = 0, 3, 12, 22
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 25, 27
NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC = 68, 69, 86
DAY_MS = 86_400_000


@pytest.mark.parametrize("version", all_versions("OffsetCommit"))
def test_every_version_commits(connection, topic, version):
    group = new_name("group")
    assert commit(connection, group, topic, 7, version=version, note="n", epoch=3) == NONE
    assert fetched(connection, group, topic) == (7, 3 if version >= 6 else -1, "n", NONE)


@pytest.mark.parametrize("version", all_versions("OffsetFetch"))
def test_every_version_fetches(connection, topic, version):
    group = new_name("group")
    missing = UNKNOWN_TOPIC if version == 0 else NONE
    assert fetched(connection, group, topic, version=version) == (-1, -1, "", missing)
    commit(connection, group, topic, 9, epoch=4)
    epoch = 4 if version >= 5 else -1
    assert fetched(connection, group, topic, version=version) == (9, epoch, "", NONE)


def test_what_is_refused(broker, connection, topic):
    group = new_name("group")
    assert commit(connection, group, "not-there", 1) == UNKNOWN_TOPIC
    assert commit(connection, group, topic, 1, partition=1) == UNKNOWN_TOPIC
    assert commit(connection, group, topic, 1, note="é" * 4_097) == METADATA_TOO_LARGE
    assert commit(connection, group, topic, 1, note="é" * 4_096) == NONE
    assert commit(connection, group, topic, 1, note="😀" * 2_049) == METADATA_TOO_LARGE
    assert commit(connection, new_name("group"), topic, 1, generation_id_or_member_epoch=1) == (
        ILLEGAL_GENERATION
    )
    one, two = RawMember(broker, group), RawMember(broker, group)
    settled(one, two)
    assert one.commit(topic, 5) == NONE
    assert one.commit(topic, 6, generation_id_or_member_epoch=1) == ILLEGAL_GENERATION
    assert one.commit(topic, 6, member_id="somebody") == UNKNOWN_MEMBER_ID
    assert commit(connection, group, topic, 6) == UNKNOWN_MEMBER_ID
    rejoined = [one.join()]
    eventually(lambda: two.heartbeat() == REBALANCE_IN_PROGRESS)
    assert two.commit(topic, 7) == NONE, "members gather: what was read may still be committed"
    assert two.join_now()["error_code"] == rejoined[0].result()["error_code"] == NONE
    assert two.commit(topic, 8) == REBALANCE_IN_PROGRESS
    assert fetched(connection, group, topic)[0] == 7
    one.close()
    two.close()


def deleted(connection, group, *names):
    """The error of a deletion of offsets, or those of its topics, each of which names one twice."""
    topics = [{"name": name, "partitions": [{"partition_index": 0}] * 2} for name in names]
    answer = connection.ask("OffsetDelete", 0, group_id=group, topics=topics)
    for one in answer["topics"]:
        assert [each["partition_index"] for each in one["partitions"]] == [0]
    codes = [one["partitions"][0]["error_code"] for one in answer["topics"]]
    return answer["error_code"] or codes


def test_offsets_are_deleted_where_nobody_reads(broker, connection, topic):
    group, other = new_name("group"), new_topic(connection)
    assert deleted(connection, group, topic) == GROUP_ID_NOT_FOUND
    commit(connection, group, topic, 1)
    commit(connection, group, other, 2)
    one = RawMember(broker, group)
    one.protocols = [("range", _subscription(topic))]
    settled(one)
    codes = deleted(connection, group, topic, other, "not-there")
    assert codes == [GROUP_SUBSCRIBED_TO_TOPIC, NONE, UNKNOWN_TOPIC]
    assert all_fetched(connection, group) == {(topic, 0): 1}
    answer = connection.ask("DeleteGroups", 2, groups_names=[group, "not-there"])
    codes = [each["error_code"] for each in answer["results"]]
    assert codes == [NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND]
    one.leave()
    assert connection.ask("DeleteGroups", 2, groups_names=[group])["results"][0]["error_code"] == 0
    assert all_fetched(connection, group) == {}
    one.close()


def test_an_empty_group_goes_with_its_last_offset(connection, topic):
    group = new_name("group")
    commit(connection, group, topic, 1)
    assert state_of(connection, group) == "Empty"
    assert deleted(connection, group, topic) == [NONE]
    assert state_of(connection, group) == "Dead"
    assert deleted(connection, group, topic) == GROUP_ID_NOT_FOUND


def test_offsets_of_consumers_that_are_not_understood_stay(broker, connection, topic):
    group = new_name("group")
    commit(connection, group, topic, 1)
    one = RawMember(broker, group)
    one.protocols = [("range", b"\0\0\0\0\0\0")]
    assert one.join_now()["error_code"] == NONE
    for _ in ("before the assignment", "after it"):
        assert deleted(connection, group, topic) == [GROUP_SUBSCRIBED_TO_TOPIC]
        one.sync_now({})
    one.close()
    other = RawMember(broker, new_name("group"))
    other.kind = "connect"
    other.join_now()
    assert deleted(connection, other.group, topic) == NON_EMPTY_GROUP
    other.close()


def test_offsets_that_a_member_comes_to_read_meanwhile_stay(tmp_path, monkeypatch):
    checked, joined, check = threading.Event(), asyncio.Event(), offset_delete.per_partition

    async def check_for_long(*arguments):
        found = await check(*arguments)
        checked.set()
        await joined.wait()
        return found

    monkeypatch.setattr(offset_delete, "per_partition", check_for_long)
    with Inside(tmp_path) as broker, broker.connect() as connection, broker.connect() as other:
        for topic in ("a", "b"):
            create(connection, topic)
            assert commit(connection, "g", topic, 1) == NONE
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(deleted, connection, "g", "a", "b")
            assert checked.wait(60)
            one = RawMember(broker, "g")
            one.protocols = [("range", _subscription("a"))]
            settled(one)
            broker._loop.call_soon_threadsafe(joined.set)
            assert answer.result(60) == [GROUP_SUBSCRIBED_TO_TOPIC, NONE]
        assert all_fetched(other, "g") == {("a", 0): 1}
        one.close()


def test_what_is_asked_twice_is_answered_once(connection, topic):
    group = new_name("group")
    answer = connection.ask("OffsetCommit", 8, **commit_fields(group, topic, 3, 4))
    assert answer["topics"][0]["partitions"] == [{"partition_index": 0, "error_code": NONE}]
    wanted = [{"name": topic, "partition_indexes": [0, 0]}, {"name": "x", "partition_indexes": []}]
    answer = connection.ask("OffsetFetch", 5, group_id=group, topics=wanted)
    (found,) = answer["topics"]
    assert [each["committed_offset"] for each in found["partitions"]] == [4]


def test_who_asks_for_no_groups_offsets_is_told_none(connection):
    """Kafka waits for none of none groups, and never answers."""
    assert connection.ask("OffsetFetch", 8, groups=[], require_stable=False)["groups"] == []


def _subscription(*topics):
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


@pytest.fixture
def manual(start):
    """A broker whose groups live by a manual clock, and whose members may be silent for weeks."""
    settings = {"clock.scope": "all", "group.max.session.timeout.ms": "2000000000"}
    return start({"clock": "manual", **settings})


def test_offsets_expire_when_nobody_is_left(manual):
    broker = manual
    with broker.connect() as connection:
        create(connection, "t")
        commit(connection, "alone", "t", 1)
        commit(connection, "short", "t", 2, version=4, retention_ms=DAY_MS)
        for _ in range(2):  # 0 means none to old clients
            commit(connection, "retention", "t", 4, version=4, retention_ms=0)
            commit(connection, "time", "t", 5, version=1, timestamp=0)
        assert len(broker.lines("offset committed with a time of 0, read as none")) == 2
        member = RawMember(broker, "live", session_ms=2_000_000_000)
        settled(member)
        member.commit("t", 3)
        broker.clock.step(DAY_MS + 1)
        eventually(lambda: all_fetched(connection, "short") == {})
        broker.clock.step(5 * DAY_MS)
        assert all_fetched(connection, "alone") == {("t", 0): 1}
        assert all_fetched(connection, "retention") == {("t", 0): 4}
        assert all_fetched(connection, "time") == {("t", 0): 5}
        broker.clock.step(DAY_MS)
        eventually(lambda: all_fetched(connection, "alone") == {})
        assert all_fetched(connection, "live") == {("t", 0): 3}
        member.leave()
        broker.clock.step(6 * DAY_MS)
        assert all_fetched(connection, "live") == {("t", 0): 3}
        broker.clock.step(DAY_MS + 600_000)
        eventually(lambda: all_fetched(connection, "live") == {})
        asked = {"states_filter": [], "types_filter": []}
        eventually(lambda: connection.ask("ListGroups", 5, **asked)["groups"] == [])
        member.close()


def test_a_group_that_cannot_be_written_keeps_no_other_from_expiring(tmp_path):
    with Inside(tmp_path) as broker, broker.connect() as connection:
        create(connection, "t")
        groups = [f"group{at}" for at in range(4)]
        for group in groups:
            assert commit(connection, group, "t", 1, version=3, retention_ms=1) == NONE
        time.sleep(0.01)
        coordinator = broker.node.coordinator
        stuck = partition_of(groups[0], 50)
        ownership = coordinator.runtime.ownership
        for load in begin_to_read(ownership):
            if load.partition == stuck:
                ownership.on_failed(load, "its disk is gone")
            else:
                ownership.on_loaded(load)
        expiring = asyncio.run_coroutine_threadsafe(coordinator.cleanup.expire(), broker._loop)
        assert expiring.result(60) == 3
        assert all(map(ownership.on_loaded, begin_to_read(ownership)))
        assert [all_fetched(connection, group) for group in groups] == [{("t", 0): 1}, {}, {}, {}]


def test_a_commit_waits_for_its_group_to_be_read(tmp_path):
    """A client with librdkafka gives a commit up at the third COORDINATOR_LOAD_IN_PROGRESS, after 0.3 s."""
    with Inside(tmp_path) as broker, broker.connect() as one, broker.connect() as other:
        create(one, "t")
        assert commit(one, "g", "t", 1) == NONE
        assert fetched(other, "g", "t")[0] == 1
        coordinator = broker.node.coordinator
        reading = begin_to_read(coordinator.runtime.ownership)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(commit_once, one, "g", "t", 2)
            for _ in range(20):
                assert fetched(other, "g", "t")[3] == LOAD_IN_PROGRESS
            assert not answer.done()
            broker._loop.call_soon_threadsafe(coordinator.runtime.carry_out, reading)
            assert answer.result(60) == NONE
        assert fetched(other, "g", "t")[0] == 2


OFFSETS = "__consumer_offsets"


@pytest.mark.slow
def test_a_commit_counts_whatever_became_of_the_log_before_it(start):
    """Offsets of another log, deleted or left for another partition, say nothing about what is newer."""
    broker = start({"offsets.topic.num.partitions": 3})
    groups = [f"group{at}" for at in range(8)]
    with broker.connect() as connection:
        create(connection, "read")
        for offset in range(20):  # the old logs are longer than the new ones will be
            for group in groups:
                assert commit(connection, group, "read", offset) == NONE
        connection.ask("DeleteTopics", 1, topic_names=[OFFSETS], timeout_ms=10_000)
    with broker.connect() as connection:  # finds the coordinator again, which creates the topic
        for group in groups:
            assert commit(connection, group, "read", 100) == NONE
            assert fetched(connection, group, "read")[0] == 100
        grown = {"name": OFFSETS, "count": 7, "assignments": None}
        fields = {"topics": [grown], "timeout_ms": 10_000, "validate_only": False}
        answer = connection.ask("CreatePartitions", 1, **fields)
        assert [each["error_code"] for each in answer["results"]] == [NONE]
        for group in groups[::2]:  # the logs of some are new, and are read first
            eventually(lambda each=group: commit(connection, each, "read", 200) == NONE)
            assert fetched(connection, group, "read")[0] == 200
    broker.kill()
    broker.restart()
    with broker.connect() as connection:
        for group in groups:
            eventually(lambda each=group: fetched(connection, each, "read")[3] == NONE)
            expected = 200 if group in groups[::2] else 100
            assert fetched(connection, group, "read")[0] == expected
