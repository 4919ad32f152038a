"""An etcd that has lost what brokers know: wiped, or restored from an older snapshot. The brokers say so."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.broker.partitions.load import create
from tests.broker.subject import eventually, page_at
from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster

pytestmark = pytest.mark.slow

LEASE_MS = 2_000
WITHIN_S = 60


@pytest.fixture
def cluster(tmp_path, etcd):
    settings = {"metadata.store": etcd.url(), "broker.session.timeout.ms": LEASE_MS}
    with BrokerCluster(tmp_path / "data", settings=settings) as made:
        create(made, "before")
        yield made


def wipe(cluster, etcd):
    """Starts etcd again, with nothing."""
    create(cluster, "after")
    etcd.kill(0)
    etcd.wipe(0)
    etcd.restart(0)


def restore(cluster, etcd):
    """Starts etcd again, as it was before a topic was created."""
    etcd.stop(0)
    data = etcd.folder / "m0"
    shutil.copytree(data, etcd.folder / "older")
    etcd.restart(0)
    eventually(lambda: readyz(cluster[1])[0] == 200, WITHIN_S)
    create(cluster, "after")
    etcd.stop(0)
    shutil.rmtree(data)
    (etcd.folder / "older").rename(data)
    etcd.restart(0)


def readyz(broker):
    return page_at(broker.http, "/readyz")


def test_brokers_whose_etcd_was_wiped_say_so_and_serve_nothing(cluster, etcd, capsys):
    wipe(cluster, etcd)
    check_said(cluster, capsys)
    for broker in cluster:
        eventually(
            lambda broker=broker: "the session in the cluster" in readyz(broker)[1], WITHIN_S
        )
    assert main(["cluster", "status", "--http", cluster[2].http, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [each["state"] for each in answer["brokers"]] == ["away"] * 3
    told = {(each["leader"], each["state"]) for each in answer["partitions"]}
    assert told == {(None, "offline")}


def test_brokers_whose_etcd_was_restored_say_so_and_are_well_when_started_again(
    cluster, etcd, capsys
):
    restore(cluster, etcd)
    check_said(cluster, capsys)
    for number in (1, 2, 3):
        cluster.stop(number)
    with ThreadPoolExecutor() as threads:  # each waits for a controller among the others
        list(threads.map(cluster.restart, (1, 2, 3)))
    for broker in cluster:
        eventually(lambda broker=broker: readyz(broker) == (200, "ready\n"), WITHIN_S)
    assert main(["cluster", "status", "--http", cluster[2].http, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {each["topic"] for each in answer["partitions"]} == {"before"}


def check_said(cluster, capsys):
    """Checks that readyz, the log and both doctors of every broker name it."""
    for broker in cluster:
        eventually(lambda broker=broker: "gone back from revision" in readyz(broker)[1], WITHIN_S)
        assert readyz(broker)[0] == 503
        assert "the metadata store has gone back" in broker.log()

        capsys.readouterr()
        assert main(["doctor", "--http", broker.http, "--json"]) == 1
        found = json.loads(capsys.readouterr().out)["findings"]
        assert "metadata went back" in {each["finding"] for each in found}

        assert main(["cluster", "doctor", "--http", broker.http, "--json"]) == 1
        found = json.loads(capsys.readouterr().out)["findings"]
        went_back = next(each for each in found if each["finding"] == "metadata went back")
        assert went_back["brokers"] == [1, 2, 3]
