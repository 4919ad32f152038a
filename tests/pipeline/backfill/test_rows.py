"""Rows of a table as records, without Spark: units, floors, refusals, partitions, columns."""

from __future__ import annotations

import datetime as dt
import zoneinfo

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from tidelog.pipeline.archive.layout import buffers_of
from tidelog.pipeline.backfill.rows import LOCAL, BadTime, Staging, staged, times_of
from tidelog.pipeline.errors import PipelineError
from tidelog.pipeline.source.arrays import HEADERS
from tidelog.pipeline.times import to_ms
from tidelog.protocol.records.batch import records
from tidelog.protocol.records.column_batches import encode_batches

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DATA = st.one_of(st.none(), st.binary(max_size=30))


@given(
    values=st.lists(st.one_of(st.none(), INT64), max_size=20),
    unit=st.sampled_from(["ms", "us", "ns"]),
)
def test_finer_units_are_cut_by_floor(values, unit):
    expected = [None if value is None else to_ms(value, unit) for value in values]
    assert times_of(pa.array(values, pa.int64()), unit).to_pylist() == expected


def test_seconds_at_the_ends_of_time():
    last, first = (2**63 - 1) // 1000, -(2**63 // 1000)
    assert times_of(pa.array([last, first, None, -1]), "s").to_pylist() == [
        last * 1000,
        first * 1000,
        None,
        -1000,
    ]
    for outside in (last + 1, first - 1):
        with pytest.raises(BadTime, match="outside the range of times"):
            times_of(pa.array([0, outside]), "s")


def test_iso_texts_of_any_year():
    column = pa.array(
        ["0001-01-01T00:00Z", None, "1969-12-31T23:59:59.999Z", "-0044-03-15T12:00+00:00"]
    )
    assert times_of(column, "iso").to_pylist() == [-62135596800000, None, -1, -63549316800000]


@pytest.mark.parametrize(
    "text", ["2020-01-01", "2020-01-01T00:00", "x", "", "5", "-5", "20200101", "now", "-2h"]
)
def test_texts_that_are_no_time_are_refused(text):
    """Nor is a number one: what was meant may be a day, `20200101`, and no milliseconds."""
    with pytest.raises(BadTime):
        times_of(pa.array([text]), "iso")


def test_fractions_are_refused():
    with pytest.raises(BadTime, match="not a whole number of s"):
        times_of(pa.array([1.5]), "s")


@given(
    rows=st.lists(st.tuples(st.one_of(st.none(), INT64), DATA, DATA), min_size=1, max_size=30),
    skipped=st.integers(min_value=0, max_value=9),
    partition_count=st.integers(min_value=1, max_value=7),
)
def test_rows_become_the_records_they_say(rows, skipped, partition_count):
    padding = [(0, b"x", b"y")] * skipped
    whole = [*padding, *rows]
    batch = pa.record_batch(
        {
            "time": pa.array([row[0] for row in whole], pa.int64()),
            "key": pa.array([row[1] for row in whole], pa.binary()),
            "value": pa.array([row[2] for row in whole], pa.binary()),
            "headers": pa.array([[{"key": "h", "value": row[1]}] for row in whole], HEADERS),
            "partition": pa.nulls(len(whole), pa.int32()),
            "file": pa.nulls(len(whole), pa.string()),
            "row": pa.nulls(len(whole), pa.int64()),
        }
    ).slice(skipped)  # as a part of a larger batch, at an offset of its own
    made = staged(batch, Staging("ms", None, partition_count, "when"))
    for (_, key, value), partition in zip(rows, made.column("partition").to_pylist(), strict=True):
        chooser = value if key is None else key
        expected = 0 if chooser is None else (murmur2(chooser) & 0x7FFFFFFF) % partition_count
        assert partition == expected
    times = pc.fill_null(made.column("timestamp_ms"), -1)
    columns = buffers_of(made.set_column(1, "timestamp_ms", times))
    (one,) = encode_batches(columns, 0, len(rows))
    assert [(each.timestamp, each.key, each.value, each.headers) for each in records(one.data)] == [
        (-1 if time is None else time, key, value, ((b"h", key),)) for time, key, value in rows
    ]


