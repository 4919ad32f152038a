"""Log directories that a real Apache Kafka fills, and what a broker serves of them.

`fill` makes topics of many kinds with random records; `copy` takes the directory as it lies there,
also under a running Kafka; `read` asks a broker for everything: start, end, every stored batch byte by
byte, and lookups by time. What two brokers serve of the same directory is compared by `differences`,
where a difference is either explained by one of `REASONS` or listed.
"""

from __future__ import annotations

import random
import shutil
import struct
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Producer

from tests.broker import asking
from tests.broker.asking import delete_records
from tests.oracle import recordset, wire
from tests.oracle.brokers import wait_for_markers
from tests.oracle.kafka_0_10.differences import flat
from tests.oracle.logs.compactions import cleaned_offsets
from tests.oracle.recordset import Rec

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

EARLIEST, LATEST, LARGEST = -2, -1, -3
DEADLINE_S = 120
STAY = {"retention.ms": "-1", "segment.bytes": "6000", "index.interval.bytes": "400"}
_COMPACTED = {
    **STAY,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}
_STAMPED = {"message.timestamp.type": "LogAppendTime"}
_DAY_MS = 86_400_000


class Dialect(NamedTuple):
    """The request versions that a Kafka understands, and the kinds of topics it can make."""

    produce: int
    fetch: int
    list_offsets: int
    topics: Mapping[str, Mapping[str, str]]

    def magics(self, topic: str) -> tuple[int, ...]:
        """The formats to produce to a topic in."""
        if self.produce >= 3:
            return (2,)
        return (0,) if topic.startswith("f0") else (1,)


NEW = Dialect(
    9,
    11,
    7,
    {
        "plain": STAY,
        "codecs": STAY,
        "zstd": {**STAY, "compression.type": "zstd"},
        "stamped": {**STAY, **_STAMPED},
        "stamped-codecs": {**STAY, **_STAMPED},
        "compacted": _COMPACTED,
        "trimmed": STAY,
        "idempotent": STAY,
        "transactional": STAY,
        "unordered": STAY,
        "preallocated": {**STAY, "preallocate": "true"},
        "empty": STAY,
    },
)
_F0 = {"message.format.version": "0.9.0.1"}
_F1 = {"message.format.version": "0.10.2"}
OLD = Dialect(
    2,
    2,
    1,
    {
        "f0-plain": {**STAY, **_F0},
        "f0-codecs": {**STAY, **_F0},
        "f1-plain": {**STAY, **_F1},
        "f1-codecs": {**STAY, **_F1},
        "f1-stamped": {**STAY, **_F1, **_STAMPED},
        "f1-stamped-codecs": {**STAY, **_F1, **_STAMPED},
        "f1-compacted": {**_COMPACTED, **_F1},
        "f1-unordered": {**STAY, **_F1},
        "f1-preallocated": {**STAY, **_F1, "preallocate": "true"},
    },
)


# --- filling ---------------------------------------------------------------------------------------


