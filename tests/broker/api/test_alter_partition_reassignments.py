"""AlterPartitionReassignments: a partition may be moved to where it is, and nowhere else."""

from __future__ import annotations

import pytest

from tests.broker.asking import new_topic

UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS = 3, 39, 85


@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code"),
    [
        (None, 0, [1], 0),
        (None, 0, [7], INVALID_REPLICA_ASSIGNMENT),
        (None, 0, [1, 7], INVALID_REPLICA_ASSIGNMENT),
        (None, 0, [1, 1], INVALID_REPLICA_ASSIGNMENT),
        (None, 0, [], INVALID_REPLICA_ASSIGNMENT),
        (None, 0, None, NO_REASSIGNMENT_IN_PROGRESS),
        (None, 7, [1], UNKNOWN_TOPIC_OR_PARTITION),
        (None, -1, None, UNKNOWN_TOPIC_OR_PARTITION),
        ("nowhere", 0, [1], UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_moves(connection, topic, index, replicas, code):
    if topic is None:
        topic = new_topic(connection)
    wanted = {"partition_index": index, "replicas": replicas}
    answer = connection.ask(
        "AlterPartitionReassignments",
        0,
        timeout_ms=1_000,
        topics=[{"name": topic, "partitions": [wanted]}],
    )
    ((result,),) = (each["partitions"] for each in answer["responses"])
    assert (answer["error_code"], result["partition_index"]) == (0, index)
    assert result["error_code"] == code
    assert (result["error_message"] is None) == (code == 0)


@pytest.mark.parametrize("known", [True, False, None])
def test_nothing_is_on_the_move(connection, known):
    topic = new_topic(connection)
    name = topic if known else "nowhere"
    topics = None if known is None else [{"name": name, "partition_indexes": [0]}]
    answer = connection.ask("ListPartitionReassignments", 0, timeout_ms=1_000, topics=topics)
    assert (answer["error_code"], answer["topics"]) == (0, [])
