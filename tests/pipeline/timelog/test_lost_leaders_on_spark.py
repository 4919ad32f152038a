"""Spark reads from a cluster of three brokers, and writes to it, while leaders are killed."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from tests.broker.subject import eventually
from tests.pipeline.jobs.test_mirror import everything
from tests.pipeline.streams import available_now
from tidelog.client import Client
from tidelog.cluster import BrokerCluster
from tidelog.protocol.records.batch import Record, build

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
PARTITIONS = 2
COUNT = 3_000  # of a partition; they take several fetches of 4 MiB
SIZE = 5_000


@pytest.fixture
def cluster(tmp_path):
    with BrokerCluster(tmp_path / "data") as made, Client(made.bootstrap) as client:
        for name in ("t", "copy"):
            client.create_topic(name, PARTITIONS, {"retention.ms": "-1"})
        yield made


def fill(cluster, size):
    with Client(cluster.bootstrap) as client:
        for partition in range(PARTITIONS):
            for start in range(0, COUNT, 100):
                rows = [
                    Record(
                        n, 1000 + start + n, None, b"%d-%d" % (partition, start + n) + b"x" * size
                    )
                    for n in range(100)
                ]
                client.produce("t", partition, build(rows))


def leader(cluster, topic, partition):
    with Client(cluster.bootstrap) as client:
        return client.topics([topic])[topic].partitions[partition].leader


def source_of(reader, cluster):
    return reader.format("timelog").option("kafka.bootstrap.servers", cluster.bootstrap)


def test_a_task_reads_on_when_its_leader_is_killed(spark, cluster, tmp_path):
    """Each task waits behind its first rows until the leader of partition 0 is dead."""
    fill(cluster, SIZE)
    began, killed = str(tmp_path / "began"), str(tmp_path / "killed")

    def hold(batches):
        import os
        import time

        for number, batch in enumerate(batches):
            if not number:
                open(began, "w").close()
                while not os.path.exists(killed):
                    time.sleep(0.02)
            yield batch.select(["partition", "offset"])

    def kill():
        eventually((tmp_path / "began").exists, 120)
        cluster.kill(leader(cluster, "t", 0))
        (tmp_path / "killed").touch()

    frame = (
        source_of(spark.read, cluster)
        .option("subscribe", "t")
        .option("maxBatchBytes", "64k")
        .load()
    )
    killer = threading.Thread(target=kill)
    killer.start()
    try:
        rows = frame.mapInArrow(hold, "partition int, offset long").collect()
    finally:
        killer.join()
    found = Counter((row["partition"], row["offset"]) for row in rows)
    assert found == Counter((part, n) for part in range(PARTITIONS) for n in range(COUNT))
    assert not all(broker.is_running for broker in cluster)


def test_a_stream_writes_once_when_leaders_are_killed(spark, cluster, tmp_path):
    fill(cluster, 50)
    frame = source_of(spark.readStream, cluster).option("subscribe", "t")
    frame = (
        frame.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "1000").load()
    )
    writer = frame.writeStream.format("timelog").option("topic", "copy")
    writer = writer.option("kafka.bootstrap.servers", cluster.bootstrap)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))

    def kill():
        with Client(cluster.bootstrap) as client:
            eventually(lambda: client.end_offset("copy", 0), 240)
        cluster.kill(leader(cluster, "copy", 0))

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        available_now(writer)
    finally:
        killer.join()
    assert not all(broker.is_running for broker in cluster)
    with Client(cluster.bootstrap) as client:
        for partition in range(PARTITIONS):
            wanted = [(one.timestamp, one.value) for one in everything(client, "t", partition)]
            found = [(one.timestamp, one.value) for one in everything(client, "copy", partition)]
            assert len(wanted) == COUNT
            assert found == wanted
