"""A cluster of three brokers as source, which lose their leaders while they are planned and read."""

from __future__ import annotations

import functools
import time
import urllib.request
from dataclasses import replace

import pytest

from tests.broker.subject import eventually
from tidelog.client import Client, RequestError, sync_client
from tidelog.client.producer import Producer
from tidelog.cluster import BrokerCluster
from tidelog.pipeline.source import brokers, fetching
from tidelog.pipeline.source.access import plan, read
from tidelog.pipeline.source.reading import ReadOptions
from tidelog.pipeline.source.splits import Selection
from tidelog.protocol.records.batch import Record

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
REQUEST_S = 3.0
WITHIN_S = 60
COUNT = 2000
RACKS = {1: "a", 2: "b", 3: "c"}
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture(autouse=True)
def many_requests(monkeypatch):
    """A split takes many fetches, and one that hangs is given up soon."""
    monkeypatch.setattr(fetching, "FETCH_BYTES", 1 << 14)
    monkeypatch.setattr(sync_client, "REQUEST_TIMEOUT_S", REQUEST_S)


@pytest.fixture
def cluster(tmp_path):
    racks = {broker: {"broker.rack": rack} for broker, rack in RACKS.items()}
    settings = {
        "replica.selector.class": RACK_AWARE,
        "log.retention.ms": -1,
        "replica.lag.time.max.ms": 3000,
    }
    with BrokerCluster(tmp_path / "data", settings=settings, own_settings=racks) as made:
        with Client(made.bootstrap) as client:
            client.create_topic("t", 3)
            producer = Producer(client)
            for partition in range(3):
                for number in range(0, COUNT, 50):
                    records = [
                        Record(0, each, None, b"x" * 50) for each in range(number, number + 50)
                    ]
                    assert list(producer.write("t", partition, records)) == []
        yield made


def leaders(cluster, asked=2):
    with Client(cluster[asked].bootstrap) as client:
        return [one.leader for one in client.topics(["t"])["t"].partitions]


def partition_of(cluster, leader):
    return leaders(cluster).index(leader)


def read_and(splits, partition, then, options=None):
    """The offsets of a partition in the order read; `then` is called after the first rows."""
    (split,) = (one for one in splits if one.partition == partition)
    found = []
    for columns in read(split, options or ReadOptions(batch_bytes=1 << 13)):
        if not found:
            then()
        found += columns.offset.tolist()
    return found


def served(cluster, broker):
    """How many bytes a broker has served to consumers of the topic."""
    with urllib.request.urlopen(f"http://{cluster[broker].http}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    wanted = [one for one in lines if one.startswith("tidelog_fetch_bytes_total{")]
    return sum(float(one.rpartition(" ")[2]) for one in wanted if 'topic="t"' in one)


@pytest.mark.parametrize("how", ["kill", "pause", "cut"])
def test_a_split_is_read_on_at_the_next_leader(cluster, how):
    splits = plan(Selection(topics=("t",)), brokers=cluster.bootstrap)
    assert [(one.start_offset, one.end_offset) for one in splits] == [(0, COUNT)] * 3
    partition = partition_of(cluster, 1)

    def lose():
        getattr(cluster, how)(1)
        eventually(lambda: leaders(cluster)[partition] not in (1, -1), WITHIN_S)

    try:
        assert read_and(splits, partition, lose) == list(range(COUNT))
    finally:
        if how == "pause":
            cluster.resume(1)


@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_plan_is_made_while_a_broker_is_lost(cluster, how):
    getattr(cluster, how)(1)
    try:
        splits = plan(Selection(topics=("t",)), brokers=cluster.bootstrap)
        assert [(one.start_offset, one.end_offset) for one in splits] == [(0, COUNT)] * 3
        for partition in range(3):
            assert read_and(splits, partition, lambda: None) == list(range(COUNT))
    finally:
        if how == "pause":
            cluster.resume(1)


def test_a_partition_that_nobody_leads_is_named_in_time(cluster, monkeypatch):
    with Client(cluster.bootstrap) as client:
        client.create_topic("alone", 3, replication_factor=1)
        lost = [one.leader for one in client.topics(["alone"])["alone"].partitions].index(3)
    cluster.kill(3)
    monkeypatch.setattr(brokers, "Client", functools.partial(Client, timeout_s=5.0))
    began = time.monotonic()
    with pytest.raises(RequestError, match=f"alone-{lost}: LEADER_NOT_AVAILABLE"):
        plan(Selection(topics=("alone",)), brokers=cluster.bootstrap)
    assert time.monotonic() - began < WITHIN_S


def test_a_reader_with_a_rack_reads_from_the_follower_in_it(cluster):
    splits = plan(Selection(topics=("t",)), brokers=cluster.bootstrap)
    partition = partition_of(cluster, 1)
    options = ReadOptions(batch_bytes=1 << 13, rack="b")
    assert read_and(splits, partition, lambda: None, options) == list(range(COUNT))
    assert served(cluster, 2) > COUNT * 50
    assert [served(cluster, other) for other in (1, 3)] == [0, 0]


@pytest.mark.parametrize("how", ["kill", "pause", "cut", "leader"])
def test_a_reader_whose_follower_is_lost_reads_on_from_the_leader(cluster, how):
    splits = plan(Selection(topics=("t",)), brokers=cluster.bootstrap)
    partition = partition_of(cluster, 1)

    def lose():
        assert served(cluster, 2) > 0
        if how == "leader":
            cluster.kill(1)
        else:
            getattr(cluster, how)(2)

    options = ReadOptions(batch_bytes=1 << 13, rack="b")
    try:
        assert read_and(splits, partition, lose, options) == list(range(COUNT))
    finally:
        if how == "pause":
            cluster.resume(2)
    if how in ("kill", "pause"):
        assert served(cluster, 1) > 0


def test_what_a_follower_lacks_is_read_from_the_leader(cluster):
    """The follower is cut off from the leader in the middle, and more is written then."""
    partition, more = partition_of(cluster, 1), 100
    planned = plan(Selection(topics=("t",)), brokers=cluster.bootstrap)
    splits = [replace(one, end_offset=COUNT + more) for one in planned]

    def cut_and_write():
        cluster.cut(1, 2)
        with Client(cluster[1].bootstrap) as client:
            records = [Record(0, each, None, b"y") for each in range(more)]
            assert list(Producer(client).write("t", partition, records)) == []

    options = ReadOptions(batch_bytes=1 << 13, rack="b")
    found = read_and(splits, partition, cut_and_write, options)
    assert found == list(range(COUNT + more))
    assert served(cluster, 2) > COUNT * 25
    assert served(cluster, 1) > 0
