"""The fast path of OffsetCommit answers what the ordinary path answers, to the byte, and stores the same.

Two nodes with logs of their own get the same frames; one of them may take the fast path.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager

import pytest

from tests.broker.api import both_paths
from tests.broker.members import commit_fields
from tests.broker.raw import request
from tidelog.broker.api import offset_commit_single
from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
from tidelog.broker.coordinators.groups.members import Member
from tidelog.broker.coordinators.groups.messages import State
from tidelog.config import topic_config
from tidelog.protocol.errors import KafkaStorageError, MessageTooLarge

VERSIONS = range(5, 10)
OFFSETS = "__consumer_offsets"
TOPICS = {"plain": (uuid.UUID(int=1), 2), OFFSETS: (uuid.UUID(int=2), 4)}
NONE, MESSAGE_TOO_LARGE_FOR_A_COMMIT, NOT_COORDINATOR = 0, 28, 16


@contextmanager
def node_at(directory):
    with both_paths.node_with(directory, TOPICS, **{"clock.scope": "all"}) as node:
        _coordinate_all(node)
        _let_in(node, "stable", State.STABLE)
        _let_in(node, "completing", State.COMPLETING)
        yield node


def _coordinate_all(node):
    """Has read every partition of the groups' topic."""
    ownership, (topic_id, partitions) = node.coordinator.runtime.ownership, TOPICS[OFFSETS]
    ownership.on_image(topic_id, dict.fromkeys(range(partitions), 0))
    for index in range(partitions):
        (load,) = ownership.on_led(topic_id, index, 0)
        ownership.on_loaded(load)


def _let_in(node, group_id, state):
    """A group in its third generation: a member, and one that has a name of its own.

    Members that join would need an event loop, so the group is put where the coordinator keeps its own.
    """
    members = [
        Member(f"{group_id}-{name}", instance, "c", "/h", 10_000, 10_000, (("range", b""),))
        for name, instance in (("one", None), ("two", "i"))
    ]
    group = node.coordinator.groups.machine(group_id)
    group.restore(members, 0)
    group.state, group.generation = state, 3
    group.protocol_type, group.protocol, group.leader = "consumer", "range", f"{group_id}-one"
    node.coordinator.runtime.entries[group_id] = GroupMetadata(group, epoch=0)


@pytest.fixture
def short(tmp_path):
    with node_at(tmp_path / "short") as node:
        yield node


@pytest.fixture
def ordinary(tmp_path):
    with node_at(tmp_path / "ordinary") as node:
        yield node


def both(monkeypatch, short, ordinary, frame):
    """The same frame to both; returns the answer they agree on, and whether the fast path was taken."""
    for node in (short, ordinary):
        node.clock.step(5)
    agreed = both_paths.both(monkeypatch, offset_commit_single, short, ordinary, frame)
    assert groups(short) == groups(ordinary)
    return agreed


def groups(node):
    return {
        kept.group.group_id: (
            {name: each._replace(log=None) for name, each in kept.offsets.items()},
            {name: each.deadline_ms for name, each in kept.group.members.items()},
            kept.group.state,
        )
        for kept in node.coordinator.runtime.all()
    }


def fields(group="g", topic="plain", partition=0, offset=7, note="", **more):
    place = {"partition": partition, "note": note, "epoch": 4}
    return {**commit_fields(group, topic, offset, **place), **more}


