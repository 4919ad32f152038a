"""Columns hold what an independent parser reads, for every format, codec and cut; both implementations."""

from __future__ import annotations

import itertools
import random
import struct
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.record_rows import Row, rows_of
from tests.protocol.records.samples import NOW, VECTORS, corpus, random_records
from tests.protocol.records.test_kernels import mutated
from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import Record, build
from tidelog.protocol.records.columns import (
    FULL,
    HEADERS,
    MORE,
    PAST,
    RECORDS,
    TIMES,
    BrokenBatch,
    ColumnBuffers,
    RecordSelection,
    append_set,
)
from tidelog.protocol.records.kernels import kernels_py
from tidelog.protocol.records.layout import INT64_MAX, INT64_MIN

try:
    from tidelog.protocol.records import _kernels
except ImportError:
    _kernels = None


def ints(buffer, count, code="q"):
    return list(struct.unpack_from(f"={count}{code}", buffer))


def fields(data, ends, valid, count):
    """A column of bytes, None where it is null."""
    at = ints(ends, count + 1, "i")
    return [
        bytes(data[at[i] : at[i + 1]]) if valid is None or valid[i >> 3] >> (i & 7) & 1 else None
        for i in range(count)
    ]


def batches_of(out):
    return [ints(out.batches[n * 112 : n * 112 + 112], 14) for n in range(out.batch_count)]


def rows_in(out):
    """The rows of columns, as the oracle has them."""
    count = out.record_count
    names = fields(out.header_keys, out.header_key_ends, None, out.header_count)
    contents = fields(
        out.header_values, out.header_value_ends, out.header_value_valid, out.header_count
    )
    ends = ints(out.header_ends, count + 1, "i")
    kinds, producers, done = [], [], 0
    for row in batches_of(out):
        magic, attributes, producer, end = row[4], row[5], row[9], row[13]
        kinds += [-1 if magic == 0 else (attributes >> 3) & 1] * (end - done)
        producers += [producer] * (end - done)
        done = end
    assert done == count
    return [
        Row(offset, time, kind, key, value, tuple(zip(names[a:b], contents[a:b], strict=True)), by)
        for offset, time, kind, key, value, (a, b), by in zip(
            ints(out.offsets, count),
            ints(out.timestamps, count),
            kinds,
            fields(out.keys, out.key_ends, out.key_valid, count),
            fields(out.values, out.value_ends, out.value_valid, count),
            itertools.pairwise(ends),
            producers,
            strict=True,
        )
    ]


def append_by(module, data, out, wanted):
    """Append a set with one of the two implementations."""
    with mock.patch.object(kernels, "append_set", module.append_set):
        return append_set(data, out, wanted)


def decode(data, **wanted):
    """All of a set; returns the buffers."""
    out = ColumnBuffers()
    at, why = append_set(data, out, RecordSelection(**wanted))
    assert why == MORE
    assert at == len(data)
    return out


def expected(data):
    return [
        row._replace(is_transactional=False) for row in rows_of(bytes(data)) if not row.is_control
    ]


def mixed_set(rng, *, count=12, times="mixed"):
    """Batches of all formats and codecs behind each other, offsets with gaps."""
    parts, offset = [], rng.choice([0, 7, 10**12])
    for _ in range(count):
        magic = rng.randrange(3)
        codec = rng.randrange(5 if magic == 2 else 4)
        sent = random_records(rng, rng.choice([1, 1, 2, 30]), times=times, headers=magic == 2)
        sent = [r._replace(offset=r.offset + offset) for r in sent]
        stamped = magic and rng.random() < 0.3
        extra = {"timestamp_type": 1, "log_append_time": NOW} if stamped else {}
        if magic == 2 and rng.random() < 0.5:
            extra |= {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0}
        parts.append(build(sent, magic=magic, compression=codec, **extra))
        offset = sent[-1].offset + rng.choice([1, 1, 4])
    return parts


