"""MirrorMaker 2 between two clusters of three brokers: there, and renamed back, while brokers are killed.

What is written `here` is mirrored `there`, and from there `back`, which is the first cluster by another name.
MirrorMaker promises each record at least once, in order: what it was not told is stored it writes again.
Stopped in order and started again it writes none twice.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack, closing, contextmanager

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests import committing
from tests.broker.subject import eventually
from tests.oracle import apache_kafka
from tests.tools.cluster.three import COUNT, Three
from tests.tools.conftest import VERSIONS
from tests.tools.connect import MIRROR_MAKER, PATIENT, Program, mirroring, properties

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]

DEADLINE_S = 150
PARTITIONS = 3
RECORDS = 60
BEGIN_MS, STEP_MS, TURN = 1_600_000_000_000, 3_600_000, 7
KEEP = {"log.retention.ms": -1}  # the times below are years ago
INTERVALS = (
    "refresh.topics",
    "refresh.groups",
    "sync.topic.configs",
    "emit.checkpoints",
    "sync.group.offsets",
)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The second cluster."""
    with Three(tmp_path_factory.mktemp("other"), KEEP) as found:
        yield found


def time_of(number):
    """The time of a record: hours that go up and down."""
    return BEGIN_MS + (number * TURN % RECORDS) * STEP_MS


class Written:
    """Numbered records of a topic: number N goes to partition N mod 3."""

    def __init__(self, bootstrap, topic):
        self.bootstrap, self.topic, self.count = bootstrap, topic, 0
        settings = {"min.insync.replicas": "2"}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        wanted = NewTopic(topic, PARTITIONS, COUNT, config=settings)
        admin.create_topics([wanted])[topic].result(DEADLINE_S)
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})

    def give(self, count=RECORDS):
        """Writes more, each once."""
        for number in range(self.count, self.count + count):
            text = str(number).encode()
            headers = [("from", b"here"), ("number", text)]
            place = (self.topic, text, text, number % PARTITIONS)
            self._producer.produce(*place, timestamp=time_of(number), headers=headers)
        assert self._producer.flush(DEADLINE_S) == 0
        self.count += count

    def numbers(self, partition):
        """The numbers in a partition."""
        return list(range(partition, self.count, PARTITIONS))

    def commit(self, group):
        """Commits for a group that it has read all."""
        ends = {partition: len(self.numbers(partition)) for partition in range(PARTITIONS)}
        settings = {"bootstrap.servers": self.bootstrap, "group.id": group}
        committing.commit(settings, self.topic, ends)