def of_member(group, name="one", generation=3, instance=None):
    return {
        "group": group,
        "generation_id_or_member_epoch": generation,
        "member_id": f"{group}-{name}",
        "group_instance_id": instance,
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_taken_and_answers_the_same(monkeypatch, short, ordinary, version):
    for note in ["", "nöte", None]:
        who = [{}, {"group": "gröup"}, {"group": ""}, {"group": "x" * 126}, of_member("stable")]
        if version >= 7:
            who.append(of_member("stable", "two", instance="i"))
        for number, one in enumerate(who * 2):
            frame = request(
                "OffsetCommit",
                version,
                **fields(partition=number % 2, offset=number, note=note, **one),
            )
            got, taken = both(monkeypatch, short, ordinary, frame)
            assert taken, one
            assert (b"\0\4plain" if version < 8 else b"\2\6plain")[-5:] in got
        kept = short.coordinator.get("g").offsets
        assert {name: each.offset for name, each in kept.items()} == {
            ("plain", number % 2): number
            for number in range(len(who) * 2)
            if number % len(who) == 0
        }
        assert {each.metadata for each in kept.values()} == {note or ""}
        assert {each.leader_epoch for each in kept.values()} == {4 if version >= 6 else -1}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_that_is_viewed_not_copied(monkeypatch, short, ordinary, version):
    sent = memoryview(request("OffsetCommit", version, **fields(note="note")))
    assert both(monkeypatch, short, ordinary, sent)[1]


def unusual(version):
    """Name -> fields of requests that are left to the ordinary way."""
    two, topics = fields(), fields()
    two["topics"][0]["partitions"] *= 2
    topics["topics"] *= 2
    found = {
        "another partition": fields(partition=2),
        "a negative partition": fields(partition=-1),
        "an unknown topic": fields(topic="nowhere"),
        "a note that is too long": fields(note="n" * 5_000),
        "two partitions": two,
        "two topics": topics,
        "no topic": fields(topics=[]),
        "no partition": fields(topics=[{"name": "plain", "partitions": []}]),
        "a generation of no group": fields(generation_id_or_member_epoch=1),
        "another generation": fields(**of_member("stable", generation=2)),
        "nobody": fields(group="stable"),
        "a stranger": fields(**of_member("stable", "three")),
        "while it is assigned": fields(**of_member("completing")),
    }
    if version >= 7:
        found["a fenced member"] = fields(**of_member("stable", "one", instance="i"))
        found["an unknown instance"] = fields(**of_member("stable", "one", instance="j"))
    if version >= 8:
        found["a long text"] = fields(group="g" * 127)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_the_unusual_is_left_alone(monkeypatch, short, ordinary, version):
    for name, asked in unusual(version).items():
        frame = request("OffsetCommit", version, **asked)
        got, taken = both(monkeypatch, short, ordinary, frame)
        assert not taken, name
        assert got, name


@pytest.mark.parametrize("version", [5, 8])  # with lengths of two kinds
def test_a_frame_cut_anywhere_or_with_a_byte_changed(monkeypatch, short, ordinary, version):
    asked = fields(note="n", **of_member("stable", "two", instance="i" if version >= 7 else None))
    frame = request("OffsetCommit", version, **asked)
    for each in both_paths.damaged(frame):
        both(monkeypatch, short, ordinary, each)


@pytest.mark.parametrize("version", range(5))
def test_other_versions_go_the_ordinary_way(monkeypatch, short, ordinary, version):
    got, taken = both(
        monkeypatch,
        short,
        ordinary,
        request("OffsetCommit", version, **fields(retention_time_ms=-1)),
    )
    assert not taken
    assert got


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaStorageError("the disk is full"), NOT_COORDINATOR),
        (MessageTooLarge("a batch"), MESSAGE_TOO_LARGE_FOR_A_COMMIT),
    ],
)
def test_what_the_log_refuses(monkeypatch, short, ordinary, version, error, code):
    def refuse(*_args, **_more):
        raise error

    frame = request("OffsetCommit", version, **fields())
    with monkeypatch.context() as patch:
        for node in (short, ordinary):
            for partition in node.store.partitions():
                if partition.topic == OFFSETS:
                    patch.setattr(partition, "append", refuse)
        got, taken = both(monkeypatch, short, ordinary, frame)
    assert not taken
    assert code.to_bytes(2, "big") in got
    assert short.coordinator.get("g") is None, "nothing is known that is not in the log"


def test_an_offset_that_waits_for_the_disk(monkeypatch, short, ordinary):
    """flush.messages=1: the ordinary way waits, and answers when the disk has it."""
    for node in (short, ordinary):
        for partition in node.store.partitions():
            partition.config = topic_config(node.config, {"flush.messages": "1"})
    got, taken = both(monkeypatch, short, ordinary, request("OffsetCommit", 9, **fields(offset=11)))
    assert not taken
    assert NONE.to_bytes(2, "big") in got
    assert short.coordinator.get("g").offsets["plain", 0].offset == 11
