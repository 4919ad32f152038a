"""Fetch: every version gets what it can read, whatever lies in the log, and never stands still."""

from __future__ import annotations

import uuid
from itertools import groupby, product

import pytest
from confluent_kafka import Producer

from tests.broker import asking
from tests.broker.asking import (
    TOPIC,
    all_versions,
    alter,
    batch_of,
    create,
    fetch,
    fetch_fields,
    new_topic,
    produce,
    values,
)
from tests.oracle import codecs, recordset
from tests.oracle.recordset import Rec

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION = 1, 3, 35
FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR = 70, 71, 106
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_ID = 74, 75, 100
OLD = [0, 1, 2, 3]
CODECS = [codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD]
FORMATS = {0: "0.8.2", 1: "0.10.0", 2: "0.11.0"}


def flat(data):
    """(offset, timestamp, key, value) of every record of a record set of any format."""
    batches, rest = recordset.parse(data or b"")
    found = []
    for batch in batches:
        if batch["magic"] == 2:
            assert batch["crc_ok"]
            found += [(r["offset"], r["timestamp"], r["key"], r["value"]) for r in batch["records"]]
        else:
            found += flat_message(batch)
    return found, rest


def flat_message(message):
    assert message["crc_ok"]
    if "inner" not in message:
        return [(message["offset"], message.get("timestamp", -1), message["key"], message["value"])]
    inner = [each for one in message["inner"] for each in flat_message(one)]
    if message["magic"] == 0:
        return inner
    shift = message["offset"] - inner[-1][0]
    stamp = message["timestamp"] if message["attributes"] & recordset.LAT_BIT else None
    return [(o + shift, t if stamp is None else stamp, k, v) for o, t, k, v in inner]


def read(connection, topic, version, **more):
    """Every record of a partition as a consumer of that version reads it; fails if it stands still."""
    topic, found, offset = asking.named(connection, topic, version), [], 0
    for _ in range(1_000):
        got = fetch(connection, topic, offset, version=version, **more)
        assert got["error_code"] == 0, got
        records, _ = flat(got["records"])
        new = [each for each in records if each[0] >= offset]
        if not new:
            assert offset == got["high_watermark"], f"stands still at {offset}"
            return found
        found += new
        offset = new[-1][0] + 1
    raise AssertionError("no end")


class TestVersions:
    @pytest.mark.parametrize("magic", [0, 1, 2])
    def test_every_version_reads_every_format(self, connection, magic):
        name = new_topic(connection, message_format_version=FORMATS[magic])
        for number in range(3):
            records = recordset.batch([Rec(1_000 + number, b"v%d" % number, b"k"), Rec(5, None)])
            assert produce(connection, name, records)["error_code"] == 0
        for version in all_versions("Fetch"):
            has_time = magic > 0 and version > 1
            assert read(connection, name, version) == [
                each
                for n in range(3)
                for each in (
                    (2 * n, 1_000 + n if has_time else -1, b"k", b"v%d" % n),
                    (2 * n + 1, 5 if has_time else -1, None, None),
                )
            ], version

    def test_no_version_is_sent_a_format_it_does_not_know(self, connection):
        name = new_topic(connection)
        for magic in (2, 1, 0, 2):
            alter(connection, TOPIC, name, ("message.format.version", 0, FORMATS[magic]))
            produce(connection, name, recordset.batch(values("x", "y"), codecs.GZIP))
        for version in all_versions("Fetch"):
            got = fetch(connection, asking.named(connection, name, version), version=version)
            most = 0 if version < 2 else 1 if version < 4 else 2
            assert all(batch["magic"] <= most for batch in recordset.parse(got["records"])[0])
            assert [each[3] for each in read(connection, name, version)] == [b"x", b"y"] * 4

    def test_an_empty_partition(self, connection, topic):
        for version in all_versions("Fetch"):
            got = fetch(connection, asking.named(connection, topic, version), version=version)
            assert (got["error_code"], got["high_watermark"]) == (0, 0)
            assert not got["records"]
            assert got.get("last_stable_offset", 0) == got.get("log_start_offset", 0) == 0
            assert got.get("aborted_transactions") in (None, [])
            assert got.get("preferred_read_replica", -1) == -1


