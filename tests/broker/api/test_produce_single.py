"""The fast path of Produce answers what the ordinary path answers, to the byte, and stores the same.

Two nodes with logs of their own get the same frames; one of them may take the fast path.
"""

from __future__ import annotations

import uuid
from itertools import product

import pytest

from tests.broker.api import both_paths
from tests.broker.asking import batch_of, produce_fields, records_for
from tests.broker.raw import request
from tidelog.broker.api import produce_single
from tidelog.protocol.errors import UnknownTopicOrPartition

VERSIONS = range(3, 13)
OFFSETS = "__consumer_offsets"
IDS = {
    "plain": uuid.UUID(int=1),
    "stamped": uuid.UUID(int=2),
    OFFSETS: uuid.UUID(int=4),
}
SETTINGS = {
    "stamped": {"message.timestamp.type": "LogAppendTime"},
}


def node_at(directory):
    return both_paths.node_with(directory, {name: (IDS[name], 2) for name in IDS}, SETTINGS)


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
    return both_paths.both(monkeypatch, produce_single, short, ordinary, frame)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_taken_and_answers_the_same(monkeypatch, short, ordinary, version):
    for topic, acks, partition in product(("plain", "stamped"), (1, -1, 0), (0, 1, 0)):
        fields = produce_fields(topic, batch_of("a", "bc"), acks=acks, partition=partition)
        got, taken = both(monkeypatch, short, ordinary, request("Produce", version, **fields))
        assert taken
        assert (got is None) == (acks == 0)


def test_large_records_are_viewed_not_copied(monkeypatch, short, ordinary):
    for version in VERSIONS:
        fields = produce_fields("plain", batch_of("x" * 100_000), acks=1)
        frame = request("Produce", version, **fields)
        for sent in (frame, memoryview(frame)):
            assert both(monkeypatch, short, ordinary, sent)[1]


def unusual(version):
    """Name -> fields of requests that are left to the ordinary way."""
    good = batch_of("a")
    damaged = good[:-1] + bytes((good[-1] ^ 1,))
    two = produce_fields("plain", good)
    two["topic_data"][0]["partition_data"].append({"index": 1, "records": good})
    topics = produce_fields("plain", good)
    topics["topic_data"] += produce_fields("stamped", good)["topic_data"]
    return {
        "another partition": produce_fields("plain", good, partition=7),
        "a negative partition": produce_fields("plain", good, partition=-1),
        "an unknown topic": produce_fields("nowhere", good),
        "a topic of the broker's own": produce_fields(OFFSETS, good),
        "a long name": produce_fields("n" * 249, good),
        "damaged records": produce_fields("plain", damaged),
        "damaged, unanswered": produce_fields("plain", damaged, acks=0),
        "no records": produce_fields("plain", b""),
        "null records": produce_fields("plain", None),
        "old records": produce_fields("plain", records_for(2, "a")),
        "other acks": produce_fields("plain", good, acks=2),
        "two partitions": two,
        "two topics": topics,
        "no topic": {**two, "topic_data": []},
        "a transaction": {**produce_fields("plain", good), "transactional_id": "t"},
        "an open transaction": produce_fields(
            "plain", batch_of("a", producer_id=5, producer_epoch=0, base_sequence=0, attributes=16)
        ),
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_the_unusual_is_left_alone(monkeypatch, short, ordinary, version):
    for name, fields in unusual(version).items():
        got, taken = both(monkeypatch, short, ordinary, request("Produce", version, **fields))
        assert not taken, name
        assert got, name


@pytest.mark.parametrize("version", [3, 9])  # with lengths of two kinds
def test_a_frame_cut_anywhere_or_with_a_byte_changed(monkeypatch, short, ordinary, version):
    frame = request("Produce", version, **produce_fields("plain", batch_of("a"), acks=1))
    for each in both_paths.damaged(frame):
        both(monkeypatch, short, ordinary, each)


@pytest.mark.parametrize("version", [0, 1, 2, 13])
def test_other_versions_go_the_ordinary_way(monkeypatch, short, ordinary, version):
    topic = str(IDS["plain"]) if version == 13 else "plain"
    fields = produce_fields(topic, records_for(version, "a"), acks=1)
    got, taken = both(monkeypatch, short, ordinary, request("Produce", version, **fields))
    assert not taken
    assert isinstance(got, bytes)


def test_the_log_of_a_deleted_topic_of_the_same_name_is_not_served(short):
    """The topic was deleted and created again, and its old log has not been deleted yet."""
    created_again = {name: (IDS[name], 2) for name in IDS} | {"plain": (uuid.UUID(int=9), 2)}
    assert short.partitions.leader("plain", 0).topic_id == IDS["plain"]
    short.metadata.image = both_paths.image_of(short.config.cluster.node_id, created_again)
    with pytest.raises(UnknownTopicOrPartition, match="not created yet"):
        short.partitions.leader("plain", 0)
    assert short.partitions.leader("stamped", 0).topic_id == IDS["stamped"]