class Filler:
    """Random records for the topics of one dialect; the seed decides them all but the clock's part."""

    def __init__(self, dialect: Dialect, seed: int) -> None:
        self.dialect = dialect
        self.random = random.Random(seed)
        self.time_ms = time.time_ns() // 1_000_000 - 30 * _DAY_MS
        self.producer_id = -1
        self.sequence = 0

    def create(self, bootstrap: str) -> None:
        """Make the topics and wait for them."""
        with wire.Connection(bootstrap, timeout_s=60) as connection:
            requests = [
                {
                    "name": name,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [{"name": k, "value": v} for k, v in settings.items()],
                }
                for name, settings in self.dialect.topics.items()
            ]
            answer = connection.ask(
                "CreateTopics", 1, topics=requests, timeout_ms=60_000, validate_only=False
            )
            assert not [one for one in answer["topics"] if one["error_code"]], answer
            wait_for(connection, self.dialect, self.dialect.topics)

    def fill(self, bootstrap: str, sets: int) -> None:
        """Produce `sets` record sets to every topic but those called otherwise."""
        with wire.Connection(bootstrap) as connection:
            for topic in self.dialect.topics:
                if topic == "transactional":
                    self._transactions(bootstrap, sets // 8)
                elif topic != "empty":
                    for _ in range(sets):
                        self.produce(connection, topic)

    def produce(self, connection: wire.Connection, topic: str) -> None:
        """Produce one record set."""
        records = self.record_set(connection, topic)
        answer = asking.produce(connection, topic, records, version=self.dialect.produce)
        assert answer["error_code"] == 0, (topic, answer)

    def record_set(self, connection: wire.Connection, topic: str) -> bytes:
        """One random record set for a topic."""
        chance = self.random
        magic = chance.choice(self.dialect.magics(topic))
        codec = 0
        if topic.endswith("codecs"):
            codec = chance.choice((0, 1, 2, 3, 4) if magic == 2 else (0, 1, 2, 3))
        recs = [
            Rec(
                self._time(topic),
                chance.randbytes(chance.randrange(60)),
                b"k%d" % chance.randrange(40),
            )
            for _ in range(chance.randint(1, 12))
        ]
        if magic == 2:
            producer = {}
            if topic == "idempotent":
                if self.producer_id < 0:
                    self.producer_id = new_producer_id(connection)
                producer = {
                    "producer_id": self.producer_id,
                    "producer_epoch": 0,
                    "base_sequence": self.sequence,
                }
                self.sequence += len(recs)
            return recordset.batch(recs, codec, **producer)
        if codec:
            inner = list(range(len(recs)))
            return recordset.wrapper(magic, recs, codec, inner_offsets=inner)
        return recordset.plain_set(magic, recs)

    def _time(self, topic: str) -> int:
        self.time_ms += self.random.randrange(100)
        if topic.endswith("unordered"):
            spread = self.random.choice((10, _DAY_MS, 2000 * _DAY_MS))
            return max(0, self.time_ms + self.random.randint(-spread, spread))
        return self.time_ms - self.random.randrange(50)

    def _transactions(self, bootstrap: str, count: int) -> None:
        """A real client writes transactions, every third of which it aborts."""
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "t", "linger.ms": 0}
        )
        producer.init_transactions(DEADLINE_S)
        for number in range(count):
            producer.begin_transaction()
            for _ in range(5):
                stamp = self._time("transactional")
                producer.produce("transactional", b"v%d" % number, b"k", timestamp=stamp)
            producer.flush(DEADLINE_S)
            if number % 3:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.abort_transaction(DEADLINE_S)
        wait_for_markers(bootstrap, "transactional")

    def trim(self, bootstrap: str, topic: str, offset: int) -> None:
        """Let a log start later, by DeleteRecords."""
        with wire.Connection(bootstrap) as connection:
            assert delete_records(connection, topic, offset, version=1)[0] == 0

    def copy_while_writing(self, bootstrap: str, source: Path, target: Path) -> int:
        """Copy a directory in which records are being written; how many sets went there meanwhile.

        Again, if there were none: somebody stood still.
        """
        stop, sets, meanwhile = threading.Event(), 0, 0
        topics = [t for t in self.dialect.topics if "plain" in t or "codecs" in t]

        def write() -> None:
            nonlocal sets
            with wire.Connection(bootstrap) as connection:
                while not stop.is_set():
                    for topic in topics:
                        self.produce(connection, topic)
                        sets += 1

        thread = threading.Thread(target=write)
        thread.start()
        try:
            while thread.is_alive() and not meanwhile:
                shutil.rmtree(target, ignore_errors=True)
                before = sets
                copy(source, target)
                meanwhile = sets - before
        finally:
            stop.set()
            thread.join()
        return meanwhile


