"""Consumers that name a rack read from the follower in it, and go on when that follower dies (KIP-392).

Which broker serves a consumer is read from the brokers' metrics.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker.partitions.load import Load, create, leader_of
from tests.broker.subject import page_at
from tests.oracle.apache_kafka import available, fetch
from tidelog.cluster import BrokerCluster

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = {1: "a", 2: "b", 3: "c"}
KAFKA = "tools-4.1.1"
WITHIN_S = 60


class Librdkafka:
    """A consumer of librdkafka in a thread."""

    def __init__(self, bootstrap, topic, rack):
        self.values = []
        self._ends = threading.Event()
        settings = {
            "bootstrap.servers": bootstrap,
            "client.rack": rack,
            "group.id": "racks",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
        }
        self._thread = threading.Thread(target=self._read, args=(settings, topic), daemon=True)
        self._thread.start()

    def _read(self, settings, topic):
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, 0, 0)])
        while not self._ends.is_set():
            found = consumer.consume(500, timeout=0.1)
            self.values += [each.value() for each in found if each.error() is None]
        consumer.close()

    def close(self):
        self._ends.set()
        self._thread.join()


class Java:
    """A consumer of Kafka's own client in a process."""

    def __init__(self, bootstrap, topic, rack):
        java = shutil.which("java")
        usable = available(KAFKA)
        if java is None or not usable:
            pytest.skip("java is not installed" if java is None else usable.reason)
        self.values = []
        program = str(Path(__file__).with_name("RackConsumer.java"))
        jars = f"{fetch(KAFKA)}/*"
        self._process = subprocess.Popen(
            [java, "-Xmx128m", "-cp", jars, program, bootstrap, topic, rack],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self._process.stdout:
            self.values.append(line.rstrip(b"\n"))

    def close(self):
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._thread.join()
        self._process.stdout.close()


@pytest.fixture
def cluster(tmp_path):
    settings = {"log.retention.ms": -1, "replica.selector.class": RACK_AWARE}
    racks = {broker: {"broker.rack": rack} for broker, rack in RACKS.items()}
    with BrokerCluster(tmp_path / "data", settings=settings, own_settings=racks) as made:
        yield made


def served(cluster, broker):
    """How many bytes a broker has served to consumers of the topic."""
    lines = page_at(cluster[broker].http, "/metrics")[1].splitlines()
    wanted = [
        line
        for line in lines
        if line.startswith("tidelog_fetch_bytes_total{") and 'topic="t"' in line
    ]
    return sum(float(line.rpartition(" ")[2]) for line in wanted)


def until(condition, what):
    end = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < end, what()
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("client", [Librdkafka, pytest.param(Java, marks=pytest.mark.clients)])
@pytest.mark.timeout(300)
def test_a_consumer_reads_in_its_rack_and_goes_on_when_the_follower_dies(cluster, client):
    create(cluster, "t", configs={"min.insync.replicas": "2"})
    load = Load(cluster)
    load.send("t", 300)
    load.flush()
    leader = leader_of(cluster, "t").leader
    near = next(broker for broker in RACKS if broker != leader)
    consumer = client(cluster.bootstrap, "t", RACKS[near])
    try:

        def has_read(count):
            until(lambda: len(consumer.values) >= count, lambda: len(consumer.values))
            assert consumer.values == [b"%d" % number for number in range(count)]

        has_read(300)
        load.send("t", 300)
        load.flush()
        has_read(600)
        assert served(cluster, near) > 0
        assert [served(cluster, other) for other in RACKS if other != near] == [0, 0]
        cluster.kill(near)
        load.send("t", 300)
        load.flush()
        has_read(900)
        assert leader_of(cluster, "t").leader == leader
        assert served(cluster, leader) > 0
    finally:
        consumer.close()
    assert not load.refused