def test_a_named_partition_wins_and_a_null_one_goes_by_the_key():
    count = 5
    batch = pa.record_batch(
        {
            "time": pa.array(range(count), pa.int64()),
            "key": pa.array([b"k"] * count),
            "value": pa.array([b"v"] * count),
            "headers": pa.nulls(count, HEADERS),
            "partition": pa.array([0, 2, None, -1, 9], pa.int32()),
        }
    )
    by_key = (murmur2(b"k") & 0x7FFFFFFF) % 3
    made = staged(batch, Staging("ms", None, 3, "when"))
    assert made.column("partition").to_pylist() == [0, 2, by_key, -1, 9]


# --- times without a zone -------------------------------------------------------------------------

ZONES = ["UTC", "Europe/Brussels", "America/New_York", "Asia/Kathmandu", "Pacific/Apia"]


@given(
    local=st.datetimes(min_value=dt.datetime(2, 1, 1), max_value=dt.datetime(9998, 1, 1)),
    zone=st.sampled_from(ZONES),
)
def test_local_times_are_those_of_their_zone(local, zone):
    """As Python's own zoneinfo has it, but for the hours that a clock skipped."""
    there = local.replace(tzinfo=zoneinfo.ZoneInfo(zone))
    exact = (there - EPOCH) // dt.timedelta(microseconds=1) // 1000
    back = (EPOCH + dt.timedelta(milliseconds=exact)).astimezone(there.tzinfo)
    is_skipped = back.replace(tzinfo=None) != local.replace(
        microsecond=local.microsecond // 1000 * 1000
    )
    assume(not is_skipped)
    assert times_of(pa.array([local], pa.timestamp("us")), LOCAL, zone).to_pylist() == [exact]
    assert times_of(pa.array([local.isoformat()]), "iso", zone).to_pylist() == [exact]


def test_an_hour_that_is_there_twice_or_not_at_all():
    texts = ["2024-10-27T02:30", "2024-03-31T02:30", "2024-10-27T02:30+01:00", None]
    assert times_of(pa.array(texts), "iso", "Europe/Brussels").to_pylist() == [
        to_ms("2024-10-27T00:30Z", "iso"),  # the first of the two
        to_ms("2024-03-31T01:30Z", "iso"),  # half an hour after the change
        to_ms("2024-10-27T01:30Z", "iso"),  # it says its own
        None,
    ]


def test_local_times_of_any_year():
    """Before there were zones a place had its mean time; later years go by today's rules."""
    texts = ["-0044-03-15T12:00", "+12026-07-01T00:00", "+12026-01-01T00:00", "-292275000-01-01"]
    found = times_of(pa.array(texts), "iso", "Europe/Brussels").to_pylist()
    mean_ms = 1_050_000  # 17 minutes and 30 seconds east of Greenwich
    assert found == [
        to_ms("-0044-03-15T12:00Z", "iso") - mean_ms,
        to_ms("+12026-06-30T22:00Z", "iso"),
        to_ms("+12025-12-31T23:00Z", "iso"),
        to_ms("-292275000-01-01T00:00Z", "iso") - mean_ms,
    ]


def test_a_text_without_a_zone_is_refused_with_what_helps():
    with pytest.raises(BadTime, match=r"does not say its zone.*or say --time-zone"):
        times_of(pa.array(["2020-01-01T00:00"]), "iso")


@pytest.mark.parametrize(
    ("file", "row", "place"),
    [
        ("t.parquet", 7, "row 7 of {directory}/t.parquet"),
        ("t.csv", None, "line 4 of {directory}/t.csv"),
        ("gone.csv", None, """{directory}/gone.csv, '{{"when":"soon","who":"b"}}'"""),
        (None, None, """the row is '{{"when":"soon","who":"b"}}'"""),
    ],
)
def test_a_value_that_is_no_time_is_named_with_its_place(tmp_path, file, row, place):
    """In a file of texts it is the line with the other texts of the row."""
    (tmp_path / "t.csv").write_text("when,who\nsooner,b\n5,soon\nsoon,b\n")
    batch = pa.record_batch(
        {
            "time": pa.array(["5", "soon"]),
            "key": pa.nulls(2, pa.binary()),
            "value": pa.array([b"{}", b'{"when":"soon","who":"b"}']),
            "headers": pa.nulls(2, HEADERS),
            "partition": pa.nulls(2, pa.int32()),
            "file": pa.array([None, file and (tmp_path / file).as_uri()], pa.string()),
            "row": pa.array([None, row], pa.int64()),
        }
    )
    with pytest.raises(PipelineError) as raised:
        staged(batch, Staging("ms", None, 1, "when"))
    where = place.format(directory=tmp_path)
    assert str(raised.value) == f"column when: 'soon' is not a whole number of ms ({where})"
