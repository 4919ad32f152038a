"""A directory of one broker becomes that of a cluster, loses brokers, and becomes that of one again."""

from __future__ import annotations

import time

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.broker import asking
from tests.broker.subject import json_at, page_at
from tests.oracle import wire
from tidelog.cli.parser import main
from tidelog.client import Client
from tidelog.client.calls import reassignments
from tidelog.cluster import BrokerCluster
from tidelog.process import BrokerFailed, BrokerProcess
from tidelog.protocol.errors import ErrorCode

pytestmark = pytest.mark.slow


def send(bootstrap, *values):
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), acks="all")
    try:
        for value in values:
            producer.send("t", value, partition=0).get(60)
    finally:
        producer.close()


def values(bootstrap, count):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), consumer_timeout_ms=60_000)
    try:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek_to_beginning()
        return [next(consumer).value for _ in range(count)]
    finally:
        consumer.close()


def partition(broker):
    _, told = json_at(broker.http, "/v1/cluster")
    return next(each for each in told["partitions"] if each["topic"] == "t")


def wait_for(broker, condition):
    deadline = time.monotonic() + 60
    while not condition(found := partition(broker)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def test_from_one_broker_to_three_and_back(tmp_path, capsys):
    directory = tmp_path / "data"
    with BrokerProcess(directory) as alone:
        assert main(["topics", "create", "t", "--broker", alone.bootstrap]) == 0
        send(alone.bootstrap, b"alone")
    with BrokerCluster(directory) as cluster:
        assert values(cluster.bootstrap, 1) == [b"alone"]
        with Client(cluster[1].bootstrap) as client:
            assert client.perform(reassignments.reassign({("t", 0): (1, 2, 3)})) == {}
        wait_for(cluster[1], lambda found: sorted(found["isr"]) == [1, 2, 3])
        send(cluster.bootstrap, b"three")
    with pytest.raises(BrokerFailed, match="brokers 2 and 3 have replicas of 1 partition;"):
        BrokerProcess(directory)
    with BrokerCluster(directory) as cluster:
        address = cluster[1].bootstrap
        assert main(["broker", "remove", "2", "3", "--within", "60", "--broker", address]) == 0
        assert "Brokers 2, 3 have no partitions any more" in capsys.readouterr().out
        assert partition(cluster[1])["replicas"] == [1]
    with BrokerProcess(directory) as alone:
        assert values(alone.bootstrap, 2) == [b"alone", b"three"]


def test_what_is_acknowledged_survives_a_kill_a_pause_and_a_cut(tmp_path):
    with BrokerCluster(tmp_path / "data", 3, {"broker.session.timeout.ms": 1000}) as cluster:
        address = cluster[1].bootstrap
        assert main(["topics", "create", "t", "--broker", address]) == 0
        send(cluster.bootstrap, b"before")
        leader = wait_for(cluster[1], lambda found: len(found["isr"]) == 3)["leader"]
        other = next(broker for broker in (1, 2, 3) if broker != leader)
        cluster.kill(leader)
        send(cluster.bootstrap, b"after the kill")
        cluster.restart(leader)
        found = wait_for(cluster[other], lambda found: len(found["isr"]) == 3)
        cluster.pause(found["leader"])
        alive = next(broker for broker in (1, 2, 3) if broker != found["leader"])
        wait_for(cluster[alive], lambda now: now["leader"] not in (None, found["leader"]))
        cluster.resume(found["leader"])
        send(cluster.bootstrap, b"after the pause")
        found = wait_for(cluster[alive], lambda found: len(found["isr"]) == 3)
        follower = next(broker for broker in (1, 2, 3) if broker != found["leader"])
        cluster.cut(found["leader"], follower)
        time.sleep(0.2)
        cluster.heal()
        send(cluster.bootstrap, b"after the cut")
        expected = [b"before", b"after the kill", b"after the pause", b"after the cut"]
        assert values(cluster.bootstrap, 4) == expected


def refused(broker, leader):
    """The error code of an append with acks=all at a leader that is alone."""
    with wire.Connection(broker.bootstrap) as connection:
        wait_for(broker, lambda found: (found["leader"], found["isr"]) == (leader, [leader]))
        return asking.produce(connection, "t", asking.batch_of("refused"), acks=-1)["error_code"]


@pytest.mark.parametrize("min_insync", [1, 2])
def test_brokers_that_are_killed_one_after_another_lose_nothing_acknowledged(tmp_path, min_insync):
    """Where one copy is enough, only the last broker may lead again; else also the one before it."""
    with BrokerCluster(tmp_path / "data", 3) as cluster:
        made = ("topics", "create", "t", "--set", f"min.insync.replicas={min_insync}")
        assert main([*made, "--broker", cluster[1].bootstrap]) == 0
        expected = [b"of three", b"of two"]
        send(cluster.bootstrap, expected[0])
        wait_for(cluster[1], lambda found: sorted(found["isr"]) == [1, 2, 3])
        cluster.kill(1)
        send(cluster.bootstrap, expected[1])
        cluster.kill(2)
        if min_insync == 1:
            send(cluster.bootstrap, b"of one")
            expected.append(b"of one")
        else:
            assert refused(cluster[3], 3) == ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.kill(3)
        cluster.restart(1)
        assert wait_for(cluster[1], lambda found: found["leader"] is None)
        if min_insync == 1:
            cluster.restart(3)
            wait_for(cluster[1], lambda found: found["leader"] == 3)
        else:
            cluster.restart(2)
            wait_for(cluster[1], lambda found: found["leader"] == 2 and 1 in found["isr"])
            send(cluster.bootstrap, b"of two again")
            expected.append(b"of two again")
        assert values(cluster.bootstrap, len(expected)) == expected


def test_a_leader_says_how_far_a_follower_that_is_cut_off_is_behind(tmp_path, capsys):
    with BrokerCluster(tmp_path / "data", 2) as cluster:
        assert main(["topics", "create", "t", "--broker", cluster[1].bootstrap]) == 0
        send(cluster.bootstrap, b"0")
        found = wait_for(cluster[1], lambda found: len(found["isr"]) == 2)
        leader = found["leader"]
        cluster.cut(1, 2)
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap.split(","), acks=1)
        for number in range(3):
            producer.send("t", b"%d" % number).get(60)
        producer.close()
        (follower,) = wait_for(cluster[leader], lambda found: found["followers"])["followers"]
        assert (follower["broker"], follower["lag"]) == (3 - leader, 3)
        _, text = page_at(cluster[leader].http, "/metrics")
        assert f'tidelog_follower_max_lag_records{{broker="{3 - leader}"}} 3.0' in text
        cluster.heal()
        wait_for(cluster[leader], lambda found: found["followers"][0]["lag"] == 0)
