"""Spark's own Kafka source, unmodified, against a broker of ours: times before 1970 as start."""

from __future__ import annotations

import json

import pytest

from tidelog.client import Client
from tidelog.protocol.records.batch import Record, build

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("connector")]

DAY = 86_400_000
APOLLO = -14_182_980_000  # 1969-07-20T20:17Z
TIMES = [APOLLO - DAY, APOLLO, APOLLO + DAY, -7, 0, 5, 1_700_000_000_000]


@pytest.fixture
def events(broker, topic):
    """Two partitions with these times each, in order; headers, null keys, all codecs."""
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 2, {"retention.ms": "-1"})
        for partition in range(2):
            for number, time in enumerate(TIMES):
                record = Record(0, time, b"k%d" % number, b"v%d" % partition, ((b"h", None),))
                client.produce(topic, partition, build([record], compression=number % 5))
    return topic


def kafka(source, broker, topic, **options):
    made = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic, **options}
    return source.format("kafka").options(**made)


def millis(frame):
    """(partition, offset, time) of the rows."""
    rows = frame.selectExpr("partition", "offset", "unix_millis(timestamp) as ms").collect()
    return sorted((row.partition, row.offset, row.ms) for row in rows)


def expected(first):
    return [(partition, n, TIMES[n]) for partition in (0, 1) for n in range(first, len(TIMES))]


def test_batch(spark, broker, events):
    frame = kafka(spark.read, broker, events, includeHeaders="true").load()
    assert millis(frame) == expected(0)
    row = frame.filter("partition = 1 and offset = 3").select("key", "value", "headers").first()
    assert (row.key, row.value) == (b"k3", b"v1")
    assert [tuple(one) for one in row.headers] == [("h", None)]


def test_a_start_before_1970(spark, broker, events):
    everywhere = kafka(spark.read, broker, events, startingTimestamp=str(APOLLO))
    assert millis(everywhere.load()) == expected(1)
    each = json.dumps({events: {"0": APOLLO + 1, "1": -7}})
    rows = millis(kafka(spark.read, broker, events, startingOffsetsByTimestamp=each).load())
    assert rows == [one for one in expected(2) if one[0] == 0 or one[1] >= 3]


def test_a_stream_that_starts_before_1970(spark, broker, events, tmp_path):
    source = kafka(
        spark.readStream,
        broker,
        events,
        startingTimestamp=str(APOLLO),
        maxOffsetsPerTrigger="5",
    )
    writer = source.load().writeStream.format("parquet").option("path", str(tmp_path / "out"))
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        with Client(broker.bootstrap) as client:
            client.produce(events, 0, build([Record(0, APOLLO, None, b"late")]))
        query.processAllAvailable()
    finally:
        query.stop()
    found = millis(spark.read.parquet(str(tmp_path / "out")))
    assert found == sorted([*expected(1), (0, len(TIMES), APOLLO)])


def test_what_spark_writes_comes_back(spark, broker, topic):
    """Its sink produces with idempotence; the time it gives is the clock's, for it has no other."""
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1)
    frame = spark.range(100).selectExpr("cast(id as string) key", "cast(id * 2 as string) value")
    sink = frame.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    sink.option("topic", topic).save()
    rows = kafka(spark.read, broker, topic).load().select("key", "value").collect()
    assert sorted((int(row.key), int(row.value)) for row in rows) == [
        (n, 2 * n) for n in range(100)
    ]
