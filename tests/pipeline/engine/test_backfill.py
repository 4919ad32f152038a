"""Rows of a table as records, without Spark: units, floors, refusals, partitions, columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from pipeline.engine.backfill import buffers_of, staged, times_of
from pipeline.errors import PipelineError
from pipeline.times import to_ms
from protocol.records.batch import records
from protocol.records.column_batches import encode_batches

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
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
        with pytest.raises(PipelineError, match="outside the range of times"):
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
    with pytest.raises(PipelineError, match="the time column"):
        times_of(pa.array([text]), "iso")


def test_fractions_are_refused():
    with pytest.raises(PipelineError, match="not a whole number of s"):
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
        }
    ).slice(skipped)  # as a part of a larger batch, at an offset of its own
    made = staged(batch, "ms", partition_count)
    for (_, key, value), partition in zip(rows, made.column("partition").to_pylist(), strict=True):
        chooser = value if key is None else key
        expected = 0 if chooser is None else (murmur2(chooser) & 0x7FFFFFFF) % partition_count
        assert partition == expected
    columns = buffers_of(*(made.column(name) for name in ("timestamp_ms", "key", "value")))
    (one,) = encode_batches(columns, 0, len(rows))
    assert [(each.timestamp, each.key, each.value) for each in records(one.data)] == [
        (-1 if time is None else time, key, value) for time, key, value in rows
    ]