class Mirrored:
    """A mirror of a topic as a consumer sees it: all has the times, keys and headers of the origin."""

    def __init__(self, bootstrap, topic, written):
        self.bootstrap, self.topic, self._written = bootstrap, topic, written
        self._seen = defaultdict(list)  # by partition, numbers
        config = {"group.id": "judge", "enable.auto.commit": False}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **config})
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])

    def close(self):
        self._consumer.close()

    @property
    def count(self):
        """How many records were seen, with those that are there twice."""
        return sum(map(len, self._seen.values()))

    def is_whole(self):
        """Whether every record was seen at least once; first looks at what has come."""
        for message in self._consumer.consume(1000, timeout=0.1):
            if message.error() is None:  # the topic is not there at first
                self._see(message)
        seen = {number for numbers in self._seen.values() for number in numbers}
        return seen == set(range(self._written.count))

    def _see(self, message):
        number = int(message.value())
        text = message.value()
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, time_of(number))
        assert message.key() == text
        assert message.headers() == [("from", b"here"), ("number", text)]
        assert message.offset() == len(self._seen[message.partition()])
        self._seen[message.partition()].append(number)

    def check_order(self):
        """Each record is where it came first in the order of the origin."""
        for partition in range(PARTITIONS):
            first = list(dict.fromkeys(self._seen[partition]))
            assert first == self._written.numbers(partition), f"{self.topic}-{partition}"

    def is_followed(self, group):
        """Whether the group goes on after the last record, in every partition."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": group}
        for partition, offset in enumerate(committing.committed(settings, self.topic, PARTITIONS)):
            numbers = self._seen[partition]
            if offset < 1 or offset > len(numbers):
                return False
            before, after = numbers[:offset], numbers[offset:]
            if before[-1] != self._written.numbers(partition)[-1] or not set(after) <= set(before):
                return False
        return True


def names(version):
    """The names of here, there and back: each version has its own, and so its own internal topics."""
    return tuple(f"{name}{version.replace('.', '')}" for name in ("here", "there", "back"))


def settings(version, first, second, topic):
    """MirrorMaker's own settings: from here to there, from there back, and everything once a second."""
    here, there, back = names(version)
    own = {f"{each}.interval.seconds": 1 for each in INTERVALS}
    for target in (there, back):
        worker = {"offset.flush.interval.ms": 500, "session.timeout.ms": 60_000, **PATIENT}
        # Without it a leader that moves makes Connect write some records twice.
        worker["producer.enable.idempotence"] = "true"
        own |= {f"{target}.{name}": value for name, value in worker.items()}
    return mirroring(
        {here: first, there: second, back: first},
        {f"{here}->{there}": topic, f"{there}->{back}": f"{here}.{topic}"},
        COUNT,
        **{
            "groups": topic,
            "tasks.max": 2,
            "emit.heartbeats.enabled": "false",
            "sync.group.offsets.enabled": "true",
            "offset.lag.max": 0,
            "offset.storage.partitions": PARTITIONS,
            **own,
        },
    )


@contextmanager
def running(version, directory, own):
    program = Program(
        version, "mirror", MIRROR_MAKER, directory, properties(directory, "mirror", own)
    )
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{program.tail(30)}\n\n{error}") from error
    finally:
        program.stop()


def leader(cluster, topic):
    """Who leads the first partition of a topic, as soon as somebody does."""
    return eventually(lambda: max(0, cluster.leader(topic)), DEADLINE_S)


def is_in_sync(cluster):
    return all(sorted(each["isr"]) == [1, 2, 3] for each in cluster.partitions())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_mirror_there_and_back_though_brokers_are_killed(version, three, other, tmp_path):
    apache_kafka.require(f"connect-{version}")
    here, there, _ = names(version)
    topic = f"kept-{version}"
    written = Written(three.bootstrap, topic)
    written.give()
    own = settings(version, three.bootstrap, other.bootstrap, topic)
    with ExitStack() as stack:
        mirrors = [
            stack.enter_context(closing(Mirrored(cluster.bootstrap, name, written)))
            for cluster, name in ((other, f"{here}.{topic}"), (three, f"{there}.{here}.{topic}"))
        ]
        with running(version, tmp_path, own):
            arrive(mirrors)
            for cluster, name in ((other, mirrors[0].topic), (three, topic)):
                written.give()
                cluster.kill(leader(cluster, name))
                written.give()
                arrive(mirrors)
            follow(mirrors, written)
        before = [mirror.count for mirror in mirrors]
        written.give()
        with running(version, tmp_path, own):
            arrive(mirrors)
            follow(mirrors, written)
        assert [mirror.count for mirror in mirrors] == [each + RECORDS for each in before]
        for mirror in mirrors:
            mirror.check_order()
    for cluster in (three, other):
        eventually(lambda of=cluster: is_in_sync(of), DEADLINE_S, "every replica in sync")


def arrive(mirrors):
    for mirror in mirrors:
        eventually(mirror.is_whole, DEADLINE_S, f"every record in {mirror.topic}")


def follow(mirrors, written):
    """A group that has read all `here` goes on after the last record `there`, and `back`."""
    written.commit(written.topic)
    for mirror in mirrors:
        where = f"the place of the group in {mirror.topic}"
        eventually(lambda at=mirror: at.is_followed(written.topic), DEADLINE_S, where)
