"""Three real processes: replication, a leader that is killed, and a broker that comes back."""

from __future__ import annotations

import time

import pytest

from tests.broker.replicas.load import Load, consumed, create, leader_of
from tidelog.cluster import BrokerCluster


@pytest.fixture
def cluster(tmp_path):
    with BrokerCluster(tmp_path / "data", settings={"log.retention.ms": -1}) as made:
        yield made


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_with_a_killed_leader_and_it_joins_again(cluster):
    create(cluster, "t", configs={"min.insync.replicas": "2"})
    load = Load(cluster)
    load.send("t", 500)
    load.flush()
    first = leader_of(cluster, "t").leader
    load.send("t", 500)
    cluster.kill(first)
    load.send("t", 500)
    load.flush()
    assert not load.refused
    assert len(load.acknowledged) == 1_500
    state = leader_of(cluster, "t")
    assert state.leader != first
    assert first not in state.isrs
    assert consumed(cluster, "t", 1_500) == [b"%d" % number for number in range(1_500)]
    cluster.restart(first)
    end = time.monotonic() + 60
    while first not in leader_of(cluster, "t").isrs:
        assert time.monotonic() < end, "the broker that came back is not in the ISR"
        time.sleep(0.1)
    load.send("t", 100)
    load.flush()
    assert len(load.acknowledged) == 1_600
    assert consumed(cluster, "t", 1_600) == [b"%d" % number for number in range(1_600)]
    assert [each.stop() for each in cluster] == [0, 0, 0]
    for each in cluster:
        assert "Traceback" not in each.log(), each.log()[-5000:]
