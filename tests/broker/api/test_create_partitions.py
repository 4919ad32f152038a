"""CreatePartitions: the new partitions are seen, take records, and are there after a restart."""

from __future__ import annotations

import shutil

import pytest

from tests.broker.asking import all_versions, create, new_topic, produce, read_values, records_for

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
    assert grow(connection, (topic, 4), version=version) == [(0, None)]
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


def test_an_assignment_to_this_broker(connection, topic):
    assert grow(connection, (topic, 4, [[1], [1]])) == [(0, None)]
    assert partitions(connection, topic) == [0, 1, 2, 3]


def test_each_topic_for_itself(connection, topic):
    answers = grow(connection, ("nowhere", 3), (topic, 3), ("twice", 3), ("twice", 4))
    assert [code for code, _ in answers] == [UNKNOWN_TOPIC_OR_PARTITION, 0, INVALID_REQUEST]


def test_a_log_that_cannot_be_made_leaves_the_topic_as_it_was(start):
    broker = start()
    with broker.connect() as connection:
        create(connection, "t")
        (broker.log_dir / "t-2").write_text("in the way")
        ((code, sentence),) = grow(connection, ("t", 3))
        assert code == 56, sentence
        assert partitions(connection, "t") == [0]
        (broker.log_dir / "t-2").unlink()
        assert grow(connection, ("t", 3)) == [(0, None)]
        assert partitions(connection, "t") == [0, 1, 2]


def test_somebodys_log_in_the_way_is_left_alone(start):
    broker = start()
    with broker.connect() as connection:
        create(connection, "t", retention_ms="1")
        assert produce(connection, "t", records_for(9, "brought"))["error_code"] == 0
    broker.stop()
    shutil.copytree(broker.log_dir / "t-0", broker.log_dir / "t-1")
    (broker.log_dir / "t-1" / "partition.metadata").unlink()
    log = (broker.log_dir / "t-1" / "00000000000000000000.log").read_bytes()
    broker.restart()
    with broker.connect() as connection:
        ((code, sentence),) = grow(connection, ("t", 2))
        assert code == INVALID_PARTITIONS
        assert "t-1" in sentence
        assert partitions(connection, "t") == [0]
    assert (broker.log_dir / "t-1" / "00000000000000000000.log").read_bytes() == log
