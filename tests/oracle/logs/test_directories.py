"""Directories of Apache Kafka 3.9.1 and 0.10.2.2 served by tidelog, and taken back by Kafka.

Each Kafka fills its topics, and its directory is copied in three states: while it writes, after
kill -9, and stopped in order. tidelog opens every copy and must serve what Kafka serves of it: start,
end, every byte of every batch, every lookup by time; differences have reasons in directories.py.
Then the partition directories that tidelog has appended to take the place of Kafka's own, its
two files more and all, and Kafka must serve every record of them, with the times tidelog has.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

from tests.oracle import wire
from tests.oracle.brokers import Tidelog, wait_for_coordinators
from tests.oracle.logs import directories
from tests.oracle.logs.directories import NEW, OLD, REASONS, Filler, Verdict, compare, copy, read
from tidelog.process import BrokerFailed

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(900)]

RUNNING, KILLED, STOPPED = "copied while running", "killed", "stopped"
SETS = 40
# Topics that tidelog makes, of every format, for a Kafka that knows none of their ids.
BORN = {
    f"born-{kind}-{magic}": {
        "segment.bytes": "6000",
        "message.format.version": release,
        "message.timestamp.type": kind,
    }
    for kind in ("CreateTime", "LogAppendTime")
    for magic, release in enumerate(("0.9.0", "0.10.2", "3.0"))
}


class Taken(NamedTuple):
    """A copy of a directory, and what Kafka serves of it."""

    path: Path
    served: dict[str, directories.Served]


class Round:
    """One Kafka, its directory in three states, and tidelog on each."""

    def __init__(self, version, dialect, kafka, root, summarize):
        self.version, self.dialect, self.root = version, dialect, root
        self.chance = random.Random(version)
        self.filler = Filler(dialect, 1)
        self.verdict = Verdict(Counter(), Counter(), [])
        self.lost: list[str] = []
        self.taken = self._take(kafka)
        self.ours = {state: self._open(state) for state in self.taken}
        self.back = self._take_back(kafka)
        rows = [f"{name}: {count}" for name, count in self.verdict.equal.items()]
        rows += [f"{count:6} {name}" for name, count in self.verdict.explained.items()]
        summarize(f"directories of Apache Kafka {version} in tidelog", "\n".join(rows))

    def _take(self, kafka):
        filler, dialect = self.filler, self.dialect
        if dialect is NEW:
            wait_for_coordinators(kafka.bootstrap)
        filler.create(kafka.bootstrap)
        if dialect is NEW:
            empty = dialect._replace(topics=dict.fromkeys(BORN, directories.STAY))
            Filler(empty, 0).create(kafka.bootstrap)
        filler.fill(kafka.bootstrap, SETS)
        if dialect is NEW:
            filler.trim(kafka.bootstrap, "trimmed", 123)
        compacted = next(name for name in dialect.topics if name.endswith("compacted"))
        directories.wait_for_compaction(kafka.bootstrap, dialect, compacted, kafka.log_dir)
        taken = {}
        path = self.root / "running" / "data"
        self.sets_meanwhile = filler.copy_while_writing(kafka.bootstrap, kafka.log_dir, path)
        taken[RUNNING] = Taken(path, self._serve(kafka.bootstrap))
        kafka.kill()
        path = self.root / "killed" / "data"
        copy(kafka.log_dir, path)
        kafka.properties["log.cleaner.enable"] = "false"  # what was copied stays as it is
        kafka.start()
        self._wait(kafka.bootstrap)
        taken[KILLED] = Taken(path, self._serve(kafka.bootstrap))
        filler.fill(kafka.bootstrap, SETS // 4)
        served = self._serve(kafka.bootstrap)
        kafka.stop()
        path = self.root / "stopped" / "data"
        copy(kafka.log_dir, path)
        taken[STOPPED] = Taken(path, served)
        return taken

    def _wait(self, bootstrap):
        with wire.Connection(bootstrap) as connection:
            directories.wait_for(connection, self.dialect, self.dialect.topics)

    def _serve(self, bootstrap):
        """What Kafka serves, with the answers to lookups worth asking."""
        found = {}
        with wire.Connection(bootstrap) as connection:
            for topic in self.dialect.topics:
                plain = read(connection, topic, self.dialect)
                targets = directories.targets_of(plain, self.chance)
                found[topic] = read(connection, topic, self.dialect, targets)
        return found

    def _open(self, state):
        """Serve a copy with tidelog and compare; what it serves, and whether all of it is there after."""
        taken = self.taken[state]
        before = logs_below(taken.path)
        with (
            Tidelog(taken.path.parent) as tidelog,
            wire.Connection(tidelog.bootstrap) as connection,
        ):
            found = {
                topic: read(connection, topic, self.dialect, list(theirs.answers))
                for topic, theirs in taken.served.items()
            }
            if state == STOPPED:
                self.consumed = consume(tidelog.bootstrap, self.dialect.topics, found)
        for topic, theirs in taken.served.items():
            prefix = state == RUNNING
            compare(f"{state} {topic}", theirs, found[topic], self.verdict, prefix=prefix)
        after = logs_below(taken.path)
        for name, data in before.items():
            kept = after.get(name)
            whole = data if state == STOPPED else data.rstrip(b"\0")
            if kept is None or not data.startswith(kept):
                self.lost.append(f"{state} {name}")
            elif state != RUNNING and len(kept) < len(whole):
                self.lost.append(f"{state} {name}: {len(kept)} bytes of {len(whole)}")
        return found

    def _take_back(self, kafka):
        """Append with tidelog, put its partition directories into Kafka's, and read there."""
        home = self.taken[STOPPED].path
        with Tidelog(home.parent) as tidelog, wire.Connection(tidelog.bootstrap) as connection:
            for topic in self.dialect.topics:
                if topic not in ("transactional", "idempotent"):
                    for _ in range(20):
                        self.filler.produce(connection, topic)
            expected = self._serve(tidelog.bootstrap)
        for topic in self.dialect.topics:
            there = kafka.log_dir / f"{topic}-0"
            shutil.rmtree(there)
            shutil.copytree(home / f"{topic}-0", there)
        if self.dialect is NEW:
            expected |= self._bear(kafka.log_dir)
        kafka.start()
        self._wait(kafka.bootstrap)
        with wire.Connection(kafka.bootstrap) as connection:
            found = {
                topic: read(connection, topic, self.dialect, list(ours.answers))
                for topic, ours in expected.items()
            }
        kafka.stop()
        self.strays = [path.name for path in kafka.log_dir.glob("*-stray")]
        self.extra = {path.suffix or path.name for path in kafka.log_dir.glob("*-0/*times")}
        return expected, found

    def _bear(self, log_dir):
        """Make topics in a tidelog of their own and put their logs into Kafka's directories."""
        found = {}
        dialect = self.dialect._replace(topics=BORN)
        filler = Filler(dialect, 2)
        with Tidelog(self.root / "born") as tidelog:
            filler.create(tidelog.bootstrap)
            filler.fill(tidelog.bootstrap, SETS)
            with wire.Connection(tidelog.bootstrap) as connection:
                for topic in BORN:
                    targets = directories.targets_of(read(connection, topic, NEW), self.chance)
                    found[topic] = read(connection, topic, NEW, targets)
        for topic in BORN:
            there = log_dir / f"{topic}-0"
            theirs = (there / "partition.metadata").read_bytes()
            shutil.rmtree(there)
            shutil.copytree(tidelog.log_dir / f"{topic}-0", there)
            assert (there / "partition.metadata").read_bytes() != theirs
            (there / "partition.metadata").write_bytes(theirs)
        return found


