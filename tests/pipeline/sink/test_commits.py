"""Staging and committing without Spark: an interrupted commit is continued, and writes nothing twice."""

from __future__ import annotations

import dataclasses
import os
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2

from tidelog.client import Client, retry, sync_client
from tidelog.pipeline.errors import PipelineError, UsageError
from tidelog.pipeline.plan import at_work
from tidelog.pipeline.replay.delivery import AT_LEAST_ONCE, POSITION, TRANSACTIONS
from tidelog.pipeline.replay.replay import replay_partition
from tidelog.pipeline.sink import committing, staging
from tidelog.pipeline.sink.sink_options import SinkOptions, check
from tidelog.pipeline.timelog.names import OptionError
from tidelog.process import BrokerProcess
from tidelog.protocol.records.batch import Record, build, records, scan

NOW = 1_700_000_000_000
ONE_HEADER = [[{"key": "a", "value": b""}]]


def options_of(brokers, **more):
    return SinkOptions({"kafka.bootstrap.servers": brokers, **more})


def batch_of(numbers, prefix="k", **columns):
    numbers = list(numbers)
    return pa.record_batch(
        {
            "key": [f"{prefix}{n}" for n in numbers],
            "value": [f"v{n}" for n in numbers],
            "timestamp_ms": [n * 1000 for n in numbers],
            **columns,
        }
    )


def made(brokers, topic, partitions=2):
    with Client(brokers) as client:
        client.create_topic(topic, partitions, {"retention.ms": "-1"})


def stored(brokers, topic, partitions=2):
    """All committed data records, by partition: (key, value, time)."""
    found = []
    with Client(brokers) as client:
        for partition in range(partitions):
            offset, end = 0, client.end_offset(topic, partition)
            while offset < end:
                fetched = client.fetch(topic, partition, offset)
                for head in scan(fetched.records):
                    offset = head.last_offset + 1
                    if not head.is_control:
                        found += [
                            (partition, one.key.decode(), one.value.decode(), one.timestamp)
                            for one in records(fetched.records, head)
                        ]
    return found


def staged(options, directory, *batches):
    directory.mkdir(parents=True, exist_ok=True)
    return [
        one
        for one in (staging.stage(options, directory, [batch], NOW) for batch in batches)
        if one is not None
    ]


def expected(numbers, count=2, prefix="k"):
    return sorted(
        ((murmur2(f"{prefix}{n}".encode()) & 0x7FFFFFFF) % count, f"{prefix}{n}", f"v{n}", n * 1000)
        for n in numbers
    )


def test_rows_go_to_the_partition_of_their_key_in_order(either, topic, tmp_path):
    made(either, topic)
    options = options_of(either, topic=topic)
    files = staged(options, tmp_path, batch_of(range(50)), batch_of(range(50, 80)))
    assert committing.commit(options, tmp_path, 0, files) == {topic: 80}
    found = stored(either, topic)
    assert sorted(found) == expected(range(80))
    for partition in range(2):
        times = [at for where, *_, at in found if where == partition]
        assert times == sorted(times)
    assert not list(tmp_path.rglob("*.arrow"))


@pytest.mark.parametrize("written", ["nothing", "one partition"])
def test_an_interrupted_commit_is_continued(either, topic, tmp_path, monkeypatch, written):
    """With what was staged first: a second attempt may have other rows in another order."""
    made(either, topic)
    options = options_of(either, topic=topic)
    first = staged(options, tmp_path, batch_of(range(40)))

    def interrupted(task):
        if written == "nothing" or task.partition:
            raise ConnectionError
        return replay_partition(task)

    with monkeypatch.context() as injected:
        injected.setattr(committing, "replay_partition", interrupted)
        with pytest.raises(ConnectionError):
            committing.commit(options, tmp_path, 5, first)
    second = staged(options, tmp_path, batch_of(reversed(range(40)), prefix="other"))
    committing.discard(tmp_path, first)  # as Spark asks after a failed commit
    assert committing.commit(options, tmp_path, 5, second) == {topic: 40}
    assert sorted(stored(either, topic)) == expected(range(40))
    assert committing.commit(options, tmp_path, 5, second) == {}, "it is done"
    assert len(stored(either, topic)) == 40
    third = staged(options, tmp_path, batch_of(range(40, 60)))
    assert committing.commit(options, tmp_path, 6, third) == {topic: 20}
    assert sorted(stored(either, topic)) == expected(range(60))