@pytest.mark.parametrize("number", range(20))
def test_columns_are_what_an_independent_parser_reads(number):
    data = b"".join(mixed_set(random.Random(number)))
    assert rows_in(decode(data)) == expected(data)


@pytest.mark.parametrize("number", range(5))
def test_times_alone_are_the_same(number):
    data = b"".join(mixed_set(random.Random(number), times="wild"))
    out = decode(data, depth=TIMES)
    times = [(row.offset, row.timestamp) for row in expected(data)]
    assert times == list(
        zip(ints(out.offsets, len(times)), ints(out.timestamps, len(times)), strict=True)
    )
    assert rows_in(decode(data)) == expected(data)
    assert out.value_bytes == out.key_bytes == 0


@pytest.mark.parametrize(
    "path", sorted((VECTORS / "kafka-0.10.2.2").glob("*/*.log")), ids=lambda p: p.parent.name
)
def test_logs_of_a_real_kafka(path):
    data = path.read_bytes()
    found = rows_in(decode(data))
    assert found == expected(data)
    for row in found:
        assert row.key == b"k%d" % row.offset
        assert row.value == b"value-%d-" % row.offset + b"abcdefghij" * (row.offset % 30)


@given(
    st.lists(
        st.tuples(
            st.one_of(
                st.sampled_from([-1, 0, INT64_MIN, INT64_MAX]), st.integers(-(2**63), 2**63 - 1)
            ),
            st.one_of(st.none(), st.binary(max_size=40)),
            st.one_of(st.none(), st.binary(max_size=40)),
            st.lists(
                st.tuples(st.binary(max_size=5), st.one_of(st.none(), st.binary(max_size=9))),
                max_size=3,
            ),
        ),
        min_size=1,
        max_size=9,
    ),
    st.integers(0, 2),
    st.integers(0, 4),
)
@settings(max_examples=80, deadline=None)
def test_any_record(drawn, magic, codec):
    sent = [
        Record(i, time, key, value, tuple(headers))
        for i, (time, key, value, headers) in enumerate(drawn)
    ]
    data = build(sent, magic=magic, compression=codec if magic == 2 else codec % 4)
    for module in (_kernels or kernels_py, kernels_py):  # hypothesis and a fixture do not mix
        out = ColumnBuffers()
        append_by(module, data, out, RecordSelection())
        assert rows_in(out) == expected(data)
        found = [(row.timestamp, row.key, row.value) for row in rows_in(out)]
        kept = [(-1 if magic == 0 else time, key, value) for time, key, value, _ in drawn]
        assert found == kept
        if magic == 2:
            assert [row.headers for row in rows_in(out)] == [tuple(one[3]) for one in drawn]


@pytest.mark.parametrize("number", range(10))
def test_ranges_of_offsets_and_times(number):
    rng = random.Random(number)
    data = b"".join(mixed_set(rng))
    rows = expected(data)
    for _ in range(30):
        low, high = sorted(rng.choice(rows).offset + rng.randrange(-2, 3) for _ in range(2))
        first, last = sorted(rng.choice(rows).timestamp + rng.randrange(-2, 3) for _ in range(2))
        timed = rng.random() < 0.5
        wanted = RecordSelection(
            low_offset=max(low, 0),
            high_offset=max(high, 0),
            timed=timed,
            low_time=first,
            high_time=last,
        )
        out = ColumnBuffers()
        append_set(data, out, wanted)
        assert rows_in(out) == [
            row
            for row in rows
            if max(low, 0) <= row.offset < high
            and (not timed or (row.timestamp != -1 and first <= row.timestamp <= last))
        ]


