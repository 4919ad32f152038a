"""Words for `WordCount.java`: lines on days in no order, and what the counts have to come to."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.asking import new_name
from tests.oracle import wire
from tests.tools.connect import Program

SOURCE = Path(__file__).with_name("WordCount.java")
DEADLINE_S = 150
DAY_MS = 86_400_000
BASE_MS = 1_577_836_800_000
WORDS = ("ebb", "flood", "moon", "neap", "spring")
PARTITIONS = 2


class Words:
    """What is written, and what the counts have to come to."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.app, self.lines, self.counted = new_name("app"), new_name("lines"), new_name("counted")
        self.random = random.Random(19)
        self.expected: Counter[str] = Counter()
        self.latest: dict[str, int] = {}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wanted = [NewTopic(self.lines, PARTITIONS), NewTopic(self.counted, 1)]
        for made in admin.create_topics(wanted).values():
            made.result(DEADLINE_S)

    def write(self, count: int) -> None:
        """As many lines, each on a day of some forty, before or after the one before it."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True})
        told = []
        for i in range(count):
            at = BASE_MS + self.random.randrange(-20 * DAY_MS, 20 * DAY_MS)
            words = self.random.choices(WORDS, k=3)
            producer.produce(
                self.lines,
                " ".join(words).encode(),
                partition=i % PARTITIONS,
                timestamp=at,
                on_delivery=lambda error, _: told.append(error),
            )
            for word in words:
                key = f"{word}@{at - at % DAY_MS}"
                self.expected[key] += 1
                self.latest[key] = max(at, self.latest.get(key, at))
        assert producer.flush(DEADLINE_S) == 0
        assert told == [None] * count

    def counts(self) -> tuple[dict[str, list[int]], dict[str, int]]:
        """Key -> the counts that were written for it, in their order, and the last one's time."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": self.app + "-r"}
        consumer = Consumer({**settings, "enable.partition.eof": True})
        consumer.assign([TopicPartition(self.counted, 0, 0)])
        found: dict[str, list[int]] = {}
        times: dict[str, int] = {}
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                break
            key = message.key().decode()
            found.setdefault(key, []).append(int(message.value()))
            times[key] = message.timestamp()[1]
        consumer.close()
        return found, times

    def check(self) -> None:
        """Every count follows the one before it, and the last ones have the latest times."""
        counts, times = self.counts()
        assert counts == {key: list(range(1, n + 1)) for key, n in self.expected.items()}
        assert times == self.latest

    def number_counted(self) -> int:
        return sum(map(len, self.counts()[0].values()))

    def all_counted(self) -> bool:
        return self.number_counted() >= self.expected.total()

    def start(self, version: str, directory: Path, *guarantee: str) -> Program:
        topics = (self.lines, self.counted)
        state = directory / "state"
        arguments = (self.bootstrap, self.app, *topics, state, *guarantee)
        return Program(version, f"streams-{version}", str(SOURCE), directory, *arguments)

    def offsets(self, topic: str) -> tuple[int, int]:
        """The sums of the starts and of the ends of the topic's partitions."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.app + "-r"})
        try:
            found = [
                consumer.get_watermark_offsets(TopicPartition(topic, i), timeout=DEADLINE_S)
                for i in range(PARTITIONS)
            ]
        finally:
            consumer.close()
        return sum(start for start, _ in found), sum(end for _, end in found)

    def purged(self) -> bool:
        """Whether something of what is counted has been removed from between reading and counting."""
        return self.offsets(f"{self.app}-words-repartition")[0] > 0

    def take_leave(self, coordinator: str) -> None:
        """For the member that Streams leaves in its group when it stops, as an operator does."""
        with wire.Connection(coordinator) as connection:
            (told,) = connection.ask("DescribeGroups", 5, groups=[self.app])["groups"]
            names = [each["member_id"] for each in told["members"]]
            who = {"group_instance_id": None, "reason": "it has stopped"}
            gone = [{"member_id": name, **who} for name in names]
            answer = connection.ask("LeaveGroup", 5, group_id=self.app, members=gone)
        assert [each["error_code"] for each in answer["members"]] == [0] * len(gone)