class TestNeverStalls:
    """Versions 0 to 3 on what Kafka stumbles over; none may stand still, loop, or be closed."""

    def test_versions_before_10_do_not_know_zstd(self, connection, topic):
        produce(connection, topic, recordset.batch(values("a", "b"), codecs.ZSTD))
        for version in (4, 5, 7, 9):
            batches, _ = recordset.parse(fetch(connection, topic, version=version)["records"])
            assert all(batch["attributes"] & 7 != codecs.ZSTD for batch in batches)
            assert [each[3] for each in read(connection, topic, version)] == [b"a", b"b"]

    @pytest.mark.parametrize("magic", [0, 1, 2])
    def test_a_limit_below_the_first_message_cuts_it_short(self, connection, magic):
        """So that the client raises its own error and asks for more, instead of asking for ever."""
        name = new_topic(connection, message_format_version=FORMATS[magic])
        produce(connection, name, batch_of("x" * 200, "y"))
        for limit, version in product((1, 11, 12, 17, 40, 90), (0, 1, 2)):
            got = fetch(connection, name, version=version, partition_max_bytes=limit)
            assert len(got["records"]) == limit
            assert flat(got["records"])[0] == []

    def test_later_versions_get_the_first_batch_whole(self, connection, topic):
        for text in ("x" * 200, "y"):
            produce(connection, topic, batch_of(text))
        for limit, version in product((0, 1, 40), (3, 4, 11, 12)):
            found = read(connection, topic, version, partition_max_bytes=limit, max_bytes=limit)
            assert [each[3] for each in found] == [b"x" * 200, b"y"]

    def test_small_steps_through_many_formats(self, connection):
        name = new_topic(connection, segment_bytes="600")
        for number in range(30):
            version_now = list(FORMATS.values())[number % 3]
            alter(connection, TOPIC, name, ("message.format.version", 0, version_now))
            records = recordset.batch(values(f"{number}a", f"{number}b"), CODECS[number % 5])
            assert produce(connection, name, records)["error_code"] == 0
        for version in OLD:
            found = read(connection, name, version, partition_max_bytes=400)
            assert [each[3].decode() for each in found] == [
                f"{n}{letter}" for n in range(30) for letter in "ab"
            ]

    def test_down_conversion_can_be_switched_off(self, connection):
        name = new_topic(connection, message_downconversion_enable="false")
        produce(connection, name, batch_of("x"))
        for version in OLD:
            assert fetch(connection, name, version=version)["error_code"] == UNSUPPORTED_VERSION
        assert len(read(connection, name, 4)) == 1


def of_three(topic, **more):
    """A fetch of three partitions of a topic, the last one first."""
    fields = fetch_fields(topic, **more)
    (wanted,) = fields["topics"][0]["partitions"]
    fields["topics"][0]["partitions"] = [{**wanted, "partition": i} for i in (2, 0, 1)]
    return fields


class TestLimits:
    def test_max_bytes_over_all_partitions(self, connection):
        """The first partition with data yields a batch; what is over the limit stays empty."""
        name = new_topic(connection, partitions=3)
        for partition in range(3):
            produce(connection, name, batch_of("x" * 1_000), partition=partition)
        answer = connection.ask("Fetch", 12, **of_three(name, max_bytes=1_500))
        parts = answer["responses"][0]["partitions"]
        assert [part["partition_index"] for part in parts] == [2, 0, 1]
        sizes = [len(part["records"] or b"") for part in parts]
        assert sizes[0] > 1_000
        assert sum(sizes) < 2_000

    @pytest.mark.parametrize("room", [1_024, 1_600])
    def test_the_limit_of_the_broker_cuts_no_first_message_short(self, start, room):
        """A client would take its own limit for too small, and stop with an error."""
        with start({"fetch.max.bytes": str(room)}).connect() as connection:
            for magic, version in product((0, 1, 2), (0, 1, 2)):
                self.check_first_message(connection, room, magic, version)
            name = new_topic(connection)
            for _ in range(10):
                produce(connection, name, batch_of("x" * 500))
            assert len(fetch(connection, name)["records"]) <= room
            assert len(read(connection, name, 12)) == 10

    def check_first_message(self, connection, room, magic, version):
        name = new_topic(connection, partitions=3, message_format_version=FORMATS[magic])
        for partition in (0, 0, 1, 1, 2, 2):
            produce(connection, name, batch_of("x" * 1_200), partition=partition)
        answer = connection.ask("Fetch", version, **of_three(name))
        parts = answer["responses"][0]["partitions"]
        found = [flat(part["records"]) for part in parts]
        assert [len(records) for records, _ in found] == [1, 0, 0]
        assert [part["records"] or b"" for part in parts[1:]] == [b"", b""]
        assert len(parts[0]["records"]) <= max(room, 1_250)
        got = fetch(connection, name, version=version, partition_max_bytes=900)
        assert len(got["records"]) == 900  # the client's own limit, which it may raise
        assert [each[3] for each in read(connection, name, version)] == [b"x" * 1_200] * 2


