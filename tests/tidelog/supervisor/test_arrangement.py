"""Which directories, ports and settings each of several brokers gets, and what is refused."""

from __future__ import annotations

import pytest

from tidelog.config import ConfigError, load
from tidelog.supervisor.arrangement import arranged

LISTENERS = "PLAINTEXT://127.0.0.1:9092"


def settings(brokers, **given):
    overrides = {name.replace("_", "."): value for name, value in given.items()}
    return arranged(load(None, {}, overrides), overrides, brokers)


def test_broker_1_has_the_directory_of_a_broker_that_is_alone():
    found = settings(3, log_dirs="d")
    assert [own["log.dirs"] for own in found] == ["d", "d/brokers/2", "d/brokers/3"]
    assert {own["metadata.store"] for own in found} == {"sqlite:d/tidelog.sqlite"}
    assert [own["node.id"] for own in found] == ["1", "2", "3"]


def test_each_of_several_directories_holds_a_part_of_each_broker():
    found = settings(2, log_dirs="a,b")
    assert [own["log.dirs"] for own in found] == ["a,b", "a/brokers/2,b/brokers/2"]
    assert {own["metadata.store"] for own in found} == {"sqlite:a/tidelog.sqlite"}


def test_every_address_has_the_next_port_for_each_broker():
    found = settings(3, listeners=LISTENERS, http_listener="[::1]:8080")
    assert [own["listeners"] for own in found] == [
        f"PLAINTEXT://127.0.0.1:{port}" for port in (9092, 9093, 9094)
    ]
    assert [own["http.listener"] for own in found] == ["[::1]:8080", "[::1]:8081", "[::1]:8082"]
    assert all("control.listener" not in own for own in found)


def test_port_0_stays_a_free_one():
    found = settings(2, listeners="PLAINTEXT://127.0.0.1:0", control_listener="127.0.0.1:0")
    assert {own["listeners"] for own in found} == {"PLAINTEXT://127.0.0.1:0"}
    assert {own["control.listener"] for own in found} == {"127.0.0.1:0"}


def test_what_clients_are_told_has_the_next_port_too():
    found = settings(2, listeners=LISTENERS, advertised_listeners="PLAINTEXT://kafka:19092")
    assert [own["advertised.listeners"] for own in found] == [
        "PLAINTEXT://kafka:19092",
        "PLAINTEXT://kafka:19093",
    ]


@pytest.mark.parametrize(("brokers", "replicas"), [(1, "1"), (2, "2"), (3, "3"), (5, "3")])
def test_new_topics_have_three_replicas_where_there_are_three_brokers(brokers, replicas):
    found = settings(brokers)
    assert {own["default.replication.factor"] for own in found} == {replicas}


def test_a_replication_factor_that_is_given_stays():
    found = settings(3, default_replication_factor="1")
    assert {own["default.replication.factor"] for own in found} == {"1"}


@pytest.mark.parametrize(
    ("brokers", "given", "said"),
    [
        (0, {}, "--brokers 0: expected a number from 1 to 100"),
        (101, {}, "--brokers 101: expected a number from 1 to 100"),
        (3, {"node_id": "7"}, "node.id cannot be set with --brokers"),
        (3, {"broker_id": "7"}, "broker.id cannot be set with --brokers"),
        (3, {"metadata_store": "sqlite:x"}, "metadata.store cannot be set with --brokers"),
        (3, {"listeners": "PLAINTEXT://h:65534"}, "ports above 65535"),
        (3, {"listeners": LISTENERS, "http_listener": "127.0.0.1:9094"}, "port 9094 would be used"),
        (3, {"listeners": "PLAINTEXT://:9092", "http_listener": "127.0.0.1:9093"}, "port 9093"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(brokers, given, said):
    with pytest.raises(ConfigError) as refused:
        settings(brokers, **given)
    assert said in str(refused.value)


def test_addresses_of_different_hosts_may_share_ports():
    found = settings(3, listeners=LISTENERS, http_listener="127.0.0.2:9092")
    assert found[2]["http.listener"] == "127.0.0.2:9094"