def test_two_drivers_of_one_run(either, topic, tmp_path):
    made(either, topic)
    options = options_of(either, topic=topic)
    files = staged(options, tmp_path, batch_of(range(10)))
    with at_work(tmp_path), pytest.raises(PipelineError, match="is at work in another process"):
        committing.commit(options, tmp_path, 0, files)
    assert stored(either, topic) == []
    assert committing.commit(options, tmp_path, 0, files) == {topic: 10}


@pytest.fixture
def modes(monkeypatch):
    """How the partitions of each commit were written to."""
    seen = []

    def noted(task):
        seen.append(task.delivery.mode)
        return replay_partition(task)

    monkeypatch.setattr(committing, "replay_partition", noted)
    return seen


def test_the_delivery_of_a_stream(broker, topic, tmp_path, without_transactions, modes):
    """By position as long as nobody else writes, in every micro-batch, also to other partitions."""
    made(broker.bootstrap, topic)
    options = options_of(broker.bootstrap, topic=topic)
    for number, partition in enumerate((0, 1, 0, 1)):
        files = staged(options, tmp_path, batch_of([number], partition=[partition]))
        committing.commit(options, tmp_path, number, files)
    assert modes == [POSITION] * 4
    assert len(stored(broker.bootstrap, topic)) == 4


def test_the_delivery_of_a_stream_beside_others(
    broker, topic, tmp_path, without_transactions, modes
):
    """At least once in every micro-batch, also where the others have been quiet since the last one."""
    made(broker.bootstrap, topic, 1)
    with Client(broker.bootstrap) as client:
        client.produce(topic, 0, build([Record(0, 0, b"theirs", b"v", ())]))
    options = options_of(broker.bootstrap, topic=topic)
    for number in range(3):
        files = staged(options, tmp_path, batch_of([number]))
        committing.commit(options, tmp_path, number, files)
    assert modes == [AT_LEAST_ONCE] * 3
    keys = [key for _, key, *_ in stored(broker.bootstrap, topic, 1)]
    assert keys == ["theirs", "k0", "k1", "k2"]


def test_transactions_where_the_target_has_them(either, topic, tmp_path, modes):
    made(either, topic)
    options = options_of(either, topic=topic)
    committing.commit(options, tmp_path, 0, staged(options, tmp_path, batch_of(range(3))))
    assert set(modes) == {TRANSACTIONS}


@pytest.mark.slow
def test_a_broker_that_restarts_before_a_commit_is_waited_for(tmp_path, monkeypatch):
    """Also by a process that has not reached it before: the tasks have."""
    monkeypatch.setattr(retry, "NO_LISTENER_S", 0.2)
    monkeypatch.setattr(sync_client, "NOTICE_S", 0.5)
    with BrokerProcess(tmp_path / "data") as broker:
        made(broker.bootstrap, "t")
        files = staged(
            options_of(broker.bootstrap, topic="t"), tmp_path / "staged", batch_of(range(9))
        )
        broker.kill()
        back = threading.Timer(2.0, broker.restart)
        back.start()
        try:
            options = options_of(broker.bootstrap, topic="t")
            assert committing.commit(options, tmp_path / "staged", 0, files) == {"t": 9}
        finally:
            back.join()
        assert sorted(stored(broker.bootstrap, "t")) == expected(range(9))


def test_files_that_are_gone(broker, topic, tmp_path):
    """As on a cluster whose machines do not share the directory."""
    made(broker.bootstrap, topic)
    options = options_of(broker.bootstrap, topic=topic)
    (file,) = staged(options, tmp_path, batch_of(range(3)))
    moved = dataclasses.replace(file, path=file.path + ".gone")
    with pytest.raises(PipelineError, match="staging has to be a directory that the driver"):
        committing.commit(options, tmp_path, 0, [moved])
    assert stored(broker.bootstrap, topic) == []


