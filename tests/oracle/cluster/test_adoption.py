"""Three brokers of Kafka 3.9.1 stop one after another, and three of tidelog go on with their directories.

Broker 1 is killed first, so that its logs are shorter than those of the others; the last one cannot
hand over and is killed, too. Then every record that was acknowledged with acks=all is read once, with
its offset and time, groups go on where they were, and the replicas become equal.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests import committing
from tests.oracle import apache_kafka as launcher
from tests.oracle.apache_kafka_cluster import ApacheKafkaCluster
from tidelog.cluster import BrokerCluster
from tidelog.protocol.records import batch

PARTITIONS = 3
FIRST_MS = 1_600_000_000_000  # of 2020: only retention.ms=-1 of the topic keeps it
BROKERS = (1, 2, 3)
GROUP = "readers"
WITHIN_S = 120
SETTINGS = {
    "broker.session.timeout.ms": 9000,
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "metadata.log.max.record.bytes.between.snapshots": 1000,  # its metadata are in snapshots as well
}
LASTS = {"retention.ms": "-1", "min.insync.replicas": "2"}


class Sent:
    """What was acknowledged: (partition, offset) -> (time, value)."""

    def __init__(self):
        self.records = {}

    def send(self, bootstrap, tag, count):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True}
        )

        def acknowledged(error, message):
            assert error is None, error
            place = (message.partition(), message.offset())
            assert place not in self.records
            self.records[place] = (message.timestamp()[1], message.value().decode())

        for at in range(count):
            time_ms = FIRST_MS + (at * 37) % 1000
            producer.produce(
                "orders", f"{tag}{at}", str(at), timestamp=time_ms, on_delivery=acknowledged
            )
        assert producer.flush(WITHIN_S) == 0


def read_all(bootstrap, count):
    """All records of the topic from the start, as `Sent` has them, each once."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "all", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("orders", index, 0) for index in range(PARTITIONS)])
    found = {}
    deadline = time.monotonic() + WITHIN_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None or message.error():
            continue
        place = (message.partition(), message.offset())
        assert place not in found
        found[place] = (message.timestamp()[1], message.value().decode())
    consumer.close()
    return found


def of_the_group(bootstrap):
    return {"bootstrap.servers": bootstrap, "group.id": GROUP}


def commit(bootstrap, offsets):
    committing.commit(of_the_group(bootstrap), "orders", dict(enumerate(offsets)))


def committed(bootstrap):
    return committing.committed(of_the_group(bootstrap), "orders", PARTITIONS)


def live_through(directory, sent):
    """Kafka's cluster from its first record to its end; returns its cluster id and the group's offsets."""
    with ApacheKafkaCluster("3.9.1", directory, properties=SETTINGS, jvm=launcher.QUICK) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for made in admin.create_topics(
            [
                NewTopic("orders", PARTITIONS, 3, config=LASTS),
                NewTopic("state", 1, 3, config={"cleanup.policy": "compact"}),
            ]
        ).values():
            made.result(WITHIN_S)
        sent.send(kafka.bootstrap, "a", 300)
        commit(kafka.bootstrap, [10, 20, 30])
        kafka.kill(1)
        sent.send(kafka.bootstrap, "b", 300)
        commit(kafka.bootstrap, offsets := [40, 50, 60])
        cluster_id = admin.list_topics(timeout=WITHIN_S).cluster_id
        kafka.stop_one(2)
        kafka.kill(3)  # without a quorum nobody answers its request to stop
    return cluster_id, offsets


