"""Columns into batches: what was decoded comes back byte for byte, and columns that lie are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.protocol.records.batch import Record, build, records, scan, verify
from tidelog.protocol.records.column_batches import BatchProducer, encode_batches
from tidelog.protocol.records.columns import ColumnBuffers, RecordSelection, append_set
from tidelog.protocol.records.kernels import kernels_py
from tidelog.protocol.records.layout import INT64_MAX, INT64_MIN, Compression

DATA = st.one_of(st.none(), st.binary(max_size=300))
HEADERS = st.lists(st.tuples(st.binary(max_size=20), DATA), max_size=3).map(tuple)
TIMES = st.one_of(
    st.sampled_from([-1, 0, 1, -62135596800000, INT64_MIN, INT64_MAX]),
    st.integers(min_value=INT64_MIN, max_value=INT64_MAX),
)
ROWS = st.lists(st.tuples(TIMES, DATA, DATA, HEADERS), min_size=1, max_size=60)


def numbered(rows):
    return [Record(n, *row) for n, row in enumerate(rows)]


def columns_of(wanted, compression=0):
    out = ColumnBuffers()
    append_set(build(wanted, compression=compression), out, RecordSelection())
    assert out.record_count == len(wanted)
    return out


def read_back(batches):
    found = []
    for one in batches:
        (head,) = scan(one.data)
        verify(one.data, head)
        assert (head.base_offset, head.count) == (0, one.end - one.start)
        found += [record._replace(offset=one.start + record.offset) for record in records(one.data)]
    return found


@settings(max_examples=40)
@given(rows=ROWS)
def test_one_batch_is_the_one_it_was_decoded_from(rows):
    wanted = numbered(rows)
    columns = columns_of(wanted)
    (one,) = encode_batches(columns, 0, len(wanted), limit=1 << 30)
    assert one.data == build(wanted)


@settings(max_examples=40)
@given(
    rows=ROWS,
    limit=st.integers(min_value=1, max_value=2000),
    compression=st.sampled_from(list(Compression)),
)
def test_many_batches_hold_the_same_records(rows, limit, compression):
    wanted = numbered(rows)
    columns = columns_of(wanted)
    batches = list(encode_batches(columns, 0, len(wanted), limit=limit, compression=compression))
    assert read_back(batches) == wanted
    assert [one.start for one in batches[1:]] == [one.end for one in batches[:-1]]
    if not compression:
        assert all(len(one.data) <= max(limit, 62) or one.end == one.start + 1 for one in batches)


@settings(max_examples=40)
@given(rows=ROWS, cut=st.data())
def test_some_of_the_rows(rows, cut):
    wanted = numbered(rows)
    start = cut.draw(st.integers(min_value=0, max_value=len(rows) - 1))
    end = cut.draw(st.integers(min_value=start + 1, max_value=len(rows)))
    batches = encode_batches(columns_of(wanted), start, end, limit=500)
    assert read_back(batches) == wanted[start:end]


def test_sequences_go_on_and_wrap():
    columns = columns_of(numbered([(5, b"k", b"v", ())] * 10))
    size = len(next(encode_batches(columns, 0, 4)).data)
    producer = BatchProducer(77, 3, is_transactional=True)
    batches = list(
        encode_batches(columns, 0, 10, producer=producer, base_sequence=2**31 - 6, limit=size)
    )
    heads = [scan(one.data)[0] for one in batches]
    assert [(one.base_sequence, one.count) for one in heads] == [
        (2**31 - 6, 4),
        (2**31 - 2, 4),
        (2, 2),
    ]
    assert all((one.producer_id, one.producer_epoch) == (77, 3) for one in heads)
    assert all(one.is_transactional and not one.is_control for one in heads)
    assert [one.base_sequence for one in batches] == [one.base_sequence for one in heads]


def test_the_largest_time_is_that_of_records_that_have_one():
    for times, largest in (((-5, -1), -5), ((-1, -1), -1), ((-1, 0), 0), ((3, -9), 3)):
        (one,) = encode_batches(columns_of(numbered([(t, None, None, ()) for t in times])), 0, 2)
        assert scan(one.data)[0].max_timestamp == largest


def test_validity_may_be_left_out_where_no_row_is_null():
    wanted = numbered([(n, b"k%d" % n, b"", ((b"h", b"x"),)) for n in range(9)])
    columns = columns_of(wanted)
    columns.key_valid = columns.value_valid = columns.header_value_valid = b""
    (one,) = encode_batches(columns, 0, 9)
    assert one.data == build(wanted)


def test_the_largest_records_there_can_be_go_alone():
    wanted = numbered([(0, None, b"x" * 300_000, ()), (1, b"k", b"y" * 300_000, ())])
    batches = list(encode_batches(columns_of(wanted), 0, 2, limit=100_000))
    assert [one.end - one.start for one in batches] == [1, 1]
    assert read_back(batches) == wanted


@pytest.mark.parametrize(
    ("buffer", "value"),
    [
        ("timestamps", bytes(8)),
        ("key_ends", bytes(8)),
        ("header_ends", bytes(8)),
        ("value_ends", bytes(8)),
        ("header_value_ends", bytes(4)),
        ("header_key_ends", bytes(4)),
    ],
)
def test_columns_that_are_too_short_are_refused(buffer, value):
    columns = columns_of(numbered([(n, b"k", b"v", ((b"h", b"x"),)) for n in range(3)]))
    setattr(columns, buffer, value)
    with pytest.raises(ValueError, match="shorter than its rows"):
        list(encode_batches(columns, 0, 3))


@pytest.mark.parametrize(
    "buffer",
    ["key_ends", "value_ends", "header_ends", "header_key_ends", "header_value_ends"],
)
@pytest.mark.parametrize("ends", [(0, 2, 1, 3), (-1, 0, 1, 2), (0, 1, 2, 10**6), (5, 6, 7, 8)])
def test_ends_that_lie_are_refused(buffer, ends):
    columns = columns_of(numbered([(n, b"k", b"v", ((b"h", b"x"),)) for n in range(3)]))
    columns.keys = columns.values = columns.header_keys = columns.header_values = b"xyz"
    setattr(columns, buffer, b"".join(end.to_bytes(4, "little", signed=True) for end in ends))
    with pytest.raises(ValueError, match="do not ascend within its data"):
        list(encode_batches(columns, 0, 3))


def test_rows_that_are_not_there_are_refused():
    columns = columns_of(numbered([(0, b"k", b"v", ())] * 3))
    for start, end in ((0, 4), (-1, 2)):
        with pytest.raises(ValueError, match="are not among 3"):
            list(encode_batches(columns, start, end))


def test_both_kernels_write_the_same(implementation):
    wanted = numbered(
        [
            (n * 7 - 9, b"k" * (n % 5) or None, b"v" * n, ((b"h", None),) * (n % 3))
            for n in range(200)
        ]
    )
    columns = columns_of(wanted)
    for start, limit in ((0, 100), (17, 1000), (3, 1 << 20)):
        assert implementation.encode_rows(columns, start, 200, limit) == kernels_py.encode_rows(
            columns, start, 200, limit
        )