def new_producer_id(connection: wire.Connection) -> int:
    """Ask for a producer id until there is one: a broker that starts has none to give."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = connection.ask(
            "InitProducerId", 1, transactional_id=None, transaction_timeout_ms=1000
        )
        if not answer["error_code"]:
            return int(answer["producer_id"])
        assert time.monotonic() < deadline, answer
        time.sleep(0.05)  # a foreign process can only be polled


def wait_for(
    connection: wire.Connection, dialect: Dialect, topics: Sequence[str] | Mapping
) -> None:
    """Wait until every topic has a leader that answers."""
    deadline = time.monotonic() + DEADLINE_S
    for topic in topics:
        while True:
            asked = {"version": dialect.list_offsets}
            if not asking.list_offset(connection, topic, LATEST, **asked)["error_code"]:
                break
            assert time.monotonic() < deadline, f"{topic} never had a leader"
            time.sleep(0.05)  # a foreign process can only be polled


def wait_for_compaction(bootstrap: str, dialect: Dialect, topic: str, log_dir: Path) -> None:
    """Wait until the cleaner has been through a log, and has made holes in it."""
    deadline = time.monotonic() + DEADLINE_S
    active = max(int(path.stem) for path in (log_dir / f"{topic}-0").glob("*.log"))
    while cleaned_offsets(log_dir).get((topic, 0)) != active:
        assert time.monotonic() < deadline, f"{topic} was never compacted"
        time.sleep(0.2)  # a foreign process can only be polled
    with wire.Connection(bootstrap) as connection:
        served = read(connection, topic, dialect)
    assert len(served.records) < served.end - served.start - 20


def copy(source: Path, target: Path) -> None:
    """Copy a directory as `cp -r` does while others change it: what has gone meanwhile is not there."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.rglob("*")):
        there = target / path.relative_to(source)
        try:
            if path.is_dir():
                there.mkdir(exist_ok=True)
            else:
                shutil.copy2(path, there)
        except FileNotFoundError:
            continue


# --- reading ---------------------------------------------------------------------------------------


class Served(NamedTuple):
    """What a broker serves of one partition."""

    start: int
    end: int
    batches: list[tuple[int, bytes]]  # last offset, and the stored bytes
    records: list[tuple[int, int]]  # offset and time of every data record, in order
    answers: dict[int, tuple[int, int, int]]  # time asked for: error, offset, time


def read(
    connection: wire.Connection, topic: str, dialect: Dialect, targets: Sequence[int] = ()
) -> Served:
    """Everything a broker serves of a topic's only partition."""

    def look(target: int) -> tuple[int, int, int]:
        got = asking.list_offset(connection, topic, target, version=dialect.list_offsets)
        return got["error_code"], got["offset"], got["timestamp"]

    start, end = look(EARLIEST)[1], look(LATEST)[1]
    batches: list[tuple[int, bytes]] = []
    offset = start
    while offset < end:
        got = asking.fetch(connection, topic, offset, version=dialect.fetch)
        assert got["error_code"] == 0, (topic, offset, got)
        new = [one for one in split(got["records"] or b"") if one[0] >= offset]
        if not new:
            break
        batches += new
        offset = new[-1][0] + 1
    records = [one for one in times_of(batches) if one[0] >= start]
    return Served(start, end, batches, records, {target: look(target) for target in targets})


def split(data: bytes) -> list[tuple[int, bytes]]:
    """Every whole batch: its last offset and its bytes."""
    found, position = [], 0
    while len(data) - position >= 17:
        offset, size = struct.unpack_from(">qi", data, position)
        end = position + 12 + size
        if end > len(data):
            break
        if data[position + 16] == 2:
            offset += struct.unpack_from(">i", data, position + 23)[0]
        found.append((offset, data[position:end]))
        position = end
    return found


def times_of(batches: Sequence[tuple[int, bytes]]) -> list[tuple[int, int]]:
    """Offset and time of every data record; -1 where it has none."""
    found = []
    for _, data in batches:
        (one,), _ = recordset.parse(data)
        if one["magic"] == 2:
            if not one["attributes"] & recordset.CONTROL_BIT:
                found += [(r["offset"], r["timestamp"]) for r in one["records"]]
        else:
            found += [(offset, -1 if t is None else t) for offset, t, *_ in flat([one])]
    return found


