"""Kafka's own tools against three brokers: topics with replicas, moves, elections, and deletion."""

from __future__ import annotations

import json
import re

import pytest

from tests.broker.asking import new_name
from tests.broker.subject import eventually

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]


def partitions(run_tool, topic):
    """Leader, replicas and in-sync replicas of each partition, as kafka-topics describes them."""
    out = run_tool("kafka-topics", "--describe", "--topic", topic).out
    found = re.findall(r"Partition: \d+\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S*)", out)
    return [(leader, replicas, sorted(isr.split(","))) for leader, replicas, isr in found]


@pytest.fixture
def topic():
    return new_name("cluster")


def test_topics_with_replicas(run_tool, brokers, topic):
    create = ("kafka-topics", "--create", "--topic")
    run_tool(*create, topic, "--partitions", "3", "--replication-factor", "3")
    got = partitions(run_tool, topic)
    assert sorted(leader for leader, _, _ in got) == ["1", "2", "3"]
    assert [isr for _, _, isr in got] == [["1", "2", "3"]] * 3
    done = run_tool(*create, "more", "--replication-factor", "4", status=1)
    assert "only 3 broker(s) are registered" in done.out + done.err

    run_tool("kafka-topics", "--alter", "--topic", topic, "--partitions", "6")
    got = eventually(lambda: len(found := partitions(run_tool, topic)) == 6 and found)
    assert sorted(leader for leader, _, _ in got) == ["1", "1", "2", "2", "3", "3"]
    assert run_tool("kafka-topics", "--describe", "--under-replicated-partitions").out.strip() == ""

    run_tool("kafka-topics", "--delete", "--topic", topic)
    assert topic not in brokers.image().topics
    logs = [brokers[each].log_dir for each in (1, 2, 3)]
    eventually(lambda: not [log for each in logs for log in each.glob(f"{topic}-*")])


def test_a_partition_moves(run_tool, tmp_path, brokers, topic):
    assignment = ("--replica-assignment", "1:2")
    run_tool("kafka-topics", "--create", "--topic", topic, *assignment)
    plan = tmp_path / "plan.json"
    moved = {"topic": topic, "partition": 0, "replicas": [3, 2]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    file = ("--reassignment-json-file", str(plan))
    assert "Successfully started" in run_tool("kafka-reassign-partitions", *file, "--execute").out
    eventually(
        lambda: "is completed" in run_tool("kafka-reassign-partitions", *file, "--verify").out
    )
    record = brokers.image().topics[topic].assignments[0]
    assert record.replicas == (3, 2)
    assert record.leader in (3, 2)
    assert (
        "No partition reassignments found." in run_tool("kafka-reassign-partitions", "--list").out
    )
    eventually(lambda: not (brokers[1].log_dir / f"{topic}-0").exists())


def test_leaders_are_elected(run_tool, brokers, topic):
    run_tool("kafka-topics", "--create", "--topic", topic, "--replica-assignment", "3:1:2")
    assert brokers[3].stop() == 0
    try:
        brokers.eventually(lambda image: image.topics[topic].assignments[0].leader == 1)
    finally:
        brokers[3].restart()
    brokers.eventually(lambda image: 3 in image.topics[topic].assignments[0].isr)
    elect = ("kafka-leader-election", "--topic", topic, "--partition", "0", "--election-type")
    assert "Successfully completed leader election" in run_tool(*elect, "preferred").out
    assert brokers.image().topics[topic].assignments[0].leader == 3
    assert "Valid replica already elected" in run_tool(*elect, "unclean").out


def test_a_broker_is_unregistered(tools, brokers):
    def unregister(broker):
        where = ("--bootstrap-server", brokers[1].bootstrap)
        return tools.run("kafka-cluster", "unregister", *where, "--id", str(broker))

    done = unregister(9)
    assert done.status != 0
    assert "BrokerIdNotRegisteredException" in done.out + done.err
    brokers.start(4)
    brokers[4].kill()
    brokers.eventually(lambda image: 4 not in image.brokers)
    assert "Broker 4 is no longer registered." in unregister(4).out
    assert 4 not in brokers.image().registrations
