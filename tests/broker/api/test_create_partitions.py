"""CreatePartitions: the new partitions are seen and take records; what cannot be adds none."""

from __future__ import annotations

import pytest

from tests.broker.asking import all_versions, new_topic, produce, read_values, records_for

UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS = 3, 37
INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST = 39, 42


def grow(connection, *topics, version=3, validate_only=False):
    """Each topic as (name, count) or (name, count, broker ids of each); (error, sentence) of each."""
    answer = connection.ask(
        "CreatePartitions",
        version,
        topics=[
            {
                "name": name,
                "count": count,
                "assignments": [{"broker_ids": ids} for ids in placed[0]] if placed else None,
            }
            for name, count, *placed in topics
        ],
        timeout_ms=1_000,
        validate_only=validate_only,
    )
    return [(each["error_code"], each["error_message"]) for each in answer["results"]]


def partitions(connection, topic):
    answer = connection.ask(
        "Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False
    )
    return [each["partition_index"] for each in answer["topics"][0]["partitions"]]


@pytest.fixture
def topic(connection):
    return new_topic(connection, partitions=2, retention_ms="12345")


@pytest.mark.parametrize("version", all_versions("CreatePartitions"))
def test_every_version(connection, topic, version):
    assert grow(connection, (topic, 3), version=version) == [(0, None)]
    assert grow(connection, (topic, 4, [[1]]), version=version) == [(0, None)], "to this broker"
    assert partitions(connection, topic) == [0, 1, 2, 3]
    assert produce(connection, topic, records_for(9, "a"), partition=3)["error_code"] == 0
    assert read_values(connection, topic, partition=3) == [b"a"]


def test_validate_only_changes_nothing(connection, topic):
    assert grow(connection, (topic, 4), validate_only=True) == [(0, None)]
    assert partitions(connection, topic) == [0, 1]
    assert grow(connection, (topic, 2), validate_only=True)[0][0] == INVALID_PARTITIONS


@pytest.mark.parametrize(
    ("count", "placed", "code"),
    [
        (2, None, INVALID_PARTITIONS),
        (1, None, INVALID_PARTITIONS),
        (0, None, INVALID_PARTITIONS),
        (-5, None, INVALID_PARTITIONS),
        (2**31 - 1, None, INVALID_PARTITIONS),
        (4, [[1]], INVALID_REPLICA_ASSIGNMENT),
        (3, [[7]], INVALID_REPLICA_ASSIGNMENT),
        (3, [[1, 1]], INVALID_REPLICA_ASSIGNMENT),
        (3, [[]], INVALID_REPLICA_ASSIGNMENT),
        (3, [], INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be(connection, topic, count, placed, code):
    asked = (topic, count) if placed is None else (topic, count, placed)
    ((found, sentence),) = grow(connection, asked)
    assert found == code
    assert len(sentence) > 10
    assert partitions(connection, topic) == [0, 1]


def test_each_topic_for_itself(connection, topic):
    answers = grow(connection, ("nowhere", 3), (topic, 3), ("twice", 3), ("twice", 4))
    assert [code for code, _ in answers] == [UNKNOWN_TOPIC_OR_PARTITION, 0, INVALID_REQUEST]
