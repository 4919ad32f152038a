"""A leader that is deposed while it asks a coordinator appends nothing any more."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from tests.broker.asking import try_to_create
from tests.broker.coordinators.transactions.requests import Transactional
from tests.broker.subject import eventually
from tests.oracle import wire
from tidelog.cluster import BrokerCluster

NOT_LEADER_OR_FOLLOWER = 6
PREFERRED, TRANSACTION = 0, 1


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BrokerCluster(tmp_path_factory.mktemp("cluster") / "data", 2) as brokers:
        yield brokers


@pytest.fixture
def asked(cluster):
    """Raw connections to the brokers."""
    with ExitStack() as stack:
        yield {
            number: stack.enter_context(wire.Connection(cluster[number].bootstrap, timeout_s=60))
            for number in (1, 2)
        }


def coordinated_by(connection, broker):
    """A transactional id that a broker coordinates."""

    def found():
        names = [f"id-{number}" for number in range(50)]
        answer = connection.ask("FindCoordinator", 4, key_type=TRANSACTION, coordinator_keys=names)
        return next(
            (each["key"] for each in answer["coordinators"] if each["node_id"] == broker), None
        )

    return eventually(found, what="an id that the broker coordinates")


def leader_of(connection, topic):
    answer = connection.ask(
        "Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False
    )
    return answer["topics"][0]["partitions"][0]["leader_id"]


def lead(connection, topic, replicas):
    """Let the first of the replicas lead."""
    moved = {"partition_index": 0, "replicas": replicas}
    answer = connection.ask(
        "AlterPartitionReassignments",
        0,
        timeout_ms=10_000,
        topics=[{"name": topic, "partitions": [moved]}],
    )
    assert answer["error_code"] == 0
    named = [{"topic": topic, "partitions": [0]}]
    connection.ask(
        "ElectLeaders", 2, election_type=PREFERRED, topic_partitions=named, timeout_ms=10_000
    )


@pytest.mark.slow
@pytest.mark.parametrize("version", [11, 12])  # verifies, and adds the partition
def test_nothing_is_appended_when_another_broker_leads_by_then(cluster, asked, version):
    topic = f"t-{version}"
    assert try_to_create(asked[1], topic, placed=(1, 2))["error_code"] == 0
    named = coordinated_by(asked[1], 2)
    coordinator = Transactional(asked[2], named)
    assert eventually(lambda: coordinator.init() == 0)
    if version < 12:
        assert coordinator.add(topic, 0) == [0]
    eventually(lambda: [leader_of(each, topic) for each in asked.values()] == [1, 1])
    errors = []
    with ExitStack() as stack:
        sending = stack.enter_context(wire.Connection(cluster[1].bootstrap, timeout_s=60))
        held = stack.enter_context(
            cluster.faults(2).add(api="AddPartitionsToTxn", delay="1h", when="before")
        )
        producer = Transactional(sending, named)
        producer.given = coordinator.given
        thread = threading.Thread(
            target=lambda: errors.append(producer.send(topic, "late", version=version))
        )
        thread.start()
        eventually(lambda: held.hits == 1)
        lead(asked[2], topic, [2, 1])
        eventually(lambda: [leader_of(each, topic) for each in asked.values()] == [2, 2])
        assert not errors, "the leader has changed while the coordinator is asked"
        held.lift()
        thread.join(60)
    assert errors == [NOT_LEADER_OR_FOLLOWER]
    for broker in cluster:
        (log,) = (broker.log_dir / f"{topic}-0").glob("*.log")
        assert log.stat().st_size == 0
        told = broker.log().splitlines()
        assert not [line for line in told if "log truncated" in line and f"topic={topic}" in line]
