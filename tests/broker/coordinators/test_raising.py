"""__consumer_offsets gets more replicas when more brokers are there, and never fewer."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.broker.partitions.replication.cluster import Cluster
from tests.broker.partitions.replication.states import state, written
from tidelog.broker.coordinators.raising import factor, raising
from tidelog.broker.metadata.eligible_leaders import changed

TOPIC = "__consumer_offsets"


@pytest.fixture
def cluster():
    """Broker 1, which leads the six partitions of the topic alone, and is the controller."""
    found = Cluster(min_insync=1)
    found.live(1)
    found.create(TOPIC, *[state("1*", "1")] * 6)
    found.elect_controller(1)
    return found


def raise_replicas(cluster, wanted=3, cordoned=()):
    """Writes what is to be written; returns how many partitions were changed."""
    found = raising(cluster.image, TOPIC, wanted, frozenset(cordoned))
    return sum(len(each.changes) for each in found if cluster.commit(each))


def catch_up(cluster):
    """Every replica joins the ISR, and the controller does what follows."""
    for index, record in enumerate(cluster.image.topics[TOPIC].assignments):
        cluster.set(TOPIC, index, changed(record, isr=record.replicas))
    cluster.settle(settled=[1, 2, 3])


def test_replicas_are_added_when_brokers_register(cluster):
    assert raise_replicas(cluster) == 0
    cluster.live(2)
    assert raise_replicas(cluster) == 6
    assert cluster.state(TOPIC).adding == (2,)
    catch_up(cluster)
    cluster.live(3)
    assert raise_replicas(cluster) == 6
    catch_up(cluster)
    for record in cluster.image.topics[TOPIC].assignments:
        assert sorted(record.replicas) == [1, 2, 3]
        assert not record.adding
    assert raise_replicas(cluster) == 0


def test_the_leaders_are_spread(cluster):
    cluster.live(2, 3)
    raise_replicas(cluster)
    catch_up(cluster)
    leaders = Counter(record.leader for record in cluster.image.topics[TOPIC].assignments)
    assert leaders == {1: 2, 2: 2, 3: 2}


def test_no_more_are_added_than_are_wanted(cluster):
    cluster.live(2, 3, 4)
    raise_replicas(cluster, wanted=2)
    catch_up(cluster)
    factors = [record.replicas for record in cluster.image.topics[TOPIC].assignments]
    assert {len(replicas) for replicas in factors} == {2}
    assert Counter(broker for replicas in factors for broker in replicas) == {
        1: 6,
        2: 2,
        3: 2,
        4: 2,
    }


def test_a_broker_in_another_rack_comes_first(cluster):
    cluster.live(1, 2, rack="a")
    cluster.live(3, rack="b")
    raise_replicas(cluster, wanted=2)
    assert {record.adding for record in cluster.image.topics[TOPIC].assignments} == {(3,)}


def test_a_fenced_or_stopping_broker_is_not_counted(cluster):
    cluster.live(2, is_fenced=True)
    cluster.live(3, is_stopping=True)
    assert factor(cluster.image, 3) == 1
    assert raise_replicas(cluster) == 0


def test_a_cordoned_broker_gets_no_replica_and_is_not_counted(cluster):
    cluster.live(2, 3)
    assert factor(cluster.image, 3, frozenset({3})) == 2
    raise_replicas(cluster, cordoned=[3])
    assert {record.adding for record in cluster.image.topics[TOPIC].assignments} == {(2,)}
    catch_up(cluster)
    assert raise_replicas(cluster, cordoned=[3]) == 0
    assert raise_replicas(cluster, cordoned=[1, 2, 3]) == 0


def test_a_partition_that_leaves_a_cordoned_broker_keeps_what_it_has(cluster):
    """An operator who empties broker 3 is not hindered where nobody can take its replicas."""
    cluster.live(2, 3)
    cluster.set(TOPIC, 0, state("1* 2", "1 2", partition_epoch=10))
    cluster.set(TOPIC, 1, state("3* 1", "3 1", partition_epoch=10))
    raise_replicas(cluster, cordoned=[3])
    assert not cluster.state(TOPIC, 0).adding
    assert not cluster.state(TOPIC, 1).adding


def test_nothing_is_removed_when_brokers_die(cluster):
    cluster.live(2, 3)
    raise_replicas(cluster)
    catch_up(cluster)
    cluster.die(2, 3)
    assert factor(cluster.image, 3) == 1
    assert raise_replicas(cluster) == 0
    assert len(cluster.state(TOPIC).replicas) == 3


def test_a_reassignment_in_progress_is_left_alone(cluster):
    cluster.live(2, 3)
    cluster.set(TOPIC, 0, state("1* 2", "1", adding=(2,), partition_epoch=10))
    raise_replicas(cluster)
    assert written(cluster.state(TOPIC)) == ("1* 2", "1", "")
    assert len(cluster.state(TOPIC, 1).adding) == 2


def test_a_broker_that_has_gone_meanwhile_becomes_no_replica(cluster):
    cluster.live(2)
    (transaction,) = raising(cluster.image, TOPIC, 3)
    cluster.die(2)
    assert not cluster.commit(transaction)


def test_another_controller_writes_nothing(cluster):
    cluster.live(2)
    (transaction,) = raising(cluster.image, TOPIC, 3)
    cluster.elect_controller(2)
    assert not cluster.commit(transaction)


def test_without_the_topic_there_is_nothing_to_raise(cluster):
    cluster.live(2)
    assert raising(cluster.image, "another", 3) == []
