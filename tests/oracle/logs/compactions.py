"""A hundred random logs, compacted by two brokers: the same bytes into both, then what each of them has left.

Logs are filled in two parts. While a part is written nothing may be cleaned (min.cleanable.dirty.ratio is 1);
then all is cleaned once, up to the same record in both brokers: each part ends with two records that do not
fit into one segment. So tombstones of the first part meet their delete horizon in the second cleaning;
where it comes at once, tidelog cleans again for them alone, and Kafka does not.
There are no times before 1970 in them: Kafka's cleaner fails on a batch that has one, and gives up its log
for good. `early` shows that, in a log of its own.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.broker import asking
from tests.oracle import recordset, wire
from tests.oracle.brokers import make_topics, wait_for_changes
from tests.oracle.recordset import Rec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tidelog.protocol.topic_partition import TopicPartition

LOGS_EACH = 20
SEGMENT_BYTES = 4_000
FILLER_BYTES = 3_700
PARTS = 2
BATCHES = 30
DEADLINE_S = 300
NEVER, ALWAYS = "1", "0"  # min.cleanable.dirty.ratio: a log nobody has cleaned is not above 1
TIDELOG = "tidelog"
CHECKPOINT = "cleaner-offset-checkpoint"
_DAY_MS = "86400000"
_BASE = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": NEVER,
    "segment.bytes": str(SEGMENT_BYTES),
    "segment.ms": str(2**63 - 1),
    "index.interval.bytes": "500",
    "segment.index.bytes": "65536",
    "file.delete.delay.ms": "0",
    "retention.ms": "-1",
    "delete.retention.ms": "0",
}
TOPICS: Mapping[str, Mapping[str, str]] = {
    "gone": _BASE,
    "kept": {**_BASE, "delete.retention.ms": _DAY_MS},
    "stamped": {**_BASE, "message.timestamp.type": "LogAppendTime"},
    "packed": {**_BASE, "compression.type": "lz4"},
    "both": {**_BASE, "cleanup.policy": "compact,delete"},
}


class Left(NamedTuple):
    """One record that a broker still has."""

    offset: int
    key: bytes | None
    value: bytes | None
    time: int | None  # None on a topic that stamps: each broker has its own
    headers: tuple[tuple[bytes, bytes | None], ...]


def names() -> list[TopicPartition]:
    return [(topic, index) for topic in TOPICS for index in range(LOGS_EACH)]


class Writer:
    """Makes the record sets of one log, always the same ones."""

    def __init__(self, name: TopicPartition, base_ms: int) -> None:
        self.chance = random.Random(f"{name}")
        self.topic = name[0]
        self.base_ms = base_ms
        self.keys = [b"key-%d" % i for i in range(self.chance.randint(6, 30))]
        self.part = 0
        self.sequences: dict[int, int] = {}
        self.written: list[tuple[bytes | None, bytes | None]] = []  # keys and values, by offset

    def record_set(self) -> bytes:
        """A batch of random records, by a producer with an id or without."""
        chance = self.chance
        recs = [self._record() for _ in range(chance.randint(1, 6))]
        producer = {}
        if chance.random() < 0.4:
            producer_id = 4_000 + chance.randint(0, 2)
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + len(recs)
            producer = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
            }
        self.written += [(rec.key, rec.value) for rec in recs]
        return recordset.batch(recs, chance.choice((0, 0, 1, 2, 3, 4)), **producer)

    def _record(self) -> Rec:
        chance = self.chance
        when = chance.choice((0, 1_000, self.base_ms, self.base_ms, -1))
        when += chance.randint(0, 500) if when != -1 else 0
        value = None if chance.random() < 0.2 else chance.randbytes(chance.randint(0, 120))
        headers = (("h", b"1"), ("null", None)) if chance.random() < 0.2 else ()
        third = len(self.keys) // 3  # of the keys each part has some of its own
        keys = self.keys[:-third] if self.part == 0 else self.keys[third:]
        return Rec(when, value, chance.choice(keys), headers)

    def filler(self) -> bytes:
        """A record after which the next one begins a segment."""
        rec = Rec(self.base_ms, self.chance.randbytes(FILLER_BYTES), b"filler")
        self.written.append((rec.key, rec.value))
        return recordset.batch([rec])

    def last_values(self) -> dict[bytes | None, bytes | None]:
        """What must be found of each key, however it was compacted; tombstones may be gone."""
        return dict(self.written)


def written(
    base_ms: int,
) -> tuple[list[list[dict[TopicPartition, bytes]]], dict[TopicPartition, Writer]]:
    """Part by part and round by round, one record set for each log; and who wrote them."""
    writers = {name: Writer(name, base_ms) for name in names()}
    parts = []
    for part in range(PARTS):
        for one in writers.values():
            one.part = part
        rounds = [{name: one.record_set() for name, one in writers.items()} for _ in range(BATCHES)]
        rounds += [{name: one.filler() for name, one in writers.items()} for _ in range(2)]
        parts.append(rounds)
    return parts, writers


class Broker(NamedTuple):
    """A running broker, and where its partitions' directories are."""

    name: str
    bootstrap: str
    log_dir: Path


