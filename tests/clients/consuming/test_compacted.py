"""What compaction leaves is read to its end by every client.

A log of each format and codec is cleaned twice: batches lose their first and their last records, all of them
(where the state of a producer keeps the header), or stay; transactions lose their records and keep markers.
What must be read is what the newest Fetch brings, by a decoder of the tests alone.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import pytest
from confluent_kafka import Producer

from tests.broker import asking
from tests.broker.subject import Subject, eventually
from tests.clients import clients
from tests.clients.environments import Unavailable
from tests.clients.session import ANSWER_TIMEOUT_S, Session
from tests.clients.transactions.expectations import ABILITIES, ISOLATIONS, READ_COMMITTED
from tests.oracle import recordset
from tests.oracle.codecs import GZIP, LZ4, NAMES, NONE, SNAPPY, ZSTD
from tests.oracle.logs.compactions import cleaned_offsets
from tests.oracle.recordset import Rec

VERSIONS = {0: "0.9.0", 1: "0.10.2", 2: "3.0"}  # message.format.version
SETTINGS = {"log.retention.ms": -1, "log.cleaner.backoff.ms": 100}
FILLER = b"f" * 3_900  # a segment for itself
POLICY = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "segment_bytes": "4000",
}
DAY_MS = "86400000"
TIME_MS = 1_700_000_000_000
TIMEOUT_S = 60
CONSUME_MS = 100_000  # below ANSWER_TIMEOUT_S

pytestmark = [pytest.mark.clients, pytest.mark.timeout(600)]


class Place(NamedTuple):
    """A partition, and what is in it: keys by offset; which of them are aborted, and which are markers."""

    topic: str
    partition: int
    codec: int
    magic: int
    keys: dict[int, str]
    aborted: set[int]
    markers: set[int]

    def seen(self, isolation, *, markers):
        """The offsets that a reader is handed."""
        hidden = self.aborted if isolation == READ_COMMITTED else set()
        return (self.keys.keys() - hidden) | (self.markers if markers else set())


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Subject(tmp_path_factory.mktemp("compacted") / "data", SETTINGS) as subject:
        yield subject
        assert subject.unexpected_errors == 0, subject.log()[-8000:]


@pytest.fixture(scope="module")
def places(broker):
    found = []
    with broker.connect() as connection:
        for magic, release in VERSIONS.items():
            codecs = (NONE, GZIP, SNAPPY, LZ4, ZSTD)[: 4 + (magic == 2)]
            topic = f"compacted-{magic}"
            asking.create(connection, topic, len(codecs), message_format_version=release, **POLICY)
            found += [(topic, index, codec, magic) for index, codec in enumerate(codecs)]
        for part, keep_ms in enumerate(
            ("0", DAY_MS)
        ):  # what is due goes with the second part, no later
            for topic in {each[0] for each in found}:
                asking.alter(connection, asking.TOPIC, topic, ("delete.retention.ms", 0, keep_ms))
            for topic, partition, codec, magic in found:
                fill(broker, connection, (topic, partition), codec, magic, part)
            ends = {each[:2]: end(connection, *each[:2]) for each in found}
            eventually(
                lambda ends=ends: is_clean(broker, ends),
                120,
                "every log is clean",
            )
        return [place_of(connection, *each) for each in found]


def fill(broker, connection, place, codec, magic, part):
    """Records of which some are replaced later, then a segment that is not cleaned."""
    sequence = itertools.count()

    def put(*keys, value=b"v" * 90, packed=codec, **more):
        recs = [Rec(TIME_MS, value, key.encode()) for key in keys]
        data = recordset.batch(recs, packed, **more)
        answer = asking.produce(connection, place[0], data, partition=place[1])
        assert answer["error_code"] == 0

    def identity(producer_id):
        return {"producer_id": producer_id, "producer_epoch": part, "base_sequence": next(sequence)}

    put("both stay", f"{part} stays")
    for number in range(4):
        put(f"{part} {number} stays", "goes")  # a batch that loses its end
        put("goes", f"{part} {number} stays too")  # one that loses its beginning
        put("goes", "goes")  # one that loses all
        put(f"{part} {number} tombstone", value=None)
    if magic == 2:
        put("goes", **identity(100 + part))  # its header stays for its producer's sequence
        transact(broker, place, codec, part)
        put("goes", **identity(200 + part))
    put("goes")
    put("the end", value=FILLER, packed=NONE)
    put(f"{part} last", value=FILLER, packed=NONE)


def transact(broker, place, codec, part):
    """Transactions that commit and abort, one of which leaves its marker alone."""
    options = {
        "bootstrap.servers": broker.bootstrap,
        "transactional.id": f"{place}-{part}",
        "compression.type": NAMES[codec],
    }
    producer = Producer(options)
    producer.init_transactions(TIMEOUT_S)
    for number, is_committed in enumerate((True, False, True, False)):
        producer.begin_transaction()
        name = "committed" if is_committed else "aborted"
        for key in ("goes", f"{part} {number} {name}"):
            producer.produce(place[0], b"v" * 90, key.encode(), partition=place[1])
        producer.flush(TIMEOUT_S)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(TIMEOUT_S)


def end(connection, topic, partition):
    return asking.list_offset(connection, topic, -1, partition=partition)["offset"]


def is_clean(broker, ends):
    """All but the last record is in closed segments, and cleaned."""
    cleaned = cleaned_offsets(broker.log_dir)
    return all(cleaned.get(place) == offset - 1 for place, offset in ends.items())


def place_of(connection, topic, partition, codec, magic):
    """Everything that is left in a partition."""
    place = Place(topic, partition, codec, magic, {}, set(), set())
    offset, last = 0, end(connection, topic, partition)
    while offset < last:
        got = asking.fetch(connection, topic, offset, partition=partition)
        for batch in recordset.parse(got["records"])[0]:
            offset = note(place, batch)
    return place


def note(place, batch):
    """Adds what a batch has; returns the offset behind it."""
    if batch["magic"] < 2:
        recs = batch.get("inner") or [batch]
        shift = batch["offset"] - recs[-1]["offset"] if batch["magic"] else 0
        place.keys.update((rec["offset"] + shift, rec["key"].decode()) for rec in recs)
        return batch["offset"] + 1
    offsets = {rec["offset"] for rec in batch["records"]}
    if batch["attributes"] & recordset.CONTROL_BIT:
        place.markers.update(offsets)
    else:
        place.keys.update((rec["offset"], rec["key"].decode()) for rec in batch["records"])
        if batch["attributes"] & recordset.TRANSACTIONAL_BIT:
            place.aborted.update(at for at in offsets if "aborted" in place.keys[at])
    return batch["offset"] + batch["last_offset_delta"] + 1


def test_the_logs_have_what_they_should(places):
    for place in places:
        left = list(place.keys.values())
        assert left.count("goes") <= 1
        assert left.count("the end") == left.count("both stay") == 1
        assert {"0 3 stays", "1 3 stays too", "1 last"} <= set(left)
        assert max(place.keys) + 1 > 2 * len(place.keys)  # most is gone
    assert any(place.markers for place in places)


@pytest.mark.parametrize("client", clients.CLIENTS, ids=lambda client: client.slug)
def test_all_is_read_to_its_end(broker, places, client):
    try:
        command = client.command(broker.bootstrap)
    except Unavailable as reason:
        pytest.skip(str(reason))
    wanted = [place for place in places if is_readable(place, client)]
    able = ABILITIES[client.name]
    with Session(client.name, command) as session:
        for isolation in (None,) if able.no_isolation else ISOLATIONS:
            seen = {each[:2]: each.seen(isolation, markers=able.shows_markers) for each in wanted}
            asked = {
                "op": "consume",
                "timeout_ms": CONSUME_MS,
                "partitions": [
                    {"topic": topic, "partition": partition, "from": 0, "count": len(offsets)}
                    for (topic, partition), offsets in seen.items()
                ],
                **({"isolation": isolation} if isolation else {}),
            }
            answers = session.ask(asked, ANSWER_TIMEOUT_S)
            read = {
                (each["topic"], each["partition"]): {
                    record["offset"]: record["key"] for record in each["records"]
                }
                for each in answers
            }
            for each in wanted:
                got = read[each[:2]]
                assert got.keys() == seen[each[:2]], (each[:4], isolation)
                assert {o: k for o, k in got.items() if o not in each.markers} == {
                    o: each.keys[o] for o in got.keys() - each.markers
                }


def is_readable(place, client):
    name = NAMES[place.codec]
    return name not in client.unreadable and (
        place.magic or name not in client.unreadable_in_format_0
    )
