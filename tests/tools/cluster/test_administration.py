"""Kafka's own tools against three brokers: records, groups, settings, directories, and the brokers."""

from __future__ import annotations

import json
import re

import pytest

from tests.broker.asking import new_name
from tests.broker.subject import eventually

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

PARTITIONS = 6
RECORDS = 60
ALL = (1, 2, 3)


@pytest.fixture
def topic(run_tool):
    """A topic that every broker leads two partitions of, with records."""
    name = new_name("cluster")
    run_tool("kafka-topics", "--create", "--topic", name, "--partitions", str(PARTITIONS))
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    text = "".join(f"key{number}:value{number}\n" for number in range(RECORDS))
    run_tool("kafka-console-producer", "--topic", name, *keyed, stdin=text)
    return name


def offsets(run_tool, topic, time):
    lines = run_tool("kafka-get-offsets", "--topic", topic, "--time", time).lines
    return {int(index): int(offset) for _, index, offset in (each.split(":") for each in lines)}


def read_in_group(run_tool, topic, group):
    """What a group reads that begins at the start of a topic, sorted."""
    end = ("--max-messages", str(RECORDS), "--timeout-ms", "60000")
    begin = ("--group", group, "--from-beginning")
    return sorted(run_tool("kafka-console-consumer", "--topic", topic, *begin, *end).lines)


def test_records_of_all_leaders(run_tool, tmp_path, topic):
    ends = offsets(run_tool, topic, "latest")
    assert sum(ends.values()) == RECORDS
    assert all(ends.values()), "a partition has no record"
    assert offsets(run_tool, topic, "earliest") == dict.fromkeys(range(PARTITIONS), 0)
    times = offsets(run_tool, topic, "max-timestamp")
    assert {index: 0 <= found < ends[index] for index, found in times.items()} == dict.fromkeys(
        ends, True
    )
    asked = [{"topic": topic, "partition": index, "offset": -1} for index in ends]
    file = tmp_path / "delete.json"
    file.write_text(json.dumps({"version": 1, "partitions": asked}))
    out = run_tool("kafka-delete-records", "--offset-json-file", str(file)).out
    for index, end in ends.items():
        assert f"partition: {topic}-{index}\tlow_watermark: {end}" in out
    assert offsets(run_tool, topic, "earliest") == ends


def test_groups_of_all_coordinators(run_tool, brokers, topic):
    groups = [f"{topic}-{number}" for number in range(4)]
    expected = sorted(f"value{number}" for number in range(RECORDS))
    for group in groups:
        assert read_in_group(run_tool, topic, group) == expected
    states = run_tool("kafka-consumer-groups", "--list", "--state").out
    assert {
        group for group in groups if re.search(rf"^{group}\s+Empty", states, re.MULTILINE)
    } == set(groups)
    told = run_tool("kafka-consumer-groups", "--describe", "--all-groups", "--state").out
    ports = {brokers[each].port: each for each in ALL}
    for group in groups:
        port, broker = re.search(
            rf"^{group}\s+127.0.0.1:(\d+)\s+\((\d)\)", told, re.MULTILINE
        ).groups()
        assert ports[int(port)] == int(broker)
    whose = ("--group", groups[0], "--topic", topic)
    run_tool("kafka-consumer-groups", "--reset-offsets", "--to-earliest", "--execute", *whose)
    told = run_tool("kafka-consumer-groups", "--describe", "--group", groups[0]).out
    lags = re.findall(rf"^{groups[0]}\s+{topic}\s+\d+\s+0\s+\d+\s+(\d+)", told, re.MULTILINE)
    assert sum(map(int, lags)) == RECORDS
    named = [word for group in groups for word in ("--group", group)]
    run_tool("kafka-consumer-groups", "--delete", *named)
    left = run_tool("kafka-consumer-groups", "--list").lines
    assert not set(groups) & set(left)


def test_directories_of_each_broker(run_tool, brokers, topic):
    def sizes(*options):
        out = run_tool("kafka-log-dirs", "--describe", "--topic-list", topic, *options).lines[-1]
        return {
            each["broker"]: (
                directory["logDir"],
                {one["partition"]: one["size"] for one in directory["partitions"]},
            )
            for each in json.loads(out)["brokers"]
            for directory in each["logDirs"]
        }

    def replicated():
        found = sizes()
        one, *others = (replicas for _, replicas in found.values())
        return found if all(other == one for other in others) else None

    found = eventually(replicated, 30)
    assert {each: where for each, (where, _) in found.items()} == {
        each: str(brokers[each].log_dir) for each in ALL
    }
    assert len(found[1][1]) == PARTITIONS
    assert all(found[1][1].values())
    assert set(sizes("--broker-list", "2,3")) == {2, 3}


