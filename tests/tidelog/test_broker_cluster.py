"""Several brokers as a cluster for tests: started together, broken one by one, each with its clock."""

from __future__ import annotations

import re
import socket
import sqlite3
import threading
import time

import pytest

from tidelog.cluster import BrokerCluster
from tidelog.control import ControlError
from tidelog.process import BrokerFailed, BrokerProcess


def connects(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=60).close()
    except ConnectionRefusedError:
        return False
    return True


def wait_for_log(broker, pattern, count=1):
    deadline = time.monotonic() + 60
    while len(re.findall(pattern, broker.log())) < count:
        assert time.monotonic() < deadline, broker.log()
        time.sleep(0.01)


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


def test_a_broker_is_not_paused_while_the_metadata_is_locked(tmp_path):
    with BrokerCluster(tmp_path / "data", 2) as cluster:
        (file,) = (tmp_path / "data").rglob("tidelog.sqlite")
        store = sqlite3.connect(file, timeout=30, isolation_level=None, check_same_thread=False)
        store.execute("BEGIN IMMEDIATE")
        is_free = threading.Event()

        def free():
            store.rollback()
            is_free.set()

        threading.Timer(1.0, free).start()
        cluster.pause(2)
        assert is_free.is_set()
        cluster.resume(2)
        store.close()


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


def test_a_broker_that_could_not_reach_the_metadata_registers_anew(tmp_path):
    with BrokerCluster(tmp_path / "data", 2, {"broker.session.timeout.ms": 500}) as cluster:
        cluster.cut(2)
        wait_for_log(cluster[2], "the session was not renewed", count=2)
        cluster.heal()
        wait_for_log(cluster[2], "msg=registered", count=2)


def test_cuts_are_refused_where_they_make_no_sense(tmp_path):
    with BrokerCluster(tmp_path / "data", 2) as cluster:
        for other in (2, 7):
            with pytest.raises(ControlError, match=f"broker={other}: expected another broker"):
                cluster.cut(2, other)
        cluster.cut(1, 2)
        cluster.heal()
    with (
        BrokerProcess(tmp_path / "alone", faults=True) as broker,
        pytest.raises(ControlError, match="the broker is alone"),
    ):
        broker.cut_off()
