"""Replication quotas between real brokers: what is not in sync is copied at the rate, the rest at once."""

from __future__ import annotations

import re
import time

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from tests.broker.subject import eventually, page_at
from tidelog.client import Client
from tidelog.client.calls import reassignments
from tidelog.client.calls import settings as setting_calls
from tidelog.client.calls import topics as topic_calls
from tidelog.client.calls.settings import Resource
from tidelog.cluster import BrokerCluster

pytestmark = pytest.mark.slow

MB = 1_000_000
LEADER_RATE, FOLLOWER_RATE = (
    f"{side}.replication.throttled.rate" for side in ("leader", "follower")
)
LEADERS, FOLLOWERS = (f"{side}.replication.throttled.replicas" for side in ("leader", "follower"))
SETTINGS = {
    "log.retention.ms": -1,
    "replica.fetch.max.bytes": 250_000,
    "replication.quota.window.num": 2,  # so little may be made up for that was not copied before
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with BrokerCluster(tmp_path_factory.mktemp("throttled") / "data", 3, SETTINGS) as found:
        yield found


@pytest.fixture
def client(cluster):
    with Client(cluster.bootstrap) as found:
        yield found
        for broker in (1, 2, 3):
            rates = {LEADER_RATE: None, FOLLOWER_RATE: None}
            found.perform(setting_calls.alter(Resource(node_id=broker), rates))


def produced(cluster, name, replicas, size, count=1):
    """Creates a topic, and writes so many bytes to each of its partitions."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic(name, count, replica_assignment=[replicas] * count)
    admin.create_topics([topic])[name].result(30)
    for index in range(count):
        write(cluster, name, size, index)


def write(cluster, name, size, index=0):
    """Writes so many bytes with acks=all; returns how many seconds that took."""
    settings = {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.size": 100_000}
    producer = Producer(settings)
    began_s = time.monotonic()
    for _ in range(size // 10_000):
        producer.produce(name, b"v" * 9_900, partition=index)
    assert producer.flush(60) == 0
    return time.monotonic() - began_s


def isr(client, name):
    (topic,) = client.perform(topic_calls.describe([name])).topics
    return set(topic.partitions[0].isr_nodes)


def seconds_to_move(client, name, replicas):
    began_s = time.monotonic()
    assert client.perform(reassignments.reassign({(name, 0): replicas})) == {}
    eventually(lambda: isr(client, name) == set(replicas), 60)
    return time.monotonic() - began_s


@pytest.mark.parametrize(
    ("rate", "replicas", "listed", "limited", "move"),
    [
        (LEADER_RATE, LEADERS, "0:3", [3], (3, 1)),
        (FOLLOWER_RATE, FOLLOWERS, "0:3", [3], (1, 3)),
        (LEADER_RATE, LEADERS, "*", [1, 2, 3], (2, 1)),
    ],
)
def test_what_is_not_in_sync_is_copied_at_the_rate(
    cluster, client, rate, replicas, listed, limited, move
):
    """Windows in which little was copied allow more now, as Kafka's do: here two seconds of them."""
    source, target = move
    name = f"moved-{source}-{target}"
    produced(cluster, name, [source], 4 * MB)
    for broker in limited:
        client.perform(setting_calls.alter(Resource(node_id=broker), {rate: str(MB)}))
    client.perform(setting_calls.alter(Resource(name), {replicas: listed}))
    took_s = seconds_to_move(client, name, [source, target])
    # The last fetch need not be waited for, nor what the windows before it allow.
    assert 1 < took_s < 12


def byte_rate(cluster, broker, side):
    _, page = page_at(cluster[broker].http, "/metrics")
    (line,) = re.findall(rf"^kafka_server_{side}replication_byte_rate (.+)$", page, re.MULTILINE)
    return float(line)


def test_the_rate_of_throttled_replicas_is_a_metric(cluster, client):
    produced(cluster, "measured", [1], MB)
    lists = {LEADERS: "*", FOLLOWERS: "*"}  # without a rate: nothing waits, the bytes count
    client.perform(setting_calls.alter(Resource("measured"), lists))

    def rates_while_copied():
        """The rates of both sides. A broker that has not heard of the lists yet counts nothing."""
        seconds_to_move(client, "measured", [1, 2])
        found = byte_rate(cluster, 1, "leader"), byte_rate(cluster, 2, "follower")
        seconds_to_move(client, "measured", [1])
        return found

    try:
        assert any(min(rates_while_copied()) > 50_000 for _ in range(5))
    finally:
        client.perform(setting_calls.alter(Resource("measured"), dict.fromkeys(lists)))


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_alter_configs_replaces_what_one_broker_has_alone(cluster, client):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def replace(settings):
        resource = ConfigResource(ConfigResource.Type.BROKER, "2", set_config=settings)
        (done,) = admin.alter_configs([resource]).values()
        done.result(30)

    def rates():
        names = [LEADER_RATE, FOLLOWER_RATE]
        entries = client.perform(setting_calls.describe(Resource(node_id=2), names=names))
        return {entry.name: entry.value for entry in entries}

    unlimited = str(2**63 - 1)
    replace({LEADER_RATE: "7", FOLLOWER_RATE: "8"})
    eventually(lambda: rates() == {LEADER_RATE: "7", FOLLOWER_RATE: "8"})
    replace({FOLLOWER_RATE: "9"})
    eventually(lambda: rates() == {LEADER_RATE: unlimited, FOLLOWER_RATE: "9"})
    replace({})
    eventually(lambda: rates() == {LEADER_RATE: unlimited, FOLLOWER_RATE: unlimited})


def test_the_rate_of_one_broker_is_kept_when_it_starts_again(cluster, client):
    client.perform(setting_calls.alter(Resource(node_id=3), {FOLLOWER_RATE: "700"}))
    assert cluster.stop(3) == 0
    cluster.restart(3)
    call = setting_calls.describe(Resource(node_id=3), names=[FOLLOWER_RATE])
    (entry,) = client.perform(call)
    assert entry.value == "700"


def test_without_the_replica_in_the_list_nothing_waits(cluster, client):
    produced(cluster, "free", [1], 4 * MB)
    for broker in (1, 2):
        rates = {LEADER_RATE: "1000", FOLLOWER_RATE: "1000"}
        client.perform(setting_calls.alter(Resource(node_id=broker), rates))
    lists = {LEADERS: "0:2,0:3,1:1", FOLLOWERS: "0:1,0:3,1:2"}
    client.perform(setting_calls.alter(Resource("free"), lists))
    seconds_to_move(client, "free", [1, 2])  # at 1000 bytes a second it would take an hour


def test_replicas_in_sync_are_never_held_back(cluster, client):
    produced(cluster, "in-sync", [1, 2], 10_000)
    eventually(lambda: isr(client, "in-sync") == {1, 2}, 30)
    client.perform(setting_calls.alter(Resource("in-sync"), {LEADERS: "*", FOLLOWERS: "*"}))
    for broker in (1, 2):
        rates = {LEADER_RATE: "1000", FOLLOWER_RATE: "1000"}
        client.perform(setting_calls.alter(Resource(node_id=broker), rates))
    assert write(cluster, "in-sync", 4 * MB) < 20  # at 1000 bytes a second it would take an hour
    assert isr(client, "in-sync") == {1, 2}


def test_while_the_rate_is_exceeded_no_answer_brings_records_and_then_all_do(cluster, client):
    """A follower out of sync is answered each half second, whether or not it may get records."""
    name, partitions = "due", range(8)
    produced(cluster, name, [1], MB, count=len(partitions))
    client.perform(setting_calls.alter(Resource(node_id=1), {LEADER_RATE: "1000"}))
    client.perform(setting_calls.alter(Resource(name), {LEADERS: "*"}))
    moves = {(name, index): [1, 2] for index in partitions}
    assert client.perform(reassignments.reassign(moves)) == {}
    time.sleep(4)
    (topic,) = client.perform(topic_calls.describe([name])).topics
    assert [set(each.isr_nodes) for each in topic.partitions] == [{1}] * len(partitions)
    client.perform(setting_calls.alter(Resource(name), {LEADERS: None}))
    eventually(lambda: isr(client, name) == {1, 2}, 30)


def test_a_rate_of_one_broker_wins_over_that_of_all_and_is_described_so(client):
    client.perform(setting_calls.alter(Resource(), {LEADER_RATE: "7000"}))
    client.perform(setting_calls.alter(Resource(node_id=2), {LEADER_RATE: "5000"}))
    try:
        found = {}
        for broker in (1, 2):
            call = setting_calls.describe(
                Resource(node_id=broker), names=[LEADER_RATE], with_synonyms=True
            )
            (entry,) = client.perform(call)
            found[broker] = [(value, source) for _, value, source in entry.synonyms]
        unlimited = (str(2**63 - 1), 5)
        assert found == {
            1: [("7000", 3), unlimited],
            2: [("5000", 2), ("7000", 3), unlimited],
        }
        (of_all,) = client.perform(setting_calls.describe(Resource(), names=[LEADER_RATE]))
        assert of_all.value == "7000"
    finally:
        client.perform(setting_calls.alter(Resource(), {LEADER_RATE: None}))
