"""A disk dies and is replaced, and a broker leaves for good, as docs/cluster.md says, under load."""

from __future__ import annotations

import shutil

import pytest

from tests.broker.partitions.load import Load, consumed, create
from tests.broker.subject import eventually
from tests.oracle import wire
from tidelog.cli.brokers.gathering import gathered
from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster
from tidelog.protocol.records import batch

pytestmark = pytest.mark.slow

PARTITIONS = 6
WITHIN_S = 90
BROKER_ID_NOT_REGISTERED = 102


def send(load):
    """Sends records without keys, which go to all partitions in turns."""
    for _ in range(10):
        load.send("t", 100)
        load.flush()


def logs_of(directories, index):
    """The directories of one partition, of those that a broker has."""
    return [path for each in directories if (path := each / f"t-{index}").is_dir()]


def stored(directories, index):
    """The offsets, times and values of one replica, by the bytes of its log."""
    (path,) = logs_of(directories, index)
    found = []
    for file in sorted(path.glob("*.log")):
        data = file.read_bytes()
        for each in batch.scan(data):
            found += [(one.offset, one.timestamp, one.value) for one in batch.records(data, each)]
    return found


def is_whole(cluster, asked=1):
    """Whether every partition has all its replicas in sync."""
    return all(each["state"] == "ok" for each in gathered(cluster[asked].http)["partitions"])


@pytest.mark.timeout(300)
def test_a_dead_disk_is_replaced_by_an_empty_one_and_the_broker_catches_up(tmp_path, capsys):
    disks = [tmp_path / "disk-a", tmp_path / "disk-b"]
    own = {2: {"log.dirs": ",".join(map(str, disks))}}
    with BrokerCluster(tmp_path / "data", own_settings=own) as cluster:
        create(cluster, "t", partitions=PARTITIONS, configs={"min.insync.replicas": "2"})
        eventually(lambda: is_whole(cluster), WITHIN_S)
        load = Load(cluster)
        send(load)
        dead = disks[1]
        on_it = sorted(index for index in range(PARTITIONS) if logs_of([dead], index))
        assert 0 < len(on_it) < PARTITIONS

        for index in on_it:
            cluster[2].faults.add(storage="write", error="EIO", topic="t", partition=index)
        send(load)
        failed = eventually(
            lambda: next(
                each["failed_logs"]
                for each in gathered(cluster[1].http)["brokers"]
                if each["broker"] == 2
            ),
            WITHIN_S,
        )
        assert set(failed) <= {f"t-{index}" for index in on_it}
        assert main(["cluster", "doctor", "--http", cluster[1].http]) == 1
        assert "log failed" in capsys.readouterr().out

        cluster[2].kill()  # a broker with a failed log does not stop in order
        shutil.rmtree(dead)
        dead.mkdir()  # the new disk, mounted where the old one was
        send(load)
        cluster.restart(2)
        (line,) = [
            each
            for each in cluster[2].log().splitlines()
            if "log directories missing or emptied" in each
        ]
        assert "missing=1" in line
        send(load)
        eventually(lambda: is_whole(cluster), WITHIN_S)
        assert not load.refused
        count = len(load.acknowledged)

        cluster.kill(1)  # what the others have is enough, the new disk among it
        led = lambda: {each["leader"] for each in gathered(cluster[3].http)["partitions"]}
        eventually(lambda: led() <= {2, 3}, WITHIN_S)
        found = [
            value
            for index in range(PARTITIONS)
            for value in consumed(cluster, "t", len(stored(disks, index)), index)
        ]
        assert sorted(found) == sorted(load.acknowledged)
        assert len(found) == count
    third = [tmp_path / "data" / "brokers" / "3"]
    for index in range(PARTITIONS):
        assert stored(disks, index) == stored(third, index)
    assert any(logs_of([dead], index) for index in range(PARTITIONS))


@pytest.mark.timeout(300)
def test_a_broker_is_decommissioned_and_forgotten(tmp_path, capsys):
    with BrokerCluster(tmp_path / "data", 4) as cluster:
        create(cluster, "t", partitions=PARTITIONS, configs={"min.insync.replicas": "2"})
        load = Load(cluster)
        send(load)
        address = cluster[1].bootstrap
        assert main(["broker", "remove", "4", "--within", "90", "--broker", address]) == 0
        assert "Broker 4 has no partitions any more" in capsys.readouterr().out
        send(load)
        eventually(lambda: is_whole(cluster), WITHIN_S)
        assert cluster.stop(4) == 0
        connection = wire.Connection(address)
        brokers = lambda: gathered(cluster[1].http)["brokers"]
        eventually(lambda: (4, "serving") not in {(e["broker"], e["state"]) for e in brokers()})
        answer = connection.ask("UnregisterBroker", 0, broker_id=4)
        assert answer["error_code"] == 0, answer
        assert (
            connection.ask("UnregisterBroker", 0, broker_id=4)["error_code"]
            == BROKER_ID_NOT_REGISTERED
        )
        connection.close()
        answer = gathered(cluster[1].http)
        assert [each["broker"] for each in answer["brokers"]] == [1, 2, 3]
        assert all(4 not in each["replicas"] for each in answer["partitions"])
        assert not load.refused
        found = [
            value
            for index in range(PARTITIONS)
            for value in consumed(cluster, "t", len(stored([tmp_path / "data"], index)), index)
        ]
        assert sorted(found) == sorted(load.acknowledged)
