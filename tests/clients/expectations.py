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

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tests.clients.clients import Client

TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
LONG_VALUE_BYTES = 300  # as drivers/lines.py
EVENT_TIME_MS = 1_600_000_000_000
NO_TIMESTAMP = -1
START, END = -2, -1  # as times of ListOffsets
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
ZSTD_FETCH_VERSION = 10  # the first that may be answered with zstd


class Rules(NamedTuple):
    """What one broker can do; the drivers are tested against brokers of the Apache project."""

    format_versions: dict[int, str | None]  # message.format.version per format it can write
    zstd_for_all: bool  # zstd reaches clients and formats older than zstd
    names_refusals: bool  # what a format cannot carry is answered with the error that says so


BROKERS = {
    "tidelog": Rules({0: "0.9.0", 1: "0.10.2", 2: "3.0"}, zstd_for_all=True, names_refusals=True),
    # It answers UNKNOWN_SERVER_ERROR to headers and zstd that formats 0 and 1 cannot carry.
    "kafka-2.8": Rules(
        {0: "0.9.0", 1: "0.10.2", 2: "2.8"}, zstd_for_all=False, names_refusals=False
    ),
    "kafka-3.9": Rules({2: None}, zstd_for_all=False, names_refusals=True),
}


class Topic(NamedTuple):
    """A topic of the matrix: written by one client only, one partition per codec."""

    name: str
    producer: Client
    magic: int
    timestamp_type: str


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
    name = producer.name.replace(" ", "-").replace(".", "-")
    return Topic(f"format{magic}-{kind}-{name}", producer, magic, timestamp_type)


def records_for(topic: Topic, codec: str) -> list[dict[str, Any]]:
    """What the topic's producer sends with one codec: nulls, long and non-ASCII texts, times out of order."""
    client = topic.producer
    tag = f"{topic.name} {codec}"
    long_text = f"{tag} ".encode() + b"".join(
        hashlib.sha256(f"{tag}{i}".encode()).hexdigest().encode() + b"-repeated" * 20
        for i in range(290)
    )
    contents: list[tuple[str | None, str | None]] = [
        ("first", f"{tag} erste Zeile"),
        (None, f"{tag} no key"),
        ("ключ", "значение — 値 ☃"),
        ("gone", None),
        ("empty" if client.empty_value else "short", "" if client.empty_value else "."),
        ("long", long_text.decode()),
        ("last", f"{tag} end"),
    ]
    records = []
    for (key, value), delay in zip(contents, (3000, 0, 5000, 5000, 1000, 4000, 2000), strict=True):
        record: dict[str, Any] = {"key": key, "value": value}
        if client.sets_timestamps:
            record["timestamp"] = EVENT_TIME_MS + delay
        if client.headers and topic.magic == 2:
            record["headers"] = [["trace", "ä1"], ["origin", tag]]
        records.append(record)
    return records


def shown(value: str | None) -> str | None:
    """A value as drivers tell it."""
    if value is None or len(value.encode()) <= LONG_VALUE_BYTES:
        return value
    data = value.encode()
    return f"sha1:{hashlib.sha1(data).hexdigest()}:{len(data)}"


def expect(
    topic: Topic, records: list[dict[str, Any]], consumer: Client, began_ms: int, ended_ms: int
) -> list[Expected]:
    """How `consumer` must see records sent to one partition between two times of the wall clock."""
    magic = min(topic.magic, consumer.fetch_magic)
    kind = "append" if topic.timestamp_type == "LogAppendTime" else "create"
    kind = "none" if magic == 0 else kind
    times = stored_times(topic, records, began_ms, ended_ms)
    expected = []
    for offset, record in enumerate(records):
        earliest, latest = (NO_TIMESTAMP, NO_TIMESTAMP) if magic == 0 else times[offset]
        headers = None
        if consumer.headers:
            headers = record.get("headers") or [] if magic == 2 else []
        value = shown(record["value"])
        expected.append(Expected(offset, record["key"], value, headers, earliest, latest, kind))
    return expected


def stored_times(
    topic: Topic, records: list[dict[str, Any]], began_ms: int, ended_ms: int
) -> list[tuple[int, int]]:
    """The earliest and latest possible time of each record as stored; NO_TIMESTAMP twice: none."""
    if topic.magic == 0:
        return [(NO_TIMESTAMP, NO_TIMESTAMP)] * len(records)
    if topic.timestamp_type == "LogAppendTime":
        return [(began_ms, ended_ms)] * len(records)
    if topic.producer.produce_magic == 0:
        return [(NO_TIMESTAMP, NO_TIMESTAMP)] * len(records)
    return [
        (record["timestamp"], record["timestamp"])
        if "timestamp" in record
        else (began_ms, ended_ms)
        for record in records
    ]


def lookups(
    topic: Topic, records: list[dict[str, Any]], began_ms: int, ended_ms: int
) -> list[tuple[int, int | None]]:
    """Questions to ListOffsets, and the offset that answers each (None: no record is as late).

    In this order: start, end, then times: the earliest of all, the latest, and one after it. The
    answer is the smallest offset whose time is at or after the one asked for (KIP-33).
    """
    times = stored_times(topic, records, began_ms, ended_ms)
    questions: list[tuple[int, int | None]] = [(START, 0), (END, len(records))]
    earliest = min(low for low, _ in times)
    latest = max(low for low, _ in times)
    after = max(high for _, high in times) + 1
    if earliest == NO_TIMESTAMP:
        return [*questions, (0, None), (EVENT_TIME_MS, None), (began_ms, None)]
    for target in (earliest, latest):
        first = next(offset for offset, (low, _) in enumerate(times) if low >= target)
        questions.append((target, first))
    return [*questions, (after, None)]


def difference(
    expected: Expected, record: dict[str, Any], consumer: Client, topic: Topic, codec: str
) -> str | None:
    """The first way in which a record is not as expected, or None."""
    for field in ("offset", "key", "value"):
        if record[field] != getattr(expected, field):
            return f"{field} {record[field]!r} instead of {getattr(expected, field)!r}"
    if consumer.headers and [list(h) for h in record["headers"]] != expected.headers:
        return f"headers {record['headers']} instead of {expected.headers}"
    if not consumer.shows_timestamps or ignores_append_time(consumer, topic, codec):
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
    return rules.zstd_for_all or codec != "zstd" or topic.magic == 2


def readable(topic: Topic, codec: str, consumer: Client, rules: Rules) -> bool:
    """Whether the broker can serve this to the consumer, and the consumer can unpack it."""
    if codec in consumer.unreadable:
        return False
    if topic.magic == 0 and codec in consumer.unreadable_in_format_0:
        return False
    return rules.zstd_for_all or codec != "zstd" or consumer.fetch_version >= ZSTD_FETCH_VERSION


def ignores_append_time(consumer: Client, topic: Topic, codec: str) -> bool:
    """Whether the consumer shows times that nobody promises.

    kafka-node reads the inner timestamps of a compressed format 1 message, where an append time
    stands on the wrapper alone (KIP-32: the broker does not recompress to stamp).
    """
    compressed = codec != "none"
    append_time = topic.timestamp_type == "LogAppendTime"
    return consumer.name.startswith("kafka-node") and compressed and append_time
