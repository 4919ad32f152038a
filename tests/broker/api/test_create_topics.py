"""CreateTopics: defaults, limits, every refusal with its code and a sentence, nothing half made."""

from __future__ import annotations

import pytest

from tests.broker.asking import NO_ID, all_versions, new_name

INVALID_TOPIC, ALREADY_EXISTS, INVALID_PARTITIONS = 17, 36, 37
INVALID_REPLICATION_FACTOR, INVALID_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST = 38, 39, 40, 42


def topic(name, partitions=1, replication_factor=1, assignments=None, **configs):
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": list(brokers)}
            for index, brokers in (assignments or {}).items()
        ],
        "configs": [
            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
        ],
    }


def ask(connection, version, *topics, validate_only=False):
    answer = connection.ask(
        "CreateTopics",
        version,
        topics=list(topics),
        timeout_ms=10_000,
        validate_only=validate_only,
    )
    return answer["topics"]


def exists(connection, name):
    answer = connection.ask("Metadata", 4, topics=[{"name": name}], allow_auto_topic_creation=False)
    found = answer["topics"][0]
    return len(found["partitions"]) if found["error_code"] == 0 else 0


@pytest.mark.parametrize("version", all_versions("CreateTopics"))
def test_every_version_creates(connection, version):
    name = new_name()
    (got,) = ask(connection, version, topic(name, 3, retention_ms="1000"))
    assert (got["name"], got["error_code"]) == (name, 0)
    assert got.get("error_message") is None
    assert exists(connection, name) == 3
    if version >= 5:
        assert (got["num_partitions"], got["replication_factor"]) == (3, 1)
        configs = {each["name"]: each for each in got["configs"]}
        mine, other = configs["retention.ms"], configs["segment.bytes"]
        assert (mine["value"], mine["config_source"]) == ("1000", 1)
        assert (other["value"], other["config_source"]) == (str(1 << 30), 5)
    if version >= 7:
        assert got["topic_id"] != NO_ID


def test_the_brokers_default(start):
    """Of partitions, for who asks for -1 of them or for none in particular."""
    with start({"num.partitions": 5}).connect() as connection:
        for version in (4, 5, 6, 7):
            (got,) = ask(connection, version, topic(f"t{version}", -1, -1))
            assert got["error_code"] == 0
            assert exists(connection, f"t{version}") == 5
        asked = {"topics": [{"name": "auto"}], "allow_auto_topic_creation": True}
        (found,) = connection.ask("Metadata", 9, **asked)["topics"]
        assert len(found["partitions"]) == 5


NAMES = ("", ".", "..", "a/b", "../../x", "sp ace", "ä", "x" * 250)
PLACES = ({0: [2]}, {0: [1, 1]}, {0: []}, {0: [1], 2: [1]})
REFUSED = [
    *((topic(name), INVALID_TOPIC) for name in NAMES),
    *((topic("t", count), INVALID_PARTITIONS) for count in (0, -2, 10_001, 2**31 - 1)),
    *((topic("t", 1, replicas), INVALID_REPLICATION_FACTOR) for replicas in (2, 0, -2)),
    *((topic("t", -1, -1, placed), INVALID_ASSIGNMENT) for placed in PLACES),
    (topic("both", 1, 1, {0: [1]}), INVALID_REQUEST),
    (topic("__cluster_metadata"), INVALID_REQUEST),
    (topic("config", retention_ms="soon"), INVALID_CONFIG),
    (topic("config", retention_ms="-2"), INVALID_CONFIG),
    (topic("config", no_such_setting="1"), INVALID_CONFIG),
    (topic("config", cleanup_policy="burn"), INVALID_CONFIG),
    (topic("config", message_timestamp_type="Whenever"), INVALID_CONFIG),
]


@pytest.mark.parametrize("version", all_versions("CreateTopics"))
def test_refusals(connection, version):
    """With a sentence from version 1 on; nothing is made."""
    for wanted, code in REFUSED:
        (got,) = ask(connection, version, wanted)
        assert (got["name"], got["error_code"]) == (wanted["name"], code), wanted
        if version >= 1:
            assert len(got["error_message"]) > 10
        assert not exists(connection, wanted["name"]) or code == INVALID_TOPIC


def test_a_topic_that_exists(connection):
    name = new_name()
    ask(connection, 7, topic(name))
    (got,) = ask(connection, 7, topic(name, 5))
    assert got["error_code"] == ALREADY_EXISTS
    assert exists(connection, name) == 1


def test_a_name_that_differs_only_in_dot_and_underscore(connection):
    """Metrics would write both alike; Kafka answers INVALID_TOPIC_EXCEPTION."""
    name = new_name()
    ask(connection, 7, topic(f"{name}.x"))
    (got,) = ask(connection, 7, topic(f"{name}_x"))
    assert got["error_code"] == INVALID_TOPIC


def test_a_name_given_twice(connection):
    name, other = new_name(), new_name()
    got = ask(connection, 4, topic(name), topic(other), topic(name, 2))
    by_name = {(each["name"], each["error_code"]) for each in got}
    assert by_name == {(name, INVALID_REQUEST), (other, 0)}
    assert not exists(connection, name)
    assert exists(connection, other)


def test_an_assignment_that_names_this_broker(connection):
    name = new_name()
    (got,) = ask(connection, 7, topic(name, -1, -1, {1: [1], 0: [1]}))
    assert got["error_code"] == 0
    assert exists(connection, name) == 2


def test_validate_only_makes_nothing(connection):
    for version in list(all_versions("CreateTopics"))[1:]:
        name = new_name()
        (got,) = ask(connection, version, topic(name), validate_only=True)
        assert got["error_code"] == 0
        (bad,) = ask(connection, version, topic(name, 0), validate_only=True)
        assert bad["error_code"] == INVALID_PARTITIONS
        (bad,) = ask(connection, version, topic(name, retention_ms="x"), validate_only=True)
        assert bad["error_code"] == INVALID_CONFIG
        assert not exists(connection, name)
        ask(connection, version, topic(name))
        (bad,) = ask(connection, version, topic(name), validate_only=True)
        assert bad["error_code"] == ALREADY_EXISTS


def test_a_setting_given_as_null(connection):
    """Kafka refuses it: a new topic has nothing to go back to."""
    (got,) = ask(connection, 7, topic(new_name(), retention_ms=None))
    assert got["error_code"] in {INVALID_CONFIG, INVALID_REQUEST}
