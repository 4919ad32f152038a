"""Kafka Streams: words counted by day, where records of all days come in no order.

Between reading and counting lie a topic that is trimmed as it is read, and one that counts are restored from.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker.asking import create, new_name, produce
from tests.broker.subject import Subject, eventually
from tests.oracle import apache_kafka, recordset
from tests.oracle.recordset import Rec
from tests.tools import java_tools
from tests.tools.conftest import VERSIONS
from tests.tools.connect import Program

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1800)]

SOURCE = Path(__file__).with_name("WordCount.java")
DEADLINE_S = 150
DAY_MS = 86_400_000
BASE_MS = 1_577_836_800_000
WORDS = ("ebb", "flood", "moon", "neap", "spring")


@pytest.fixture
def broker(tmp_path):
    with Subject(tmp_path / "data", {"log.retention.ms": -1}) as subject:
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]


class Words:
    """What is written, and what the counts have to come to."""

    def __init__(self, broker) -> None:
        self.broker = broker
        self.app, self.lines, self.counted = new_name("app"), new_name("lines"), new_name("counted")
        self.random = random.Random(19)
        self.expected = Counter()
        self.latest = {}
        with broker.connect() as connection:
            create(connection, self.lines, 2)
            create(connection, self.counted, 1)

    def write(self, count):
        """As many lines, each on a day of some forty, before or after the one before it."""
        with self.broker.connect() as connection:
            for i in range(count):
                at = BASE_MS + self.random.randrange(-20 * DAY_MS, 20 * DAY_MS)
                words = self.random.choices(WORDS, k=3)
                records = recordset.batch([Rec(at, " ".join(words).encode())])
                answer = produce(connection, self.lines, records, partition=i % 2)
                assert answer["error_code"] == 0
                for word in words:
                    key = f"{word}@{at - at % DAY_MS}"
                    self.expected[key] += 1
                    self.latest[key] = max(at, self.latest.get(key, at))

    def counts(self):
        """Key -> the counts that were written for it, in their order, and the last one's time."""
        consumer = Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": self.app + "-r"}
        )
        part = TopicPartition(self.counted, 0, 0)
        consumer.assign([part])
        _, end = consumer.get_watermark_offsets(part, timeout=DEADLINE_S)
        found, times, at = {}, {}, 0
        while at < end:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            assert message.error() is None
            key = message.key().decode()
            found.setdefault(key, []).append(int(message.value()))
            times[key] = message.timestamp()[1]
            at = message.offset() + 1
        consumer.close()
        return found, times

    def all_counted(self):
        return sum(map(len, self.counts()[0].values())) >= self.expected.total()

    def start(self, version, directory):
        topics = (self.lines, self.counted)
        state = directory / "state"
        arguments = (self.broker.bootstrap, self.app, *topics, state)
        return Program(version, f"streams-{version}", str(SOURCE), directory, *arguments)

    def offsets(self, topic, timestamp):
        """The sum of the starts (-2) or ends (-1) of the topic's two partitions."""
        parts = [{"partition_index": i, "timestamp": timestamp} for i in (0, 1)]
        with self.broker.connect() as connection:
            answer = connection.ask(
                "ListOffsets", 5, replica_id=-1, topics=[{"name": topic, "partitions": parts}]
            )
        return sum(each["offset"] for each in answer["topics"][0]["partitions"])

    def purged(self):
        """Whether something of what is counted has been removed from between reading and counting."""
        return self.offsets(f"{self.app}-words-repartition", -2) > 0

    def take_leave(self):
        """For the member that Streams leaves in its group when it stops, as an operator does."""
        with self.broker.connect() as connection:
            (told,) = connection.ask("DescribeGroups", 5, groups=[self.app])["groups"]
            names = [each["member_id"] for each in told["members"]]
            who = {"group_instance_id": None, "reason": "it has stopped"}
            gone = [{"member_id": name, **who} for name in names]
            answer = connection.ask("LeaveGroup", 5, group_id=self.app, members=gone)
        assert [each["error_code"] for each in answer["members"]] == [0] * len(gone)

    def settings(self, topic):
        resource = {"resource_type": 2, "resource_name": topic}
        with self.broker.connect() as connection:
            answer = connection.ask("DescribeConfigs", 4, resources=[resource])
        return {each["name"]: each["value"] for each in answer["results"][0]["configs"]}


def test_words_by_day(broker, tmp_path):
    """Counted by one version; its state thrown away, restored and counted further by the next."""
    for version in VERSIONS:
        for kind in ("connect", "tools"):
            usable = apache_kafka.available(f"{kind}-{version}")
            if not usable:
                pytest.skip(usable.reason)
    words = Words(broker)
    for version in VERSIONS:
        if version != VERSIONS[0]:
            words.take_leave()
        words.write(60)
        program = words.start(version, tmp_path)
        try:
            eventually(words.all_counted, DEADLINE_S, f"counts:\n{program.tail(60)}")
            # Streams removes what it has committed, now and then; what is counted is not kept twice.
            eventually(words.purged, DEADLINE_S, "a topic that is trimmed")
        finally:
            program.stop()
        shutil.rmtree(tmp_path / "state")
    counts, times = words.counts()
    assert counts == {key: list(range(1, n + 1)) for key, n in words.expected.items()}
    assert times == words.latest
    between, store = f"{words.app}-words-repartition", f"{words.app}-counts-changelog"
    assert words.settings(between)["cleanup.policy"] == "delete"
    assert set(words.settings(store)["cleanup.policy"].split(",")) == {"compact", "delete"}
    assert words.offsets(between, -1) == words.expected.total()
    check_reset(words, tmp_path)


def check_reset(words, directory):
    """Kafka's tool turns the members out that nobody took leave of, removes topics, and begins anew."""
    reset = java_tools.start(
        VERSIONS[-1],
        "kafka-streams-application-reset",
        *("--bootstrap-server", words.broker.bootstrap, "--application-id", words.app),
        *("--input-topics", words.lines, "--force"),
        directory=directory,
    )
    assert reset.process.wait(DEADLINE_S) == 0, reset.tail(60)
    assert "Force deleting all active members" in reset.out.read_text()
    with words.broker.connect() as connection:
        topics = {each["name"] for each in connection.ask("Metadata", 9, topics=None)["topics"]}
    assert {each for each in topics if each[:2] != "__"} == {words.lines, words.counted}
    consumer = Consumer({"bootstrap.servers": words.broker.bootstrap, "group.id": words.app})
    parts = consumer.committed([TopicPartition(words.lines, i) for i in (0, 1)], timeout=20)
    consumer.close()
    assert [part.offset for part in parts] == [0, 0]
