"""What only leaders know, asked of a broker that leads a third of a topic, or has no replica of it.

Every route below /v1 and every command that reads a log's state gives the same answer at each broker.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tidelog.cli.parser import main
from tidelog.cluster import BrokerCluster

START_MS = 1_767_225_600_000
HOUR_MS = 3_600_000
RECORDS = 6  # of each partition, each in a segment of its own
BROKERS = (1, 2, 3)
TOPICS = ("spread", "lone")  # with three replicas of each partition, and with one


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    settings = {"clock.start.ms": START_MS, "log.retention.check.interval.ms": 10**12}
    with BrokerCluster(
        tmp_path_factory.mktemp("led") / "data", 3, settings, clock="manual"
    ) as made:
        for topic, replicas in zip(TOPICS, (3, 1), strict=True):
            fill(made, topic, replicas)
        yield made


def fill(cluster, topic, replicas):
    """Creates a topic with a partition on each broker, and appends records that are two hours old."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    configs = {"segment.bytes": "1024", "retention.ms": "-1"}
    admin.create_topics([NewTopic(topic, 3, replicas, config=configs)])[topic].result(30)
    leaders = {each.leader for each in admin.list_topics(topic).topics[topic].partitions.values()}
    assert leaders == set(BROKERS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(RECORDS):
        for partition in range(3):
            at = START_MS - 2 * HOUR_MS + number
            producer.produce(topic, b"v" * 800, partition=partition, timestamp=at)
        assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"of-{topic}"})
    read = [TopicPartition(topic, partition, 2) for partition in range(3)]
    consumer.commit(offsets=read, asynchronous=False)
    consumer.close()


def ask(broker, path):
    """Status and JSON of a path below /v1."""
    try:
        with urllib.request.urlopen(f"http://{broker.http}/v1{path}", timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def run(capsys, broker, *command):
    """Exit status, what it printed, and what it complained of."""
    capsys.readouterr()
    status = main([*command, "--http", broker.http])
    return status, *capsys.readouterr()


ROUTES = (
    "/topics/{}/explain",
    "/topics/{}/explain?set=retention.ms=1h",
    "/topics/{}/explain?partition=1",
    "/topics/{}/offsets",
    "/topics/{}/offsets?isolation=read_committed",
    f"/topics/{{}}/offsets?at={START_MS - 2 * HOUR_MS + 3}",
    f"/topics/{{}}/offsets?at={START_MS - 2 * HOUR_MS + 3}&capped=true&partition=2",
    "/topics/{}/offsets?at=-1&shift=true",
    "/topics/{}/offsets?appended-at=-1h",
    "/topics/{}/clock",
    "/doctor?topic={}",
    "/doctor?topic={}&partition=0",
    *(f"/topics/{{}}/partitions/{number}/records/3/times" for number in range(3)),
    *(f"/topics/{{}}/partitions/{number}/records/3/times?next=true" for number in range(3)),
    *(f"/topics/{{}}/partitions/{number}/records/99/times" for number in range(3)),
)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("route", ROUTES)
def test_every_broker_answers_as_the_leaders_do(cluster, route, topic):
    first, *others = (ask(cluster[broker], route.format(topic)) for broker in BROKERS)
    if "/clock" in route:
        asked = [answer.pop("broker") for _, answer in (first, *others)]
        assert asked == list(BROKERS)
    assert others == [first, first]
    status, answer = first
    assert status == (404 if "/99/" in route else 200)
    if "partitions" in answer:
        assert not any("error" in row for row in answer["partitions"])
        asked_for = int(route[-1]) if "partition=" in route else None
        expected = range(3) if asked_for is None else [asked_for]
        assert [row["partition"] for row in answer["partitions"]] == list(expected)
    if "explain" in route:
        assert all(len(row["segments"]) >= RECORDS for row in answer["partitions"])


def test_a_diagnosis_examines_every_log_once(cluster):
    for broker in BROKERS:
        _, answer = ask(cluster[broker], "/doctor")
        offsets_topic = 50
        assert answer["partitions_examined"] == 6 + offsets_topic
        assert (answer["errors"], answer["findings"]) == ([], [])


COMMANDS = (
    ("explain", "{}", "--why"),
    ("explain", "{}", "--set", "retention.ms=1h"),
    ("offsets", "{}"),
    ("offsets", "{}", "--appended-at", "-1h"),
    ("times", "{}", "0", "3"),
    ("times", "{}", "2", "3"),
    ("doctor", "{}"),
    ("clock", "reset", "{}", "--dry-run"),
)
ASKING_BOTH = (
    ("delete-records", "{}", "--before", "-1h", "--dry-run"),
    ("delete-records", "{}", "--before", "-1h", "--appended", "--dry-run"),
    ("groups", "describe", "of-{}", "--json"),
    ("groups", "reset-offsets", "of-{}", "{}", "--to-time", "-1h", "--by", "append", "--dry-run"),
    ("consume", "{}", "--json"),
)


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("command", [*COMMANDS, *ASKING_BOTH], ids="-".join)
def test_every_command_says_the_same_at_each_broker(cluster, command, topic, capsys):
    told = []
    for broker in BROKERS:
        given = [each.format(topic) for each in command]
        if command in ASKING_BOTH:
            given += ["--broker", cluster[broker].bootstrap]
        status, out, err = run(capsys, cluster[broker], *given)
        assert (status, err) == (0, "")
        told.append(sorted(out.splitlines()))  # records of several partitions come in any order
    assert told[1:] == [told[0], told[0]]
    assert "error" not in " ".join(told[0]).lower()


@pytest.mark.parametrize("topic", TOPICS)
def test_a_change_that_deletes_is_refused_at_every_broker_with_the_sum_of_all(
    cluster, topic, capsys
):
    refusals = set()
    for broker in BROKERS:
        change = ("configs", "set", topic, "retention.ms=1h", "--broker", cluster[broker].bootstrap)
        status, out, err = run(capsys, cluster[broker], *change)
        assert (status, out) == (2, "")
        refusals.add(err)
    (refusal,) = refusals
    assert f"{3 * RECORDS} records" in refusal
    assert "add --yes" in refusal
