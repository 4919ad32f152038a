"""Several brokers as a cluster for tests: started together, broken one by one, each with its clock."""

from __future__ import annotations

import re
import socket
import sqlite3
import threading
import time

import pytest

from tests.tidelog.processes import connects
from tidelog.cluster import BrokerCluster
from tidelog.control import ControlError
from tidelog.process import BrokerFailed, BrokerProcess

NEW_YEAR_MS = 1_767_225_600_000


def wait_for_log(broker, pattern, count=1):
    deadline = time.monotonic() + 60
    while len(re.findall(pattern, broker.log())) < count:
        assert time.monotonic() < deadline, broker.log()
        time.sleep(0.01)


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two brokers with manual clocks."""
    settings = {"clock.start.ms": NEW_YEAR_MS, "broker.session.timeout.ms": 500}
    directory = tmp_path_factory.mktemp("pair") / "data"
    with BrokerCluster(directory, 2, settings, clock="manual") as cluster:
        yield cluster


@pytest.mark.slow
class TestPair:
    def test_a_broker_is_not_paused_while_the_metadata_is_locked(self, pair):
        (file,) = pair.directory.rglob("tidelog.sqlite")
        store = sqlite3.connect(file, timeout=30, isolation_level=None, check_same_thread=False)
        store.execute("BEGIN IMMEDIATE")
        is_free = threading.Event()

        def free():
            store.rollback()
            is_free.set()

        threading.Timer(1.0, free).start()
        pair.pause(2)
        assert is_free.is_set()
        pair.resume(2)
        store.close()

    def test_each_broker_has_a_clock_of_its_own(self, pair):
        assert pair.clock(2).step("10m") == NEW_YEAR_MS + 600_000
        assert pair.clock(1).now_ms() == NEW_YEAR_MS
        pair.clock(2).step("-10m")

    def test_a_broker_that_is_not_there_is_named(self, pair):
        with pytest.raises(BrokerFailed, match="there is no broker 3: the cluster has 1, 2"):
            pair.kill(3)

    def test_a_broker_that_could_not_reach_the_metadata_registers_anew(self, pair):
        registered = pair[2].log().count('msg="broker registered"')
        pair.cut(2)
        wait_for_log(pair[2], "broker session not renewed", count=2)
        pair.heal()
        wait_for_log(pair[2], 'msg="broker registered"', count=registered + 1)

    def test_cuts_are_refused_where_they_make_no_sense(self, pair):
        for other in (2, 7):
            with pytest.raises(ControlError, match=f"broker={other}: expected another broker"):
                pair.cut(2, other)
        pair.cut(1, 2)
        pair.heal()


@pytest.mark.slow
def test_a_cut_of_a_broker_that_is_alone_is_refused(tmp_path):
    with (
        BrokerProcess(tmp_path / "alone", faults=True) as broker,
        pytest.raises(ControlError, match="the broker is alone"),
    ):
        broker.cut_off()


@pytest.mark.slow
def test_one_that_does_not_start_ends_them_all(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BrokerFailed, match="the broker ended with status 1"):
            BrokerCluster(tmp_path / "data", 2, {"listeners": listener})
