"""What groups take is bounded: new ones are refused, and those that are there go on."""

from __future__ import annotations

import uuid

import pytest

from tests.broker.asking import create
from tests.broker.members import commit, join_once, sync_alone
from tests.broker.partitions.inside import brokers
from tests.broker.partitions.inside import eventually as eventually_async
from tests.broker.subject import eventually
from tidelog.broker.coordinators.groups.committed import Commit, Committed, Committer
from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
from tidelog.broker.coordinators.groups.held import (
    GROUP_BYTES,
    OFFSET_BYTES,
    HeldBytes,
    of_commit,
    of_group,
    of_join,
    pieces,
)
from tidelog.broker.coordinators.groups.messages import Join
from tidelog.protocol.errors import BrokerError, PolicyViolation

POLICY_VIOLATION = 44
LIMIT = 400_000
METADATA = bytes(3_000)


def wanted(member_id="", new_id="m-1", metadata=b"", **how):
    return Join(member_id, new_id, None, "c", "/h", 1, 1, "consumer", (("range", metadata),), **how)


class TestCounting:
    def test_a_join_counts_as_what_it_adds(self):
        kept = GroupMetadata(Group("g"))
        before = sum(pieces(kept))
        assert before == of_group("g") == GROUP_BYTES + 1
        for request in (wanted(metadata=METADATA), wanted(new_id="m-2", metadata=b"x")):
            by, is_member = of_join(kept.group, request)
            assert not is_member
            kept.group.join(request, object(), 0)
            assert sum(pieces(kept)) == before + by
            before += by
        by, is_member = of_join(kept.group, wanted("m-1", metadata=METADATA + b"more"))
        assert (by, is_member) == (4, True)

    def test_offsets_count_with_their_metadata(self):
        kept = GroupMetadata(Group("g"))
        kept.offsets = {
            ("t", i): Committed(i, -1, "four" if i % 2 else "\N{SNOWMAN}", 0) for i in range(1_000)
        }
        assert sum(pieces(kept)) == of_group("g") + 1_000 * (OFFSET_BYTES + 4)
        assert max(pieces(kept)) <= 250 * (OFFSET_BYTES + 4)

    def test_a_commit_counts_as_what_it_adds(self):
        kept = GroupMetadata(Group("g"))
        log, total = (uuid.UUID(int=1), 0), sum(pieces(kept))
        for metadata, index in (("four", 0), ("four", 1), ("longer", 0), ("long", 1), ("", 2)):
            offsets = {("t", index): Committed(1, -1, metadata, 0)}
            by, is_known = of_commit(kept, Commit.of("g", Committer(), offsets))
            assert is_known == (("t", index) in kept.offsets)
            kept.commit_all(offsets, log, total)
            assert sum(pieces(kept)) == total + by
            total += by
        mixed = {("t", 0): Committed(1, -1, "", 0), ("t", 1): Committed(1, -1, "longer", 0)}
        commit = Commit.of("g", Committer(), mixed)
        assert of_commit(kept, commit) == (2, True)  # what shrinks is not believed
        assert of_commit(kept, commit, is_transactional=True) == (2 * OFFSET_BYTES + 6, True)

    def test_what_is_there_may_grow_by_an_eighth_more(self):
        held = HeldBytes()
        held.grow(800, 800)
        held.grow(100, 800, is_known=True)
        with pytest.raises(PolicyViolation, match=r"max\.groups\.bytes=800"):
            held.grow(1, 800, is_known=True)
        held.grow(-500, 800, is_known=True)
        assert held.counted == 900

    def test_what_grows_while_all_is_counted_is_not_missed(self):
        held = HeldBytes()
        held.grow(700, 800)
        assert held.should_be_counted(800)
        held.begin()
        held.grow(50, 800)
        held.end(100)
        assert held.counted == 150
        assert not held.should_be_counted(800)


def joined(connection, group, member_id="", metadata=METADATA):
    protocols = [{"name": "range", "metadata": metadata}]
    return join_once(connection, group, member_id=member_id, protocols=protocols)


def committed(connection, group, member_id, generation, partition=0, metadata=""):
    who = {"member_id": member_id, "generation_id_or_member_epoch": generation}
    return commit(connection, group, "t", 1, version=2, partition=partition, note=metadata, **who)


async def test_a_commit_that_waits_for_replicas_is_counted_once(tmp_path):
    async with brokers(tmp_path) as three:
        await three.create("__consumer_offsets")
        coordinator = three[1].node.coordinator
        coordinator.start()
        try:
            await eventually_async(lambda: is_served(coordinator))
            before = coordinator.groups.held.counted
            for index in (0, 1):
                added = Commit.of("g", Committer(), {("t", index): Committed(1, -1, "four", 0)})
                assert not coordinator.offsets.commit_now(added)
                await coordinator.offsets.commit(added)
            assert coordinator.groups.held.counted - before == of_group("g") + 2 * (
                OFFSET_BYTES + 4
            )
        finally:
            await coordinator.stop()


def is_served(coordinator):
    try:
        return coordinator.runtime.ownership.check(0) >= 0
    except BrokerError:
        return False


@pytest.mark.slow
def test_new_groups_are_refused_and_those_that_are_there_go_on(start):
    broker = start({"max.groups.bytes": LIMIT})
    with broker.connect() as connection:
        create(connection, "t", partitions=2)
        first = eventually(lambda: _member(joined(connection, "first")), what="the coordinator")
        assert sync_alone(connection, "first", *first, b"x" * 100) == 0
        assert committed(connection, "first", *first) == 0
        members = {}
        for number in range(200):
            answer = joined(connection, f"g{number}")
            if answer["error_code"]:
                break
            members[f"g{number}"] = answer["member_id"]
        assert (answer["error_code"], answer["member_id"]) == (POLICY_VIOLATION, "")
        assert 40 < len(members) < 100
        assert committed(connection, "alone", "", -1) == POLICY_VIOLATION
        assert committed(connection, "first", *first) == 0
        assert joined(connection, "g0", members["g0"], bytes(3_100))["error_code"] == 0
        assert joined(connection, "g0", members["g0"], bytes(LIMIT))["error_code"] != 0
        eventually(lambda: broker.lines("new groups, members or offsets refused"))
        assert LIMIT * 0.9 < broker.metric("tidelog_groups_bytes") < LIMIT * 1.125
        for group, member in members.items():
            connection.ask("LeaveGroup", 2, group_id=group, member_id=member)
        again = eventually(
            lambda: _member(joined(connection, "again")), what="those without members have gone"
        )
        assert again
        assert committed(connection, "first", *first) == 0


def _member(answer):
    """The id and the generation of a member that has joined."""
    if answer["error_code"]:
        return None
    return answer["member_id"], answer["generation_id"]
