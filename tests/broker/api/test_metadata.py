"""Metadata: who is there, what exists, what is made by asking; by name and by id."""

from __future__ import annotations

import uuid

import pytest

from tests.broker.asking import NO_ID, all_versions, create, new_name, new_topic

UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC, UNKNOWN_TOPIC_ID = 3, 17, 100


def ask(connection, version, topics, *, allow=False):
    """`topics`: None, or names (str) and ids (UUID)."""
    wanted = topics
    if topics is not None:
        wanted = [
            {"name": None, "topic_id": each} if isinstance(each, uuid.UUID) else {"name": each}
            for each in topics
        ]
    return connection.ask("Metadata", version, topics=wanted, allow_auto_topic_creation=allow)


@pytest.fixture
def topic(connection):
    return new_topic(connection, partitions=3)


@pytest.mark.parametrize("version", all_versions("Metadata"))
def test_every_version_describes_broker_and_topic(broker, connection, topic, version):
    answer = ask(connection, version, [topic])
    (node,) = answer["brokers"]
    assert (node["node_id"], node["host"], node["port"]) == (1, "127.0.0.1", broker.port)
    assert node.get("rack") is None
    assert answer.get("controller_id", 1) == 1
    assert answer.get("cluster_id", broker.cluster_id) == broker.cluster_id
    assert answer.get("error_code", 0) == 0
    (found,) = answer["topics"]
    assert (found["error_code"], found["name"]) == (0, topic)
    assert found.get("is_internal", False) is False
    assert [each["partition_index"] for each in found["partitions"]] == [0, 1, 2]
    for each in found["partitions"]:
        assert (each["error_code"], each["leader_id"]) == (0, 1)
        assert each["replica_nodes"] == each["isr_nodes"] == [1]
        assert each.get("offline_replicas", []) == []
        assert each.get("leader_epoch", 0) == 0
    if version >= 10:
        assert found["topic_id"] not in (NO_ID, None)


@pytest.mark.parametrize("version", [v for v in all_versions("Metadata") if v >= 8])
def test_what_a_client_may_do(connection, topic, version):
    """kafka-python 2.3 asks with each description, and cannot read that it was not told."""
    everything = {3, 4, 5, 6, 7, 8, 10, 11}

    def describe(topics, *, asked=True):
        return connection.ask(
            "Metadata",
            version,
            topics=topics,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=asked,
            include_cluster_authorized_operations=asked,
        )

    answer = describe([{"name": topic}, {"name": "nowhere"}, {"name": "a b"}])
    assert [each["authorized_operations"] for each in answer["topics"]] == [everything] * 3
    if version <= 10:
        assert answer["authorized_operations"] == {5, 7, 8, 9, 10, 11, 12}
    every = describe(None)["topics"]
    assert {frozenset(each["authorized_operations"]) for each in every} == {frozenset(everything)}
    answer = describe([{"name": topic}], asked=False)
    assert answer["topics"][0]["authorized_operations"] is None
    assert answer.get("authorized_operations") is None
    if version >= 12:
        (found,) = describe([{"name": None, "topic_id": uuid.uuid4()}])["topics"]
        assert (found["error_code"], found["authorized_operations"]) == (UNKNOWN_TOPIC_ID, None)


class TestWhichTopics:
    def test_version_0_takes_an_empty_list_for_all(self, connection, topic):
        assert topic in {each["name"] for each in ask(connection, 0, [])["topics"]}

    @pytest.mark.parametrize("version", list(all_versions("Metadata"))[1:])
    def test_later_versions_take_null_for_all_and_empty_for_none(self, connection, topic, version):
        assert topic in {each["name"] for each in ask(connection, version, None)["topics"]}
        assert ask(connection, version, [])["topics"] == []

    def test_the_order_and_number_of_what_was_asked(self, connection, topic):
        other = new_topic(connection)
        names = [topic, "nowhere", other]
        assert [each["name"] for each in ask(connection, 9, names)["topics"]] == names


class TestAutoCreation:
    @pytest.mark.parametrize("version", [0, 1, 2, 3])
    def test_old_versions_create_by_asking(self, connection, version):
        name = new_name("auto")
        (found,) = ask(connection, version, [name])["topics"]
        assert (found["error_code"], len(found["partitions"])) == (0, 1)

    @pytest.mark.parametrize("version", list(all_versions("Metadata"))[4:])
    def test_newer_versions_say_whether_to(self, connection, version):
        name = new_name("auto")
        (found,) = ask(connection, version, [name])["topics"]
        assert (found["error_code"], found["partitions"]) == (UNKNOWN_TOPIC_OR_PARTITION, [])
        (found,) = ask(connection, version, [name], allow=True)["topics"]
        assert (found["error_code"], len(found["partitions"])) == (0, 1)
        (found,) = ask(connection, version, [name])["topics"]
        assert found["error_code"] == 0

    def test_a_bad_name_creates_nothing(self, connection):
        for name in ("", ".", "..", "a/b", "a b", "ä", "x" * 250):
            (found,) = ask(connection, 9, [name], allow=True)["topics"]
            assert found["error_code"] == INVALID_TOPIC
            assert name not in {each["name"] for each in ask(connection, 9, None)["topics"]}

    def test_the_broker_may_forbid_it(self, start):
        broker = start({"auto.create.topics.enable": "false", "num.partitions": 3})
        with broker.connect() as connection:
            for version in (0, 3, 9, 13):
                (found,) = ask(connection, version, ["t"], allow=True)["topics"]
                assert found["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
            assert ask(connection, 9, None)["topics"] == []


@pytest.mark.parametrize("version", [10, 11, 12, 13])
def test_ids(connection, version):
    name = new_name()
    topic_id = create(connection, name)
    named = [name] if version < 12 else [name, uuid.UUID(topic_id)]
    for each in named:
        (found,) = ask(connection, version, [each])["topics"]
        assert (found["error_code"], found["name"], found["topic_id"]) == (0, name, topic_id)
    if version >= 12:
        unknown = uuid.uuid4()
        (found,) = ask(connection, version, [unknown], allow=True)["topics"]
        assert (found["error_code"], found["topic_id"]) == (UNKNOWN_TOPIC_ID, str(unknown))
        assert found["partitions"] == []


def test_the_advertised_address_is_told(start):
    broker = start({"advertised.listeners": "PLAINTEXT://kafka.example:19092"})
    with broker.connect() as connection:
        (node,) = ask(connection, 9, [])["brokers"]
        assert (node["host"], node["port"]) == ("kafka.example", 19092)