class TestRefusals:
    def test_offset_out_of_range(self, connection, topic):
        produce(connection, topic, batch_of("a", "b"))
        offsets = (3, 1_000, -1, -(2**63), 2**63 - 1)
        for offset, version in product(offsets, all_versions("Fetch")):
            got = fetch(
                connection, asking.named(connection, topic, version), offset, version=version
            )
            assert (got["error_code"], got["high_watermark"]) == (OFFSET_OUT_OF_RANGE, -1)
            assert got.get("last_stable_offset", -1) == got.get("log_start_offset", -1) == -1
            assert not got["records"]

    def test_unknown_partitions(self, connection, topic):
        for version in list(all_versions("Fetch"))[:13]:
            for name, partition in (("nowhere", 0), (topic, 9), (topic, -1)):
                got = fetch(connection, name, version=version, partition=partition)
                assert got["error_code"] == UNKNOWN_TOPIC_OR_PARTITION

    @pytest.mark.parametrize("version", [13, 14, 15, 16])
    def test_unknown_topic_ids(self, connection, topic, version):
        produce(connection, topic, batch_of("x"))
        unknown = str(uuid.uuid4())
        fields = fetch_fields(asking.topic_id_of(connection, topic))
        fields["topics"].insert(0, fetch_fields(unknown)["topics"][0])
        answer = connection.ask("Fetch", version, **fields)
        assert answer["error_code"] == 0
        first, second = answer["responses"]
        assert first["topic_id"] == unknown
        assert first["partitions"][0]["error_code"] == UNKNOWN_TOPIC_ID
        assert second["partitions"][0]["records"]

    @pytest.mark.parametrize("version", [9, 11, 12, 16])
    def test_leader_epochs(self, connection, topic, version):
        to = asking.named(connection, topic, version)
        for epoch, code in ((0, 0), (5, UNKNOWN_LEADER_EPOCH), (-2, FENCED_LEADER_EPOCH)):
            got = fetch(connection, to, version=version, epoch=epoch)
            assert got["error_code"] == code


