"""`timelog` in Spark: what its rows say is what the files hold, in batch and streaming, for every level."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import tidelog.spark
from tests.pipeline.logs import Writer, segments, truth
from tests.pipeline.source.test_brokers import fill
from tests.pipeline.streams import available_now, drained, progress_of
from tidelog.client import Client
from tidelog.protocol.records.batch import Record, build, scan

pytestmark = pytest.mark.spark

VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-0.10.2.2"
ROOT = Path(__file__).parents[3]
EDGES = (
    -62135596800000,  # 0001-01-01
    -377705116800000,  # year -9999
    -12219292800001,  # the millisecond before the calendar changed
    -1,
    0,
    253402300800000,  # year 10000
    9223372036854775,  # the last millisecond in microseconds
    9223372036854776,
    -(2**63),
    2**63 - 1,
)


@pytest.fixture(scope="module")
def edges(tmp_path_factory):
    """A log with times at every edge, appended at known moments."""
    path = tmp_path_factory.mktemp("edges")
    writer = Writer(path)
    headers = ((b"a", b"1"), (b"a", None), (b"\xff", b""))
    for number, at in enumerate(EDGES):
        record = Record(0, at, None if number % 2 else b"k", None, headers if number % 3 else ())
        writer.append([record], now=1_000_000 + number)
    writer.close()
    return path


@pytest.fixture
def source():
    """The class that Spark is given."""
    from tidelog.pipeline.timelog.data_source import TimelogDataSource

    return TimelogDataSource


def table(spark, path, **options):
    return spark.read.format("timelog").options(**options).load(str(path))


def test_records(spark, edges):
    frame = table(spark, edges)
    assert frame.columns[:8] == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
    ]
    rows = (
        frame.selectExpr(
            "*", "unix_micros(timestamp) as micros", "cast(timestamp as string) as text"
        )
        .drop("timestamp")
        .orderBy("offset")
        .collect()
    )
    for row, one in zip(rows, truth(edges / "t-0"), strict=True):
        assert (row.offset, row.timestamp_ms) == (one.offset, one.timestamp)
        assert (row.key, row.value) == (one.key, one.value)
        assert row.append_time_ms == one.append_time == 1_000_000 + one.offset
        assert row.has_timestamp == (one.timestamp != -1)
        fits = row.has_timestamp and abs(one.timestamp) <= 9223372036854775
        assert row.micros == (one.timestamp * 1000 if fits else None)
        listed = None if row.headers is None else [tuple(each) for each in row.headers]
        names = [(name.decode(errors="replace"), content) for name, content in one.headers]
        assert listed == (names or None)
        exact = [name for name, _ in one.headers]
        assert row.header_names == (exact or None)  # all of them, as one is not UTF-8
    assert rows[0].text == "0001-01-01 00:00:00"
    assert rows[2].text == "1582-10-14 23:59:59.999"
    assert rows[4].text == "1970-01-01 00:00:00"


@pytest.mark.parametrize("level", ["time", "batch", "segment"])
def test_levels(spark, edges, level):
    rows = table(spark, edges, level=level).collect()
    if level == "time":
        assert sorted((row.offset, row.timestamp_ms, row.append_time_ms) for row in rows) == [
            (one.offset, one.timestamp, one.append_time) for one in truth(edges / "t-0")
        ]
    files = segments(edges / "t-0")
    batches = {path: scan(path.read_bytes()) for path in files}
    if level == "batch":
        assert sorted((r.base_offset, r.last_offset, r.max_timestamp_ms) for r in rows) == sorted(
            (b.base_offset, b.last_offset, b.max_timestamp) for bs in batches.values() for b in bs
        )
    if level == "segment":
        assert sorted((r.base_offset, r.size_bytes, r.batch_count, r.is_active) for r in rows) == [
            (int(path.stem), path.stat().st_size, len(batches[path]), path == files[-1])
            for path in files
        ]
    else:
        column = {"time": "size_bytes", "batch": "size_bytes"}[level]
        assert sum(row[column] for row in rows) == sum(path.stat().st_size for path in files)


def test_event_times_and_filters(spark, edges):
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    ms = EDGES[2]
    for frame in (
        table(spark, edges, **{"from": str(ms), "to": "1970-01-01T00:00Z"}),
        table(spark, edges, pushFilters="true").filter(f"timestamp_ms between {ms} and -2"),
        table(spark, edges).filter(f"timestamp_ms between {ms} and -2"),
    ):
        assert [row.timestamp_ms for row in frame.collect()] == [ms]
    now_ms = time.time_ns() // 1_000_000
    frame = table(spark, edges, **{"from": "-2h"})  # also in workers, which read later
    assert sorted(row.timestamp_ms for row in frame.select("timestamp_ms").collect()) == sorted(
        at for at in EDGES if at > now_ms
    )


def test_a_frame_that_is_used_twice(spark, edges):
    """Spark keeps one plan for a frame of a Python source: that of the filters it pushed down last."""
    frame = table(spark, edges)
    first, rest = frame.filter("offset < 3"), frame.filter("offset >= 3")
    assert sorted(row.offset for row in first.union(rest).select("offset").collect()) == [
        *range(10)
    ]
    assert frame.count() == len(EDGES)


@pytest.mark.parametrize(
    ("condition", "pushed", "left"),
    [
        ("topic = 't' and partition in (0, 1)", ["EqualTo(topic,t)", "In(partition,"], None),
        ("topic = 'other'", ["EqualTo(topic,other)"], None),
        ("offset > 2 and offset <= 7", ["GreaterThan(offset,2)"], None),
        ("timestamp_ms >= 0", ["GreaterThanOrEqual(timestamp_ms,0)"], None),
        ("timestamp_ms >= -5 and offset > 2", ["GreaterThan(offset,2)"], "timestamp_ms"),
        ("timestamp < timestamp'1970-01-01'", ["LessThan(timestamp,1970"], "isnotnull(timestamp"),
        ("timestamp >= timestamp'1970-01-01'", ["GreaterThanOrEqual(timestamp,19"], "isnotnull"),
        (f"timestamp_ms > {2**63 - 1}L", [], "timestamp_ms"),
        ("append_time_ms > 1000003", [], "append_time_ms"),
    ],
)
def test_filters_in_the_plan(spark, edges, capsys, condition, pushed, left):
    """The plan names the filters that reading applies, Spark applies the others; the rows are the same."""
    frame = table(spark, edges, pushFilters="true").filter(condition)
    frame.explain("formatted")
    lines = capsys.readouterr().out.splitlines()
    (found,) = [one for one in lines if one.startswith("PushedFilters")] or [""]
    (again,) = [one for one in lines if one.startswith("Condition")] or [None]
    assert all(one in found for one in pushed), found
    assert bool(pushed) == bool(found)
    assert again is None if left is None else left in again
    rows = sorted(row.offset for row in frame.select("offset").collect())
    expected = table(spark, edges).filter(condition).select("offset").collect()
    assert rows == sorted(row.offset for row in expected)


def test_columns_that_a_program_names(spark, edges):
    """As a table does that was created when a read had fewer columns."""
    few = spark.read.format("timelog").schema("offset bigint, key binary").load(str(edges))
    assert [tuple(row) for row in few.orderBy("offset").limit(2).collect()] == [
        (0, b"k"),
        (1, None),
    ]
    with pytest.raises(Exception, match="OptionError: level record has no column ofset; did you"):
        spark.read.format("timelog").schema("ofset bigint").load(str(edges)).count()


def test_mistakes_reach_the_user(spark, edges, tmp_path):
    with pytest.raises(Exception, match=r"tidelog\.spark\.OptionError: level is one of") as told:
        table(spark, edges, level="row")
    assert len(str(told.value).splitlines()) <= 2, "Spark's own words, and its SQLSTATE"
    with pytest.raises(Exception, match=r"tidelog\.spark\.NotThere: there is no topic x") as told:
        table(spark, edges, topics="x").count()
    assert len(str(told.value).splitlines()) <= 2
    writer = Writer(tmp_path)
    writer.append([1, 2, 3])
    writer.append([4])
    writer.close()
    (log,) = segments(tmp_path / "t-0")
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    with pytest.raises(Exception, match=f"{log}: the batch at byte 0 fails its CRC") as told:
        table(spark, tmp_path).count()
    assert "Traceback" not in str(told.value)


def test_errors_of_a_users_own_keep_their_traces(spark, edges):
    """Also behind one of ours, in the workers that are used again."""

    def of_a_user(batches):
        raise ValueError("theirs")
        yield from batches

    with pytest.raises(Exception, match="level is one of"):
        table(spark, edges, level="row")
    for frame in (table(spark, edges, level="time"), spark.range(3)):
        with pytest.raises(Exception, match="ValueError: theirs") as told:
            frame.mapInArrow(of_a_user, frame.schema).count()
        assert "in of_a_user" in str(told.value)


def test_brokers(spark, source, broker, topic):
    fill(broker, topic)
    frame = spark.read.format("timelog").option("brokers", broker.bootstrap)
    frame = frame.option("topics", topic).option("maxPartitionOffsets", "20").load()
    found = frame.select("partition", "offset", "timestamp_ms", "append_time_ms").collect()
    assert sorted(map(tuple, found)) == [
        (partition, one.offset, one.timestamp, one.append_time)
        for partition in range(2)
        for one in truth(broker.log_dir / f"{topic}-{partition}")
    ]
    assert None not in {row.append_time_ms for row in found}
    with pytest.raises(ValueError, match="level segment needs a path"):
        source({"brokers": "h:1", "level": "segment"}).schema()


def test_progress_of_a_stream(spark, tmp_path):
    """Each micro-batch reports the end of the logs; by it one sees how far behind the query is."""
    writer = Writer(tmp_path / "logs")
    for partition, count in enumerate((30, 10)):
        writer.append(range(count), number=partition)
    writer.close()
    source = spark.readStream.format("timelog").option("maxOffsetsPerTrigger", 20)
    source = source.option("startingOffsets", "earliest")
    stream = source.load(str(tmp_path / "logs")).writeStream.format("noop")
    done = progress_of(stream.option("checkpointLocation", str(tmp_path / "checkpoint")))
    sources = [one.sources[0] for one in done]
    ends = [json.loads(one.latestOffset)["t"] for one in sources]
    assert [(end["0"], end["1"]) for end in ends] == [(30, 10), (30, 10)]
    first, last = map(tidelog.spark.offsets_behind, sources)
    assert first == {
        "minOffsetsBehindLatest": "5",
        "maxOffsetsBehindLatest": "15",
        "avgOffsetsBehindLatest": "10.0",
    }
    assert set(last.values()) == {"0", "0.0"}


def test_available_now_in_batches(spark, broker, topic, tmp_path):
    """The limit of a micro-batch counts, the query ends, and a second one reads only what is new."""
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 2, {"retention.ms": "-1"})

        def produce(count):
            for number in range(count):
                client.produce(topic, number % 2, build([Record(0, number, None, b"v")]))

        def run():
            source = spark.readStream.format("timelog").option("subscribe", topic)
            source = source.option("kafka.bootstrap.servers", broker.bootstrap)
            source = source.option("startingOffsets", "earliest")
            frame = source.option("maxOffsetsPerTrigger", "4").option("level", "time").load()
            writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            return available_now(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))

        produce(10)
        first = run()
        assert sum(first) == 10
        assert max(first) <= 4
        produce(3)
        assert sum(run()) == 3
    assert spark.read.parquet(str(tmp_path / "out")).count() == 13


def test_a_stream_from_a_time(spark, broker, topic, tmp_path):
    """What comes later is read whatever its time is."""
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, {"retention.ms": "-1"})
        for at in (1000, 5000, 2000):
            client.produce(topic, 0, build([Record(0, at, None, b"v")]))
        source = spark.readStream.format("timelog").option("subscribe", topic)
        source = source.option("kafka.bootstrap.servers", broker.bootstrap)
        frame = source.option("startingTimestamp", "4000").option("level", "time").load()
        writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert sum(available_now(writer)) == 2
        client.produce(topic, 0, build([Record(0, 1, None, b"v")]))
        assert sum(available_now(writer)) == 1


def test_one_absurd_time_moves_no_watermark(spark, tmp_path):
    """Its record is counted, without a time, and those of the next micro-batch are not late."""
    now_ms = time.time_ns() // 1_000_000
    writer = Writer(tmp_path / "logs")
    for at in (now_ms, now_ms * 1000, now_ms + 1, now_ms + 20_000):
        writer.append([Record(0, at, None, b"v")], now=now_ms)
    writer.close()
    source = spark.readStream.format("timelog").option("plausible", "true")
    source = source.option("startingOffsets", "earliest")
    frame = source.option("maxOffsetsPerTrigger", 2).load(str(tmp_path / "logs"))
    counts = frame.withWatermark("timestamp", "1 second").groupBy("timestamp").count()
    stream = counts.writeStream.format("memory").queryName("plausible").outputMode("append")
    available_now(stream.option("checkpointLocation", str(tmp_path / "checkpoint")))
    found = spark.sql("SELECT unix_millis(timestamp) AS at FROM plausible ORDER BY at").collect()
    assert [row["at"] for row in found] == [now_ms, now_ms + 1]


def test_a_table(spark, edges, tmp_path):
    """A table in Spark's catalog keeps the options of the source."""
    name = f"logs_{tmp_path.name}"
    try:
        spark.sql(
            f"CREATE TABLE {name} USING timelog OPTIONS (path '{edges}', upto 'log-end', level 'time')"
        )
        found = spark.sql(f"SELECT timestamp_ms FROM {name} WHERE offset > 3 ORDER BY offset")
        assert [row[0] for row in found.collect()] == list(EDGES[4:])
        assert spark.table(name).count() == len(EDGES)
        with pytest.raises(Exception, match=r"OptionError: give a path .*, or brokers"):
            spark.sql(f"CREATE TABLE {name}_2 USING timelog OPTIONS (upto 'log-end')")
        spark.sql(f"CREATE TABLE {name}_3 (value string) USING timelog OPTIONS (path '{edges}')")
        with pytest.raises(
            Exception, match=r"OptionError: .* leave the columns out of CREATE TABLE"
        ):
            spark.sql(f"SELECT * FROM {name}_3").collect()
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {name}")
        spark.sql(f"DROP TABLE IF EXISTS {name}_3")
        assert list(edges.iterdir()), "a table of somebody's logs is dropped without them"


