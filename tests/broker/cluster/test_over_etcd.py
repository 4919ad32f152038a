"""Three broker processes whose metadata are in etcd, each with a directory of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
import urllib.error

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.metadata.etcd.server import running_etcd
from tests.broker.partitions.load import Load, consumed, create, leader_of
from tests.broker.subject import eventually, page_at
from tidelog.broker.metadata.image_builder import ImageBuilder
from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster
from tidelog.config.broker.etcd_address import parse_etcd
from tidelog.process import BrokerFailed, BrokerProcess

pytestmark = pytest.mark.slow

LEASE_MS = 2_000
# A lease that nobody can renew is lost when the loop stands still for a third of it, as on a busy machine.
LONG_LEASE_MS = 6_000
TOPIC = {"min.insync.replicas": "2"}


def cluster_over(etcd, path, lease_ms=LEASE_MS):
    settings = {"metadata.store": etcd.url(), "broker.session.timeout.ms": lease_ms}
    return BrokerCluster(path / "data", settings=settings)


@pytest.fixture
def cluster(tmp_path, etcd):
    with cluster_over(etcd, tmp_path) as made:
        yield made


def image_of(etcd):
    """The metadata as etcd has them now."""
    from tidelog.broker.metadata.etcd.store import EtcdStore  # loads gRPC

    async def read():
        store = EtcdStore(parse_etcd(etcd.url()))
        await store.open()
        try:
            return await store.read()
        finally:
            await store.close()

    snapshot = asyncio.run(read())
    return ImageBuilder(snapshot.revision, snapshot.pairs).image


def test_a_killed_leader_is_replaced_after_its_lease_and_joins_again(cluster, etcd):
    create(cluster, "t", configs=TOPIC)
    load = Load(cluster)
    load.send("t", 500)
    load.flush()
    leader = leader_of(cluster, "t").leader
    before = image_of(etcd)

    cluster[leader].kill()
    load.send("t", 500)
    load.flush()
    after = image_of(etcd)
    assert after.topics["t"].assignments[0].leader != leader
    assert leader not in after.brokers
    assert not load.refused
    assert sorted(consumed(cluster, "t", 1000), key=int) == load.acknowledged

    cluster[leader].restart()
    registration = image_of(etcd).registrations[leader]
    assert registration.record.is_clean  # kill -9 loses nothing
    assert registration.epoch > before.registrations[leader].epoch
    eventually(lambda: len(leader_of(cluster, "t").isrs) == 3)


def started_load(cluster):
    """A producer that has its producer id, which without the metadata no broker may be able to give."""
    load = Load(cluster)
    load.send("t", 100)
    load.flush()
    return load


def refusal(cluster, name):
    """Why a topic cannot be created, as its client is told."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = admin.create_topics([NewTopic(name, 1, 3)], request_timeout=20)[name]
    with pytest.raises(KafkaException) as refused:
        made.result(40)
    return refused.value.args[0]


def can_create(cluster, name):
    try:
        create(cluster, name)
    except KafkaException as error:
        return error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    return True


def metadata_error(broker):
    """Why a broker cannot change the metadata, as it says itself."""
    return json.loads(page_at(broker.http, "/v1/cluster")[1])["own"]["metadata_error"]


def test_without_a_majority_of_etcd_data_goes_on_and_admin_says_why_not(tmp_path, capsys):
    with running_etcd(3) as etcd, cluster_over(etcd, tmp_path, LONG_LEASE_MS) as cluster:
        create(cluster, "t", configs=TOPIC)
        load = started_load(cluster)

        etcd.kill(etcd.leader())  # the others elect another one
        eventually(lambda: can_create(cluster, "with-two-members"), 60)

        left = [number for number in etcd.numbers if etcd.is_running(number)]
        etcd.kill(left[0])
        end = time.monotonic() + 1.5 * LONG_LEASE_MS / 1000  # longer than any lease lasts
        while time.monotonic() < end:
            load.send("t", 50)
            load.flush()
        assert not load.refused
        assert consumed(cluster, "t", len(load.acknowledged)) == load.acknowledged
        error = refusal(cluster, "without-a-majority")
        assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
        assert "etcd" in error.str()
        eventually(lambda: all("etcd" in str(metadata_error(each)) for each in cluster), 30)
        assert main(["cluster", "doctor", "--http", cluster[1].http]) == 1
        assert "metadata out of reach: Brokers 1, 2, 3 cannot" in capsys.readouterr().out

        etcd.restart(left[0])
        eventually(lambda: not any(metadata_error(each) for each in cluster), 60)
        eventually(lambda: can_create(cluster, "again"), 60)
        eventually(lambda: set(image_of(etcd).brokers) == {1, 2, 3}, 30)
        load.send("t", 100)
        load.flush()
        assert consumed(cluster, "t", len(load.acknowledged)) == load.acknowledged


