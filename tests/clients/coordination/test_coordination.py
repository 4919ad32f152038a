"""The judge of groups, commits and administration judged: every injected fault is named.

The members here are made of answers, so that no broker is asked; the last test has a client that says it
did what it was told and does nothing.
"""

from __future__ import annotations

import pytest

from tests.clients import clients, environments, report
from tests.clients.coordination import administration, grouping
from tests.clients.coordination import run as coordination
from tests.clients.coordination.grouping import PARTITIONS, Different, Group, Member

EVERYTHING = [(p, o) for p in range(PARTITIONS) for o in range(grouping.WAVE)]


class Answers:
    """A session that answers as it is told to."""

    def __init__(self, *lines):
        self.lines = list(lines)
        self.asked = []

    def ask(self, command, timeout_s):
        self.asked.append(command)
        return self.lines


def group_of(*handed):
    """A group whose members were handed these (partition, offset), and that share evenly."""
    members = [Member(clients.JAVA_28, Answers()) for _ in handed]
    group = Group("", "g", members)
    group.written = grouping.WAVE
    group.present = list(members)
    for number, (member, records) in enumerate(zip(members, handed, strict=True)):
        member.owned = {(group.topic, p) for p in range(number, PARTITIONS, len(members))}
        member.records = [(p, o, grouping.value_of(group.topic, p, o)) for p, o in records]
    return group


def test_what_is_whole_and_shared_passes():
    group = group_of(EVERYTHING[::2], EVERYTHING[1::2])
    assert group.complete()
    assert group.shared()


def test_a_lost_record_is_waited_for():
    assert not group_of(EVERYTHING[1:]).complete()


def test_a_record_handed_out_twice_is_found_whoever_got_it():
    for handed in ([[*EVERYTHING, (0, 0)]], [EVERYTHING, [(0, 0)]]):
        with pytest.raises(Different, match=r"handed out twice: \[\(0, 0\)\], 1 in all"):
            group_of(*handed).complete()


def test_another_record_than_was_written_is_found():
    group = group_of(EVERYTHING)
    group.members[0].records[5] = (*EVERYTHING[5], "something else")
    with pytest.raises(Different, match="'something else' at 0/5"):
        group.complete()


def test_partitions_owned_twice_or_by_nobody_or_not_shared_are_no_sharing():
    group = group_of(EVERYTHING, [])
    group.members[1].owned.add((group.topic, 0))
    assert not group.shared()
    group.members[0].owned.discard((group.topic, 0))
    assert group.shared()
    group.members[1].owned.discard((group.topic, 1))
    assert not group.shared()
    group.members[0].owned, group.members[1].owned = group.all, set()
    assert not group.shared()


def test_going_back_to_a_wrong_place_is_found(monkeypatch):
    monkeypatch.setattr(grouping, "STEP_TIMEOUT_S", 0.05)
    group = group_of([])
    group.written = 24
    (member,) = group.members
    member.session.lines = [{"assignment": [], "records": []}]
    with pytest.raises(Different, match="was handed 0, not 60"):
        group.rewind(member)


def test_a_member_that_never_gets_anything_fails_in_time(monkeypatch):
    monkeypatch.setattr(grouping, "STEP_TIMEOUT_S", 0.05)
    group = group_of([])
    group.members[0].session.lines = [{"assignment": [], "records": []}]
    with pytest.raises(
        Different, match=r"sharing: not in 0 s; partitions: java 2.8 0; records: 0 of 24"
    ):
        group.wait("sharing", group.shared)


def test_what_was_committed_at_the_end_counts_as_handed_out():
    record = {"topic": "t", "partition": 1, "offset": 5, "value": "v"}
    member = Member(clients.KCAT, Answers({"records": [record]}))
    member.leave()
    assert member.records == [(1, 5, "v")]


@pytest.mark.parametrize("offsets", [(7, 1, 2**40 + 5, 0), (8, 1, 2**40 + 5, None), (7, 1)])
def test_other_offsets_than_were_committed_are_found(offsets):
    lines = [{"partition": number, "offset": offset} for number, offset in enumerate(offsets)]
    found = report.Report()
    grouping.read_commits(Answers(*lines), clients.KAFKAJS, [clients.JAVA_08], found)
    assert found.commits.total() == 0
    assert found.problems[0].startswith("kafkajs 2 asks for commits-of-java-0-8-2: ")


def test_every_client_is_in_a_group_or_says_why_not():
    for client in clients.CLIENTS:
        own = [group for group in coordination.groups_of([client]) if set(group) == {client}]
        assert bool(own) != bool(client.no_groups)
        assert set(client.admin) <= set(administration.CALLS)
    assert len(coordination.groups_of(clients.CLIENTS)) > len(clients.CLIENTS)


def test_the_page_tells_every_client_and_every_group():
    page = (environments.REPOSITORY / "docs" / "compatibility.md").read_text()
    _, _, rest = page.partition(report.MARK_BEGIN)
    section, _, _ = rest.partition(report.MARK_END)
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| ")]
    firsts = {row[0].removeprefix("| ") for row in rows}
    groups = coordination.groups_of(clients.CLIENTS)
    assert firsts >= {client.name for client in clients.CLIENTS}
    assert firsts >= {coordination.name_of(group) for group in groups}
    (administered,) = (row for row in rows if row[:2] == ["| client", "create topic"])
    assert administered[1:] == [
        *(call.replace("_", " ") for call in administration.CALLS[:-1]),
        "delete topic |",
    ]
    assert "wrong" not in section
    assert "0 client(s) skipped." in section


class SaysSo:
    """A client that says it did what it was told."""

    def ask(self, command, timeout_s):
        return [{"configs": {}, "offsets": [], "groups": [], "state": "Stable", "members": 0}]


def test_a_client_that_only_says_it_did_is_found(tidelog_broker_factory, monkeypatch):
    broker = tidelog_broker_factory()
    monkeypatch.setattr(administration, "SHOWN_WITHIN_S", 0.3)
    found = report.Report()
    client = clients.JAVA_28
    administration.Administrator(broker.bootstrap, SaysSo(), client, found).run()
    wrong = {name for (_, name), word in found.administered.items() if word != "ok"}
    assert wrong == set(administration.CALLS)
    assert len(found.problems) == len(administration.CALLS)