@pytest.mark.parametrize("limit", [1, 500, 5000])
@pytest.mark.parametrize("depth", [TIMES, RECORDS])
def test_a_limit_cuts_between_batches_and_loses_nothing(limit, depth):
    parts = mixed_set(random.Random(limit))
    data = b"".join(parts)
    found, at, why, calls = [], 0, FULL, 0
    while why == FULL:
        out = ColumnBuffers()
        at, why = append_set(data, out, RecordSelection(limit=limit, depth=depth), at)
        found += [(row.offset, row.timestamp) for row in _times_in(out)]
        calls += 1
    assert (at, why) == (len(data), MORE)
    assert found == [(row.offset, row.timestamp) for row in expected(data)]
    assert calls > 1


def _times_in(out):
    count = out.record_count
    return [
        Row(offset, time, 0, None, None, (), -1)
        for offset, time in zip(ints(out.offsets, count), ints(out.timestamps, count), strict=True)
    ]


def test_every_cut_of_the_bytes_gives_the_whole_batches_before_it():
    parts = mixed_set(random.Random(3), count=4)
    data = b"".join(parts)
    ends = list(itertools.accumulate(map(len, parts)))
    for cut in range(0, len(data) + 1, 7):
        out = ColumnBuffers()
        at, why = append_set(data[:cut], out, RecordSelection())
        assert why == MORE
        assert rows_in(out) == expected(data[:at])
        assert at >= max((end for end in ends if end <= cut), default=0)


def test_batches_are_described_as_their_headers_say():
    parts = mixed_set(random.Random(8))
    data = b"".join(parts)
    out = decode(data, depth=HEADERS, verify=False)
    rows = batches_of(out)
    assert [row[:13] for row in rows] == [list(batch) for batch in kernels.scan(data, 0, len(data))]
    assert out.record_count == 0
    assert {row[13] for row in rows} == {0}


def test_a_batch_belongs_to_the_range_with_its_last_offset():
    data = build([Record(i, i, None, b"v") for i in range(10)]) + build(
        [Record(i, i, None, b"v") for i in range(10, 20)]
    )
    for cut in range(1, 21):
        seen = []
        for low, high in ((0, cut), (cut, 20)):
            out = ColumnBuffers()
            append_set(data, out, RecordSelection(depth=HEADERS, low_offset=low, high_offset=high))
            seen.append([row[3] for row in batches_of(out)])
        assert seen == [[o for o in (9, 19) if o < cut], [o for o in (9, 19) if o >= cut]]


def test_markers_and_aborted_transactions_are_left_out():
    pid = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    sets = [
        build([Record(0, 5, None, b"kept")], base_sequence=0, **pid),
        build([Record(1, 5, b"\0\0\0\1", b"\0\0\0\0\0\0")], is_control=True, **pid),
        build([Record(2, 5, None, b"aborted")], base_sequence=1, **pid),
        build([Record(3, 5, None, b"other")], producer_id=8, producer_epoch=0, base_sequence=0),
        build([Record(4, 5, b"\0\0\0\0", b"\0\0\0\0\0\0")], is_control=True, **pid),
        build([Record(5, 5, None, b"later")], base_sequence=2, **pid),
    ]
    data = b"".join(sets)
    everything = decode(data)
    assert [row.offset for row in rows_in(everything)] == [0, 2, 3, 5]
    committed = decode(data, aborted={7: [(2, 4)]})
    assert [row.value for row in rows_in(committed)] == [b"kept", b"other", b"later"]
    headers = decode(data, depth=HEADERS, aborted={7: [(2, 4)]})
    assert [row[3] for row in batches_of(headers)] == [0, 1, 2, 3, 4, 5]


def test_it_stops_behind_the_range():
    parts = [build([Record(i, i, None, b"v")]) for i in range(4)]
    out = ColumnBuffers()
    at, why = append_set(b"".join(parts) + b"broken", out, RecordSelection(high_offset=2))
    assert (at, why) == (len(parts[0]) * 2, PAST)
    assert [row.offset for row in rows_in(out)] == [0, 1]


def _broken(data, at, value):
    return data[:at] + bytes([value]) + data[at + 1 :]


