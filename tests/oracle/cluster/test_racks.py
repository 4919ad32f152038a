"""To which replica a leader sends a consumer by its rack, beside three brokers of Kafka (KIP-392)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.asking import batch_of, fetch_fields, produce_fields, try_to_create
from tests.oracle import apache_kafka as launcher
from tests.oracle import wire
from tests.oracle.apache_kafka_cluster import ApacheKafkaCluster
from tidelog.cluster import BrokerCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "racks"
RACKS = {1: "a", 2: "b", 3: "c"}
SELECTOR = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "broker.session.timeout.ms": 30_000,
}
OWN = {broker: {"broker.rack": rack} for broker, rack in RACKS.items()}
LEADER = 2
RECORDS = 3
WITHIN_S = 60

Answer = tuple[int, int, int, bool]  # code, preferred replica, high watermark, whether with records


class Asked:
    """A cluster with a topic of one partition that broker 2 leads, and a connection to each broker."""

    def __init__(self, addresses: dict[int, str]) -> None:
        self.connections = {node: wire.Connection(at) for node, at in addresses.items()}
        self.topic_id = ""
        self._create()

    def close(self) -> None:
        for each in self.connections.values():
            each.close()

    def _create(self) -> None:
        made = try_to_create(self.connections[LEADER], TOPIC, placed=(LEADER, 1, 3))
        self.topic_id = made["topic_id"]
        self._until(self.produce, "a record to be stored")
        for _ in range(RECORDS - 1):
            assert self.produce()
        self._until(self._is_everywhere, "all followers to know that all have all")

    def produce(self) -> bool:
        fields = produce_fields(TOPIC, batch_of("a"), acks=-1)
        answer = self.connections[LEADER].ask("Produce", 9, **fields)
        code: int = answer["responses"][0]["partition_responses"][0]["error_code"]
        return code == 0

    def _is_everywhere(self) -> bool:
        return all(self.answer(node, 17, "", 0)[2] == RECORDS for node in RACKS)

    def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.1)

    def answer(self, node: int, version: int, rack: str, offset: int) -> Answer:
        name = self.topic_id if version >= 13 else TOPIC
        fields = fetch_fields(name, offset) | {"rack_id": rack}
        answer = self.connections[node].ask("Fetch", version, **fields)
        part = answer["responses"][0]["partitions"][0]
        preferred = part["preferred_read_replica"]
        return part["error_code"], preferred, part["high_watermark"], bool(part["records"])


def questions() -> Iterator[tuple[int, int, str, int]]:
    """Yields brokers, versions, racks and offsets."""
    for node in RACKS:
        for version in (11, 12, 16, 17):
            for rack in ("", "a", "b", "c", "elsewhere"):
                for offset in (0, RECORDS, RECORDS + 1):
                    yield node, version, rack, offset


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    launcher.require("3.9.1")
    directory = tmp_path_factory.mktemp("kafka")
    with ApacheKafkaCluster(
        "3.9.1", directory, properties=SELECTOR, own_properties=OWN, jvm=launcher.QUICK
    ) as cluster:
        asked = Asked({node: f"127.0.0.1:{port}" for node, port in cluster.ports.items()})
        yield asked
        asked.close()


@pytest.fixture(scope="module")
def tidelog(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tidelog")
    with BrokerCluster(directory, settings=SELECTOR, own_settings=OWN) as cluster:
        asked = Asked({node: cluster[node].bootstrap for node in RACKS})
        yield asked
        asked.close()


@pytest.mark.oracle
@pytest.mark.timeout(600)
def test_consumers_are_sent_where_kafka_sends_them(kafka, tidelog, summarize):
    different, sent_on = {}, 0
    for question in questions():
        theirs, ours = (cluster.answer(*question) for cluster in (kafka, tidelog))
        sent_on += theirs[1] >= 0
        if theirs != ours:
            different[question] = {"kafka": theirs, "tidelog": ours}
    asked = len(list(questions()))
    summarize(
        "racks, beside three brokers of Kafka", f"{asked} fetches; {sent_on} are sent elsewhere"
    )
    assert different == {}
    assert sent_on
