"""Programs for Spark's own Kafka source and sink, run with both names: `kafka` and `timelog`.

They are those that Spark's guide to Kafka shows: queries of a batch and of a stream, and writes of
both. Every option of Spark's is in one of them, and rows and records are the same.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter

import pytest

from tests.pipeline.streams import available_now, drained
from tidelog.client import Client
from tidelog.pipeline.sink import sink_options
from tidelog.pipeline.timelog import names
from tidelog.pipeline.timelog.names import options_of
from tidelog.pipeline.timelog.spark_options import REFUSED, SAME, SINK, SOURCE, UNUSED
from tidelog.protocol.records.batch import Record, build, records, scan

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("connector"), pytest.mark.timeout(900)]

BOTH = ("kafka", "timelog")
COUNT = 60  # records in each of two partitions
FIRST_MS = 1_700_000_000_000
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_PROVIDER = "org.apache.spark.sql.kafka010.KafkaSourceProvider$"
_OPTION = re.compile(r"[a-z]+(\.[a-z]+)?")


@pytest.fixture(scope="module")
def events(broker):
    """A topic of two partitions, whose record n has the time `FIRST_MS` + n."""
    name = f"events-{uuid.uuid4().hex[:8]}"
    with Client(broker.bootstrap) as client:
        client.create_topic(name, 2, {"retention.ms": "-1"})
        append(client, name, range(COUNT))
    return name


def append(client, topic, numbers):
    for partition in range(2):
        made = [
            Record(
                index,
                FIRST_MS + number,
                None if number % 3 else b"k%d" % number,
                b"%d-%d" % (partition, number),
                ((b"h", b"%d" % number),) if number % 2 else (),
            )
            for index, number in enumerate(numbers)
        ]
        client.produce(topic, partition, build(made))


def each(topic, *values):
    return json.dumps({topic: {str(partition): value for partition, value in enumerate(values)}})


def batches(topic):
    """Options of batch queries; together they have all that Spark knows."""
    return [
        {
            "subscribe": topic,
            "startingOffsets": each(topic, 3, -2),
            "endingOffsets": each(topic, 50, -1),
            "includeHeaders": "true",
            "minPartitions": "6",
            "failOnDataLoss": "true",
            "kafka.isolation.level": "read_committed",
            "kafka.client.id": "a-program",
            "kafka.client.rack": "a",
            "kafka.check.crcs": "true",
            "groupIdPrefix": "p",
            "kafkaConsumer.pollTimeoutMs": "60000",
            "fetchOffset.numRetries": "4",
            "fetchOffset.retryIntervalMs": "20",
        },
        {
            "subscribePattern": topic[:-1] + ".",
            "startingTimestamp": str(FIRST_MS + 5),
            "endingTimestamp": str(FIRST_MS + 40),
            "kafka.max.poll.records": "50",
        },
        {
            "assign": json.dumps({topic: [0, 1]}),
            "startingOffsetsByTimestamp": each(topic, FIRST_MS + 7, FIRST_MS + 10**6),
            "startingOffsetsByTimestampStrategy": "latest",
            "endingOffsetsByTimestamp": each(topic, FIRST_MS + 30, FIRST_MS + 10**7),
            "maxRecordsPerPartition": "5",
            "kafka.group.id": "g",
        },
    ]


def streams(topic):
    """Options of a streaming query."""
    return {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "1s",
        "failOnDataLoss": "false",
    }


def loaded(reader, kind, broker, options):
    made = {"kafka.bootstrap.servers": broker.bootstrap, **options}
    return reader.format(kind).options(**made).load()


def rows(frame):
    return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))


def stored(broker, topic):
    """The records of a topic: (partition, key, value, headers)."""
    found = []
    with Client(broker.bootstrap) as client:
        for partition in range(client.partition_count(topic)):
            offset, end = 0, client.end_offset(topic, partition)
            while offset < end:
                fetched = client.fetch(topic, partition, offset)
                for head in scan(fetched.records):
                    offset = head.last_offset + 1
                    if not head.is_control:
                        found += [
                            (partition, one.key, one.value, one.headers)
                            for one in records(fetched.records, head)
                        ]
    return sorted(found, key=repr)


def test_every_option_of_sparks_is_known(spark):
    """By Spark's own class and Kafka's, so that an option of a later version is noticed."""
    load = spark._jvm.Thread.currentThread().getContextClassLoader().loadClass
    declared = set()
    for field in load(_PROVIDER).getDeclaredFields():
        if field.getType().getName() == "java.lang.String":
            field.setAccessible(True)
            if field.getName().rpartition("$")[2].isupper() or "_" in field.getName():
                declared.add(field.get(None))
    options = {one for one in declared if _OPTION.fullmatch(one)}
    assert {"startingoffsets", "fetchoffset.numretries"} <= options
    known = {name.lower() for name in (*SOURCE, *SINK)}
    assert options <= known
    clients = "org.apache.kafka.clients"
    for kind, given, aliases, among in (
        ("consumer.ConsumerConfig", names.NAMES, names.ALIASES, SOURCE),
        ("producer.ProducerConfig", sink_options.NAMES, sink_options.ALIASES, SINK),
    ):
        found = load(f"{clients}.{kind}").getMethod("configNames", None).invoke(None, None)
        for name in found:
            if name.startswith(("security.", "ssl.", "sasl.")):
                continue
            if among.get(f"kafka.{name}", among["kafka.*"]).kind != REFUSED:
                options_of("timelog", {f"kafka.{name}": "1"}, given, aliases, among)


def test_the_programs_have_every_option():
    given = {name for one in [*batches("t"), streams("t")] for name in one}
    meant = {
        name
        for name, meaning in SOURCE.items()
        if meaning.kind in (SAME, UNUSED) and not name.endswith("*")
    }
    assert meant - {"kafka.bootstrap.servers"} <= given


@pytest.mark.parametrize("number", range(3))
def test_a_query_of_a_batch(spark, broker, events, number):
    options = batches(events)[number]
    own, ours = (loaded(spark.read, kind, broker, options) for kind in BOTH)
    fields = own.schema.fields
    assert [(one.name, one.dataType) for one in fields] == [
        (one.name, one.dataType) for one in ours.schema.fields if one.name in own.columns
    ]
    found = []
    for frame in (own, ours):
        taken = frame.selectExpr(*own.columns, "spark_partition_id() as task").collect()
        tasks = Counter(row.task for row in taken)
        assert max(tasks.values()) <= int(options.get("maxRecordsPerPartition", len(taken)))
        assert len(tasks) >= int(options.get("minPartitions", 1))
        found.append(sorted(([*row][:-1] for row in taken), key=lambda row: (row[3], row[4])))
    assert found[0] == found[1]
    assert len(found[0]) > COUNT // 3


@pytest.mark.parametrize("name", [name for name, one in SOURCE.items() if one.kind == REFUSED])
def test_what_neither_takes(spark, broker, events, name):
    for kind in BOTH:
        with pytest.raises(Exception, match=r"(?i)not supported"):
            loaded(spark.read, kind, broker, {"subscribe": events, name: "x"}).count()


def test_a_query_of_a_stream(spark, broker, events, tmp_path):
    """Its micro-batches have a limit, and it ends with all that is there."""
    found = {}
    for kind in BOTH:
        frame = loaded(spark.readStream, kind, broker, streams(events)).select(*COLUMNS)
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / kind))
        counts = available_now(writer.option("checkpointLocation", str(tmp_path / f"{kind}-c")))
        assert max(counts) <= 40
        found[kind] = rows(spark.read.parquet(str(tmp_path / kind)))
    assert len(found["kafka"]) == 2 * COUNT
    assert found["kafka"] == found["timelog"]


def test_a_stream_starts_at_the_latest_offsets(spark, broker, topic, tmp_path):
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 2, {"retention.ms": "-1"})
        append(client, topic, range(5))
        writers = []
        for kind in BOTH:
            frame = loaded(spark.readStream, kind, broker, {"subscribe": topic}).select(*COLUMNS)
            writer = frame.writeStream.format("parquet").option("path", str(tmp_path / kind))
            writers.append(writer.option("checkpointLocation", str(tmp_path / f"{kind}-c")))
        for writer in writers:
            assert drained(writer) == []
        append(client, topic, range(5, 8))
        for kind, writer in zip(BOTH, writers, strict=True):
            assert sum(drained(writer)) == 6
            found = rows(spark.read.parquet(str(tmp_path / kind)))
            assert [row.offset for row in found] == [5, 6, 7] * 2


def test_a_write_of_a_batch(spark, broker, topic):
    """Without a mode, into a topic that the broker creates; other columns are left out."""
    frame = spark.range(20).selectExpr(
        "id",
        "cast(id as string) as key",
        "if(id = 7, null, concat('v', id)) as value",
        "if(id % 2 = 0, array(struct('h' as key, cast('x' as binary) as value)), null) as headers",
        "0 as partition",
        "'somewhere' as source",
    )
    for kind in BOTH:
        writer = frame.write.format(kind).option("kafka.bootstrap.servers", broker.bootstrap)
        writer.option("topic", f"{topic}-{kind}").option("includeHeaders", "true").option(
            "kafka.acks", "all"
        ).option("kafka.linger.ms", "5").option("kafka.compression.type", "lz4").option(
            "kafka.client.id", "a-program"
        ).save()
    own, ours = (stored(broker, f"{topic}-{kind}") for kind in BOTH)
    assert len(own) == 20
    assert own == ours


def test_a_write_to_the_topics_of_a_column(spark, broker, topic):
    for kind in BOTH:
        frame = spark.range(12).selectExpr(
            f"concat('{topic}-{kind}-', id % 2) as topic",
            "'k' as key",
            "cast(id as string) as value",
        )
        frame.write.format(kind).option("kafka.bootstrap.servers", broker.bootstrap).save()
    for number in range(2):
        own, ours = (stored(broker, f"{topic}-{kind}-{number}") for kind in BOTH)
        assert len(own) == 6
        assert own == ours


def test_a_write_of_a_stream(spark, broker, events, topic, tmp_path):
    for kind in BOTH:
        options = {"subscribe": events, "startingOffsets": "earliest", "includeHeaders": "true"}
        frame = loaded(spark.readStream, kind, broker, options)
        frame = frame.selectExpr(
            "key", "upper(cast(value as string)) as value", "headers", "0 as partition"
        )
        writer = frame.writeStream.format(kind).option("topic", f"{topic}-{kind}")
        writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
        available_now(writer.option("checkpointLocation", str(tmp_path / kind)))
    own, ours = (stored(broker, f"{topic}-{kind}") for kind in BOTH)
    assert len(own) == 2 * COUNT
    assert own == ours


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("'v' as value", {}, "topic"),
        ("'k' as key", {"topic": "t"}, "value"),
        ("1 as value", {"topic": "t"}, "value"),
        ("'v' as value, 1 as key", {"topic": "t"}, "key"),
        ("'v' as value, 'h' as headers", {"topic": "t"}, "headers"),
        ("'v' as value, 'x' as partition", {"topic": "t"}, "partition"),
        ("'v' as value, 1 as topic", {}, "topic"),
        ("'v' as value", {"topic": "t", "kafka.key.serializer": "x"}, "not supported"),
    ],
)
def test_what_neither_writes(spark, broker, columns, options, words):
    """Said before a row is staged: the driver says it."""
    for kind in BOTH:
        writer = (
            spark.range(1).selectExpr(*columns.split(", ")).write.format(kind).options(**options)
        )
        with pytest.raises(Exception, match=words):
            writer.option("kafka.bootstrap.servers", broker.bootstrap).save()


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
def test_modes_that_neither_has(spark, broker, mode):
    for kind in BOTH:
        writer = spark.range(1).selectExpr("'v' as value").write.format(kind).option("topic", "t")
        with pytest.raises(Exception, match=r"(?i)mode"):
            writer.option("kafka.bootstrap.servers", broker.bootstrap).mode(mode).save()