def wait_until_in_sync(admin):
    deadline = time.monotonic() + WITHIN_S
    while any(
        len(one.isrs) < len(BROKERS)
        for one in admin.list_topics(timeout=WITHIN_S).topics["orders"].partitions.values()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def adopt(*arguments, succeeds=True):
    done = subprocess.run(
        [sys.executable, "-m", "tidelog", "adopt", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
    )
    assert (done.returncode == 0) == succeeds, done.stderr
    return done.stdout if succeeds else done.stderr


def stored(directory, index):
    """The records of one replica of a partition, by the bytes of its log."""
    found = []
    for path in sorted((directory / f"orders-{index}").glob("*.log")):
        data = path.read_bytes()
        for each in batch.scan(data):
            found += [
                (each.leader_epoch, one.offset, one.timestamp, one.key, one.value)
                for one in batch.records(data, each)
            ]
    return found


def adopted(tmp_path, places, database):
    """What `adopt apply` says in the end; before that it refuses a broker too few, and a foreign one."""
    files = [tmp_path / f"broker-{broker}.json" for broker in BROKERS]
    for broker, file in zip(BROKERS, files, strict=True):
        adopt("inspect", "--log-dirs", places[broker], "--out", file)
    store = f"metadata.store=sqlite:{database}"
    told = adopt("apply", "--set", store, *files[:2], succeeds=False)
    assert "has replicas on brokers 3, whose directories are not here" in told
    foreign = tmp_path / "foreign.json"
    foreign.write_text(json.dumps(json.loads(files[2].read_text()) | {"cluster_id": "another"}))
    assert "different clusters" in adopt(
        "apply", "--set", store, *files[:2], foreign, succeeds=False
    )
    return adopt("apply", "--set", store, *files)


@pytest.mark.oracle
@pytest.mark.timeout(900)
def test_the_directories_of_three_brokers_of_kafka_are_those_of_three_of_tidelog(
    tmp_path, summarize
):
    launcher.require("3.9.1")
    sent = Sent()
    cluster_id, offsets = live_through(tmp_path / "kafka", sent)

    # Laid out as the brokers of one machine have it.
    here = tmp_path / "tidelog"
    places = {each: here if each == 1 else here / "brokers" / str(each) for each in BROKERS}
    for broker in BROKERS:
        shutil.copytree(
            tmp_path / "kafka" / str(broker) / "data", places[broker], dirs_exist_ok=True
        )
    shorter = [
        len(stored(places[1], index)) < len(stored(places[3], index)) for index in range(PARTITIONS)
    ]
    assert any(shorter), "broker 1 was killed first, so it has less"
    snapshots = (places[3] / "__cluster_metadata-0").glob("*.checkpoint")
    assert any(int(each.name[:20]) > 0 for each in snapshots)
    told = adopted(tmp_path, places, here / "tidelog.sqlite")
    assert f"Cluster {cluster_id} begins with 3 topics and 7 partitions" in told

    with BrokerCluster(here) as cluster:
        assert cluster.cluster_id == cluster_id
        assert read_all(cluster.bootstrap, len(sent.records)) == sent.records
        assert committed(cluster.bootstrap) == offsets
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        named = admin.list_topics(timeout=WITHIN_S).topics
        replicas = {index: set(one.replicas) for index, one in named["orders"].partitions.items()}
        assert replicas == {index: set(BROKERS) for index in range(PARTITIONS)}
        (described,) = admin.describe_configs([ConfigResource("topic", "orders")]).values()
        settings = described.result(WITHIN_S)
        assert {name: settings[name].value for name in LASTS} == LASTS
        (described,) = admin.describe_configs([ConfigResource("topic", "state")]).values()
        assert described.result(WITHIN_S)["cleanup.policy"].value == "compact"
        before = len(sent.records)
        sent.send(cluster.bootstrap, "c", 100)  # with a producer id that Kafka has given nobody
        assert len(sent.records) == before + 100
        assert read_all(cluster.bootstrap, len(sent.records)) == sent.records
        commit(cluster.bootstrap, [70, 80, 90])
        assert committed(cluster.bootstrap) == [70, 80, 90]
        wait_until_in_sync(admin)
    for index in range(PARTITIONS):
        ours = [stored(places[broker], index) for broker in BROKERS]
        assert ours[0] == ours[1] == ours[2]
        assert [one[1] for one in ours[0]] == sorted(
            {place[1] for place in sent.records if place[0] == index}
        )
    summarize(
        "adoption of three brokers of Kafka 3.9.1",
        f"{len(sent.records)} records, each once with its offset and time; {sum(shorter)} of "
        f"{PARTITIONS} logs of the killed broker were shorter",
    )