def targets_of(served: Served, chance: random.Random) -> list[int]:
    """Times worth asking for: those of records, their neighbours, and some far away."""
    times = sorted({t for _, t in served.records if t >= 0})
    picked = chance.sample(times, min(8, len(times)))
    near = {t + d for t in (*picked, *times[:1], *times[-1:]) for d in (-1, 0, 1)}
    return sorted({t for t in near if t >= 0} | {0, 1, 2**42})


# --- comparing -------------------------------------------------------------------------------------


def naive(served: Served, target: int, end: int) -> tuple[int, int, int]:
    """The first record at or after a time, below an offset, as a look at every record finds it."""
    for offset, stamp in served.records:
        if offset < end and stamp >= target:
            return 0, offset, stamp
    return 0, -1, -1


class Asked(NamedTuple):
    """A lookup that two brokers answer differently."""

    topic: str
    target: int
    theirs: tuple[int, int, int]
    ours: tuple[int, int, int]
    exact: tuple[int, int, int]


def _format_0(asked: Asked) -> bool:
    """0.10 refuses (UNSUPPORTED_FOR_MESSAGE_FORMAT) to search a topic of format 0; it has no times."""
    return asked.theirs[0] == 43 and asked.ours == asked.exact


def _right(asked: Asked, kind: str) -> bool:
    return asked.topic.endswith(kind) and asked.ours == asked.exact != asked.theirs


def _compacted(asked: Asked) -> bool:
    """Kafka looks into one segment, the first whose largest time once was late enough.

    The record that had it may be gone; then Kafka finds nothing, or a later one.
    """
    later = asked.theirs[1] == -1 or asked.theirs[1] > asked.exact[1]
    return _right(asked, "compacted") and later


def _marker(asked: Asked) -> bool:
    """Kafka also finds the markers of transactions, which no consumer ever sees (DESIGN 3)."""
    return _right(asked, "transactional") and asked.theirs[1] >= 0


REASONS: dict[str, Callable[[Asked], bool]] = {
    "a topic of format 0 has no times": _format_0,
    "the record that Kafka would find was compacted away": _compacted,
    "Kafka finds a marker of a transaction": _marker,
}
START_UNKNOWN = "where the log starts is written down once a minute"


class Verdict(NamedTuple):
    """What was compared, what was explained, and what was not."""

    equal: Counter[str]
    explained: Counter[str]
    unexplained: list[str]


def compare(
    topic: str, theirs: Served, ours: Served, verdict: Verdict, *, prefix: bool = False
) -> None:
    """Compare what Kafka and tidelog serve of one directory.

    With `prefix` ours may end sooner: the copy was made before Kafka was asked.
    """
    if prefix and ours.start < theirs.start:
        verdict.explained[START_UNKNOWN] += 1
        ours = ours._replace(
            start=theirs.start, batches=[one for one in ours.batches if one[0] >= theirs.start]
        )
    there = theirs.batches[: len(ours.batches)] if prefix else theirs.batches
    same = ours.batches == there and ours.start == theirs.start
    end = ours.batches[-1][0] + 1 if prefix and ours.batches else theirs.end
    if same and ours.end == end:
        verdict.equal["contents"] += 1
        verdict.equal["bytes"] += sum(len(data) for _, data in there)
    else:
        what = f"{ours.start}..{ours.end} in {len(ours.batches)} batches"
        verdict.unexplained.append(
            f"{topic}: {what}, Kafka has {theirs.start}..{theirs.end} in {len(there)}"
        )
    for target, answer in ours.answers.items():
        expected = theirs.answers[target]
        if prefix and expected[1] >= ours.end:
            expected = naive(theirs, target, ours.end)
        if answer == expected or 0 <= answer[1] < ours.start:
            verdict.equal["lookups"] += 1
            continue
        asked = Asked(topic, target, expected, answer, naive(theirs, target, ours.end))
        reason = next((name for name, holds in REASONS.items() if holds(asked)), None)
        if reason is None:
            verdict.unexplained.append(str(asked))
        else:
            verdict.explained[reason] += 1
