"""`tidelog cluster status`, /v1/cluster and the metrics of a cluster: what they say of real brokers."""

from __future__ import annotations

import json
import time
import urllib.request

import pytest

from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster
from tidelog.process import BrokerProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster") / "data"
    settings = {"broker.rack": "r1", "clock.start.ms": 1_767_225_600_000}
    with BrokerCluster(directory, 2, settings, clock="manual") as found:
        yield found


def told(capsys, http, *options):
    assert main(["cluster", "status", "--http", http, *options]) == 0
    return capsys.readouterr().out


def metrics(http):
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_every_broker_is_told_with_its_address_and_its_clock(cluster, capsys):
    cluster.clock(2).step("10m")
    answer = json.loads(told(capsys, cluster[1].http, "--json"))
    cluster.clock(2).step("-10m")
    assert answer["cluster_id"] == cluster.cluster_id
    first, second = answer["brokers"]
    assert (first["broker"], second["broker"]) == (1, 2)
    assert first["state"] == second["state"] == "serving"
    assert [each["http"] for each in answer["brokers"]] == [each.http for each in cluster]
    assert first["listeners"] == {"PLAINTEXT": cluster[1].bootstrap}
    assert first["rack"] == "r1"
    apart_ms = second["clock_offset_ms"] - first["clock_offset_ms"]
    assert 0 <= 600_000 - apart_ms < 60_000  # the machine's clock goes on between the two
    assert answer["controller"]["broker"] in (1, 2)


def test_the_table_names_a_broker_that_is_away(cluster, capsys):
    cluster.kill(2)
    deadline = time.monotonic() + 60
    rows = []
    while [row[:2] for row in rows] != [["1", "serving"], ["2", "away"]]:
        assert time.monotonic() < deadline, rows
        shown = told(capsys, cluster[1].http)
        rows = [line.split() for line in shown.splitlines() if line[:1].isdigit()]
    cluster.restart(2)
    while "away" in told(capsys, cluster[1].http):
        assert time.monotonic() < deadline + 60
    assert f"Cluster {cluster.cluster_id}" in shown


def test_a_broker_that_is_alone_is_a_cluster_of_one(tmp_path, capsys):
    with BrokerProcess(tmp_path / "data") as broker:
        assert main(["topics", "create", "t", "--broker", broker.bootstrap]) == 0
        capsys.readouterr()
        answer = json.loads(told(capsys, broker.http, "--json"))
        (partition,) = answer["partitions"]
        assert (partition["state"], partition["leader"], partition["isr"]) == ("ok", 1, [1])
        assert "fully replicated" in told(capsys, broker.http, "--unhealthy")
        found = metrics(broker.http)
    assert found["kafka_controller_kafkacontroller_activecontrollercount"] == "1.0"
    assert found["kafka_controller_kafkacontroller_offlinepartitionscount"] == "0.0"
    assert found["kafka_server_replicamanager_leadercount"] == "1.0"
    assert found["kafka_server_replicamanager_underreplicatedpartitions"] == "0.0"