def create(broker: Broker) -> None:
    """Make the topics."""
    with wire.Connection(broker.bootstrap, timeout_s=60) as connection:
        for name, settings in TOPICS.items():
            make_topics(connection, {name: LOGS_EACH}, **settings)


def write(connection: wire.Connection, sets: Mapping[TopicPartition, bytes]) -> None:
    """One record set for each log, in one request."""
    data = [
        {
            "name": topic,
            "partition_data": [
                {"index": index, "records": sets[topic, index]} for index in range(LOGS_EACH)
            ],
        }
        for topic in TOPICS
    ]
    answer = connection.ask(
        "Produce", 9, transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=data
    )
    errors = {
        (topic["name"], one["index"]): one["error_code"]
        for topic in answer["responses"]
        for one in topic["partition_responses"]
        if one["error_code"]
    }
    assert not errors, errors


def may_clean(connection: wire.Connection, ratio: str) -> None:
    """Let all logs be cleaned, or none."""
    change = {"name": "min.cleanable.dirty.ratio", "config_operation": 0, "value": ratio}
    resources = [
        {"resource_type": 2, "resource_name": name, "configs": [change]} for name in TOPICS
    ]
    answer = connection.ask("IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
    assert not any(one["error_code"] for one in answer["responses"]), answer
    # Or what is written next might be cleaned before all of it is there.
    wait_for_changes(connection)


def cleaned_offsets(log_dir: Path) -> dict[TopicPartition, int]:
    """Up to where each log is clean, as the broker has written it down."""
    try:
        lines = (log_dir / CHECKPOINT).read_text().splitlines()[2:]
    except FileNotFoundError:
        return {}
    rows = [line.split() for line in lines]
    return {(row[0], int(row[1])): int(row[2]) for row in rows if len(row) == 3}


def wait_until_clean(broker: Broker, wanted: Mapping[TopicPartition, int]) -> None:
    """Until every log is clean up to an offset."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        found = cleaned_offsets(broker.log_dir)
        if all(found.get(name, -1) >= offset for name, offset in wanted.items()):
            break
        time.sleep(0.1)  # a foreign process can only be polled
    late = {name: found.get(name) for name, at in wanted.items() if found.get(name, -1) < at}
    assert not late, f"{broker.name} has not cleaned {len(late)} logs in time: {list(late)[:5]}"
    over = {name: found[name] for name, at in wanted.items() if found[name] != at}
    assert not over, f"{broker.name} has cleaned the active segments of {over}"


def fill_and_clean(
    broker: Broker,
    parts: Sequence[Sequence[Mapping[TopicPartition, bytes]]],
    ends: Sequence[Mapping[TopicPartition, int]],
) -> Iterator[dict[TopicPartition, list[Left]]]:
    """Part by part: write it, have it cleaned up to `ends`, and tell what is left."""
    create(broker)
    with wire.Connection(broker.bootstrap, timeout_s=60) as connection:
        for rounds, end in zip(parts, ends, strict=True):
            for sets in rounds:
                write(connection, sets)
            may_clean(connection, ALWAYS)
            wait_until_clean(broker, end)
            may_clean(connection, NEVER)
            if broker.name == TIDELOG:
                wait_until_gone(connection)
            yield {name: left(connection, name) for name in names()}


def wait_until_gone(connection: wire.Connection) -> None:
    """Until no tombstone is left whose delete horizon has come."""
    waiting = [name for name in names() if TOPICS[name[0]]["delete.retention.ms"] == "0"]
    deadline = time.monotonic() + DEADLINE_S
    while waiting := [
        name for name in waiting if any(map(is_due_in(name), left(connection, name)))
    ]:
        assert time.monotonic() < deadline, f"tombstones stay in {waiting[:5]}"
        time.sleep(0.1)


def is_due_in(name: TopicPartition) -> Callable[[Left], bool]:
    """Whether a record of a log is a tombstone whose delete horizon comes at once."""
    at_once = TOPICS[name[0]]["delete.retention.ms"] == "0"
    return lambda record: at_once and record.value is None


def left(connection: wire.Connection, name: TopicPartition) -> list[Left]:
    """Every record of a log, as a consumer gets it."""
    topic, index = name
    found: list[Left] = []
    offset, end = 0, 1
    while offset < end:
        part = asking.fetch(connection, topic, offset, partition=index, min_bytes=0)
        assert part["error_code"] == 0, f"{name} at {offset}: {part['error_code']}"
        end = part["high_watermark"]
        batches, rest = recordset.parse(part["records"] or b"")
        assert batches, f"{name}: nothing at {offset}, before the end at {end}; {rest} bytes"
        for one in batches:
            assert one["crc_ok"], f"{name}: a checksum at {one['offset']} is wrong"
            found += records_of(one, stamped=topic == "stamped")
            offset = one["offset"] + one["last_offset_delta"] + 1
    return found


def records_of(batch: Mapping[str, Any], *, stamped: bool) -> Iterator[Left]:
    """The records of a parsed batch."""
    for one in batch["records"]:
        when = None if stamped else one["timestamp"]
        yield Left(one["offset"], one["key"], one["value"], when, tuple(one["headers"]))


class Difference(NamedTuple):
    """A log of which two brokers have not kept the same."""

    name: TopicPartition
    part: int
    only_kafka: list[Left]
    only_tidelog: list[Left]

    def __str__(self) -> str:
        kafka, tidelog = self.only_kafka[:3], self.only_tidelog[:3]
        return f"{self.name} part {self.part}: only kafka {kafka}, only tidelog {tidelog}"


def differences(
    part: int,
    kafka: Mapping[TopicPartition, list[Left]],
    tidelog: Mapping[TopicPartition, list[Left]],
) -> list[Difference]:
    """Logs of which not the same is left, in the same order; Kafka's without tombstones that are due."""
    found = []
    for name in names():
        is_due, ours = is_due_in(name), tidelog[name]
        theirs = [one for one in kafka[name] if not is_due(one)]
        if theirs != ours:
            found.append(
                Difference(
                    name,
                    part,
                    [one for one in theirs if one not in ours],
                    [one for one in ours if one not in theirs],
                )
            )
    return found


EARLY = "early"


def early(broker: Broker) -> list[Left]:
    """Write a log of times before 1970 that may be cleaned at once; what is there when it is closed."""
    settings = {**_BASE, "min.cleanable.dirty.ratio": ALWAYS}
    recs = [Rec(-77_000 + i, b"value-%d" % i, b"key-%d" % (i % 3)) for i in range(12)]
    fillers = [Rec(0, random.Random(i).randbytes(FILLER_BYTES), b"filler") for i in range(2)]
    sets = [recordset.batch(recs[at : at + 4]) for at in range(0, len(recs), 4)]
    with wire.Connection(broker.bootstrap, timeout_s=60) as connection:
        make_topics(connection, {EARLY: 1}, **settings)
        for records in [*sets, *(recordset.batch([one]) for one in fillers)]:
            assert asking.produce(connection, EARLY, records)["error_code"] == 0
        deadline = time.monotonic() + DEADLINE_S
        end = len(recs) + 1
        while cleaned_offsets(broker.log_dir).get((EARLY, 0)) != end and not given_up(broker):
            assert time.monotonic() < deadline, f"{broker.name} never cleaned {EARLY}"
            time.sleep(0.1)  # a foreign process can only be polled
        return left(connection, (EARLY, 0))


def given_up(broker: Broker) -> bool:
    """Whether Apache Kafka has said that it will not clean the log of `early` any more."""
    path = broker.log_dir.parent / "broker.log"
    said = path.read_text() if path.exists() else ""
    return f"Marking its partition ({EARLY}-0) as uncleanable" in said