class TestSessions:
    """KIP-227; the rules of one session are in tests/broker/partitions/fetch."""

    def ask(self, connection, topic, version, **more):
        fields = fetch_fields(asking.named(connection, topic, version), **more)
        return connection.ask("Fetch", version, **fields)

    @pytest.mark.parametrize("version", range(7, 19))
    def test_an_answer_carries_what_is_new(self, connection, topic, version):
        produce(connection, topic, batch_of("x"))
        begun = self.ask(connection, topic, version, session_epoch=0)
        assert begun["error_code"] == 0
        assert begun["session_id"] > 0
        asked = {"session_id": begun["session_id"], "offset": 1}
        answer = self.ask(connection, topic, version, session_epoch=1, **asked)
        assert (answer["session_id"], answer["responses"]) == (begun["session_id"], [])
        produce(connection, topic, batch_of("y"))
        for epoch in (2, 3):  # again, while the client does not say that it has it
            answer = connection.ask(
                "Fetch",
                version,
                **fetch_fields("", session_id=begun["session_id"], session_epoch=epoch)
                | {"topics": []},
            )
            (part,) = answer["responses"][0]["partitions"]
            assert (part["high_watermark"], bool(part["records"])) == (2, True)

    def test_a_session_nobody_gave(self, connection, topic):
        for version in range(7, 19):
            answer = self.ask(connection, topic, version)
            assert (answer["error_code"], answer["session_id"]) == (0, 0), "none was asked for"
            assert len(answer["responses"][0]["partitions"]) == 1
            for session_id, epoch in ((77, 1), (-5, 1), (0, 3), (77, -2)):
                session = {"session_id": session_id, "session_epoch": epoch}
                answer = self.ask(connection, topic, version, **session)
                told = answer["error_code"], answer["session_id"]
                assert told == (FETCH_SESSION_ID_NOT_FOUND, 0)
                assert answer["responses"] == []

    @pytest.mark.parametrize("epoch", [-1, 0])
    def test_a_fetch_of_everything_closes_the_session_it_names(self, connection, topic, epoch):
        old = self.ask(connection, topic, 12, session_epoch=0)["session_id"]
        answer = self.ask(connection, topic, 12, session_id=old, session_epoch=epoch)
        assert answer["error_code"] == 0
        assert (answer["session_id"] > 0, answer["session_id"] != old) == (epoch == 0, True)
        answer = self.ask(connection, topic, 12, session_id=old, session_epoch=1)
        assert answer["error_code"] == FETCH_SESSION_ID_NOT_FOUND

    def test_another_epoch_and_another_way_to_name_topics(self, connection, topic):
        begun = self.ask(connection, topic, 12, session_epoch=0)["session_id"]
        answer = self.ask(connection, topic, 12, session_id=begun, session_epoch=2)
        assert answer["error_code"] == INVALID_FETCH_SESSION_EPOCH
        answer = self.ask(connection, topic, 13, session_id=begun, session_epoch=1)
        assert answer["error_code"] == FETCH_SESSION_TOPIC_ID_ERROR
        answer = self.ask(connection, topic, 12, session_id=begun, session_epoch=1)
        assert answer["error_code"] == 0

    def test_a_broker_without_slots_answers_in_full(self, start):
        broker = start({"max.incremental.fetch.session.cache.slots": 0})
        with broker.connect() as connection:
            create(connection, "t")
            for _ in range(2):
                answer = self.ask(connection, "t", 12, session_epoch=0)
                assert (answer["error_code"], answer["session_id"]) == (0, 0)
                assert len(answer["responses"][0]["partitions"]) == 1


@pytest.mark.parametrize("formats", [[0, 1, 2, 1, 0], [2, 0, 2, 1, 2]])
@pytest.mark.parametrize("version", all_versions("Fetch")[2:])
def test_an_answer_has_one_format_and_comes_at_once(connection, version, formats):
    topic = new_topic(connection, message_format_version=FORMATS[0], retention_ms="-1")
    for number, magic in enumerate(formats):
        changed = ("message.format.version", 0, FORMATS[magic])
        assert alter(connection, TOPIC, topic, changed)[0] == 0
        for _ in range(2):
            records = recordset.batch([Rec(number, b"v")])
            assert produce(connection, topic, records)["error_code"] == 0
    named, offset, seen = asking.named(connection, topic, version), 0, []
    while offset < 2 * len(formats):
        waits = {"min_bytes": 1 << 20, "max_wait_ms": 60_000 if offset < 8 else 0}
        got = fetch(connection, named, offset, version=version, **waits)
        batches, rest = recordset.parse(got["records"])
        assert not rest
        (magic,) = {batch["magic"] for batch in batches}
        seen.append(magic)
        offset = flat(got["records"])[0][-1][0] + 1
    most = 2 if version > OLD[-1] else 1
    assert seen == [magic for magic, _ in groupby(min(each, most) for each in formats)]


@pytest.mark.parametrize("version", [2, 3])
def test_an_answer_behind_a_marker_has_one_format(broker, connection, version):
    """An old client gets no marker: its answer has what follows."""
    topic = new_topic(connection)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"v")
    producer.commit_transaction(60)
    for magic in (0, 1):
        alter(connection, TOPIC, topic, ("message.format.version", 0, FORMATS[magic]))
        assert produce(connection, topic, batch_of("x"))["error_code"] == 0
    got = fetch(connection, topic, 1, version=version, min_bytes=1 << 20, max_wait_ms=20_000)
    assert [batch["magic"] for batch in recordset.parse(got["records"])[0]] == [0]
