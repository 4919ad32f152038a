"""Kafka's tools against `tidelog serve --brokers 3` while a broker is killed, and what is refused."""

from __future__ import annotations

import re

import pytest

from tests.broker.asking import new_name
from tests.tools import java_tools
from tests.tools.cluster.three import COUNT

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

RECORDS = 2_000
PER_SECOND = 400
PARTITIONS = 3
UNSUPPORTED = {
    "kafka-metadata-quorum": (("describe", "--status"), "DESCRIBE_QUORUM"),
    "kafka-features": (("upgrade", "--feature", "transaction.version=1"), "UPDATE_FEATURES"),
    "kafka-client-metrics": (("--list",), r"LIST_(CLIENT_METRICS|CONFIG)_RESOURCES"),
    "kafka-acls": (("--list",), "no authorizer is configured"),
}


@pytest.fixture
def topic(run):
    name = new_name("dying")
    replicas = ("--replication-factor", "3", "--config", "min.insync.replicas=2")
    run("kafka-topics", "--create", "--topic", name, "--partitions", str(PARTITIONS), *replicas)
    return name


def ends(run, topic):
    lines = run("kafka-get-offsets", "--topic", topic).lines
    return sum(int(line.rpartition(":")[2]) for line in lines)


def test_a_leader_is_killed_while_records_are_written(three, tools, run, topic, tmp_path):
    """What the verifiable producer was told is stored is stored there; what it was not, is not."""
    config = tmp_path / "producer.properties"  # of itself it does not try again
    config.write_text("retries=2147483647\nenable.idempotence=true\n")
    producer = java_tools.start(
        tools.version,
        "kafka-verifiable-producer",
        *("--bootstrap-server", three.bootstrap, "--topic", topic, "--acks", "-1"),
        *("--max-messages", str(RECORDS), "--throughput", str(PER_SECOND)),
        *("--producer.config", str(config)),
        *("--repeating-keys", "30"),  # so that every partition gets records
        directory=tmp_path,
    )
    java_tools.eventually_says(producer, "producer_send_success")
    three.kill(three.leader(topic))
    assert producer.process.wait(240) == 0, producer.tail(30)
    said = java_tools.json_lines(producer.out.read_text())
    told = {
        (each["partition"], each["offset"]): each["value"]
        for each in said
        if each["name"] == "producer_send_success"
    }
    assert sorted(told.values(), key=int) == [str(number) for number in range(RECORDS)]
    assert ends(run, topic) == RECORDS  # the producer is idempotent: nothing is there twice
    done = tools.run(
        "kafka-verifiable-consumer",
        *("--bootstrap-server", three.bootstrap, "--topic", topic, "--verbose"),
        *("--group-id", topic, "--max-messages", str(RECORDS), "--reset-policy", "earliest"),
    )
    assert done.status == 0, done
    read = [each for each in java_tools.json_lines(done.out) if each["name"] == "record_data"]
    assert {(each["partition"], each["offset"]): each["value"] for each in read} == told
    check_replicas(three, tools, topic)
    check_groups_and_transactions(run, tools, topic)


def check_replicas(three, tools, topic):
    """kafka-dump-log finds the same valid batches in the files of every replica."""
    for index in range(PARTITIONS):
        dumps = []
        for broker in range(1, COUNT + 1):
            (file,) = (three.log_dir(broker) / f"{topic}-{index}").glob("*.log")
            done = tools.run("kafka-dump-log", "--print-data-log", "--files", str(file))
            assert done.status == 0, done
            dumps.append(done.lines[1:])  # the first names the file
        assert sum("isvalid: true" in line for line in dumps[0]) > 0
        assert "isvalid: false" not in "".join(dumps[0])
        assert dumps[1:] == dumps[:1] * (COUNT - 1)


def check_groups_and_transactions(run, tools, topic):
    """Lists of groups of all kinds; no transaction hangs, whichever replica is asked."""
    assert topic in run("kafka-consumer-groups", "--list").lines
    if tools.version != "3.9.1":  # which has no such tools
        assert re.search(rf"^{topic} +Classic", run("kafka-groups", "--list").out, re.MULTILINE)
        assert run("kafka-share-groups", "--list").lines == []
        assert run("kafka-streams-groups", "--list").lines == []
    for broker in range(1, COUNT + 1):
        hanging = run("kafka-transactions", "find-hanging", "--broker-id", str(broker)).lines
        assert [line.split()[0] for line in hanging] == ["Topic"]


def test_performance_while_another_broker_is_killed(three, tools, run, topic, tmp_path):
    producer = java_tools.start(
        tools.version,
        "kafka-producer-perf-test",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "100"),
        *("--throughput", str(PER_SECOND)),
        *("--producer-props", f"bootstrap.servers={three.bootstrap}", "acks=all"),
        directory=tmp_path,
    )
    three.kill(three.leader(topic, 1))
    assert producer.process.wait(240) == 0, producer.tail(30)
    assert f"{RECORDS} records sent" in producer.out.read_text()
    assert ends(run, topic) == RECORDS
    done = run(
        "kafka-consumer-perf-test",
        *("--topic", topic, "--messages", str(RECORDS), "--timeout", "90000"),
    )
    names, values = (line.split(", ") for line in done.lines)
    assert dict(zip(names, values, strict=True))["data.consumed.in.nMsg"] == str(RECORDS)


def test_what_there_is_not_is_refused_with_a_reason(run):
    (told,) = run("kafka-features", "describe").lines
    assert re.match(r"Feature: transaction.version\s.*FinalizedVersionLevel: 2\s", told)
    for tool, (arguments, reason) in UNSUPPORTED.items():
        done = run(tool, *arguments, status=1)
        assert re.search(reason, done.out + done.err), done
