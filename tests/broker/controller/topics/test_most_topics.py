"""How many topics and partitions a cluster may have, whoever would make more."""

from __future__ import annotations

import pytest

from tests.broker.api.test_create_partitions import grow
from tests.broker.asking import BROKER, alter, create, try_to_create
from tests.broker.conftest import healthy

UNKNOWN_TOPIC_OR_PARTITION, TOPIC_ALREADY_EXISTS, POLICY_VIOLATION = 3, 36, 44
SET = 0


@pytest.fixture
def small(tmp_path):
    with healthy(
        tmp_path, {"max.topics": 3, "max.partitions": 6, "offsets.topic.num.partitions": 1}
    ) as subject:
        yield subject


def created(connection, name, partitions=1, *, validate_only=False):
    """The error and the sentence of CreateTopics."""
    found = try_to_create(connection, name, partitions, validate_only=validate_only)
    return found["error_code"], found["error_message"]


def grown(connection, name, count, *, validate_only=False):
    """The error and the sentence of CreatePartitions."""
    (found,) = grow(connection, (name, count), validate_only=validate_only)
    return found


def asked_for(connection, name):
    """The error of Metadata, which may create the topic."""
    answer = connection.ask("Metadata", 9, topics=[{"name": name}], allow_auto_topic_creation=True)
    return answer["topics"][0]["error_code"]


def names(connection):
    return {each["name"] for each in connection.ask("Metadata", 9, topics=None)["topics"]}


def test_topics(small):
    with small.connect() as connection:
        for name in "abc":
            create(connection, name)
        refused = (POLICY_VIOLATION, "the cluster has max.topics=3 topics")
        assert created(connection, "d") == refused
        assert created(connection, "d", validate_only=True) == refused
        assert asked_for(connection, "d") == POLICY_VIOLATION
        assert created(connection, "a")[0] == TOPIC_ALREADY_EXISTS
        assert names(connection) == {"a", "b", "c"}
        found = connection.ask("FindCoordinator", 1, key="g", key_type=0)
        assert found["error_code"] == 0  # __consumer_offsets is made all the same
        connection.ask("DeleteTopics", 3, topic_names=["a", "b"], timeout_ms=1_000)
        assert created(connection, "d") == (0, None)


def test_partitions(small):
    with small.connect() as connection:
        create(connection, "a", partitions=4)
        code, sentence = created(connection, "b", 3)
        assert code == POLICY_VIOLATION
        assert sentence == (
            "the cluster has 4 partitions, and 3 more would exceed max.partitions=6"
        )
        assert grown(connection, "a", 7)[0] == POLICY_VIOLATION
        assert grown(connection, "a", 7, validate_only=True)[0] == POLICY_VIOLATION
        assert grown(connection, "a", 6) == (0, None)
        assert asked_for(connection, "b") == POLICY_VIOLATION
        assert names(connection) == {"a"}
        assert alter(connection, BROKER, "", ("max.partitions", SET, "7"))[0] == 0
        assert asked_for(connection, "b") in (0, 5)
        assert created(connection, "c")[0] == POLICY_VIOLATION
