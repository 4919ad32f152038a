"""Produce: every version and format, acks, refusals, idempotence; each partition for itself."""

from __future__ import annotations

import time

import pytest

from tests.broker import asking
from tests.broker.asking import (
    all_versions,
    batch_of,
    create,
    delete_records,
    fetch,
    new_name,
    new_topic,
    produce,
    produce_fields,
    read_values,
    records_for,
    values,
)
from tests.oracle import codecs, recordset

CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION = 2, 3
INVALID_TOPIC, INVALID_REQUIRED_ACKS, INVALID_TIMESTAMP = 17, 21, 32
OUT_OF_ORDER = 45
UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD, UNKNOWN_TOPIC_ID = 76, 87, 100


@pytest.fixture
def topic(connection):
    return new_topic(connection, partitions=2)


class TestVersions:
    @pytest.mark.parametrize("version", all_versions("Produce"))
    def test_every_version_appends(self, connection, topic, version):
        to = asking.named(connection, topic, version)
        for offset in (0, 2):
            got = produce(connection, to, records_for(version, "a", "b"), version=version)
            assert (got["index"], got["error_code"], got["base_offset"]) == (0, 0, offset)
            assert got.get("log_append_time_ms", -1) == -1, "only LogAppendTime topics tell it"
            assert got.get("log_start_offset", 0) == 0
            assert got.get("record_errors", []) == []
            assert got.get("error_message") is None
        assert read_values(connection, topic) == [b"a", b"b"] * 2

    @pytest.mark.parametrize("version", list(all_versions("Produce"))[2:])
    def test_the_log_append_time_is_told(self, connection, version):
        name = new_name()
        topic_id = create(connection, name, message_timestamp_type="LogAppendTime")
        to = topic_id if version >= 13 else name
        before = time.time_ns() // 1_000_000
        got = produce(connection, to, records_for(version, "a"), version=version)
        told = got["log_append_time_ms"]
        assert before <= told <= time.time_ns() // 1_000_000
        batches, _ = recordset.parse(fetch(connection, name)["records"])
        assert batches[0]["records"][0]["timestamp"] == told

    def test_an_unknown_topic_id(self, connection):
        unknown = asking.NO_ID[:-1] + "9"
        got = produce(connection, unknown, batch_of("x"), version=13)
        assert (got["error_code"], got["base_offset"]) == (UNKNOWN_TOPIC_ID, -1)


class TestAcks:
    @pytest.mark.parametrize("version", all_versions("Produce"))
    def test_acks_0_is_not_answered(self, connection, topic, version):
        to = asking.named(connection, topic, version)
        for _ in range(3):
            produce(connection, to, records_for(version, "x"), acks=0, version=version)
        assert connection.ask("ApiVersions", 0)["error_code"] == 0, "the next answer is the next's"
        assert read_values(connection, topic) == [b"x"] * 3

    def test_any_other_number_is_refused(self, connection, topic):
        for acks in [5, 2, -2, 32767, -32768]:
            for version in [0, 3, 9]:
                got = produce(
                    connection, topic, records_for(version, "x"), acks=acks, version=version
                )
                assert (got["error_code"], got["base_offset"]) == (INVALID_REQUIRED_ACKS, -1)
                assert read_values(connection, topic) == []

    def test_acks_all_needs_no_more_replicas_than_there_are(self, connection):
        """Kafka 3.9.1 and 4.1.1 accept acks=all with min.insync.replicas=2 and one replica."""
        name = new_topic(connection, min_insync_replicas="2")
        assert produce(connection, name, batch_of("x"), acks=-1)["base_offset"] == 0
        assert produce(connection, name, batch_of("x"), acks=1)["base_offset"] == 1


class TestPartitions:
    def test_each_for_itself(self, connection, topic):
        fields = produce_fields(topic, None)
        fields["topic_data"] = [
            {
                "name": topic,
                "partition_data": [
                    {"index": 0, "records": batch_of("x")},
                    {"index": 9, "records": batch_of("x")},
                    {"index": 1, "records": batch_of("x", bad_crc=True)},
                ],
            },
            {"name": "nowhere", "partition_data": [{"index": 0, "records": batch_of("x")}]},
        ]
        answer = connection.ask("Produce", 9, **fields)
        first, second = answer["responses"]
        found = [
            (p["index"], p["error_code"], p["base_offset"]) for p in first["partition_responses"]
        ]
        assert found == [(0, 0, 0), (9, UNKNOWN_TOPIC_OR_PARTITION, -1), (1, CORRUPT_MESSAGE, -1)]
        assert second["name"] == "nowhere"
        assert second["partition_responses"][0]["error_code"] == UNKNOWN_TOPIC_OR_PARTITION

    def test_a_request_without_topics(self, connection):
        fields = {**produce_fields("t", None), "topic_data": []}
        assert connection.ask("Produce", 9, **fields)["responses"] == []

    @pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
    def test_an_empty_set(self, connection, topic, version):
        """Old versions take it and store nothing: offset -1, no error."""
        code = 0 if version < 3 else INVALID_RECORD
        for records in (b"", None):
            got = produce(connection, topic, records, version=version)
            assert (got["error_code"], got["base_offset"]) == (code, -1)