def test_settings(run_tool, topic):
    delay = "log.segment.delete.delay.ms"
    brokers = ("--entity-type", "brokers")
    run_tool(
        "kafka-configs", *brokers, "--entity-default", "--alter", "--add-config", f"{delay}=5000"
    )
    try:
        for each in ALL:
            one = (*brokers, "--entity-name", str(each), "--describe", "--all")

            def told(one=one):
                return f"{delay}=5000 sensitive=false" in run_tool("kafka-configs", *one).out

            eventually(told, 30)
            assert f"node.id={each} sensitive=false" in run_tool("kafka-configs", *one).out
    finally:
        run_tool("kafka-configs", *brokers, "--entity-default", "--alter", "--delete-config", delay)
    one = (*brokers, "--entity-name", "2", "--alter", "--add-config", f"{delay}=1")
    done = run_tool("kafka-configs", *one, status=1)
    assert "settings are changed for all brokers, not for broker 2 alone" in done.out + done.err
    which = ("--entity-type", "topics", "--entity-name", topic)
    run_tool("kafka-configs", *which, "--alter", "--add-config", "min.insync.replicas=2")
    assert "min.insync.replicas=2" in run_tool("kafka-configs", *which, "--describe").out


def test_the_brokers(run_tool, brokers, tools, patient_client):
    expected = f"Cluster ID: {brokers[1].cluster_id}\n"
    assert run_tool("kafka-cluster", "cluster-id").out == expected
    out = run_tool("kafka-broker-api-versions", *patient_client).out
    told = re.findall(r"^127\.0\.0\.1:(\d+) \(id: (\d) rack: null", out, re.MULTILINE)
    assert sorted((int(each), int(port)) for port, each in told) == [
        (each, brokers[each].port) for each in ALL
    ]
    assert out.count("Produce(0): 0 to 13") == len(ALL)
    if tools.version != "3.9.1":  # which cannot ask for them
        rows = [line.split() for line in run_tool("kafka-cluster", "list-endpoints").lines[1:]]
        assert sorted((int(row[0]), int(row[2])) for row in rows) == [
            (each, brokers[each].port) for each in ALL
        ]


def test_the_quorum_is_refused_with_a_reason(run_tool):
    done = run_tool("kafka-metadata-quorum", "describe", "--status", status=1)
    assert "DESCRIBE_QUORUM" in done.out + done.err


def test_a_reassignment_is_planned_carried_out_cancelled_and_verified(
    run_tool, brokers, tmp_path, topic
):
    def plan(replicas):
        path = tmp_path / f"{'-'.join(map(str, replicas))}.json"
        moved = [
            {"topic": topic, "partition": index, "replicas": replicas}
            for index in range(PARTITIONS)
        ]
        path.write_text(json.dumps({"version": 1, "partitions": moved}))
        return ("--reassignment-json-file", str(path))

    def reassign(*words, status=0):
        done = run_tool("kafka-reassign-partitions", *words, status=status)
        return done.out + done.err

    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    which = ("--topics-to-move-json-file", str(topics))
    assert "InvalidReplicationFactorException" in reassign(
        *which, "--broker-list", "1,2", "--generate", status=1
    )
    proposed = reassign(*which, "--broker-list", "1,2,3", "--generate")
    assert "Proposed partition reassignment configuration" in proposed

    assert "Successfully started" in reassign(*plan([2, 3]), "--execute")
    eventually(lambda: reassign(*plan([2, 3]), "--verify").count("is completed") == PARTITIONS, 60)
    records = brokers.image().topics[topic].assignments
    assert {record.replicas for record in records} == {(2, 3)}
    assert "None of the specified partition reassignments are active" in reassign(
        *plan([1, 2, 3]), "--cancel"
    )
    started = reassign(*plan([1, 2, 3]), "--execute", "--throttle", "1000000")
    assert "The inter-broker throttle limit was set to 1000000 B/s" in started
    assert "Successfully started" in started
    image = brokers.image()
    rates = dict.fromkeys(
        ("leader.replication.throttled.rate", "follower.replication.throttled.rate"), "1000000"
    )
    assert {broker: dict(own) for broker, own in image.own_configs.items()} == dict.fromkeys(
        ALL, rates
    )
    told = run_tool("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "2")
    assert "leader.replication.throttled.rate=1000000 sensitive=false" in told.out
    lists = {name for name in image.topics[topic].configs if name.endswith("throttled.replicas")}
    assert len(lists) == 2
    eventually(
        lambda: reassign(*plan([1, 2, 3]), "--verify").count("is completed") == PARTITIONS, 60
    )
    image = brokers.image()
    assert (image.own_configs, dict(image.topics[topic].configs)) == ({}, {})
    elect = ("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions")
    run_tool(*elect)
    assert {record.leader for record in brokers.image().topics[topic].assignments} == {1}


def test_a_broker_that_is_away(run_tool, brokers, tools, topic):
    assert brokers[3].stop() == 0
    try:
        behind = run_tool("kafka-topics", "--describe", "--under-replicated-partitions").out
        assert behind.count(f"Topic: {topic}\t") == PARTITIONS
        assert "Leader: 3" not in behind
        assert "Leader: none" not in behind
        done = run_tool("kafka-log-dirs", "--describe", "--topic-list", topic)
        assert [each["broker"] for each in json.loads(done.lines[-1])["brokers"]] == [1, 2]
        assert sum(offsets(run_tool, topic, "latest").values()) == RECORDS
        assert len(read_in_group(run_tool, topic, f"{topic}-away")) == RECORDS
        if tools.version != "3.9.1":
            fenced = run_tool("kafka-cluster", "list-endpoints", "--include-fenced-brokers")
            assert re.search(r"^3 .*fenced", fenced.out, re.MULTILINE)
    finally:
        brokers[3].restart()
    brokers.eventually(
        lambda image: all(3 in each.isr for each in image.topics[topic].assignments), 60
    )
