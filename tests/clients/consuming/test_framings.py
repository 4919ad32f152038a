"""What is stored of every framing of a compressed set is read back whole by clients of four families.

Sets of every format, codec and framing go to topics of every format, which keep or convert them; a part is
compacted, so that sets lose records or stay as they are. Java's console consumer, kafka-python (also as a
client of 0.10, which gets conversions), aiokafka and librdkafka read all of it.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import NamedTuple

import pytest
from crc32c import crc32c

from tests.broker import asking
from tests.broker.subject import Subject, eventually
from tests.clients import clients
from tests.clients.environments import Unavailable
from tests.clients.session import ANSWER_TIMEOUT_S, Session
from tests.oracle import apache_kafka, recordset
from tests.oracle.codecs import GZIP, LZ4, NAMES, SNAPPY, ZSTD
from tests.oracle.logs.compactions import cleaned_offsets
from tests.oracle.recordset import Rec
from tests.protocol.records.framings import REFUSED, framings
from tests.tools.java_tools import JavaTools

KAFKA = "3.9.1"
VERSIONS = {0: "0.9.0", 1: "0.10.0", 2: "3.0"}  # message.format.version
PRODUCE = {0: 1, 1: 2, 2: 9}
CORRUPT_MESSAGE = 2
TIME_MS = 1_700_000_000_000
SEGMENT_BYTES = "30000"  # room for no plain set behind another one
COUNT = 6  # records of a set: more bytes together than a reader of 16 KiB takes at once
CONSUME_MS = 100_000  # below ANSWER_TIMEOUT_S
SETTINGS = {
    "log.retention.ms": -1,
    "log.cleaner.backoff.ms": 100,
    "group.initial.rebalance.delay.ms": 0,
}
POLICIES = {
    "delete": {},
    "compact": {"min_cleanable_dirty_ratio": "0", "segment_bytes": SEGMENT_BYTES},
}
READERS = {
    "librdkafka": (clients.CONFLUENT, ()),
    "kafka-python": (clients.KAFKA_PYTHON_3, ()),
    "kafka-python as 0.10": (clients.KAFKA_PYTHON_3, ("0.10.0",)),
    "aiokafka": (clients.AIOKAFKA, ()),
}

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


class Place(NamedTuple):
    """A partition, and what a reader of it has to find: by offset, key and value."""

    topic: str
    partition: int
    codec: int
    magic: int  # of the topic
    records: dict[int, tuple[str, str]]


def digest(value):
    """As the drivers write long values."""
    return f"sha1:{hashlib.sha1(value).hexdigest()}:{len(value)}"


def records_of(place, name, first):
    """Records that hardly compress, whose keys say what they are."""
    made = []
    for number in range(first, first + COUNT):
        key = f"{place.topic}/{NAMES[place.codec]}/{name}/{number}"
        parts = (hashlib.sha256(f"{key} {first} {i}".encode()).hexdigest() for i in range(50))
        made.append(Rec(TIME_MS, "".join(parts).encode(), key.encode()))
    return made


def framed(magic, codec, recs):
    """Every framing of a set, as a producer of that format sends it, by its name."""
    data = recordset.plain_set(magic, recs) if magic < 2 else payload_of(recs)
    for name, packed in framings(codec, data, magic):
        if magic == 2:
            yield name, recordset.batch(recs, codec, payload=packed)
        else:
            outer = Rec(recs[0].timestamp, packed)
            last = len(recs) - 1
            yield name, recordset.message(magic, outer, offset=last, attributes=codec)


def payload_of(recs):
    return b"".join(recordset.record(rec, recs[0].timestamp, i) for i, rec in enumerate(recs))


def names_of(codec):
    return [name for name, _ in framings(codec, b"some bytes" * 9)]


def fill(connection, produced, stored, policy):
    """One topic: a partition for each codec, with two sets of each framing; returns what they hold."""
    topic = f"framed-{produced}-{stored}-{policy}"
    codecs = (GZIP, SNAPPY, LZ4, ZSTD)[: 3 + (produced == 2)]
    settings = {
        "message_format_version": VERSIONS[stored],
        "cleanup_policy": policy,
        **POLICIES[policy],
    }
    asking.create(connection, topic, len(codecs), **settings)
    found = [Place(topic, index, codec, stored, {}) for index, codec in enumerate(codecs)]
    for place, first in itertools.product(found, (0, COUNT // 2)):
        for name in names_of(place.codec):
            recs = records_of(place, name, first)
            data = next(
                each for found, each in framed(produced, place.codec, recs) if found == name
            )
            code = append(connection, produced, place, data)
            assert code == (CORRUPT_MESSAGE if name in REFUSED[place.codec] else 0), (topic, name)
            if not code:
                note(place, recs)
    if policy == "compact":
        for place in found:
            # Of each first set a half stays, and each second one stays as it is.
            newest = {key: offset for offset, (key, _) in place.records.items()}
            for offset in place.records.keys() - newest.values():
                del place.records[offset]
            end = records_of(place, "the end", 0)
            assert append(connection, 2, place, recordset.batch(end)) == 0  # the active segment
            note(place, end)
    return found


def append(connection, magic, place, data):
    """Returns the error of Produce."""
    named = {"version": PRODUCE[magic], "partition": place.partition}
    return asking.produce(connection, place.topic, data, **named)["error_code"]


def note(place, recs):
    """What was appended behind what is there."""
    end = max(place.records, default=-1) + 1
    for offset, rec in enumerate(recs, end):
        place.records[offset] = (rec.key.decode(), digest(rec.value))


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Subject(tmp_path_factory.mktemp("framed") / "data", SETTINGS) as subject:
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]


@pytest.fixture(scope="module")
def places(broker):
    """Everything is stored, and compacted where it is to be."""
    found = []
    with broker.connect() as connection, pytest.MonkeyPatch.context() as patch:
        patch.setattr(recordset, "crc32c", crc32c)  # many times as fast as the one in Python
        for produced, stored, policy in itertools.product((0, 1, 2), (0, 1, 2), POLICIES):
            found += fill(connection, produced, stored, policy)
    ends = {
        (each.topic, each.partition): max(each.records) + 1 - COUNT
        for each in found
        if each.topic.endswith("compact")
    }

    def is_clean():
        cleaned = cleaned_offsets(broker.log_dir)
        return all(cleaned.get(each) == end for each, end in ends.items())

    eventually(is_clean, 120, "every log is clean up to its active segment")
    return found


def test_the_matrix_has_every_case(places):
    assert len({each[:3] for each in places}) == 2 * 3 * (3 + 3 + 4)
    for each in places:
        keys = {key.split("/")[2] for key, _ in each.records.values()} - {"the end"}
        assert keys == set(names_of(each.codec)) - REFUSED[each.codec]


@pytest.mark.parametrize("reader", READERS)
def test_all_is_read_back(broker, places, reader):
    client, release = READERS[reader]
    try:
        command = [*client.command(broker.bootstrap), *release]
    except Unavailable as reason:
        pytest.skip(str(reason))
    wanted = [
        each
        for each in places
        if each.magic or NAMES[each.codec] not in client.unreadable_in_format_0
    ]
    partitions = [
        {"topic": topic, "partition": partition, "from": 0, "count": len(records)}
        for topic, partition, _, _, records in wanted
    ]
    with Session(client.name, command) as session:
        asked = {"op": "consume", "timeout_ms": CONSUME_MS, "partitions": partitions}
        answers = session.ask(asked, ANSWER_TIMEOUT_S)
    read = {
        (each["topic"], each["partition"]): {
            record["offset"]: (record["key"], record["value"]) for record in each["records"]
        }
        for each in answers
    }
    for each in wanted:
        assert read[each[:2]] == each.records, each[:4]


def test_all_is_read_back_by_javas_console_consumer(broker, places, tmp_path):
    apache_kafka.require(f"tools-{KAFKA}")
    expected = {
        (key, offset, value) for each in places for offset, (key, value) in each.records.items()
    }
    with JavaTools(KAFKA, tmp_path) as tools:
        done = tools.run(
            "kafka-console-consumer",
            *("--bootstrap-server", broker.bootstrap, "--include", "framed-.*"),
            *("--from-beginning", "--max-messages", str(len(expected)), "--timeout-ms", "60000"),
            *("--property", "print.offset=true", "--property", "print.key=true"),
        )
    assert done.status == 0, done.err[-4000:]
    read = set()
    for line in done.lines:
        offset, key, value = line.split("\t")
        read.add((key, int(offset.removeprefix("Offset:")), digest(value.encode())))
    assert read == expected
