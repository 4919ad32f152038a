"""Where new partitions of several brokers go, what is refused, and that a change meanwhile is noticed."""

from __future__ import annotations

import pytest

from tests.broker.partitions.replication.cluster import Cluster
from tests.broker.partitions.replication.states import state
from tidelog.broker.controller.topics import placing
from tidelog.broker.controller.topics.partition_counts import RequestedPartitions
from tidelog.broker.metadata.brokers.records import RegistrationRecord, put_registration
from tidelog.broker.metadata.store import absent
from tidelog.protocol.errors import InvalidReplicaAssignment, InvalidReplicationFactor


@pytest.fixture
def cluster():
    """Brokers 1 to 4, two in each rack, all of which can lead."""
    found = Cluster()
    for broker in (1, 2, 3, 4):
        found.live(broker, rack="ab"[broker % 2])
        found.put(put_registration(broker, RegistrationRecord(f"of-{broker}")))
    return found


def test_replicas_are_in_both_racks_and_all_in_sync(cluster):
    placed = placing.of_new_topic(cluster.image, RequestedPartitions(8, 2))
    for record in placed.partitions:
        assert {each % 2 for each in record.replicas} == {0, 1}
        assert record.isr == record.replicas
        assert (record.leader, record.leader_epoch) == (record.replicas[0], 0)
    assert sorted(record.leader for record in placed.partitions) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_those_that_can_lead_come_first(cluster):
    cluster.die(1)
    cluster.live(2, is_fenced=True)
    for record in placing.of_new_topic(cluster.image, RequestedPartitions(6, 2)).partitions:
        assert set(record.replicas) == set(record.isr) == {3, 4}
    for record in placing.of_new_topic(cluster.image, RequestedPartitions(6, 3)).partitions:
        assert set(record.isr) == {3, 4}
        assert record.replicas[2] in (1, 2)
        assert record.leader in (3, 4)


def test_a_cordoned_broker_gets_replicas_only_if_a_client_chose_it(cluster):
    cordoned = frozenset({1, 2})
    for record in placing.of_new_topic(
        cluster.image, RequestedPartitions(6, 2), cordoned
    ).partitions:
        assert set(record.replicas) == {3, 4}
    with pytest.raises(InvalidReplicationFactor):
        placing.of_new_topic(cluster.image, RequestedPartitions(1, 3), cordoned)
    chosen = RequestedPartitions(1, 2, ((1, 3),))
    (record,) = placing.of_new_topic(cluster.image, chosen, cordoned).partitions
    assert record.replicas == (1, 3)


def test_what_was_decided_on_a_session_that_ended_is_refused(cluster):
    _, conditions = placing.of_new_topic(cluster.image, RequestedPartitions(4, 4))
    assert cluster.store.transact((*conditions, *absent("a")), ()) is not None
    cluster.die(3)
    assert cluster.store.transact(conditions, ()) is None


@pytest.mark.parametrize(
    ("factor", "leading", "sentence"),
    [
        (
            5,
            (1,),
            (
                "Unable to replicate the partition 5 time(s): The target replication factor of 5 "
                "cannot be reached because only 4 broker(s) are registered."
            ),
        ),
        (
            2,
            (),
            (
                "Unable to replicate the partition 2 time(s): All brokers are currently fenced or in "
                "controlled shutdown."
            ),
        ),
    ],
)
def test_too_few_brokers(cluster, factor, leading, sentence):
    cluster.die(*{1, 2, 3, 4}.difference(leading))
    with pytest.raises(InvalidReplicationFactor) as error:
        placing.of_new_topic(cluster.image, RequestedPartitions(1, factor))
    assert error.value.message == sentence


def test_replicas_chosen_by_a_client(cluster):
    cluster.die(2)
    placed = placing.of_new_topic(
        cluster.image, RequestedPartitions(2, assignments=((2, 1), (4, 3)))
    )
    assert [(r.replicas, r.isr, r.leader) for r in placed.partitions] == [
        ((2, 1), (1,), 1),
        ((4, 3), (4, 3), 4),
    ]


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        (((1, 2), ()), "an empty replica list"),
        (((1, 9),), "broker 9, but no such broker is registered"),
        (((1, 2, 1),), "the broker 1 more than once"),
        (((1, 2), (3,)), r"1 replica\(s\), .* which have 2 replica\(s\)"),
        (((1, 2), (4, 3), (2, 3)), "for partition 2 are fenced or in controlled shutdown"),
    ],
)
def test_no_such_replicas(cluster, assignments, sentence):
    cluster.die(2)
    cluster.live(3, is_stopping=True)
    with pytest.raises(InvalidReplicaAssignment, match=sentence):
        placing.of_new_topic(
            cluster.image, RequestedPartitions(len(assignments), assignments=assignments)
        )


def test_added_partitions_go_on_with_the_round_of_leaders(cluster):
    circle = [2, 1, 4, 3]  # b is odd
    for first in circle:
        cluster.create(f"t{first}", state(f"{first}* 1" if first != 1 else "1* 2", str(first)))
        topic = cluster.image.topics[f"t{first}"]
        placed = placing.of_added(cluster.image, topic, 3, None)
        assert [record.leader for record in placed.partitions] == [
            circle[(circle.index(first) + step) % 4] for step in (1, 2, 3)
        ]
        assert all(len(record.replicas) == 2 for record in placed.partitions)


def test_added_partitions_have_as_many_replicas_as_the_first(cluster):
    cluster.create("t", state("1* 2", "1 2"))
    topic = cluster.image.topics["t"]
    assert placing.of_added(cluster.image, topic, 1, [[3, 4]]).partitions[0].replicas == (3, 4)
    with pytest.raises(InvalidReplicaAssignment, match=r"3 replica\(s\), .* have 2 replica"):
        placing.of_added(cluster.image, topic, 1, [[3, 4, 1]])