def test_a_task_that_comes_after_the_write_was_given_up_leaves_nothing(broker, topic, tmp_path):
    made(broker.bootstrap, topic)
    options = options_of(broker.bootstrap, topic=topic)
    directory = tmp_path / "batch"
    staged(options, directory, batch_of(range(10)))
    options.forget(directory)
    with pytest.raises(UsageError, match=r"the staging directory .*batch is not there"):
        staging.stage(options, directory, [batch_of(range(10, 20))], NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_task_that_stages_while_the_write_is_given_up_leaves_nothing(
    broker, topic, tmp_path, monkeypatch
):
    made(broker.bootstrap, topic)
    options = options_of(broker.bootstrap, topic=topic)
    directory = tmp_path / "batch"
    staged(options, directory, batch_of(range(10)))
    late = [batch_of(range(10, 20))]
    remove = os.rmdir

    def stage_first(path, **more):
        if late:
            staging.stage(options, directory, [late.pop()], NOW)
        remove(path, **more)

    monkeypatch.setattr(os, "rmdir", stage_first)
    options.forget(directory)
    assert not late
    assert list(tmp_path.iterdir()) == []


def test_a_worker_with_another_directory_is_refused(tmp_path):
    """Two machines have a directory of that path, and do not share it."""
    driver, worker = tmp_path / "driver" / "staging", tmp_path / "worker" / "staging"
    mark = staging.marked(driver)
    assert staging.marked(driver) == mark
    with pytest.raises(
        UsageError, match=r"staging on .+ is not the staging directory of the driver"
    ):
        staging.entered(worker, mark, "query")
    assert not worker.exists()
    assert staging.marked(worker) != mark
    with pytest.raises(UsageError, match="share"):
        staging.entered(worker, mark, "query")
    assert not (worker / "query").exists()
    for _ in range(2):
        assert staging.entered(driver, mark, "query").is_dir()


def test_topics_by_column(broker, topic, tmp_path):
    other = f"{topic}-b"
    made(broker.bootstrap, topic)
    made(broker.bootstrap, other, 3)
    options = options_of(broker.bootstrap)
    names = [topic if n % 3 else other for n in range(30)]
    files = staged(options, tmp_path, batch_of(range(30), topic=names))
    assert committing.commit(options, tmp_path, 0, files) == {topic: 20, other: 10}
    assert sorted(stored(broker.bootstrap, other, 3)) == expected(range(0, 30, 3), 3)
    assert sorted(stored(broker.bootstrap, topic)) == expected(n for n in range(30) if n % 3)


def test_partitions_of_several_topics(broker, topic, tmp_path):
    """A partition has to be one of its own row's topic, whatever the others have."""
    other = f"{topic}-b"
    made(broker.bootstrap, topic, 1)
    made(broker.bootstrap, other, 3)
    options = options_of(broker.bootstrap)
    batch = batch_of(range(3), topic=[topic, other, other], partition=[0, 2, None])
    files = staged(options, tmp_path, batch)
    assert committing.commit(options, tmp_path, 0, files) == {topic: 1, other: 2}
    assert stored(broker.bootstrap, topic, 1) == [(0, "k0", "v0", 0)]
    assert sorted(stored(broker.bootstrap, other, 3)) == sorted(
        [(2, "k1", "v1", 1000), *expected([2], 3)]
    )


def test_a_column_of_nulls_as_times(broker, topic, tmp_path):
    """As of `lit(None)`, whose type is void: such records have no time."""
    made(broker.bootstrap, topic, 1)
    options = options_of(broker.bootstrap, topic=topic)
    batch = batch_of([0]).drop_columns(["timestamp_ms"]).append_column("timestamp", pa.nulls(1))
    committing.commit(options, tmp_path, 0, staged(options, tmp_path, batch))
    assert stored(broker.bootstrap, topic, 1) == [(0, "k0", "v0", -1)]


def test_a_run_that_was_written_says_so(broker, topic, tmp_path, caplog):
    made(broker.bootstrap, topic, 1)
    options = options_of(broker.bootstrap, topic=topic, run="monday", staging=str(tmp_path))
    directory = options.directory_of_batch()
    for number in range(2):
        assert "run monday was written before" not in caplog.text
        committing.commit(options, directory, 0, staged(options, directory, batch_of([number])))
    assert "run monday was written before" in caplog.text
    assert stored(broker.bootstrap, topic, 1) == [(0, "k0", "v0", 0)]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"topic": [None]}, r"a row has no topic: .* \(key 'k1', value 'v1'\)"),
        (
            {"partition": [2]},
            r"names partition 2 of topic .*, which has 2 \(key 'k1', value 'v1'\)",
        ),
        ({"partition": [-1]}, "names partition -1 of topic"),
        ({"headers": [[{"key": None, "value": b"x"}]]}, r"a header has no name: .* \(key 'k1'"),
        ({"headers": ONE_HEADER, "header_names": [[b"a", b"b"]]}, "header_names has b'a', b'b'"),
        ({"headers": ONE_HEADER, "header_names": [[b"\xff"]]}, r"has b'\\xff', and headers 'a'"),
        (
            {"headers": [None], "header_names": [[b"a"]]},
            "header_names has b'a', and headers nothing",
        ),
        (
            {"headers": ONE_HEADER, "header_names": [[None]]},
            r"header_names has None, .* \(key 'k1', value 'v1'\)",
        ),
    ],
)
def test_rows_that_cannot_be_written(broker, topic, tmp_path, columns, words):
    made(broker.bootstrap, topic)
    by_column = "topic" in columns
    options = options_of(broker.bootstrap, **({} if by_column else {"topic": topic}))
    with pytest.raises((PipelineError, UsageError), match=words):
        staged(options, tmp_path, batch_of([1], **columns))
    assert not list(tmp_path.rglob("*.arrow"))


