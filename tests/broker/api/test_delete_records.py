"""DeleteRecords: the log start rises, is answered, is fetched from, and outlives a kill."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.broker.asking import (
    TOPIC,
    all_versions,
    alter,
    batch_of,
    delete_records,
    fetch,
    list_offset,
    new_topic,
    produce,
)
from tests.oracle import recordset

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION = 1, 3, 44
LATEST, EARLIEST = -1, -2
HIGH_WATERMARK = -1


def earliest(connection, topic):
    return list_offset(connection, topic, EARLIEST)["offset"]


def fill(connection, topic, batches=10):
    """Batches of two records: offsets 0 to 2 * batches - 1, at 1000, 1001, 1000, ..."""
    for n in range(batches):
        assert produce(connection, topic, batch_of(f"a{n}", f"b{n}"))["error_code"] == 0


@pytest.fixture
def topic(connection):
    name = new_topic(connection)
    fill(connection, name)
    return name


@pytest.mark.parametrize("version", all_versions("DeleteRecords"))
def test_every_version_raises_the_start(connection, topic, version):
    assert delete_records(connection, topic, 6, version=version) == (0, 6)
    assert earliest(connection, topic) == 6
    assert list_offset(connection, topic, LATEST)["offset"] == 20
    got = fetch(connection, topic, 6)
    assert (got["error_code"], got["log_start_offset"], got["high_watermark"]) == (0, 6, 20)
    batches, _ = recordset.parse(got["records"])
    assert batches[0]["records"][0]["value"] == b"a3"


@pytest.mark.parametrize("version", all_versions("DeleteRecords"))
def test_minus_1_is_the_high_watermark(connection, topic, version):
    assert delete_records(connection, topic, HIGH_WATERMARK, version=version) == (0, 20)
    assert earliest(connection, topic) == 20
    got = fetch(connection, topic, 20)
    assert (got["error_code"], got["records"] or b"") == (0, b"")
    assert produce(connection, topic, batch_of("next"))["base_offset"] == 20
    assert fetch(connection, topic, 20)["records"]


def test_below_the_start_is_out_of_range(connection, topic):
    delete_records(connection, topic, 6)
    for offset in (0, 5):
        assert fetch(connection, topic, offset)["error_code"] == OFFSET_OUT_OF_RANGE


def test_an_offset_within_a_batch(connection, topic):
    """The batch comes whole, as Kafka sends it: skipping is the client's part."""
    assert delete_records(connection, topic, 7) == (0, 7)
    assert earliest(connection, topic) == 7
    assert fetch(connection, topic, 6)["error_code"] == OFFSET_OUT_OF_RANGE
    batches, _ = recordset.parse(fetch(connection, topic, 7)["records"])
    assert [record["value"] for record in batches[0]["records"]] == [b"a3", b"b3"]
    assert list_offset(connection, topic, 0)["offset"] == 7
    assert list_offset(connection, topic, 1_001)["offset"] == 7
    assert list_offset(connection, topic, 1_000)["offset"] == 7


@pytest.mark.parametrize("offset", [21, 2**63 - 1, -2, -(2**63)])
def test_offsets_out_of_range(connection, topic, offset):
    assert delete_records(connection, topic, offset) == (OFFSET_OUT_OF_RANGE, -1)
    assert earliest(connection, topic) == 0


@pytest.mark.parametrize("version", all_versions("DeleteRecords"))
@pytest.mark.parametrize(("named", "partition"), [("nowhere", 0), (None, 1), (None, -1)])
def test_unknown_partitions(connection, topic, version, named, partition):
    got = delete_records(connection, named or topic, 0, version=version, partition=partition)
    assert got == (UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_the_policy_must_allow_it(connection):
    name = new_topic(connection, cleanup_policy="compact")
    record = recordset.Rec(1_000, b"v", key=b"k")
    assert produce(connection, name, recordset.batch([record]))["error_code"] == 0
    assert delete_records(connection, name, 1) == (POLICY_VIOLATION, -1)
    assert earliest(connection, name) == 0
    assert alter(connection, TOPIC, name, ("cleanup.policy", 0, "compact,delete"))[0] == 0
    assert delete_records(connection, name, 1) == (0, 1)


def test_a_topic_that_keeps_everything_allows_it(connection):
    name = new_topic(connection, cleanup_policy="")
    record = recordset.Rec(1_000, b"v")
    assert produce(connection, name, recordset.batch([record]))["error_code"] == 0
    assert delete_records(connection, name, 1) == (0, 1)


def test_each_partition_for_itself(connection):
    first, second = new_topic(connection, partitions=2), new_topic(connection)
    fill(connection, first)
    fill(connection, second)
    asked = {first: {0: 3, 1: 3}, second: {0: 4}}
    topics = [
        {
            "name": name,
            "partitions": [{"partition_index": i, "offset": o} for i, o in offsets.items()],
        }
        for name, offsets in asked.items()
    ]
    answer = connection.ask("DeleteRecords", 2, topics=topics, timeout_ms=10_000)["topics"]
    got = {
        (topic["name"], each["partition_index"]): (each["error_code"], each["low_watermark"])
        for topic in answer
        for each in topic["partitions"]
    }
    assert got == {(first, 0): (0, 3), (first, 1): (OFFSET_OUT_OF_RANGE, -1), (second, 0): (0, 4)}


def test_librdkafka_deletes(broker, connection, topic):
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def delete(offset):
        asked = TopicPartition(topic, 0, offset)
        (answer,) = admin.delete_records([asked], request_timeout=60).values()
        return answer.result(60).low_watermark

    assert delete(5) == 5
    assert delete(-1) == 20
    with pytest.raises(KafkaException) as refused:
        delete(21)
    assert refused.value.args[0].code() == OFFSET_OUT_OF_RANGE
    assert earliest(connection, topic) == 20
