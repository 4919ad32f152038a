"""The client and a cluster that loses a broker: killed, hung, or cut off from the metadata.

A hung broker still accepts connections. One that is cut off still answers, and names itself as the
leader. In both cases the other brokers must be asked who leads now.
"""

from __future__ import annotations

import pytest

from tests.broker.subject import eventually
from tests.client.shells import Asyncio
from tidelog.client import Client, sync_client
from tidelog.client.appender import Appender
from tidelog.client.calls import records as calls
from tidelog.client.calls import topics
from tidelog.client.producer import Producer
from tidelog.protocol.records.batch import Record, build, records
from tidelog.protocol.records.column_batches import EncodedBatch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
REQUEST_S = 3.0
WITHIN_S = 60


@pytest.fixture(params=["sync", "asyncio"])
def client_of(request, monkeypatch):
    """A function that returns a client of a cluster, which gives up a request after 3 s."""
    monkeypatch.setattr(sync_client, "REQUEST_TIMEOUT_S", REQUEST_S)
    made = []

    def make(bootstrap):
        if request.param == "asyncio":
            shell = Asyncio(bootstrap, timeout_s=WITHIN_S, request_timeout_s=REQUEST_S)
        else:
            shell = Client(bootstrap)
        made.append(shell)
        return shell

    yield make
    for shell in made:
        shell.close()


def create(client, name, partitions=3):
    client.perform(topics.create(name, partitions, {}, replication_factor=3))


def leaders(bootstrap, topic):
    with Client(bootstrap) as client:
        return [one.leader for one in client.topics([topic])[topic].partitions]


def until_moved(cluster, partition):
    """Waits until broker 2 knows another leader of a partition than broker 1."""
    eventually(lambda: leaders(cluster[2].bootstrap, "t")[partition] not in (1, -1))


@pytest.mark.parametrize("how", ["kill", "pause", "cut"])
def test_the_next_leader_is_found_whatever_happened_to_the_first_broker(
    tidelog_cluster_factory, client_of, how
):
    cluster = tidelog_cluster_factory()
    client = client_of(cluster.bootstrap)
    create(client, "t")
    for partition in range(3):
        assert client.perform(calls.list_offset("t", partition, calls.LATEST)).offset == 0
    led = leaders(cluster.bootstrap, "t").index(1)
    getattr(cluster, how)(1)
    try:
        until_moved(cluster, led)
        fetched = client.perform(calls.fetch_records("t", led, 0, max_wait_ms=1))
        assert fetched.high_watermark == 0
        append = calls.append("t", led, build([Record(0, 5, None, b"v")]))
        client.perform(append._replace(is_repeatable=True))
        for partition in range(3):
            found = client.perform(calls.list_offset("t", partition, calls.LATEST))
            assert (found.offset > 0) == (partition == led)  # a repeated append may come twice
    finally:
        if how == "pause":
            cluster.resume(1)


@pytest.mark.parametrize("how", ["kill", "pause", "cut"])
def test_batches_in_flight_are_appended_once_at_the_next_leader(
    tidelog_cluster_factory, monkeypatch, how
):
    monkeypatch.setattr(sync_client, "REQUEST_TIMEOUT_S", REQUEST_S)
    cluster = tidelog_cluster_factory()
    with Client(cluster.bootstrap) as client:
        create(client, "t")
        producer_id, epoch = client.init_producer_id()
        led = leaders(cluster.bootstrap, "t").index(1)
        appender = Appender(client, "t", led)
        done = []
        try:
            for number in range(100):
                data = build(
                    [Record(each, 5, None, b"%d-%d" % (number, each)) for each in range(10)],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=10 * number,
                )
                done += appender.send(EncodedBatch(data, 0, 10, 10 * number))
                if number == 50:
                    getattr(cluster, how)(1)
                if number == 55:
                    until_moved(cluster, led)
            done += appender.flush()
        finally:
            if how == "pause":
                cluster.resume(1)
        assert [one.base_offset for one in done] == list(range(0, 1000, 10))
    with Client(cluster[2].bootstrap) as reader:
        found, offset = [], 0
        while offset < 1000:
            found += records(reader.fetch("t", led, offset).records)
            offset = found[-1].offset + 1
    assert [one.value for one in found] == [b"%d-%d" % divmod(each, 10) for each in range(1000)]
    assert [one.offset for one in found] == list(range(1000))


def test_brokers_that_are_down_at_the_start_do_no_harm(tidelog_cluster_factory):
    cluster = tidelog_cluster_factory()
    with Client(cluster.bootstrap) as client:
        create(client, "t")
    cluster.kill(1)
    with Client(cluster.bootstrap) as client:
        for partition in range(3):
            assert list(Producer(client).write("t", partition, [Record(0, 5, None, b"v")])) == []
            assert client.end_offset("t", partition) == 1
