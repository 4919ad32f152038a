"""What must come back: records as a consumer should see them, from the broker's rules alone.

Nothing here looks at the broker. A record that a producer sent (key, value, headers, timestamp) is
stored by the topic's format and timestamp type, and shown by what the consumer's Fetch can carry:

- format 0 has no time; a format 0 producer on a newer topic leaves -1, or the append time on
  a LogAppendTime topic (KIP-32);
- CreateTime returns the producer's time as it came, LogAppendTime the broker's, the same to every
  reader;
- headers exist in format 2 alone; what a format cannot carry is refused with error 43, not dropped.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.clients.clients import Client

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
MIXED = "mixed"
# Formats and timestamp types of a mixed topic in the order of its writing: up, and down again.
STAGES = (
    (0, "CreateTime"),
    (1, "LogAppendTime"),
    (2, "CreateTime"),
    (2, "LogAppendTime"),
    (1, "CreateTime"),
    (0, "LogAppendTime"),
)
LONG_VALUE_BYTES = 300  # as drivers/lines.py
EVENT_TIME_MS = 1_600_000_000_000
BEFORE_1970_MS = -86_400_000
NO_TIMESTAMP = -1
START, END = -2, -1  # as times of ListOffsets
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
ZSTD_FETCH_VERSION = 10  # the first that may be answered with zstd


class Rules(NamedTuple):
    """What one broker can do; the drivers are tested against brokers of the Apache project."""

    format_versions: dict[int, str | None]  # message.format.version per format it can write
    zstd_for_all: bool  # zstd reaches clients and formats older than zstd
    names_refusals: bool  # what a format cannot carry is answered with the error that says so
    negative_times: bool = True  # times before 1970 are stored and served like any other
    finds_in_format_0: bool = True  # a question for a time is answered there too: by nothing
    downgrades: bool = True  # a topic's format may become older again, and old readers still served
    mixes_formats: bool = True  # an answer may go from one message format to another
    settle_s: float = 0.0  # how long changed settings take to reach the log

    def groups(self) -> dict[str, str]:
        """The report's tables: their names, and how they are headed."""
        heads = {
            f"format {magic}": f"format {magic} (`message.format.version={version}`), both time types"
            if version
            else f"format {magic}, both time types"
            for magic, version in self.format_versions.items()
        }
        stages = [f"{magic} {kind}" for magic, kind in self.stages()]
        return {**heads, MIXED: f"formats changed between writes ({', '.join(stages)})"}

    def stages(self) -> list[tuple[int, str]]:
        """The formats and timestamp types that a mixed topic of this broker goes through."""
        stages = [(magic, kind) for magic, kind in STAGES if magic in self.format_versions]
        if self.downgrades:
            return stages
        newest = max(range(len(stages)), key=lambda number: (stages[number][0], number))
        return stages[: newest + 1]


_TIDELOG = Rules(
    {0: "0.9.0", 1: "0.10.2", 2: "3.0"},
    zstd_for_all=True,
    names_refusals=True,
    mixes_formats=False,
)
BROKERS = {
    "tidelog": _TIDELOG,
    # The broker that changes a setting answers when it is stored; the others hear of it soon.
    "tidelog-cluster": _TIDELOG._replace(settle_s=2.0),
    # It answers UNKNOWN_SERVER_ERROR to headers and zstd that formats 0 and 1 cannot carry.
    "kafka-2.8": Rules(
        {0: "0.9.0", 1: "0.10.2", 2: "2.8"},
        zstd_for_all=False,
        names_refusals=False,
        negative_times=False,
        finds_in_format_0=False,
        downgrades=False,
        settle_s=2.0,
    ),
    "kafka-3.9": Rules(
        {2: None}, zstd_for_all=False, names_refusals=True, negative_times=False, settle_s=2.0
    ),
}


class Topic(NamedTuple):
    """A topic of the matrix, or one stage of it: written by one client, one partition per codec.

    The stages of a mixed topic are written one after the other, its settings changed in between.
    """

    name: str
    producer: Client
    magic: int
    timestamp_type: str
    stage: int | None = None

    @property
    def group(self) -> str:
        """Which table of the report it belongs to."""
        return f"format {self.magic}" if self.stage is None else MIXED


