"""Batches for older clients: what is kept, what is left out, and that no fetch stands still."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.records.samples import NOW, append, corpus, random_records
from tests.protocol.records.test_batch import FORMATS, RECORDS, as_records, plain
from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import Compression, Record, build, records, scan, verify
from tidelog.protocol.records.convert import (
    Converted,
    down_convert,
    down_convert_copy,
    transcode_zstd,
)
from tidelog.protocol.records.layout import INT64_MIN


def rising(count, base=0):
    return [Record(base + i, NOW + i, b"k%d" % i, b"v" * i) for i in range(count)]


@settings(max_examples=60, deadline=None)
@given(RECORDS, st.sampled_from([f for f in FORMATS if f[0] < 2]), st.sampled_from([None, 0, 1, 3]))
def test_down_of_up_is_the_same(drawn, form, wanted):
    """What an old producer sends to a new topic, an old consumer gets as it was."""
    magic, codec = form
    sent = [plain(record, magic) for record in as_records(drawn)]
    for middle in range(magic, 3):
        _, stored = append(
            build(sent, magic=magic, compression=codec), magic=middle, compression=wanted
        )
        if middle > magic:
            stored = down_convert([stored], target_magic=magic, fetch_offset=0).data
        assert list(records(stored)) == sent


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
@pytest.mark.parametrize("target", [0, 1])
def test_every_record_arrives(magic, codec, target):
    stored = random_records(random.Random(codec), 20, headers=magic == 2)
    stored = [record._replace(offset=500 + record.offset) for record in stored]
    data = build(stored, magic=magic, compression=codec)
    converted = down_convert([data], target_magic=target, fetch_offset=500)
    kept = min(magic, target)
    assert {batch.magic for batch in scan(converted.data)} == {kept}
    for batch in scan(converted.data):
        verify(converted.data, batch)
        assert batch.compression == (Compression.GZIP if codec == 4 else codec)
    assert list(records(converted.data)) == [plain(record, kept) for record in stored]
    assert converted.next_offset == 520
    if magic <= target:
        assert (converted.data, converted.records) == (data, 0)
    else:
        assert converted.records == 20


def test_uncompressed_records_below_the_fetch_offset_are_left_out():
    for magic in (1, 2):
        data = build(rising(10), magic=magic)
        converted = down_convert([data], target_magic=0, fetch_offset=7)
        assert [record.offset for record in records(converted.data)] == [7, 8, 9]
        packed = build(rising(10), magic=magic, compression=1)
        converted = down_convert([packed], target_magic=0, fetch_offset=7)
        assert [record.offset for record in records(converted.data)] == list(range(10))


def test_the_stamp_stays_in_format_1():
    for codec in (0, 3):
        data = build(rising(4), compression=codec, timestamp_type=1, log_append_time=NOW + 99)
        converted = down_convert([data], target_magic=1, fetch_offset=0)
        assert {record.timestamp for record in records(converted.data)} == {NOW + 99}
        assert all(batch.is_log_append_time for batch in scan(converted.data))
        converted = down_convert([data], target_magic=0, fetch_offset=0)
        assert {record.timestamp for record in records(converted.data)} == {-1}


@pytest.mark.parametrize("codec", [0, 1])
def test_negative_times_go_down_too(codec):
    sent = [Record(i, time, None, b"") for i, time in enumerate([-7, INT64_MIN, -1, -5])]
    converted = down_convert([build(sent, compression=codec)], target_magic=1, fetch_offset=0)
    assert [record.timestamp for record in records(converted.data)] == [-7, INT64_MIN, -1, -5]
    if codec:
        assert scan(converted.data)[0].max_timestamp == -5


def test_no_fetch_stands_still():
    marker = build([Record(10, NOW, b"\0\0\0\1", b"")], is_control=True)
    assert down_convert([marker], target_magic=1, fetch_offset=10) == Converted(b"", 0, 11)
    data = build(rising(10)) + marker + build(rising(2, base=11), magic=1)
    converted = down_convert([data], target_magic=1, fetch_offset=0)
    assert [record.offset for record in records(converted.data)] == [*range(10), 11, 12]
    assert converted.next_offset == 13
    assert down_convert([data[:50]], target_magic=0, fetch_offset=4) == Converted(b"", 0, 4)
    assert down_convert([], target_magic=0, fetch_offset=4) == Converted(b"", 0, 4)


def test_a_batch_may_lie_across_buffers():
    data = build(rising(10)) + build(rising(10, base=10), compression=1)
    whole = down_convert([data], target_magic=0, fetch_offset=0)
    for cut in (1, 100, len(data) - 1):
        parts = [memoryview(data)[:cut], data[cut:]]
        assert down_convert(parts, target_magic=0, fetch_offset=0) == whole
        assert transcode_zstd(parts) == data


def test_compacted_batches_keep_their_offsets():
    gaps = [Record(5, NOW, b"a", b"1"), Record(9, NOW, b"b", b"2")]
    for codec in (0, 1):
        for target in (0, 1):
            converted = down_convert(
                [build(gaps, compression=codec)], target_magic=target, fetch_offset=0
            )
            assert [record.offset for record in records(converted.data)] == [5, 9]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
@pytest.mark.parametrize("target", [0, 1])
def test_a_copy_loses_nothing_but_times(magic, codec, target):
    stored = [
        record._replace(offset=500 + record.offset)
        for record in random_records(random.Random(codec), 20)
    ]
    data = build(stored, magic=magic, compression=codec)
    copy = down_convert_copy([data], target_magic=target)
    kept = min(magic, target)
    assert {batch.magic for batch in scan(copy.data)} == {kept}
    assert list(records(copy.data)) == [plain(record, kept) for record in stored]
    assert copy.records == (20 if magic > target else 0)
    assert copy.next_offset == 520
    assert magic > target or copy.data == data


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_copy_keeps_what_an_older_format_cannot_hold(codec):
    headers = [each._replace(headers=((b"a", b"b"),)) for each in rising(3, 10)]
    kept = [
        build(rising(3), producer_id=7, producer_epoch=0, base_sequence=0, compression=codec),
        build(headers, compression=codec),
        build([Record(20, NOW, b"k", b"v")], is_control=True),
    ]
    plain_one = build(rising(3, 30), compression=codec)
    copy = down_convert_copy([*kept, plain_one], target_magic=0)
    assert copy.data.startswith(b"".join(kept))
    assert {each.magic for each in scan(copy.data[sum(map(len, kept)) :])} == {0}
    assert copy.records == 3


def test_a_copy_ends_where_the_batch_does():
    """The last record was compacted away: a copy without it would never catch up."""
    batch = bytearray(build(rising(3)))
    batch[23:27] = (9).to_bytes(4, "big")  # the delta of the last offset
    assert down_convert_copy([batch], target_magic=0) == Converted(bytes(batch), 0, 10)


def test_zstd_becomes_gzip_and_nothing_else_changes():
    zstd = build(rising(50), compression=4, producer_id=4, producer_epoch=1, base_sequence=7)
    other = build(rising(3, base=50), compression=3)
    out = transcode_zstd([zstd + other + zstd[:30]])
    first, second = scan(out)
    verify(out, first)
    assert out[second.position :] == other
    (before,) = scan(zstd)
    assert first == before._replace(size=first.size, attributes=1)
    assert list(records(out)) == list(records(zstd)) + list(records(other))


def test_broken_batches_are_named():
    for magic, data in corpus(8):
        if magic == 1 and data[17] & 7:
            with pytest.raises(CorruptMessage, match="unpacked"):
                down_convert(
                    [data[:34] + b"\x55" * (len(data) - 34)], target_magic=0, fetch_offset=0
                )
    cut = bytearray(build(rising(3)))
    cut[60] = 9  # nine records are declared
    with pytest.raises(CorruptMessage, match="byte 0"):
        down_convert([cut], target_magic=1, fetch_offset=0)


@pytest.mark.parametrize("calls", range(6))
def test_a_check_ends_a_conversion_between_batches_and_steps(calls):
    """Two batches are checked before each step of each; what the check raises comes out."""
    left = calls

    def check():
        nonlocal left
        left -= 1
        if left < 0:
            raise InterruptedError

    stored = [build(rising(5), compression=1), build(rising(5, base=5), compression=1)]
    with pytest.raises(InterruptedError):
        down_convert(stored, target_magic=1, fetch_offset=0, check=check)
    left = calls // 2
    zstd = [build(rising(5), compression=4), build(rising(5, base=5), compression=4)]
    with pytest.raises(InterruptedError):
        transcode_zstd(zstd, check)