PLAIN = build([Record(7, 5, b"k", b"value")])
WRAPPER = build([Record(6, 5, b"k", b"v"), Record(7, 5, b"k", b"v")], magic=1, compression=1)


@pytest.mark.parametrize(
    ("bad", "verify", "offset", "words"),
    [
        (_broken(PLAIN, 70, 0x55), True, 7, "fails its CRC"),
        (_broken(WRAPPER, 30, 0x55), True, 7, "fails its CRC"),
        (_broken(PLAIN, 16, 9), True, 7, "has magic 9"),
        (_broken(PLAIN, 11, 3), True, 7, "claims 3 bytes"),
        (_broken(PLAIN, 22, 7), False, 7, "names codec 7, which is none"),
        (_broken(PLAIN, 60, 5), False, 7, "claims 5 records for offsets 7 to 7"),
        (_broken(PLAIN, 61, 3), False, 7, "is broken: "),
        (_broken(PLAIN, 22, 1), False, 7, "is broken: the gzip data of a batch cannot be unpacked"),
        (
            _broken(WRAPPER, WRAPPER.index(b"\x1f\x8b"), 0),
            False,
            7,
            "is broken: the gzip data of a batch cannot be unpacked",
        ),
    ],
    ids=itertools.count(),
)
def test_a_broken_batch_is_named(bad, verify, offset, words):
    good = build([Record(5, 1, None, b"before")])
    out = ColumnBuffers()
    with pytest.raises(BrokenBatch) as caught:
        append_set(good + bad, out, RecordSelection(verify=verify))
    assert caught.value.position == len(good)
    assert caught.value.offset == offset
    assert str(caught.value).startswith(f"the batch at byte {len(good)} (offset {offset}) {words}")
    assert [row.value for row in rows_in(out)] == [b"before"]


def test_a_wrong_crc_is_read_where_nobody_checks():
    bad = _broken(PLAIN, 18, PLAIN[18] ^ 1)
    assert [row.value for row in rows_in(decode(bad, verify=False))] == [b"value"]
    with pytest.raises(BrokenBatch, match="CRC"):
        append_set(bad, ColumnBuffers(), RecordSelection())


def test_a_span_outside_the_data_is_refused(implementation):
    for start, end in ((0, 9), (-1, 3), (3, 2)):
        with pytest.raises(ValueError, match="is not within"):
            implementation.append_set(b"abc", start, end, ColumnBuffers(), RecordSelection(), None)


def test_a_column_beyond_int32_is_refused():
    out = ColumnBuffers()
    out.value_bytes = 2**31 - 2
    with pytest.raises(ValueError, match="int32"):
        append_set(PLAIN, out, RecordSelection(limit=2**40))


def _answer(module, data, wanted):
    out = ColumnBuffers()
    try:
        said = append_by(module, data, out, wanted)
    except (BrokenBatch, ValueError) as error:
        said = type(error), str(error)
    rows = rows_in(out) if wanted.depth == RECORDS else _times_in(out)
    return said, rows, batches_of(out)


@pytest.mark.skipif(_kernels is None, reason="the compiled kernels are not built")
def test_both_agree_on_damaged_sets():
    rng = random.Random(17)
    known = [data for _, data in corpus(2)]
    broken = 0
    for _ in range(3000):
        data = mutated(rng, b"".join(rng.choices(known, k=rng.choice([1, 2]))))
        wanted = RecordSelection(
            depth=rng.choice([HEADERS, TIMES, RECORDS, RECORDS]),
            verify=rng.random() < 0.3,
            limit=rng.choice([1, 2000, 1 << 20]),
            low_offset=rng.choice([0, 2]),
            high_offset=rng.choice([3, INT64_MAX]),
            timed=rng.random() < 0.3,
            low_time=rng.choice([INT64_MIN, 0]),
        )
        ours, theirs = _answer(_kernels, data, wanted), _answer(kernels_py, data, wanted)
        assert ours == theirs
        broken += isinstance(ours[0][1], str)
    assert broken > 300
