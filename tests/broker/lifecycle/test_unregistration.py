"""A broker is forgotten only if it is gone, has no replicas, and was registered."""

from __future__ import annotations

import pytest

from tests.broker.lifecycle.test_registration import register
from tests.broker.partitions.replication.cluster import Cluster
from tests.broker.partitions.replication.states import state
from tidelog.broker.lifecycle.unregistration import unregister
from tidelog.broker.metadata.brokers.records import OfflineRecord, put_offline
from tidelog.broker.metadata.records import put_broker_configs, put_own_configs
from tidelog.broker.settings import Settings
from tidelog.config import BrokerConfig
from tidelog.protocol.errors import BrokerIdNotRegistered, InvalidRequest

CORDONED = "cordoned.brokers"


@pytest.fixture
def cluster():
    """Brokers 1 to 3, of which 3 is gone; the topic t is on 1 and 2."""
    found = Cluster()
    found.create("t", state("1* 2", "1 2"))
    for broker in (1, 2, 3):
        register(found, found.start(broker, f"first-{broker}"))
    found.put(put_broker_configs({CORDONED: "2,3", "log.retention.ms": "5"}))
    for broker in (2, 3):
        found.put(put_own_configs(broker, {"leader.replication.throttled.rate": "5"}))
    found.put(put_offline(3, OfflineRecord(("d",))))
    found.die(3)
    return found


def decided(cluster, broker, me=1):
    configs = Settings(BrokerConfig()).without_cordon(cluster.image.broker_configs, broker)
    return unregister(cluster.image, me, broker, configs)


def test_it_is_forgotten_with_its_disks_and_its_cordon(cluster):
    assert cluster.commit(decided(cluster, 3))
    image = cluster.image
    assert set(image.registrations) == {1, 2}
    assert not image.offline
    assert image.own_configs == {2: {"leader.replication.throttled.rate": "5"}}
    assert image.broker_configs == {CORDONED: "2", "log.retention.ms": "5"}
    with pytest.raises(BrokerIdNotRegistered, match="broker 3 is not registered"):
        decided(cluster, 3)


def test_the_last_cordon_is_unset(cluster):
    cluster.put(put_broker_configs({CORDONED: "3"}))
    assert cluster.commit(decided(cluster, 3))
    assert cluster.image.broker_configs == {}


@pytest.mark.parametrize("me", [1, 2])
def test_one_that_runs_is_not(cluster, me):
    with pytest.raises(InvalidRequest, match="broker 2 is running: stop it first"):
        decided(cluster, 2, me)


def test_one_with_replicas_is_not(cluster):
    cluster.die(2)
    with pytest.raises(InvalidRequest, match="broker 2 still has replicas of 1 partition: move"):
        decided(cluster, 2)


def test_one_that_starts_meanwhile_is_not(cluster):
    made = decided(cluster, 3)
    register(cluster, cluster.start(3, "second-3"))
    assert not cluster.commit(made)
    assert 3 in cluster.image.registrations


def test_settings_that_change_meanwhile_are_kept(cluster):
    made = decided(cluster, 3)
    cluster.put(put_broker_configs({CORDONED: "1,3"}))
    assert not cluster.commit(made)
    assert cluster.commit(decided(cluster, 3))
    assert cluster.image.broker_configs == {CORDONED: "1"}
