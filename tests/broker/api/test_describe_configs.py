"""DescribeConfigs: values, where they come from, what they mean; topics and the broker."""

from __future__ import annotations

import pytest

from tests.broker.asking import BROKER, TOPIC, all_versions, alter, create, new_topic
from tests.broker.conftest import of_module

UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST = 3, 42
SOURCE_TOPIC, SOURCE_DYNAMIC, SOURCE_DYNAMIC_DEFAULT, SOURCE_STATIC, SOURCE_DEFAULT = range(1, 6)
SET, DELETE = 0, 1
CLIENT_METRICS = 16


def ask(connection, kind, name, keys=None, *, version=4, synonyms=True, documentation=True):
    answer = connection.ask(
        "DescribeConfigs",
        version,
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": keys}],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    (result,) = answer["results"]
    assert (result["resource_type"], result["resource_name"]) == (kind, name)
    return result


def by_name(result):
    assert result["error_code"] == 0, result
    return {each["name"]: each for each in result["configs"]}


# A broker with settings of its own and no dynamic ones.
seven = of_module({"num.partitions": 7, "node.id": 7, "log.retention.ms": "1111"})


@pytest.fixture
def topic(connection):
    return new_topic(connection, retention_ms="5000")


@pytest.mark.parametrize("version", all_versions("DescribeConfigs"))
def test_every_version(connection, topic, version):
    configs = by_name(ask(connection, TOPIC, topic, version=version))
    mine, other = configs["retention.ms"], configs["segment.bytes"]
    assert (mine["value"], mine["read_only"], mine["is_sensitive"]) == ("5000", False, False)
    assert other["value"] == str(1 << 30)
    if version == 0:
        assert (mine["is_default"], other["is_default"]) == (False, True)
    else:
        assert (mine["config_source"], other["config_source"]) == (SOURCE_TOPIC, SOURCE_DEFAULT)
        assert mine["synonyms"][0] == {
            "name": "retention.ms",
            "value": "5000",
            "source": SOURCE_TOPIC,
        }
    if version >= 3:
        assert mine["config_type"] == 5, "a long"
        assert len(mine["documentation"]) > 10


class TestTopics:
    def test_all_keys_or_some_and_no_more_than_was_asked_for(self, connection, topic):
        keys = ["segment.bytes", "retention.ms", "no.such.setting"]
        assert by_name(ask(connection, TOPIC, topic, keys)).keys() == set(keys[:2])
        result = ask(connection, TOPIC, topic, None, synonyms=False, documentation=False)
        expected = {"cleanup.policy", "compression.type", "message.format.version", "segment.ms"}
        assert expected <= by_name(result).keys()
        for each in result["configs"]:
            assert (each["synonyms"], each["documentation"]) == ([], None)

    @pytest.mark.parametrize("version", all_versions("DescribeConfigs"))
    def test_an_unknown_topic(self, connection, version):
        result = ask(connection, TOPIC, "nowhere", version=version)
        assert (result["error_code"], result["configs"]) == (UNKNOWN_TOPIC_OR_PARTITION, [])
        assert result["error_message"]

    def test_the_chain_of_sources(self, seven):
        """Topic over the broker's dynamic over its static over the default."""
        with seven.connect() as connection:
            create(connection, "t")

            def strongest():
                each = by_name(ask(connection, TOPIC, "t", ["retention.ms"]))["retention.ms"]
                sources = [synonym["source"] for synonym in each["synonyms"]]
                assert each["config_source"] == sources[0]
                assert each["value"] == each["synonyms"][0]["value"]
                assert sources == sorted(sources)
                assert sources[-1] == SOURCE_DEFAULT
                return each["value"], sources[0]

            assert strongest() == ("1111", SOURCE_STATIC)
            assert alter(connection, BROKER, "", ("log.retention.ms", SET, "2222"))[0] == 0
            assert strongest() == ("2222", SOURCE_DYNAMIC)
            assert alter(connection, TOPIC, "t", ("retention.ms", SET, "3333"))[0] == 0
            assert strongest() == ("3333", SOURCE_TOPIC)
            each = by_name(ask(connection, TOPIC, "t", ["retention.ms"]))["retention.ms"]
            assert [tuple(synonym.values()) for synonym in each["synonyms"]] == [
                ("retention.ms", "3333", SOURCE_TOPIC),
                ("log.retention.ms", "2222", SOURCE_DYNAMIC),
                ("log.retention.ms", "1111", SOURCE_STATIC),
                ("log.retention.ms", "604800000", SOURCE_DEFAULT),
            ]
            assert alter(connection, BROKER, "", ("log.retention.ms", DELETE, None))[0] == 0


class TestBroker:
    def test_by_its_id_which_has_two_names(self, seven):
        with seven.connect() as connection:
            configs = by_name(ask(connection, BROKER, "7"))
            for name in ("node.id", "broker.id"):
                assert list(by_name(ask(connection, BROKER, "7", [name]))) == [name]
        given, fixed = configs["num.partitions"], configs["log.dirs"]
        assert (given["value"], given["config_source"]) == ("7", SOURCE_STATIC)
        assert (fixed["value"], fixed["read_only"]) == (str(seven.log_dir), True)
        assert configs["log.retention.ms"]["read_only"] is False
        assert (configs["node.id"]["value"], configs["broker.id"]["value"]) == ("7", "7")
        assert configs["broker.id"]["read_only"] is True

    def test_the_advertised_listeners_are_what_clients_are_told(self, seven, start):
        advertised = "advertised.listeners"
        with seven.connect() as connection:
            told = by_name(ask(connection, BROKER, "7", [advertised]))[advertised]
        assert (told["value"], told["config_source"]) == (
            f"PLAINTEXT://{seven.bootstrap}",
            SOURCE_DEFAULT,
        )
        with start({advertised: "PLAINTEXT://localhost:0"}).connect() as connection:
            told = by_name(ask(connection, BROKER, "1"))[advertised]
            (node,) = connection.ask("Metadata", 1, topics=[])["brokers"]
        assert told["value"] == f"PLAINTEXT://localhost:{node['port']}"
        assert told["config_source"] == SOURCE_STATIC

    def test_the_clusters_defaults_are_what_was_changed_live(self, seven):
        with seven.connect() as connection:
            assert by_name(ask(connection, BROKER, "")) == {}
            alter(connection, BROKER, "", ("log.retention.ms", SET, "2222"))
            configs = by_name(ask(connection, BROKER, ""))
            alter(connection, BROKER, "", ("log.retention.ms", DELETE, None))
            (each,) = configs.values()
            told = (each["name"], each["value"], each["config_source"])
            assert told == ("log.retention.ms", "2222", SOURCE_DYNAMIC_DEFAULT)
            assert [synonym["source"] for synonym in each["synonyms"]] == [SOURCE_DYNAMIC_DEFAULT]


def test_other_resources(connection):
    for kind, name in (
        (BROKER, "2"),
        (BROKER, "one"),
        (BROKER, "-1"),
        (0, "x"),
        (1, "x"),
        (8, "x"),
    ):
        result = ask(connection, kind, name)
        assert (result["error_code"], result["configs"]) == (INVALID_REQUEST, [])


@pytest.mark.parametrize("keys", [None, [], ["interval.ms"]])
def test_subscriptions_to_metrics_of_clients_have_no_settings(connection, keys):
    result = ask(connection, CLIENT_METRICS, "x", keys)
    assert (result["error_code"], result["configs"]) == (0, [])
    assert ask(connection, CLIENT_METRICS, "", keys)["error_code"] == INVALID_REQUEST


def test_each_resource_for_itself(connection, topic):
    answer = connection.ask(
        "DescribeConfigs",
        4,
        resources=[
            {"resource_type": kind, "resource_name": name, "configuration_keys": []}
            for kind, name in ((TOPIC, "nowhere"), (TOPIC, topic), (3, "x"), (BROKER, "1"))
        ],
    )
    found = [each["error_code"] for each in answer["results"]]
    assert found == [UNKNOWN_TOPIC_OR_PARTITION, 0, INVALID_REQUEST, 0]
