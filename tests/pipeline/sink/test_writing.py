"""`df.write.format("timelog")` on Spark: every field of a record arrives, and nothing arrives twice."""

from __future__ import annotations

import pytest
from kafka.partitioner.default import murmur2

from tests.pipeline.logs import truth
from tests.pipeline.streams import available_now
from tidelog.client import Client
from tidelog.protocol.records.batch import Record, build

pytestmark = pytest.mark.spark

ROWS = [
    # key, value, header name, header content, partition, time in ms
    (b"k0", b"v0", "a", b"1", 0, -62135596800000),
    (b"k1", b"v1", "a", None, 1, -2),
    (None, b"v2", None, None, 1, 0),
    (b"", None, "b", b"", 0, None),
    (b"k4", b"v4", None, None, 0, 253402300800000),
    (b"k5", b"v5", "c", b"x", 1, 5),
]


def frame_of(spark, rows=ROWS):
    """Rows with every column that a record can have."""
    raw = spark.createDataFrame(
        rows,
        "key binary, value binary, name string, content binary, partition int, timestamp_ms bigint",
    )
    headers = (
        "if(name is null, null, array(named_struct('key', name, 'value', content))) as headers"
    )
    return raw.selectExpr("key", "value", headers, "partition", "timestamp_ms")


def made(broker, topic, partitions=2, **settings):
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, partitions, {"retention.ms": "-1", **settings})


def write(frame, broker, **options):
    writer = frame.write.format("timelog").mode("append")
    writer.option("kafka.bootstrap.servers", broker.bootstrap).options(**options).save()


def stored(broker, topic, partitions=2):
    """What the log has: (partition, key, value, headers, time), in the order of each partition."""
    return [
        (partition, one.key, one.value, one.headers, one.timestamp)
        for partition in range(partitions)
        for one in truth(broker.log_dir / f"{topic}-{partition}")
    ]


def expected_of(rows):
    return [
        (
            partition,
            key,
            value,
            () if name is None else ((name.encode(), content),),
            -1 if at is None else at,
        )
        for key, value, name, content, partition, at in rows
    ]


def by_place(one):
    return one[0], one[4], one[1] or b"", one[2] or b""


def test_every_field(spark, broker, topic):
    made(broker, topic)
    write(frame_of(spark), broker, topic=topic)
    assert sorted(stored(broker, topic), key=by_place) == sorted(expected_of(ROWS), key=by_place)


def test_timestamps_and_columns_of_topics(spark, broker, topic):
    """`timestamp` is rounded down to ms; the partition follows the key as in Java clients."""
    made(broker, topic, 3)
    frame = spark.sql(
        f"SELECT '{topic}' AS topic, cast(id AS string) AS key, 'v' AS value,"
        " timestamp_micros(id * 1000 - 10500) AS timestamp FROM range(9)"
    )
    write(frame, broker)
    found = stored(broker, topic, 3)
    assert sorted((int(key), at) for _, key, _, _, at in found) == [(n, n - 11) for n in range(9)]
    assert all(partition == (murmur2(key) & 0x7FFFFFFF) % 3 for partition, key, *_ in found)


def test_a_time_that_means_none_is_refused(spark, broker, topic):
    made(broker, topic)
    frame = spark.sql("SELECT 'v' AS value, timestamp_millis(-1) AS timestamp")
    with pytest.raises(Exception, match="which is -1 ms: that means no time"):
        write(frame, broker, topic=topic)
    assert stored(broker, topic) == []


def test_without_times_records_get_the_present(spark, broker, topic):
    made(broker, topic)
    write(spark.sql("SELECT 'v' AS value FROM range(5)"), broker, topic=topic)
    times = [at for *_, at in stored(broker, topic)]
    assert len(times) == 5
    assert min(times) > 1_700_000_000_000


def test_mistakes_reach_the_user(spark, broker):
    with pytest.raises(Exception, match="OptionError: column value is binary or string, not int"):
        write(spark.sql("SELECT 1 AS value"), broker, topic="t")


def test_a_partition_that_is_not_there(spark, broker, topic, tmp_path):
    """The error names it; nothing is written, and nothing stays staged."""
    made(broker, topic)
    rows = spark.range(0, 8, 1, 4).selectExpr("'v' AS value", "cast(id AS int) AS partition")
    with pytest.raises(Exception, match=f"partition [2-7] of topic {topic}, which has 2"):
        write(rows, broker, topic=topic, staging=str(tmp_path))
    assert stored(broker, topic) == []
    assert list(tmp_path.iterdir()) == []


def test_a_copy_through_spark(spark, broker, topic):
    """What the source reads can be written as it is: keys, headers byte for byte, partitions, times."""
    made(broker, topic)
    made(broker, f"{topic}-copy")
    with Client(broker.bootstrap) as client:
        for number in range(40):
            name = b"h\xff\xc3" if number % 4 == 3 else b"h"
            headers = ((b"\xc3\xa4", None), (name, b"%d" % number)) if number % 3 else ()
            record = Record(0, number * 7 - 100, b"k%d" % number, b"v", headers)
            client.produce(topic, number % 2, build([record]))
    source = spark.read.format("timelog").option("kafka.bootstrap.servers", broker.bootstrap)
    write(source.option("subscribe", topic).load(), broker, topic=f"{topic}-copy")
    key = lambda one: (one[0], one[4])
    assert sorted(stored(broker, f"{topic}-copy"), key=key) == sorted(
        stored(broker, topic), key=key
    )


def streamed(spark, broker, topic, target, checkpoint, **options):
    source = spark.readStream.format("timelog").option("kafka.bootstrap.servers", broker.bootstrap)
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "30")
    frame = source.option("subscribe", topic).load()
    writer = frame.writeStream.format("timelog").option("topic", target).options(**options)
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
    return available_now(writer.option("checkpointLocation", str(checkpoint)))


def test_a_stream_of_micro_batches(spark, broker, topic, tmp_path):
    made(broker, topic)
    made(broker, f"{topic}-copy")

    def produce(count):
        with Client(broker.bootstrap) as client:
            for number in range(count):
                record = Record(0, number, b"k%d" % number, b"v")
                client.produce(topic, number % 2, build([record]))

    produce(80)
    assert len(streamed(spark, broker, topic, f"{topic}-copy", tmp_path / "c")) >= 3
    produce(10)
    assert sum(streamed(spark, broker, topic, f"{topic}-copy", tmp_path / "c")) == 10
    assert stored(broker, f"{topic}-copy") == stored(broker, topic)