class Written(NamedTuple):
    """Records that a producer got acknowledged in one partition, from which offset, and when."""

    topic: Topic
    partition: int
    codec: str
    records: list[dict[str, Any]]
    began_ms: int
    ended_ms: int
    base_offset: int = 0


class Expected(NamedTuple):
    """One record as one consumer must see it. A time is exact, or within the bounds, or absent."""

    offset: int
    key: str | None
    value: str | None
    headers: list[list[str | None]] | None
    earliest: int  # both NO_TIMESTAMP: no time
    latest: int
    timestamp_type: str  # "create", "append" or "none"


def topic_of(producer: Client, magic: int, timestamp_type: str) -> Topic:
    """The topic for one producer, message format and timestamp type."""
    kind = "append" if timestamp_type == "LogAppendTime" else "create"
    name = producer.slug
    return Topic(f"format{magic}-{kind}-{name}", producer, magic, timestamp_type)


def mixed_topic_of(producer: Client, rules: Rules) -> list[Topic]:
    """The stages of the producer's mixed topic that the broker can have."""
    name = "mixed-" + producer.slug
    return [
        Topic(name, producer, magic, timestamp_type, stage)
        for stage, (magic, timestamp_type) in enumerate(rules.stages())
    ]


def records_for(topic: Topic, codec: str, rules: Rules) -> list[dict[str, Any]]:
    """What the topic's producer sends with one codec: nulls, long and non-ASCII texts, times out of order."""
    client = topic.producer
    tag = f"{topic.name} {codec}" + ("" if topic.stage is None else f" {topic.stage}")
    contents: list[tuple[str | None, str | None]] = [
        ("first", f"{tag} erste Zeile"),
        (None, f"{tag} no key"),
        ("ключ", "значение — 値 ☃"),
        ("gone", None),
        ("empty" if client.empty_value else "short", "" if client.empty_value else "."),
        ("long", long_text(tag)),
        ("last", f"{tag} end"),
    ]
    records = []
    for (key, value), delay in zip(contents, (3000, 0, 5000, 5000, 1000, 4000, 2000), strict=True):
        record: dict[str, Any] = {"key": key, "value": value}
        if client.sets_timestamps:
            record["timestamp"] = EVENT_TIME_MS + delay
        records.append(record)
    if client.negative_times and rules.negative_times:
        records.append({"key": "old", "value": f"{tag} 1969", "timestamp": BEFORE_1970_MS})
    if client.headers and topic.magic == 2:
        for record in records:
            record["headers"] = [["trace", "ä1"], ["origin", tag]]
    return records


@functools.cache
def long_text(tag: str) -> str:
    """Some 70,000 characters: more than one block of snappy and of lz4, partly compressible."""
    parts = [hashlib.sha256(f"{tag}{i}".encode()).hexdigest() for i in range(290)]
    return f"{tag} " + "".join(part + "-repeated" * 20 for part in parts)


@functools.cache
def shown(value: str | None) -> str | None:
    """A value as drivers tell it."""
    if value is None or len(value.encode()) <= LONG_VALUE_BYTES:
        return value
    data = value.encode()
    return f"sha1:{hashlib.sha1(data).hexdigest()}:{len(data)}"


def expect(entry: Written, consumer: Client) -> list[Expected]:
    """How `consumer` must see what was written."""
    topic = entry.topic
    magic = min(topic.magic, consumer.fetch_magic)
    kind = "append" if topic.timestamp_type == "LogAppendTime" else "create"
    kind = "none" if magic == 0 else kind
    times = stored_times(entry)
    expected = []
    for number, record in enumerate(entry.records):
        earliest, latest = (NO_TIMESTAMP, NO_TIMESTAMP) if magic == 0 else times[number]
        headers = None
        if consumer.headers:
            headers = record.get("headers") or [] if magic == 2 else []
        offset, value = entry.base_offset + number, shown(record["value"])
        expected.append(Expected(offset, record["key"], value, headers, earliest, latest, kind))
    return expected


def stored_times(entry: Written) -> list[tuple[int, int]]:
    """The earliest and latest possible time of each record as stored; NO_TIMESTAMP twice: none."""
    bounds = (entry.began_ms, entry.ended_ms)
    if entry.topic.magic == 0:
        return [(NO_TIMESTAMP, NO_TIMESTAMP)] * len(entry.records)
    if entry.topic.timestamp_type == "LogAppendTime":
        return [bounds] * len(entry.records)
    if entry.topic.producer.produce_magic == 0:
        return [(NO_TIMESTAMP, NO_TIMESTAMP)] * len(entry.records)
    return [
        (record["timestamp"], record["timestamp"]) if "timestamp" in record else bounds
        for record in entry.records
    ]


