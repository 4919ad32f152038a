"""Numbered records that a program brings from one topic to another, or from a file: each must come once.

    numbers = Numbers(bootstrap)
    numbers.write(100)
    ...
    through_kills(numbers.write, Reader(bootstrap, "copies"), start_program, broker, ["program", "both"])
    numbers.check("copies")

What has arrived is read as read_committed. The numbers of one partition must come in their order, none twice
and none left out; where a program sums them up, each sum must be the one before it and the number.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker.asking import new_name
from tests.broker.subject import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.broker.subject import Subject

DEADLINE_S = 400  # for a start of a JVM and what it has to do on a busy machine
BETWEEN_KILLS = 100  # records
PARTITIONS = 2
ABORTED = "not to be seen"


class Got(NamedTuple):
    """One record that arrived: the number, and what the program says the sum of its partition is."""

    number: int
    total: int | None


def create(bootstrap: str, *names: str, partitions: int = PARTITIONS) -> None:
    """Makes topics, and waits until they are there."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, partitions) for name in names]).values():
        made.result(DEADLINE_S)


class Reader:
    """A consumer that follows a topic from its beginning; what it has read is kept by partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "log_level": 0}
        settings |= {"isolation.level": "read_committed", "topic.metadata.refresh.interval.ms": 500}
        self.topic = topic
        self.texts: list[list[str]] = []
        self._consumer = Consumer({**settings, "enable.partition.eof": True})
        self._ended: set[int] = set()

    def close(self) -> None:
        self._consumer.close()

    def count(self) -> int:
        """How many committed records there are by now."""
        if not self.texts:
            found = self._consumer.list_topics(self.topic, timeout=DEADLINE_S).topics[self.topic]
            self.texts = [[] for _ in found.partitions]
            places = [TopicPartition(self.topic, n, 0) for n in range(len(self.texts))]
            self._consumer.assign(places)
        for message in self._consumer.consume(1000, timeout=0.5) if self.texts else ():
            if message.error() is None:
                self.texts[message.partition()].append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition())
        return sum(map(len, self.texts))

    def to_the_end(self) -> list[list[str]]:
        """All that is committed, by partition in its order."""
        deadline = time.monotonic() + DEADLINE_S
        self.count()
        while len(self._ended) < len(self.texts):
            assert time.monotonic() < deadline, self.topic
            self.count()
        return self.texts


def read(bootstrap: str, topic: str) -> list[list[str]]:
    """What the partitions of a topic hold up to their ends, as texts in their order."""
    reader = Reader(bootstrap, topic)
    try:
        return reader.to_the_end()
    finally:
        reader.close()


def parsed(texts: Iterable[str]) -> list[Got]:
    """Records as `NUMBER` or `NUMBER TOTAL`."""
    words = [text.split() for text in texts]
    return [Got(int(first), int(rest[0]) if rest else None) for first, *rest in words]


def problems(expected: Sequence[int], got: Sequence[Got]) -> list[str]:
    """What is wrong with one partition, in words; nothing if every number is there once, in order."""
    found = []
    numbers = [one.number for one in got]
    if twice := sorted({number for number in numbers if numbers.count(number) > 1}):
        found.append(f"twice: {twice[:5]}, {len(twice)} in all")
    if missing := sorted(set(expected) - set(numbers)):
        found.append(f"missing: {missing[:5]}, {len(missing)} in all")
    if extra := sorted(set(numbers) - set(expected)):
        found.append(f"never written: {extra[:5]}")
    if not found and numbers != list(expected):
        found.append("not in order")
    total = 0
    for one in got:
        total += one.number
        if one.total is not None and one.total != total:
            found.append(f"at {one.number} the sum is {one.total}, not {total}")
            break
    return found


class Numbers:
    """A topic of numbered records; what is aborted between them must never arrive."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic = new_name("numbers")
        self.expected: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._next = 1
        create(bootstrap, self.topic)

    def write(self, count: int) -> None:
        """As many more, in a transaction, after one that is aborted."""
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": self.topic}
        producer = Producer({**settings, "log_level": 0})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(self.topic, ABORTED.encode(), partition=partition)
        assert producer.flush(DEADLINE_S) == 0
        producer.abort_transaction(DEADLINE_S)
        producer.begin_transaction()
        for number in range(self._next, self._next + count):
            partition = number % PARTITIONS
            key, value = str(partition).encode(), str(number).encode()
            producer.produce(self.topic, value, key, partition=partition)
            self.expected[partition].append(number)
        producer.commit_transaction(DEADLINE_S)
        self._next += count

    def check(self, topic: str, bootstrap: str | None = None) -> None:
        """Every number is there once, after the one before it in its partition of the source.

        By whichever partition it came: a program may choose by its own hash of the key, which is the source's
        partition, and so keeps that order.
        """
        got = [one for texts in read(bootstrap or self.bootstrap, topic) for one in parsed(texts)]
        for partition, expected in enumerate(self.expected):
            own = [one for one in got if one.number % PARTITIONS == partition]
            found = problems(expected, own)
            assert found == [], (topic, partition, found)


class Killable(Protocol):
    """A program that ends at once."""

    def kill(self) -> None: ...

    def tail(self, lines: int = ...) -> str: ...


def through_kills(
    write: Callable[[int], None],
    reader: Reader,
    start: Callable[[], Killable],
    broker: Subject,
    kills: Sequence[str],
) -> None:
    """Has a program work while it ("program"), the broker ("broker") or both ("both") are killed: kill -9.

    Each kill comes when some of what was written last has arrived, and the rest is under way. At the end all
    must arrive; the program is killed then.
    """
    written, program = 0, start()
    try:
        for killed in kills:
            before = reader.count()
            write(BETWEEN_KILLS)
            written += BETWEEN_KILLS
            said = f"something new after a kill:\n{program.tail(60)}"
            eventually(lambda before=before: reader.count() > before, DEADLINE_S, said)
            if killed != "program":
                broker.kill()
                broker.restart()
            if killed != "broker":
                program.kill()
                program = start()
        write(10)
        written += 10
        try:
            eventually(lambda: reader.count() >= written, DEADLINE_S)
        except AssertionError as error:
            said = f"{reader.count()} of {written}:\n{program.tail(60)}"
            raise AssertionError(said) from error
    finally:
        program.kill()
        reader.close()
