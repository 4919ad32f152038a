"""The options of `timelog` by the names of Spark's Kafka source: what they select of a log."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tests.pipeline.logs import Writer
from tidelog.pipeline.source.splits import Selection, SourceError
from tidelog.pipeline.timelog import columns
from tidelog.pipeline.timelog.names import NAMES, OptionError, named
from tidelog.pipeline.timelog.options import TimelogOptions
from tidelog.pipeline.timelog.pushing import narrowed
from tidelog.protocol.records.batch import Record

NOW_MS = 8_000
TODAY_MS = 1_780_000_000_000
TIMES = (1000, 5000, 2000, -1, 7000, 3000, -500, 6000)


@pytest.fixture
def log(tmp_path):
    """Topic t: one partition, whose records are out of order and partly without a time."""
    writer = Writer(tmp_path)
    for at in TIMES:
        writer.append([at])
    writer.close()
    return tmp_path


def read(path, **options):
    """The offsets that a batch with these options reads, each once."""
    settings = TimelogOptions({"path": str(path), "upto": "log-end", **options}, NOW_MS)
    found = [
        offset
        for group in columns.grouped(settings, settings.planned())
        for batch in rows_of(settings, group)
        for offset in batch.column("offset").to_pylist()
    ]
    assert len(found) == len(set(found))
    return sorted(found)


def in_json(value):
    return json.dumps({"t": {"0": value}})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(8)),
        ({"subscribe": "t"}, range(8)),
        ({"subscribePattern": "t.*", "kafka.group.id": "g"}, range(8)),
        ({"assign": '{"t": [0]}'}, range(8)),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, range(8)),
        ({"startingOffsets": in_json(3)}, range(3, 8)),
        ({"startingOffsets": in_json(-2), "endingOffsets": in_json(5)}, range(5)),
        ({"endingOffsets": in_json(-1)}, range(8)),
        ({"startingOffsets": in_json(6), "endingOffsets": in_json(6)}, []),
        # From the first record of that time or later on, with the older ones behind it.
        ({"startingTimestamp": "1001"}, range(1, 8)),
        ({"startingOffsetsByTimestamp": in_json(5001)}, range(4, 8)),
        ({"startingTimestamp": "5001", "startingOffsets": in_json(0)}, range(4, 8)),
        ({"startingTimestamp": "-499"}, range(8)),
        # Everything before that time, wherever it lies: Spark's source stops at offset 1.
        ({"endingTimestamp": "4000"}, [0, 2, 5, 6]),
        ({"endingOffsetsByTimestamp": in_json(4000)}, [0, 2, 5, 6]),
        ({"startingTimestamp": "4000", "endingTimestamp": "4000"}, [2, 5, 6]),
        ({"startingTimestamp": "1970-01-01T00:00:06.5Z"}, range(4, 8)),
        # All forms of the commands; relative ones count from when the source was loaded.
        ({"from": "-3s"}, [1, 4, 7]),
        ({"from": "-3s", "to": "-1500ms"}, [1, 7]),
        ({"from": "1970-01-01T01:00:05+01:00", "to": "now"}, [1, 4, 7]),
        ({"startingTimestamp": "-2999ms"}, range(4, 8)),
        ({"startingOffsetsByTimestamp": in_json("-2999ms")}, range(4, 8)),
        ({"endingTimestamp": "-4s"}, [0, 2, 5, 6]),
        (
            {"startingTimestamp": "9000", "startingOffsetsByTimestampStrategy": "latest"},
            [],
        ),
    ],
)
def test_what_a_batch_reads(log, options, expected):
    assert read(log, **options) == list(expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffset": "earliest"}, "no option startingOffset; did you mean startingOffsets"),
        ({"kafka.bootstrap.server": "h:1"}, "did you mean kafka.bootstrap.servers"),
        ({"pathz": "x"}, r"^timelog has no option pathz; did you mean path\?$"),
        ({"zzz": "1"}, "no option zzz, nor one of a similar name"),
        (
            {"kafka.sasl.mechanism": "PLAIN"},
            "security settings are for brokers, and a path has none",
        ),
        ({"brokers": "h:1"}, "path and brokers are both given"),
        ({"subscribe": "a", "topics": "b"}, "are one option"),
        ({"assign": "{}x"}, "assign is .* in JSON"),
        ({"assign": '{"t": [0]}', "subscribe": "t"}, "only one of them"),
        ({"assign": '{"t": [0, 7]}'}, "there is no partition t-7"),
        ({"startingOffsets": "newest"}, "startingOffsets is earliest, latest or"),
        ({"startingOffsets": in_json("a")}, "has offsets, -2"),
        ({"startingOffsets": in_json(-3)}, "has offsets, -2"),
        ({"startingOffsets": "latest"}, "is for streams"),
        ({"endingOffsets": "earliest"}, "would read nothing"),
        ({"endingOffsets": in_json(99)}, "t-0 ends at offset 8"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "other-0 is named"),
        ({"startingTimestamp": "8000"}, "t-0 has no record at 8000 ms or later"),
        ({"startingTimestamp": "soon"}, "startingTimestamp: 'soon' is not a time"),
        ({"from": "2h"}, "from: '2h': before or after now"),
        ({"startingTimestamp": "1", "offsets": in_json([0, 1])}, "not both"),
        ({"minPartitions": "0"}, "minPartitions is a number of tasks"),
        ({"rack": "a"}, "rack is for brokers"),
        ({"kafka.client.rack": "a"}, "rack is for brokers"),
        ({"level": "row"}, "level is one of segment, batch, time, record, not 'row'"),
        ({"maxPartitionBytes": "much"}, "maxPartitionBytes is a number of bytes"),
        ({"maxPartitionOffsets": "0"}, "maxPartitionOffsets is a number of offsets from 1 on"),
        ({"verifyCrc": "maybe"}, "verifyCrc is true or false, not 'maybe'"),
        ({"paths": "/logs"}, "paths is a JSON list, not '/logs'"),
        ({"upto": "now"}, "upto is one of high-watermark, log-end, not 'now'"),
        ({"topicsPattern": "("}, "is no regular expression"),
        ({"offsets": "{"}, "offsets is .* in JSON"),
        ({"topics": "t", "topicsPattern": "t"}, "not both"),
        ({"plausible": "true", "level": "time"}, "timestamp, which level time does not have"),
    ],
)
def test_mistakes_are_said(log, options, words):
    with pytest.raises((OptionError, SourceError), match=words):
        read(log, **options)


def test_the_rack_of_the_workers_is_that_of_a_consumer_of_spark():
    place = {"brokers": "one:9092"}
    assert TimelogOptions(place, NOW_MS).selection.rack == ""
    for name in ("rack", "kafka.client.rack", "KAFKA.CLIENT.RACK"):
        assert TimelogOptions({**place, name: " eu-1a "}, NOW_MS).selection.rack == "eu-1a"
    with pytest.raises(OptionError, match=r"rack and kafka\.client\.rack are one option"):
        TimelogOptions({**place, "kafka.client.rack": "a", "rack": "b"}, NOW_MS)


def test_a_source_has_a_place():
    with pytest.raises(OptionError, match=r"give a path \(log directories\), or brokers"):
        TimelogOptions({"level": "time"}, NOW_MS)


def test_a_gone_start_is_an_error_unless_losing_is_allowed(log):
    from tidelog.pipeline.timelog.bounds import ends, starts

    settings = TimelogOptions(
        {"path": str(log), "startingOffsets": in_json(0), "failOnDataLoss": "false"}, NOW_MS
    )
    assert settings.planned().allow_gone
    ranges = {("t", 0): (2, 8)}  # as if retention had been there
    first = starts(settings.start, settings.place, settings.selection, ranges, is_strict=True)
    assert (first, ends(settings.end, ranges)) == ({("t", 0): 0}, {("t", 0): 8})
    strict = Selection(offsets={("t", 0): (0, 8)})
    with pytest.raises(SourceError, match="0 to 1 are gone"):
        strict.range_of(("t", 0), 2, 8)


def test_the_number_of_tasks(tmp_path):
    writer = Writer(tmp_path)
    for number in range(2000):
        writer.append([number])
    writer.close()

    def tasks(**options):
        settings = TimelogOptions({"path": str(tmp_path), "upto": "log-end", **options}, NOW_MS)
        groups = columns.grouped(settings, settings.planned())
        rows = sum(batch.num_rows for group in groups for batch in rows_of(settings, group))
        assert rows == 2000
        return len(groups)

    least = tasks()
    assert tasks(minPartitions=str(3 * least)) >= 3 * least
    assert tasks(minPartitions="1") == least


def rows_of(settings, group):
    return columns.batches_of(settings, group, columns.schema_of(settings).names, TODAY_MS)


def test_headers_may_be_left_out(log):
    settings = TimelogOptions(
        {"path": str(log), "upto": "log-end", "includeHeaders": "false"}, NOW_MS
    )
    names = columns.schema_of(settings).names
    assert not {"headers", "header_names"} & {*names}
    for group in columns.grouped(settings, settings.planned()):
        for batch in rows_of(settings, group):
            assert batch.schema.names == names


@pytest.mark.parametrize("level", ["record", "time"])
def test_which_times_are_plausible(tmp_path, level):
    """By the append time where it is known, else by the moment of the plan."""
    writer = Writer(tmp_path)
    day = 86_400_000
    times = [
        TODAY_MS,
        0,
        -1,
        TODAY_MS // 1000,
        TODAY_MS * 1000,
        TODAY_MS + 60_000,
        TODAY_MS + 60_001,
        -5,
    ]
    writer.append([Record(0, at, None, b"v") for at in times], now=TODAY_MS)
    writer.append([Record(0, TODAY_MS + day, None, b"v")], now=TODAY_MS + day)
    writer.close()
    settings = TimelogOptions({"path": str(tmp_path), "upto": "log-end", "level": level}, TODAY_MS)
    (group,) = columns.grouped(settings, settings.planned())

    def plausible():
        return [one for batch in rows_of(settings, group) for one in batch["plausible"].to_pylist()]

    known = [True, True, None, False, False, True, False, True]
    assert plausible() == [*known, True]
    for path in (tmp_path / "t-0").glob("*.appendtimes"):
        path.unlink()
    assert plausible() == [*known, False]


def test_times_that_are_not_plausible_are_hidden(tmp_path):
    writer = Writer(tmp_path)
    writer.append(
        [Record(0, at, None, b"v") for at in (TODAY_MS, TODAY_MS * 1000, -1)], now=TODAY_MS
    )
    writer.close()
    given = {"path": str(tmp_path), "upto": "log-end", "plausible": "true"}
    settings = TimelogOptions(given, TODAY_MS)
    (group,) = columns.grouped(settings, settings.planned())
    (batch,) = rows_of(settings, group)
    assert batch.schema.equals(columns.schema_of(settings))
    assert batch["timestamp"].is_valid().to_pylist() == [True, False, False]
    assert batch["timestamp_ms"].to_pylist() == [TODAY_MS, TODAY_MS * 1000, -1]


def test_streams_have_no_end(log):
    settings = TimelogOptions({"path": str(log), "endingTimestamp": "5"}, NOW_MS)
    with pytest.raises(OptionError, match="endingTimestamp is for batches"):
        settings.check_for_stream()


@pytest.mark.parametrize("name", ["from", "to"])
def test_a_stream_selects_the_same_times_after_a_restart(log, name):
    settings = TimelogOptions({"path": str(log), name: "-2h"}, NOW_MS)
    with pytest.raises(OptionError, match=f"^{name}=-2h would be another time after each restart"):
        settings.check_for_stream()
    for options in ({name: "1970-01-01T00:00:02Z"}, {"startingTimestamp": "-2h"}):
        TimelogOptions({"path": str(log), **options}, NOW_MS).check_for_stream()


def test_options_of_a_table():
    """Spark's catalog adds names of its own, and writes a path as a URI."""
    given = {
        "provider": "timelog",
        "owner": "root",
        "location": "file:/logs",
        "path": "file:/logs",
        "option.path": "/logs",
        "option.Subscribe": "t",
        "Subscribe": "t",
    }
    assert named(given) == ({"path": "/logs", "topics": "t"}, [])
    assert named({"provider": "timelog", "path": "file:/my logs"})[0] == {"path": "/my logs"}
    assert all(named({name: "x"})[0] == {name: "x"} for name in NAMES)


EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual = (
    type(name, (SimpleNamespace,), {})
    for name in ("EqualTo", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual")
)


@pytest.mark.parametrize("micros", [-2_000_001, -1000, -999, 0, 1, 999, 1000, 2_500_000])
@pytest.mark.parametrize(
    ("kind", "holds"),
    [
        (EqualTo, lambda ms, us: ms * 1000 == us),
        (GreaterThan, lambda ms, us: ms * 1000 > us),
        (GreaterThanOrEqual, lambda ms, us: ms * 1000 >= us),
        (LessThan, lambda ms, us: ms * 1000 < us),
        (LessThanOrEqual, lambda ms, us: ms * 1000 <= us),
    ],
)
def test_a_filter_on_timestamp_leaves_out_what_it_excludes_and_no_more(kind, holds, micros):
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    one = kind(attribute=("timestamp",), value=instant)
    found = narrowed(Selection(), [one], of_records=True)
    low = -(2**63) if found.low_time is None else found.low_time
    end = 2**63 if found.high_time is None else found.high_time
    near = range(micros // 1000 - 3, micros // 1000 + 4)
    assert [ms for ms in near if low <= ms < end] == [ms for ms in near if holds(ms, micros)]
