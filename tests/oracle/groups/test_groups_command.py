"""`tidelog groups` against Apache Kafka 3.9.1, which has no HTTP port: what it can do, and what it says."""

from __future__ import annotations

import json
import time

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.broker.subject import eventually
from tests.oracle import wire
from tests.oracle.brokers import wait_for_coordinators, wait_for_leaders
from tidelog.cli.parser import main

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.timeout(900),
    # kafka-python leaves sockets of lost connections to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning"),
]

HOUR_MS = 3_600_000
TOPIC, GROUP = "orders", "readers"
NOWHERE = "127.0.0.1:1"


def described(connection):
    (group,) = connection.ask("DescribeGroups", 4, groups=[GROUP])["groups"]
    return group


@pytest.fixture(scope="module")
def filled(apache_kafka):
    """Apache Kafka with a topic: its bootstrap address, and the times of what lies in partition 0."""
    with apache_kafka("3.9.1") as kafka:
        wait_for_coordinators(kafka.bootstrap)
        admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        configs = {"retention.ms": "-1"}
        admin.create_topics(
            {TOPIC: {"num_partitions": 2, "replication_factor": 1, "configs": configs}}
        )
        admin.close()
        with wire.Connection(kafka.bootstrap) as connection:
            wait_for_leaders(connection, {TOPIC: 2})
            # A KRaft broker is named as coordinator before it has read what it coordinates.
            eventually(lambda: described(connection)["error_code"] == 0, 60, "a coordinator")
        now_ms = time.time_ns() // 1_000_000
        times = [now_ms - hours * HOUR_MS for hours in (5, 1, 3, 2)]
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, compression_type="lz4")
        for at in times:
            producer.send(TOPIC, b"v", partition=0, timestamp_ms=at).get(90)
        producer.close()
        yield kafka.bootstrap, times


@pytest.fixture
def run(filled, capsys):
    """Run `tidelog groups`: exit status, what it printed, what it complained of."""

    def run(*arguments):
        capsys.readouterr()
        try:
            status = main(["groups", *arguments, "--http", NOWHERE, "--broker", filled[0]])
        except SystemExit as left:
            status = left.code
        return status, *capsys.readouterr()

    return run


def consumer_of(bootstrap):
    consumer = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False
    )
    assert consumer.partitions_for_topic(TOPIC)
    eventually(lambda: consumer.poll(500) or consumer.assignment(), 60)
    return consumer


def lag(run):
    status, out, err = run("describe", GROUP, "--json")
    assert (status, err) == (0, "")
    (told,) = json.loads(out)
    return told


def test_from_the_first_member_to_the_deletion(filled, run):
    bootstrap, times = filled
    assert run("describe", GROUP)[0] == 1, "it is not there yet"
    assert f"there is no group {GROUP}" in run("describe", GROUP)[2]

    consumer = consumer_of(bootstrap)
    consumer.commit({TopicPartition(TOPIC, 0): OffsetAndMetadata(1, "", -1)})
    before_ms = time.time_ns() // 1_000_000
    told = lag(run)
    after_ms = time.time_ns() // 1_000_000
    assert told["state"] == "Stable"
    (member,) = told["members"]
    assert member["assigned"] == [{"topic": TOPIC, "partition": at} for at in (0, 1)]
    first, second = told["partitions"]
    assert (first["committed_offset"], first["end_offset"], first["lag_records"]) == (1, 4, 3)
    assert first["first_unread"]["timestamp_ms"] == times[1]
    assert before_ms - times[1] <= first["lag_event_ms"] <= after_ms - times[1]
    assert first["lag_append_ms"] is None
    assert "the append time of the first unread record is unknown" in first["unknown"]["append"]
    assert second["committed_offset"] is None

    for refused in (
        ("reset-offsets", GROUP, TOPIC, "--to-earliest", "--execute"),
        ("delete", GROUP, "--yes"),
        ("delete-offsets", GROUP, TOPIC, "--yes"),
    ):
        status, out, err = run(*refused)
        assert (status, out, err.count("\n")) == (1, "", 1)
        assert "stop its members first" in err or "stop them first" in err
    consumer.close(autocommit=False)
    eventually(lambda: lag(run)["state"] == "Empty", 60)

    moves = {
        ("--to-earliest",): 0,
        ("--to-latest",): 4,
        ("--to-offset", "2"): 2,
        ("--shift-by", "-1"): 1,
        ("--to-time", "-4h"): 1,
        ("--to-time", "now"): 4,
    }
    for arguments, offset in moves.items():
        assert run("reset-offsets", GROUP, f"{TOPIC}:0", *arguments, "--execute")[0] == 0
        assert lag(run)["partitions"][0]["committed_offset"] == offset, arguments
    status, _, err = run("reset-offsets", GROUP, TOPIC, "--to-time", "-4h", "--by", "append")
    assert status == 1
    assert "append times cannot be looked up over Kafka's protocol" in err
    assert lag(run)["partitions"][0]["lag_event_ms"] == 0

    assert run("delete-offsets", GROUP, f"{TOPIC}:0", "--yes")[0] == 0
    assert run("reset-offsets", GROUP, TOPIC, "--to-latest", "--execute")[0] == 0
    assert GROUP in {each["group"] for each in json.loads(run("list", "--json")[1])}
    assert run("delete", GROUP, "--yes") == (0, f"Deleted {GROUP}.\n", "")
    assert run("describe", GROUP)[0] == 1
