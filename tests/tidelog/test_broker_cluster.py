"""Several brokers as a cluster for tests: started together, broken one by one, each with its clock."""

from __future__ import annotations

import socket

import pytest

from tidelog.cluster import BrokerCluster
from tidelog.process import BrokerFailed


def connects(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_life(tmp_path):
    with BrokerCluster(tmp_path / "data") as cluster:
        assert len(cluster) == len(set(cluster.bootstrap.split(","))) == 3
        assert {broker.cluster_id for broker in cluster} == {cluster.cluster_id}
        before = cluster.bootstrap
        cluster.kill(2)
        assert [connects(broker.bootstrap) for broker in cluster] == [True, False, True]
        cluster.restart(2)
        assert cluster.bootstrap == before
        assert all(map(connects, before.split(",")))
        cluster.pause(3)
        cluster.resume(3)
        assert cluster.stop(3) == 0
        assert not cluster[3].is_running
    assert not any(broker.is_running for broker in cluster)


def test_each_broker_has_a_clock_of_its_own(tmp_path):
    settings = {"clock.start.ms": 1_767_225_600_000}
    with BrokerCluster(tmp_path / "data", 2, settings, clock="manual") as cluster:
        start_ms = cluster.clock(1).now_ms()
        assert cluster.clock(2).step("10m") == start_ms + 600_000
        assert cluster.clock(1).now_ms() == start_ms == 1_767_225_600_000


def test_a_broker_that_is_not_there_is_named(tmp_path):
    with BrokerCluster(tmp_path / "data", 2) as cluster:
        with pytest.raises(BrokerFailed, match="there is no broker 3: the cluster has 1, 2"):
            cluster.kill(3)
        with pytest.raises(BrokerFailed, match="machine's clock"):
            cluster.clock(1)


def test_one_that_does_not_start_ends_them_all(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BrokerFailed, match="the broker ended with status 1"):
            BrokerCluster(tmp_path / "data", 2, {"listeners": listener})