def test_clients_do_not_write_to_the_brokers_own_topics(start):
    """As Kafka 3.9.1: nobody does but who calls himself an admin client, which is no right here."""
    record = [recordset.Rec(1_000, b"v", key=b"k")]
    records, old = recordset.batch(record), recordset.plain_set(1, record)

    def check_refused(connection, name):
        for version in all_versions("Produce"):
            to, data = asking.named(connection, name, version), records if version >= 3 else old
            got = produce(connection, to, data, version=version)
            assert (got["error_code"], got["base_offset"]) == (INVALID_TOPIC, -1), version
            assert got.get("log_start_offset", -1) == -1
        assert "clients do not write" in got["error_message"]

    with start().connect() as connection:
        for name in ("__consumer_offsets", "__transaction_state"):
            create(connection, name, cleanup_policy="compact")
            check_refused(connection, name)
        connection.client_id = "__admin_client"
        check_refused(connection, name)
        got = produce(connection, name, records, partition=7)
        assert got["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
        assert produce(connection, name, records, acks=5)["error_code"] == INVALID_REQUIRED_ACKS
        assert delete_records(connection, name, -1) == (INVALID_TOPIC, -1)
        produce(connection, name, records, acks=0)
        assert connection.receive() is None, "an error under acks=0 closes"
        connection.close()
        assert read_values(connection, name) == []


class TestRecordSets:
    @pytest.mark.parametrize(
        "records",
        [
            batch_of("x") + batch_of("y"),
            recordset.plain_set(1, values("x")),
            recordset.plain_set(0, values("x")),
            batch_of("x", base_offset=5),
            batch_of("x", attributes=recordset.CONTROL_BIT),
        ],
        ids=["two batches", "format 1", "format 0", "base offset", "control"],
    )
    def test_invalid_record(self, connection, topic, records):
        for version in [3, 8, 9]:
            got = produce(connection, topic, records, version=version)
            assert got["error_code"] == INVALID_RECORD

    def test_zstd_is_known_from_version_7_on(self, connection, topic):
        for version in [3, 6, 7, 9]:
            records = recordset.batch(values("x"), codecs.ZSTD)
            got = produce(connection, topic, records, version=version)
            assert got["error_code"] == (UNSUPPORTED_COMPRESSION_TYPE if version < 7 else 0)

    def test_every_codec_comes_back(self, connection, topic):
        texts = ("a", "b" * 1_000)
        for codec in (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4, codecs.ZSTD):
            produce(connection, topic, recordset.batch(values(*texts), codec))
        assert read_values(connection, topic) == [text.encode() for text in texts] * 5


class Sequence:
    """A producer's view of itself."""

    def __init__(self, connection, topic):
        self.connection = connection
        self.topic = topic
        answer = connection.ask(
            "InitProducerId", 0, transactional_id=None, transaction_timeout_ms=1_000
        )
        self.producer_id = answer["producer_id"]

    def send(self, sequence, *texts, epoch=0, **more):
        records = batch_of(
            *(texts or ("x",)),
            producer_id=self.producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            **more,
        )
        got = produce(self.connection, self.topic, records)
        return got["error_code"], got["base_offset"]


@pytest.fixture
def sequence(connection, topic):
    return Sequence(connection, topic)


class TestIdempotence:
    def test_a_duplicate_is_answered_as_the_first_time(self, connection, topic, sequence):
        assert sequence.send(0, "a", "b") == (0, 0)
        assert sequence.send(2, "c") == (0, 2)
        assert sequence.send(0, "a", "b") == (0, 0)
        assert sequence.send(2, "c") == (0, 2)
        assert read_values(connection, topic) == [b"a", b"b", b"c"]

    def test_a_gap(self, sequence):
        sequence.send(0)
        assert sequence.send(2) == (OUT_OF_ORDER, -1)
        assert sequence.send(1) == (0, 1)


def test_what_was_appended_is_counted(broker, connection, topic):
    produce(connection, topic, batch_of("x", "y"))
    produce(connection, topic, batch_of("x", count=9))
    count = "kafka_server_brokertopicmetrics_messagesin_total"
    assert broker.metric(count, topic=topic) == 2
    count = "kafka_server_brokertopicmetrics_failedproducerequests_total"
    assert broker.metric(count, error="INVALID_RECORD") >= 1