def lookups(entries: list[Written]) -> list[tuple[int, int | None]]:
    """Questions to ListOffsets about one partition, and the offset that answers each, None: nothing.

    In this order: start, end, then times: the earliest of all, the latest, and one after it. The
    answer is the smallest offset whose time is at or after the one asked for (KIP-33).
    """
    times = [time for entry in entries for time in stored_times(entry)]
    questions: list[tuple[int, int | None]] = [(START, 0), (END, len(times))]
    real = sorted(low for low, _ in times if low >= 0)  # clients do not ask below 0
    if not real:
        return [*questions, (0, None), (EVENT_TIME_MS, None), (entries[0].began_ms, None)]
    # Where a time is known by its bounds only, a question between them has no certain answer.
    certain = [t for t in real if not any(low < t <= high for low, high in times)]
    for target in (certain[0], certain[-1]):
        first = next(offset for offset, (low, _) in enumerate(times) if low >= target)
        questions.append((target, first))
    return [*questions, (max(high for _, high in times) + 1, None)]


def difference(
    expected: Expected, record: dict[str, Any], consumer: Client, topic: Topic, codec: str
) -> str | None:
    """The first way in which a record is not as expected, or None."""
    for field in ("offset", "key", "value"):
        if record[field] != getattr(expected, field):
            return f"{field} {record[field]!r} instead of {getattr(expected, field)!r}"
    if consumer.headers and [list(h) for h in record["headers"]] != expected.headers:
        return f"headers {record['headers']} instead of {expected.headers}"
    if not shows_true_time(consumer, topic, codec, expected.earliest):
        return None
    timestamp = NO_TIMESTAMP if record["timestamp"] is None else record["timestamp"]
    if not expected.earliest <= timestamp <= expected.latest:
        wanted = f"{expected.earliest}..{expected.latest}"
        return f"timestamp {record['timestamp']} instead of {wanted}"
    if hides_type(consumer, topic, record):
        return None
    if consumer.shows_types and record["timestamp_type"] != expected.timestamp_type:
        return f"timestamp type {record['timestamp_type']} instead of {expected.timestamp_type}"
    return None


def hides_type(consumer: Client, topic: Topic, record: dict[str, Any]) -> bool:
    """Whether the consumer shows no time type for this record: aiokafka, beside a missing time."""
    missing = record["timestamp"] in (None, NO_TIMESTAMP)
    return missing and consumer.name == "aiokafka" and topic.magic == 1


def writable(topic: Topic, codec: str, rules: Rules) -> bool:
    """Whether the broker takes this codec for the topic's format (tidelog: gzip replaces zstd)."""
    return rules.zstd_for_all or codec != "zstd" or (topic.magic == 2 and topic.stage is None)


def readable(topic: Topic, codec: str, consumer: Client, rules: Rules) -> bool:
    """Whether the broker can serve this to the consumer, and the consumer can unpack it."""
    if codec in consumer.unreadable:
        return False
    if topic.stage is not None and rules.mixes_formats and not consumer.reads_mixed:
        return False
    if topic.magic == 0 and codec in consumer.unreadable_in_format_0:
        return False
    return rules.zstd_for_all or codec != "zstd" or consumer.fetch_version >= ZSTD_FETCH_VERSION


def shows_true_time(consumer: Client, topic: Topic, codec: str, time_ms: int) -> bool:
    """Whether what the consumer shows as the time of a record of that time is what it was sent.

    Some read the inner timestamps of a compressed format 1 message, where an append time stands on the
    wrapper alone (KIP-32: the broker does not recompress to stamp). kafka-node loses bits of negative
    numbers.
    """
    if not consumer.shows_timestamps:
        return False
    old = min(topic.magic, consumer.fetch_magic) < 2
    stamped = codec != "none" and topic.timestamp_type == "LogAppendTime"
    if not consumer.wrapper_times and old and stamped:
        return False
    return time_ms >= NO_TIMESTAMP or not consumer.name.startswith("kafka-node")
