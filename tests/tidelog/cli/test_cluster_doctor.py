"""`tidelog cluster doctor`: what it finds in real clusters, what it advises, and its exit status."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.broker.partitions.load import create
from tests.broker.subject import eventually
from tidelog.broker.metadata.brokers.records import live_key, put_live
from tidelog.broker.metadata.local import local_metadata
from tidelog.cli.brokers.diagnosis import findings
from tidelog.cli.brokers.gathering import gathered
from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster
from tidelog.config import BROKER_SETTINGS

pytestmark = pytest.mark.slow

WITHIN_S = 60
NOT_PREFERRED = "leaders not preferred"
START_MS = 1_767_225_600_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    directory = tmp_path_factory.mktemp("doctor") / "data"
    with BrokerCluster(directory, 3, {"clock.start.ms": START_MS}, clock="manual") as made:
        create(made, "three", configs={"min.insync.replicas": "3"})
        create(made, "two", configs={"min.insync.replicas": "2"})
        yield made


@pytest.fixture
def examined(cluster, capsys):
    """A function that waits until the doctor finds some things, and no others.

    Whether leaders are preferred ones is left out: for a minute a broker that was away leads nothing.
    """

    def wait(*names, at=1):
        deadline = time.monotonic() + WITHIN_S
        while True:
            status = main(["cluster", "doctor", "--http", cluster[at].http, "--json"])
            found = json.loads(capsys.readouterr().out)["findings"]
            assert status == (1 if found else 0)
            told = sorted(each["finding"] for each in found)
            if [name for name in told if name != NOT_PREFERRED] == sorted(names):
                return {each["finding"]: each for each in found}
            assert time.monotonic() < deadline, found
            time.sleep(0.2)

    wait()  # what a test before has broken is well again
    return wait


def test_nothing_is_wrong_with_a_cluster_that_is_well(tmp_path, capsys):
    with BrokerCluster(tmp_path / "data") as fresh:
        create(fresh, "t")
        eventually(lambda: main(["cluster", "doctor", "--http", fresh[2].http]) == 0)
        told = capsys.readouterr().out.splitlines()[-1]
        assert told == "3 brokers and 1 partition examined: nothing found."


def test_a_broker_that_is_gone_and_what_misses_it(cluster, examined, capsys):
    cluster.kill(3)
    try:
        found = examined("broker missing", "too few in sync", "replicas missing")
        assert main(["cluster", "doctor", "--http", cluster[1].http]) == 1
        told = " ".join(capsys.readouterr().out.split())
    finally:
        cluster.restart(3)
    assert found["broker missing"]["brokers"] == [3]
    assert found["too few in sync"]["partitions"] == ["three-0"]
    assert "two-0" in found["replicas missing"]["partitions"]
    assert "(broker 3: the broker has no session)" in found["replicas missing"]["sentence"]
    assert "`tidelog broker remove 3`" in told
    assert "`tidelog configs set three min.insync.replicas=2`" in told
    assert "3 brokers and 2 partitions examined: " in told


def test_clocks_that_differ(cluster, examined):
    cluster.clock(2).step("10m")
    found = examined("clocks apart")["clocks apart"]
    cluster.clock(2).step("-10m")
    assert found["brokers"][1] == 2
    assert found["sentence"].startswith("The clock of broker 2 is ")


def test_versions_that_differ(cluster, examined):
    cluster.restart(
        2, {"inter.broker.protocol.version": "0.10.0", "log.message.format.version": "0.10.0"}
    )
    try:
        found = examined("versions differ", "versions differ")["versions differ"]
    finally:
        cluster.restart(
            2, {"inter.broker.protocol.version": "3.9-IV0", "log.message.format.version": "3.0-IV1"}
        )
    assert "0.10.0 on broker 2" in found["sentence"]
    assert "on brokers 1, 3" in found["sentence"]
    assert "`tidelog cluster roll`" in found["help"]


def test_a_broker_that_cannot_reach_the_metadata(cluster, examined):
    cluster.cut(2)
    try:
        by_others = examined("broker missing", "too few in sync", "replicas missing")
        (by_itself,) = [
            each
            for each in findings(gathered(cluster[2].http))
            if each.finding == "metadata out of reach"
        ]
    finally:
        cluster.heal()
    assert by_others["broker missing"]["brokers"] == [2]
    assert by_itself.brokers == [2]
    assert by_itself.sentence.startswith("Broker 2 cannot change the metadata: ")


def test_a_disk_that_vanishes_is_noticed_though_nobody_writes_to_it(cluster, examined, tmp_path):
    directory, away = cluster.directory / "brokers" / "2", tmp_path / "away"
    directory.rename(away)
    try:
        found = examined("log directory unwritable")["log directory unwritable"]
    finally:
        away.rename(directory)
    assert found["brokers"] == [2]
    assert f"{directory} of broker 2 (No such file or directory)" in found["sentence"]


def test_what_a_broker_says_of_its_state_is_told_in_words(cluster, examined):
    """A real answer in which a broker is fenced or stops, which lasts too short to be caught."""
    answer = gathered(cluster[1].http)
    answer["partitions"] = []  # their leaders may not be the preferred ones yet
    broker = answer["brokers"][2]
    broker["state"], broker["own"]["not_serving"] = "fenced", "it catches up first"
    (fenced,) = findings(answer)
    assert fenced.sentence.startswith("Broker 3 is fenced (it catches up first). It leads nothing")
    broker["state"] = "stopping"
    (stopping,) = findings(answer)
    assert (stopping.finding, stopping.brokers) == ("broker stopping", [3])
    broker["state"], broker["unreachable"] = "serving", "timed out"
    (silent,) = findings(answer)
    assert f"no answer at {cluster[3].http} (timed out)" in silent.sentence
    broker["unreachable"], broker["full_disk_logs"] = None, [f"t-{number}" for number in range(7)]
    (full,) = findings(answer)
    assert "t-0, t-1, t-2, t-3, t-4 and 2 more of broker 3" in full.sentence
    broker["full_disk_logs"] = []
    broker["own"]["unwritable_directories"] = {"/data": "Read-only file system"}
    (unwritable,) = findings(answer)
    assert (unwritable.finding, unwritable.brokers) == ("log directory unwritable", [3])
    assert "written to /data of broker 3 (Read-only file system)" in unwritable.sentence
    broker["own"]["unwritable_directories"], answer["controller"] = {}, None
    (nobody,) = findings(answer)
    assert nobody.finding == "no controller"


def test_a_leader_that_is_not_the_preferred_one(cluster, examined, capsys):
    partitions = gathered(cluster[1].http)["partitions"]
    two = next(each for each in partitions if each["topic"] == "two")
    if two["leader"] == two["replicas"][0]:
        cluster.restart(two["leader"])  # it leads again only when it has been there for a while
    told = lambda: {each.finding for each in findings(gathered(cluster[1].http))}
    eventually(lambda: NOT_PREFERRED in told(), WITHIN_S)
    assert main(["cluster", "doctor", "--http", cluster[1].http]) == 1
    said = " ".join(capsys.readouterr().out.split())
    setting = BROKER_SETTINGS["cluster.leader_imbalance_check_interval_seconds"]
    assert f"{setting.name} ({setting.default})" in said
    assert "`tidelog cluster elect`" in said


def test_a_broker_that_cannot_be_asked_is_no_finding(capsys):
    assert main(["cluster", "doctor", "--http", "127.0.0.1:1"]) == 2
    assert "127.0.0.1:1" in capsys.readouterr().err


@pytest.fixture
def elsewhere(tmp_path):
    """A cluster of two brokers whose HTTP ports have names, as in containers, that mean nothing here."""
    with BrokerCluster(tmp_path / "data", 2) as cluster:
        path = tmp_path / "data" / "tidelog.sqlite"
        for broker in (1, 2):
            asyncio.run(_rename_http(path, broker))
        yield cluster


async def _rename_http(path, broker):
    """Lets a broker's session name its HTTP port as a container does."""
    metadata = local_metadata(path, 99, is_shared=True)
    await metadata.open()
    try:
        live = metadata.image.brokers[broker]
        lease = next(pair.lease for pair in (await metadata.store.read(live_key(broker))).pairs)
        ends = tuple(
            each._replace(host=f"broker-{broker}.invalid") if each.listener == "HTTP" else each
            for each in live.record.endpoints
        )
        put = put_live(broker, live.record._replace(endpoints=ends), lease)
        assert await metadata.transact((), (put,))
    finally:
        await metadata.close()


def test_brokers_whose_names_are_not_known_here_are_named_with_what_helps(elsewhere, capsys):
    first, second = (broker.http for broker in elsewhere)
    assert main(["cluster", "doctor", "--http", first]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "brokers not asked: Broker 2 could not be examined from here" in told
    assert "their names are not known on this machine (broker-2.invalid:" in told
    assert "broker silent" not in told
    assert main(["cluster", "status", "--http", first]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Not asked: 1 broker (2), because their names are not known on this machine" in told

    # Where each is named as it is reached, all are asked.
    both = f"{first},{second}"
    assert main(["cluster", "doctor", "--http", both]) == 0
    assert "2 brokers and 0 partitions examined: nothing found." in capsys.readouterr().out
    assert main(["cluster", "status", "--http", both]) == 0
    told = capsys.readouterr().out
    assert "Not asked" not in told
    assert told.count("right") == 2


def test_brokers_of_different_clusters_are_refused(elsewhere, tmp_path, capsys):
    with BrokerCluster(tmp_path / "other", 1) as other:
        both = f"{elsewhere[1].http},{other[1].http}"
        assert main(["cluster", "status", "--http", both]) == 1
    assert "are of different clusters" in capsys.readouterr().err