def schema_of(**types):
    fields = [
        SimpleNamespace(name=name, dataType=SimpleNamespace(simpleString=lambda kind=kind: kind))
        for name, kind in types.items()
    ]
    return SimpleNamespace(fields=fields)


@pytest.mark.parametrize(
    ("given", "types", "words"),
    [
        ({}, {"value": "int"}, "column value is binary or string, not int"),
        ({}, {"key": "string"}, "a record needs a column value"),
        ({"topic": ""}, {"value": "string"}, "where to"),
        ({}, {"value": "string", "timestamp": "date"}, "column timestamp is timestamp, not date"),
        ({"topik": "t"}, {"value": "string"}, "no option topik; did you mean topic"),
        ({"delivery": "twice"}, {"value": "string"}, "delivery is one of"),
        ({"run": "../r"}, {"value": "string"}, "run is a name of letters"),
        ({"kafka.compression.type": "lzma"}, {"value": "string"}, "compression is one of"),
    ],
)
def test_mistakes_are_said(given, types, words):
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", **given}
    if not given["topic"]:
        del given["topic"]
    with pytest.raises(OptionError, match=words):
        check(schema_of(**types), SinkOptions(given), overwrite=False)


def test_a_topic_is_created_where_brokers_do_so(broker, topic):
    """Before a row is staged; as Kafka's producer lets them."""
    staging.check_target(options_of(broker.bootstrap, topic=topic))
    with Client(broker.bootstrap) as client:
        assert client.partition_count(topic) >= 1


def test_a_topic_that_nobody_creates(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "_CREATED_WITHIN_S", 0.3)
    settings = {"auto.create.topics.enable": "false"}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        options = options_of(broker.bootstrap, topic="t")
        for act in (staging.check_target, lambda _: staged(options, tmp_path / "s", batch_of([1]))):
            with pytest.raises(UsageError, match="has no topic t, and the broker creates none"):
                act(options)
        assert not list(tmp_path.glob("s/incoming/*"))


def test_what_a_read_returns_can_be_written():
    columns = {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": "array<struct<key:string,value:binary>>",
        "timestamp_ms": "bigint",
        "append_time_ms": "bigint",
        "has_timestamp": "boolean",
        "header_names": "array<binary>",
        "plausible": "boolean",
    }
    options = SinkOptions({"kafka.bootstrap.servers": "h:1", "kafka.acks": "all"})
    assert check(schema_of(**columns), options, overwrite=False) == []
    columns |= {"id": "bigint", "timestmp": "timestamp"}
    assert check(schema_of(**columns), options, overwrite=False) == ["id", "timestmp"]
    with pytest.raises(OptionError, match="mode append"):
        check(schema_of(**columns), options, overwrite=True)


def test_where_rows_are_staged(tmp_path):
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t"}
    with pytest.raises(OptionError, match="staging is needed"):
        SinkOptions(given).staging()
    with pytest.raises(OptionError, match="run needs staging"):
        SinkOptions(given | {"run": "r"}).directory_of_batch()
    with pytest.raises(OptionError, match="not s3://b/x"):
        SinkOptions(given | {"staging": "s3://b/x"}).staging()
    for place in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        assert SinkOptions(given | {"staging": place}).staging() == tmp_path
    stream = SinkOptions(given | {"checkpointLocation": f"file:{tmp_path}"})
    assert stream.staging() == tmp_path / "timelog"