def logs_below(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.glob("*-*/*.log"))}


def consume(bootstrap, topics, served):
    """What a real client reads of topics: (offset, time) of every record."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "nobody's",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
    }
    consumer = Consumer(settings)
    found = {topic: [] for topic in topics}
    consumer.assign([TopicPartition(topic, 0, served[topic].start) for topic in topics])
    ended = set()
    while len(ended) < len(found):
        message = consumer.poll(120)
        assert message is not None, f"nothing more of {set(found) - ended}"
        if message.error():
            ended.add(message.topic())
        else:
            kind, stamp = message.timestamp()
            stamp = -1 if kind == TIMESTAMP_NOT_AVAILABLE else stamp
            found[message.topic()].append((message.offset(), stamp))
    consumer.close()
    return found


@pytest.fixture(scope="module", params=[("3.9.1", NEW), ("0.10.2.2", OLD)], ids=lambda p: p[0])
def played(request, apache_kafka, tmp_path_factory, summarize):
    version, dialect = request.param
    settings = {"log.cleaner.backoff.ms": 200, "log.index.size.max.bytes": 1 << 20}
    with apache_kafka(version, **settings) as kafka:
        return Round(version, dialect, kafka, tmp_path_factory.mktemp("taken"), summarize)


def test_tidelog_serves_what_kafka_serves(played):
    assert not played.verdict.unexplained, "\n".join(played.verdict.unexplained)
    directories_compared = played.verdict.equal["contents"]
    assert directories_compared == 3 * len(played.dialect.topics) >= 27
    assert played.verdict.equal["bytes"] > 200_000
    assert played.verdict.equal["lookups"] > 400
    assert played.sets_meanwhile > 0


def test_nothing_is_lost_by_opening_and_stopping(played):
    assert played.lost == []


def test_a_real_client_reads_every_record(played):
    for topic, served in played.ours[STOPPED].items():
        assert played.consumed[topic] == served.records, topic


def test_kafka_serves_what_tidelog_brings_back(played):
    expected, found = played.back
    assert {".appendtimes", ".times"} <= played.extra  # ours, and not in its way
    assert played.strays == []
    for topic, ours in expected.items():
        theirs = found[topic]
        assert theirs.batches == ours.batches, topic
        assert (theirs.start, theirs.end) == (ours.start, ours.end)
        assert theirs.records == ours.records
        for target, answer in ours.answers.items():
            if theirs.answers[target] != answer:
                exact = directories.naive(ours, target, ours.end)
                asked = directories.Asked(topic, target, theirs.answers[target], answer, exact)
                assert any(holds(asked) for holds in REASONS.values()), asked


def test_an_injected_difference_is_caught(played):
    taken, ours = played.taken[STOPPED].served, played.ours[STOPPED]
    topic = next(name for name in taken if "plain" in name)
    served = ours[topic]
    last, data = served.batches[3]
    flipped = [*served.batches[:3], (last, data[:-1] + bytes([data[-1] ^ 1])), *served.batches[4:]]
    target, answer = next(iter(served.answers.items()))
    for injected in (
        served._replace(start=served.start + 1),
        served._replace(end=served.end - 1),
        served._replace(batches=flipped),
        served._replace(batches=served.batches[:-1]),
        served._replace(answers={target: (answer[0], answer[1] + 1, answer[2])}),
    ):
        verdict = Verdict(Counter(), Counter(), [])
        compare(topic, taken[topic], injected, verdict)
        assert len(verdict.unexplained) == 1


def test_a_running_kafkas_directory_is_refused(apache_kafka, tmp_path):
    with apache_kafka("3.9.1") as kafka:
        (tmp_path / "data").symlink_to(kafka.log_dir)
        with pytest.raises(BrokerFailed, match="is in use"):
            Tidelog(tmp_path)
