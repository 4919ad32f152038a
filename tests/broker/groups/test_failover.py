"""Groups of three real brokers: who coordinates, and what survives the coordinator.

Clients here are raw, so that every error code is seen; the codes are those of facts that any client
of Kafka relies on.
"""

from __future__ import annotations

import pytest

from broker.groups.offsets_topic import TOPIC
from protocol.group_records import partition_of
from tests.broker.asking import all_versions
from tests.broker.cluster.brokers import Brokers
from tests.broker.members import RawMember, all_fetched, commit, fetched, settled, state_of
from tests.broker.subject import eventually

NONE, NOT_COORDINATOR, LOAD_IN_PROGRESS = 0, 16, 14
PARTITIONS = 6
SETTINGS = {
    "offsets.topic.num.partitions": PARTITIONS,
    "default.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.fixture
def cluster(tmp_path):
    """Three brokers; one that a test kills stays dead unless the test starts it."""
    found = Brokers(tmp_path)
    found.start(1, 2, 3, settings=SETTINGS)
    yield found
    found.stop()


def coordinator_of(cluster, group, among=(1, 2, 3)):
    """The coordinator as every broker names it, once they agree on one of these."""

    def agreed():
        named = {ask(cluster, broker, group) for broker in among}
        return named.pop() if len(named) == 1 else None

    def serving():
        found = agreed()
        return found if found in among else None

    return eventually(serving, 30)


def ask(cluster, broker, group):
    with cluster[broker].connect() as connection:
        answer = connection.ask("FindCoordinator", 4, key_type=0, coordinator_keys=[group])
    found = answer["coordinators"][0]
    if found["error_code"] == NONE:
        assert found["port"] == cluster[found["node_id"]].port
    return found["node_id"]


def committed(cluster, group, among):
    """The offsets of a group as its coordinator says, once it has read them."""
    with cluster[coordinator_of(cluster, group, among)].connect() as connection:
        eventually(lambda: fetched(connection, group, "t")[3] == NONE)
        return all_fetched(connection, group)


def create(cluster, name):
    with cluster[1].connect() as connection:
        answer = connection.ask(
            "CreateTopics",
            7,
            topics=[{"name": name, "num_partitions": 1, "replication_factor": 3}],
            timeout_ms=10_000,
            validate_only=False,
        )["topics"][0]
    assert answer["error_code"] == NONE, answer


def commit_at(cluster, broker, group, offset):
    """Commits, again while the topic is not known everywhere or the groups are being read."""
    with cluster[broker].connect() as connection:
        eventually(lambda: commit(connection, group, "t", offset) == NONE, 20)


def test_offsets_and_members_survive_a_killed_coordinator(cluster):
    create(cluster, "t")
    first = coordinator_of(cluster, "g")
    commit_at(cluster, first, "g", 7)
    one, two = RawMember(cluster[first], "h"), RawMember(cluster[first], "h")
    where = coordinator_of(cluster, "h")
    one, two = RawMember(cluster[where], "h"), RawMember(cluster[where], "h")
    parts = settled(one, two)
    cluster[first].kill()
    rest = tuple(broker for broker in (1, 2, 3) if broker != first)
    assert committed(cluster, "g", rest) == {("t", 0): 7}
    assert parts
