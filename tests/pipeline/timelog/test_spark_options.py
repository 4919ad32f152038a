"""Options of Spark's own Kafka source: each has a meaning, changes nothing with a warning, or is refused."""

from __future__ import annotations

import logging

import pytest

from tests.pipeline.logs import Writer
from tidelog.client import Client
from tidelog.pipeline.sink.sink_options import SinkOptions
from tidelog.pipeline.source import access
from tidelog.pipeline.source.reading import TIMES, ReadOptions
from tidelog.pipeline.timelog import columns
from tidelog.pipeline.timelog.names import OptionError, named
from tidelog.pipeline.timelog.options import TimelogOptions
from tidelog.pipeline.timelog.spark_options import REFUSED, SINK, SOURCE, UNUSED
from tidelog.pipeline.timelog.triggers import Triggers

BROKERS = {"kafka.bootstrap.servers": "h:1"}


def named_so(options, kind):
    return [name for name, one in options.items() if one.kind == kind and not name.endswith("*")]


@pytest.mark.parametrize(
    "name", [*named_so(SOURCE, UNUSED), "kafka.max.poll.records", "KAFKA.no.such.thing"]
)
def test_what_changes_nothing_is_logged_once(name, caplog):
    settings = TimelogOptions({**BROKERS, name: "5"}, 0)
    assert caplog.records == []
    with caplog.at_level(logging.WARNING):
        settings.warn_of_unused()
    (record,) = caplog.records
    assert f"option {name} changes nothing: " in record.getMessage()


@pytest.mark.parametrize("name", named_so(SOURCE, REFUSED))
def test_what_spark_refuses_too(name):
    with pytest.raises(OptionError, match=f"{name} is not supported"):
        TimelogOptions({**BROKERS, name: "x"}, 0)


@pytest.mark.parametrize("name", [*named_so(SINK, UNUSED), "kafka.linger.ms"])
def test_what_changes_nothing_of_a_write(name, caplog):
    options = SinkOptions({**BROKERS, "topic": "t", name: "5"})
    with caplog.at_level(logging.WARNING):
        options.warn(["id", "day"])
    assert [one.getMessage() for one in caplog.records] == [
        *options.unused,
        "columns are not written: id, day",
    ]
    assert [f"option {name} changes nothing" in one for one in options.unused] == [True]


@pytest.mark.parametrize("name", named_so(SINK, REFUSED))
def test_what_a_write_refuses(name):
    with pytest.raises(OptionError, match=f"{name} is not supported"):
        SinkOptions({**BROKERS, "topic": "t", name: "x"})


def test_a_slip_of_the_pen_is_no_option_of_java():
    for name in ("kafka.bootstrap.server", "kafka.isolation.levle", "kafka.client.racks"):
        with pytest.raises(OptionError, match="did you mean kafka"):
            named({name: "x"})


@pytest.mark.parametrize("kind", [TimelogOptions, SinkOptions])
def test_brokers_see_the_client_id(kind):
    given = {**BROKERS, "kafka.client.id": "a-program"}
    settings = kind(given, 0) if kind is TimelogOptions else kind({**given, "topic": "t"})
    with Client(settings.brokers) as client:
        assert client.client_id == "a-program"


def test_a_stream_starts_at_the_end_and_a_batch_at_the_beginning(caplog):
    stream = TimelogOptions(BROKERS, 0, is_stream=True)
    assert (stream.start.others, TimelogOptions(BROKERS, 0).start.others) == ("latest", "earliest")
    with caplog.at_level(logging.WARNING):
        stream.note_default_start()
        for name, value in (("startingOffsets", "latest"), ("startingTimestamp", "5")):
            TimelogOptions({**BROKERS, name: value}, 0, is_stream=True).note_default_start()
    (record,) = caplog.records
    assert "stream starts at the end of its topics" in record.getMessage()


def test_a_delay_is_written_as_in_spark():
    for text, delay_ms in (("15m", 900_000), ("2min", 120_000), ("10S", 10_000), ("5", 5)):
        assert TimelogOptions({**BROKERS, "maxTriggerDelay": text}, 0).delay_ms == delay_ms
    assert TimelogOptions(BROKERS, 0).delay_ms == 900_000


def test_a_micro_batch_waits_for_offsets_or_a_delay():
    triggers = Triggers()
    given = ((0, 0.0), (9, 1.0), (10, 2.0), (9, 11.9), (0, 12.0), (9, 13.0))
    due = [triggers.is_due(offsets, 10, 10.0, now_s) for offsets, now_s in given]
    assert due == [True, False, True, False, True, False]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger is a number of offsets from 1 on"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger=9 is more than maxOffsetsPerTrigger=8",
        ),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: 'soon' is not a span"),
        (
            {"maxRecordsPerPartition": "x"},
            "maxRecordsPerPartition is a number of records from 1 on",
        ),
        ({"maxRecordsPerPartition": "5", "level": "batch"}, "is for records, and level batch"),
    ],
)
def test_mistakes_are_said(given, words):
    with pytest.raises(OptionError, match=words):
        TimelogOptions({**BROKERS, **given}, 0)


@pytest.mark.parametrize("others", [{}, {"minPartitions": "40"}])
@pytest.mark.parametrize("most", [1, 7, 1000])
def test_the_records_of_a_task(tmp_path, most, others):
    """Of a directory too, where a batch has more of them; each record is read once."""
    writer = Writer(tmp_path)
    for number in range(10):
        writer.append([number] * 20)
    writer.close()
    given = {"path": str(tmp_path), "upto": "log-end", "maxRecordsPerPartition": str(most)}
    settings = TimelogOptions(given | others, 0)
    groups = columns.grouped(settings, settings.planned())
    tasks = [
        [
            offset
            for split in group
            for found in access.read(split, ReadOptions.of(settings.selection, TIMES))
            for offset in found.offset.tolist()
        ]
        for group in groups
    ]
    assert [offset for task in tasks for offset in task] == list(range(200))
    assert max(map(len, tasks)) <= most
