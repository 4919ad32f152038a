"""What a leader, a follower and a broker without a replica answer, beside three brokers of Kafka.

Each is asked with every relation of the client's leader epoch to the partition's: none, older, the
same and newer. Codes and the leader that a response names (KIP-951) are compared.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.broker.asking import batch_of, fetch_fields, produce_fields
from tests.oracle import apache_kafka as launcher
from tests.oracle import wire
from tests.oracle.apache_kafka_cluster import ApacheKafkaCluster
from tidelog.cluster import BrokerCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC = "hinted"
LEADER, FOLLOWER, STRANGER = 2, 1, 3  # after the preferred replica was changed
EPOCHS = {"none": None, "older": -1, "same": 0, "newer": 1}
NOT_LEADER = 6
PATIENT = {"broker.session.timeout.ms": 30_000}  # leaders stay where they are on a busy machine
WITHIN_S = 60
NO_HINT = (-1, -1)

Question = tuple[str, int, int, str]  # API, version, the broker asked, the client's epoch
Answer = tuple[int, tuple[int, int], list[tuple[int, bool]]]


class Asked:
    """A cluster whose topic has moved from broker 1 to broker 2, and its connections."""

    def __init__(self, addresses: dict[int, str]) -> None:
        self.addresses = addresses
        self.connections = {node: wire.Connection(at) for node, at in addresses.items()}
        self.topic_id = ""
        self.epoch = 0

    def close(self) -> None:
        for each in self.connections.values():
            each.close()

    def until(self, condition: Any, what: str) -> Any:
        deadline = time.monotonic() + WITHIN_S
        while not (found := condition()):
            assert time.monotonic() < deadline, what
            time.sleep(0.05)
        return found

    def partition(self, node: int) -> dict[str, Any] | None:
        """The partition as a broker describes it; None while it does not."""
        answer = self.connections[node].ask(
            "Metadata", 12, topics=[{"name": TOPIC}], allow_auto_topic_creation=False
        )
        self.topic_id = answer["topics"][0]["topic_id"]
        return next(iter(answer["topics"][0]["partitions"]), None)

    def prepare(self) -> None:
        """Creates the topic, lets broker 2 lead it, and waits until all brokers know."""
        ask = self.connections[1].ask
        assignments = [{"partition_index": 0, "broker_ids": [1, 2]}]
        wanted = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1}
        created = ask(
            "CreateTopics",
            7,
            topics=[{**wanted, "assignments": assignments, "configs": []}],
            timeout_ms=60_000,
            validate_only=False,
        )
        assert created["topics"][0]["error_code"] == 0, created
        self.until(self.all_in_sync, "the topic to be there")
        moved = [{"partition_index": 0, "replicas": [2, 1]}]
        answer = ask(
            "AlterPartitionReassignments",
            0,
            timeout_ms=60_000,
            topics=[{"name": TOPIC, "partitions": moved}],
        )
        assert answer["responses"][0]["partitions"][0]["error_code"] == 0, answer
        self.until(self.elected, "broker 2 to lead")
        self.until(lambda: self.code("Produce", 9, LEADER, None) == 0, "the leader to serve")
        self.until(
            lambda: all(
                self.code("Produce", 9, node, None) == NOT_LEADER for node in (FOLLOWER, STRANGER)
            ),
            "the others not to lead",
        )

    def all_in_sync(self) -> bool:
        found = [self.partition(node) for node in self.addresses]
        return all(each and sorted(each["isr_nodes"]) == [1, 2] for each in found)

    def elected(self) -> bool:
        self.connections[1].ask(
            "ElectLeaders",
            2,
            election_type=0,
            topic_partitions=[{"topic": TOPIC, "partitions": [0]}],
            timeout_ms=60_000,
        )
        found = [self.partition(node) for node in self.addresses]
        self.epoch = found[0]["leader_epoch"] if found[0] else 0
        return all(
            each and (each["leader_id"], each["leader_epoch"]) == (LEADER, self.epoch)
            for each in found
        )

    def code(self, *question: Any) -> int:
        return self.answer(*question)[0]

    def answer(self, api: str, version: int, node: int, epoch: int | None) -> Answer:
        """The code, the leader that is named with its epoch, and the leaders' addresses.

        The epoch is relative to the partition's; of an address, whether it is the broker's own.
        """
        known = -1 if epoch is None else self.epoch + epoch
        answer = self.connections[node].ask(api, version, **self.request(api, version, known))
        part = _only_partition(answer)
        leader = part.get("current_leader") or {"leader_id": -1, "leader_epoch": -1}
        hint = (leader["leader_id"], leader["leader_epoch"])
        endpoints = [
            (each["node_id"], f"{each['host']}:{each['port']}" == self.addresses[each["node_id"]])
            for each in answer.get("node_endpoints") or ()
        ]
        if hint != NO_HINT:
            hint = (hint[0], hint[1] - self.epoch)
        return part["error_code"], hint, endpoints

    def request(self, api: str, version: int, epoch: int) -> dict[str, Any]:
        if api == "Produce":
            return produce_fields(TOPIC, batch_of("a"), acks=1)
        if api == "Fetch":
            name = self.topic_id if version >= 13 else TOPIC
            return fetch_fields(name, 0, epoch=epoch)
        if api == "ListOffsets":
            partition = {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": -1}
            topics = [{"name": TOPIC, "partitions": [partition]}]
            return {"replica_id": -1, "isolation_level": 0, "topics": topics}
        if api == "DescribeProducers":
            return {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}
        partition = {"partition": 0, "current_leader_epoch": epoch, "leader_epoch": self.epoch}
        return {"replica_id": -1, "topics": [{"topic": TOPIC, "partitions": [partition]}]}


def _only_partition(answer: dict[str, Any]) -> dict[str, Any]:
    """The part of an answer for its only partition, whatever the API calls it."""
    topic = (answer.get("responses") or answer.get("topics"))[0]
    return (topic.get("partitions") or topic.get("partition_responses"))[0]


def questions() -> Iterator[Question]:
    for node in (LEADER, FOLLOWER, STRANGER):
        for version in (9, 10, 11):
            yield "Produce", version, node, "none"
        yield "DescribeProducers", 0, node, "none"
        for epoch in EPOCHS:
            for version in (10, 12, 15, 16, 17):
                yield "Fetch", version, node, epoch
            yield "ListOffsets", 8, node, epoch
            yield "OffsetForLeaderEpoch", 4, node, epoch


def is_read_from_follower(question: Question) -> bool:
    """Followers serve consumers that may name a rack (KIP-392)."""
    api, version, node, epoch = question
    return api == "Fetch" and version >= 11 and node == FOLLOWER and epoch in {"none", "same"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    launcher.require("3.9.1")
    with ApacheKafkaCluster(
        "3.9.1", tmp_path_factory.mktemp("kafka"), properties=PATIENT, jvm=launcher.QUICK
    ) as cluster:
        asked = Asked({node: f"127.0.0.1:{port}" for node, port in cluster.ports.items()})
        asked.prepare()
        yield asked
        asked.close()


@pytest.fixture(scope="module")
def tidelog(tmp_path_factory):
    with BrokerCluster(tmp_path_factory.mktemp("tidelog"), settings=PATIENT) as cluster:
        asked = Asked({node: cluster[node].bootstrap for node in (1, 2, 3)})
        asked.prepare()
        yield asked
        asked.close()


@pytest.mark.oracle
@pytest.mark.timeout(600)
def test_every_broker_answers_as_kafka_does(kafka, tidelog, summarize):
    different, read_from_follower = {}, 0
    for question in questions():
        api, version, node, epoch = question
        theirs, ours = (
            cluster.answer(api, version, node, EPOCHS[epoch]) for cluster in (kafka, tidelog)
        )
        if is_read_from_follower(question):
            read_from_follower += ours == (0, NO_HINT, [])
        if theirs != ours:
            different[question] = {"kafka": theirs, "tidelog": ours}
    asked = len(list(questions()))
    summarize(
        "leaders, beside three brokers of Kafka",
        f"{asked} requests; {read_from_follower} are served by followers",
    )
    assert different == {}
    assert read_from_follower