def test_an_etcd_without_space_stops_admin_and_no_data(tmp_path, capsys):
    options = ("--quota-backend-bytes", str(1 << 20))
    with (
        running_etcd(options=options) as etcd,
        cluster_over(etcd, tmp_path, LONG_LEASE_MS) as cluster,
    ):
        create(cluster, "t", configs=TOPIC)
        load = started_load(cluster)
        for _ in range(30):  # somebody else fills it
            with contextlib.suppress(urllib.error.HTTPError):
                etcd.control("kv/put", {"key": "Zm9v", "value": "A" * 100_000})
        end = time.monotonic() + 2 * LONG_LEASE_MS / 1000
        while time.monotonic() < end:
            load.send("t", 50)
            load.flush()
        assert not load.refused
        error = refusal(cluster, "no-space")
        assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
        assert "out of space (NOSPACE)" in error.str()
        # Sessions are renewed all the same, and nothing else has been written to tell.
        eventually(lambda: all("NOSPACE" in str(metadata_error(each)) for each in cluster), 30)
        assert main(["cluster", "doctor", "--http", cluster[1].http]) == 1
        told = " ".join(capsys.readouterr().out.split())
        assert "cannot change the metadata: etcd is out of space (NOSPACE)" in told

        etcd.compact(image_of(etcd).revision)
        etcd.control("maintenance/defragment", {})
        etcd.disarm()
        eventually(lambda: can_create(cluster, "space"), 30)
        eventually(lambda: not any(metadata_error(each) for each in cluster), 30)


def test_brokers_outlive_a_restart_of_etcd(cluster, etcd):
    create(cluster, "t", configs=TOPIC)
    load = started_load(cluster)
    for how in (etcd.stop, etcd.kill):
        how(0)
        load.send("t", 100)
        load.flush()
        etcd.restart(0)
        eventually(lambda how=how: can_create(cluster, how.__name__), 30)
    assert not load.refused
    eventually(lambda: set(image_of(etcd).brokers) == {1, 2, 3}, 30)
    # They still notice each other's end.
    cluster[3].kill()
    eventually(lambda: 3 not in image_of(etcd).brokers, 30)


def test_an_id_that_another_process_has_is_refused(cluster, etcd, tmp_path):
    settings = {**cluster[1].settings, "node.id": 1, "listeners": "PLAINTEXT://127.0.0.1:0"}
    with pytest.raises(BrokerFailed, match=r"broker 1 is running already, as 127\.0\.0\.1:"):
        BrokerProcess(tmp_path / "other", settings)
    assert set(image_of(etcd).brokers) == {1, 2, 3}


def test_an_emptied_directory_waits_for_the_lease_and_starts_unclean(cluster, etcd):
    create(cluster, "t", configs=TOPIC)
    load = started_load(cluster)
    epoch = image_of(etcd).brokers[2].epoch
    cluster[2].kill()
    shutil.rmtree(cluster[2].log_dir)
    cluster[2].restart()
    image = image_of(etcd)
    assert image.brokers[2].epoch > epoch
    assert not image.registrations[2].record.is_clean
    eventually(lambda: len(leader_of(cluster, "t").isrs) == 3, 30)
    assert consumed(cluster, "t", 100) == load.acknowledged