def test_where_handing_down_is_switched_off(spark, edges):
    """A program that switches it off before `register` keeps that, and reads."""
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "false")
    try:
        tidelog.spark.register(spark)
        assert spark.conf.get(name) == "false"
        assert table(spark, edges).filter("timestamp_ms = 0").count() == 1
    finally:
        spark.conf.set(name, "true")
        tidelog.spark.register(spark)


def test_a_stream_of_log_directories(spark, broker, topic, tmp_path):
    """Micro-batches with a limit, a restart from the checkpoint, and what came meanwhile: each once."""
    with Client(broker.bootstrap) as client:
        client.create_topic(topic, 2, {"retention.ms": "-1"})

        def produce(count):
            for number in range(count):
                data = build([Record(i, number - 5, None, b"v") for i in range(3)])
                client.produce(topic, number % 2, data)

        def run():
            source = spark.readStream.format("timelog").option("topics", topic)
            source = source.option("path", str(broker.log_dir)).option("upto", "log-end")
            source = source.option("startingOffsets", "earliest")
            frame = source.option("maxOffsetsPerTrigger", "7").option("level", "time").load()
            writer = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            return drained(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))

        produce(10)
        first = run()
        assert sum(first) == 30
        assert max(first) <= 8  # a batch is not cut
        produce(5)
        assert sum(run()) == 15
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    found = sorted((row.partition, row.offset, row.timestamp_ms) for row in rows)
    assert found == [
        (partition, one.offset, one.timestamp)
        for partition in range(2)
        for one in truth(broker.log_dir / f"{topic}-{partition}")
    ]
