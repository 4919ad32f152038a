"""A stream behind a checkpoint that its logs no longer reach: it fails with a sentence, or goes on and warns.

The reader is called as Spark calls it, with offsets that have been JSON, and no Spark is started.
"""

from __future__ import annotations

import json
import logging

import pytest
from kafka import KafkaAdminClient

from tests.broker.subject import eventually
from tests.pipeline.logs import Writer
from tidelog.client import Client
from tidelog.pipeline.source.splits import SourceError
from tidelog.protocol.records.batch import Record, build

pytestmark = pytest.mark.spark

LENIENT = {"failOnDataLoss": "false"}


def reader_of(options):
    """What Spark calls; PySpark is where these tests run."""
    from tidelog.pipeline.timelog.data_source import TimelogDataSource

    source = TimelogDataSource(options)
    return source.streamReader(source.schema())


class Query:
    """A stream that reads what there is with each call, and is begun anew each time."""

    def __init__(self, **options):
        self.options = {"level": "time", "startingOffsets": "earliest", **options}
        self.checkpoint = None

    def run(self, most=None, **options):
        """Read a micro-batch; returns its values of (partition, time)."""
        reader = reader_of({**self.options, **options})
        start = self.checkpoint or as_stored(reader.initialOffset())
        limit = reader.getDefaultReadLimit()
        if most is not None:
            from pyspark.sql.streaming.datasource import ReadMaxRows

            limit = ReadMaxRows(most)
        end = as_stored(reader.latestOffset(start, limit))
        found = self.read(reader, start, end) if end != start else []
        self.checkpoint = end
        return found

    def read(self, reader, start, end):
        rows = []
        for partition in reader.partitions(start, end):
            for batch in reader.read(partition):
                rows += zip(
                    batch.column("partition").to_pylist(),
                    batch.column("timestamp_ms").to_pylist(),
                    strict=True,
                )
        return sorted(rows)


def as_stored(offsets):
    return json.loads(json.dumps(offsets))


def make(client, topic, times):
    client.create_topic(topic, 1, {"retention.ms": "-1"})
    produce(client, topic, times)


def produce(client, topic, times):
    for at in times:
        client.produce(topic, 0, build([Record(0, at, None, b"v")]))


def make_again(broker, client, topic, times):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        admin.delete_topics([topic])
    finally:
        admin.close()
    eventually(lambda: not client.has_topic(topic))
    make(client, topic, times)


@pytest.fixture
def query(tmp_path):
    """A stream of topic t in a directory, and the writer of its log."""
    writer = Writer(tmp_path)
    return Query(path=str(tmp_path), upto="log-end"), writer


@pytest.mark.parametrize("place", ["brokers", "path"])
def test_a_topic_that_was_created_again(broker, topic, place, caplog):
    """The new log is longer than the checkpoint of the old one: only its id shows what happened."""
    where = broker.bootstrap if place == "brokers" else str(broker.log_dir)
    query = Query(
        **{place: where, "topics": topic, **({} if place == "brokers" else {"upto": "log-end"})}
    )
    with Client(broker.bootstrap) as client:
        make(client, topic, range(5))
        assert query.run() == [(0, at) for at in range(5)]
        make_again(broker, client, topic, range(100, 108))
        with pytest.raises(SourceError, match=f"topic {topic} was created again") as told:
            query.run()
        assert "failOnDataLoss=false" in str(told.value)
        with caplog.at_level(logging.WARNING):
            assert query.run(most=3, **LENIENT) == [(0, at) for at in range(100, 103)]
        assert "without 1 lost range:" in caplog.text
        assert query.run() == [(0, at) for at in range(103, 108)]
        produce(client, topic, [7])
        assert query.run() == [(0, 7)]


def test_a_batch_that_was_planned_of_the_old_topic(broker, topic):
    """Spark plans a batch again after a restart, with the end that its log has."""
    query = Query(brokers=broker.bootstrap, topics=topic)
    with Client(broker.bootstrap) as client:
        make(client, topic, range(5))
        reader = reader_of(query.options)
        start = as_stored(reader.initialOffset())
        end = as_stored(reader.latestOffset(start, reader.getDefaultReadLimit()))
        make_again(broker, client, topic, range(100, 108))
    again = reader_of(query.options)
    with pytest.raises(SourceError, match=f"topic {topic} was created again"):
        again.partitions(start, end)
    again = reader_of({**query.options, **LENIENT})
    assert again.partitions(start, end) == []


def test_spark_without_a_start(broker, topic):
    """Spark 4.1 asks for the end without saying where the query is."""
    query = Query(brokers=broker.bootstrap, topics=topic)
    with Client(broker.bootstrap) as client:
        make(client, topic, range(5))
        query.run()
        make_again(broker, client, topic, range(100, 108))
    reader = reader_of(query.options)
    end = as_stored(reader.latestOffset())
    with pytest.raises(SourceError, match=f"topic {topic} was created again"):
        reader.partitions(query.checkpoint, end)


def test_a_log_that_ends_before_the_checkpoint(query, caplog):
    stream, writer = query
    for at in range(5):
        writer.append([at])
    assert len(stream.run()) == 5
    writer.partition().truncater.truncate_to(3, below_high_watermark=True)
    with pytest.raises(SourceError, match="t-0 ends at offset 3, 2 offsets before the 5 of the"):
        stream.run()
    with caplog.at_level(logging.WARNING):
        assert stream.run(**LENIENT) == []
    assert "t-0 ends at offset 3, 2 offsets before" in caplog.text
    writer.append([9])
    assert stream.run() == [(0, 9)]


def test_a_log_that_begins_behind_the_checkpoint(query, caplog):
    stream, writer = query
    writer.append([0])
    assert stream.run() == [(0, 0)]
    for at in range(1, 400):
        writer.append([at])
    writer.partition().retainer.delete_records_before(300)
    writer.close()
    with pytest.raises(SourceError, match=r"t-0 begins at offset 300: 1 to 299 are gone"):
        stream.run()
    with caplog.at_level(logging.WARNING):
        assert stream.run(**LENIENT) == [(0, at) for at in range(300, 400)]
    assert "299 offsets" in caplog.text


def test_a_checkpoint_of_before_there_were_ids(query):
    stream, writer = query
    for at in range(5):
        writer.append([at])
    stream.checkpoint = {"t": {"0": 3}}
    assert stream.run() == [(0, 3), (0, 4)]
    assert stream.checkpoint["t"]["0"] == 5
    assert stream.checkpoint["t"]["id"]
    before = stream.checkpoint
    assert stream.run() == []
    assert stream.checkpoint == before, "no batch follows another for nothing"
