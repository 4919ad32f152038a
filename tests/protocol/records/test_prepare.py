"""The rules of an append: what is refused and by which name, what is kept, stamped, rebuilt."""

from __future__ import annotations

import random
import struct
import zlib

import pytest
from crc32c import crc32c

from tests.protocol.records.samples import (
    BASE_TIME,
    NOW,
    append,
    corpus,
    plan,
    random_records,
    vector_record,
)
from tidelog.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    UnpackedTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import Compression, Record, build, records, scan
from tidelog.protocol.records.encode import put_message
from tidelog.protocol.records.layout import INT64_MAX, INT64_MIN
from tidelog.protocol.records.legacy import wrapped
from tidelog.protocol.records.prepare import MOST_RECORD_ERRORS, Produced, inspect, prepare

THREE = [vector_record(i) for i in range(3)]


def resealed(data, position, raw):
    """Change bytes of a format-2 batch and give it a right CRC."""
    out = bytearray(data)
    out[position : position + len(raw)] = raw
    out[17:21] = struct.pack(">I", crc32c(bytes(out[21:])))
    return bytes(out)


# --- inspect -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_before_v3_any_format_and_any_number_is_let_through(version, magic):
    data = build(THREE, magic=magic)
    assert len(inspect(data, produce_version=version, max_message_bytes=999).batches) == (
        1 if magic == 2 else 3
    )
    assert inspect(b"", produce_version=version, max_message_bytes=1) == Produced([], 0)


@pytest.mark.parametrize("data", [b"", build(THREE, magic=1), build(THREE) * 2, build(THREE)[:-1]])
def test_from_v3_on_exactly_one_batch_of_format_2(data):
    with pytest.raises(InvalidRecord, match="exactly one batch"):
        inspect(data, produce_version=3, max_message_bytes=999)


def test_a_partial_batch_at_the_end_is_cut_off():
    data = build(THREE, magic=1)
    produced = inspect(data + data[:40], produce_version=2, max_message_bytes=999)
    assert produced.size == len(data)
    prepared, written = append(data + data[:40], magic=1)
    assert written == data
    assert prepared.count == 3


def test_what_inspect_refuses():
    zstd = build(THREE, compression=Compression.ZSTD)
    with pytest.raises(UnsupportedCompressionType):
        inspect(zstd, produce_version=6, max_message_bytes=999)
    assert inspect(zstd, produce_version=7, max_message_bytes=999).size == len(zstd)
    with pytest.raises(MessageTooLarge):
        inspect(zstd, produce_version=7, max_message_bytes=len(zstd) - 1)
    with pytest.raises(InvalidRecord, match="offset 5"):
        inspect(build([Record(5, 0, None, b"")]), produce_version=9, max_message_bytes=999)
    with pytest.raises(InvalidRecord, match="codec"):
        inspect(resealed(zstd, 22, b"\5"), produce_version=9, max_message_bytes=999)
    for magic in (0, 1, 2):
        damaged = bytearray(build(THREE, magic=magic))
        damaged[-1] ^= 1
        with pytest.raises(CorruptMessage):
            inspect(damaged, produce_version=2, max_message_bytes=999)


# --- refused records -----------------------------------------------------------------------------


def test_an_empty_set_is_an_empty_append():
    prepared = prepare(b"", Produced([], 0), plan(first_offset=7))
    assert prepared == ([], 0, [], 7, 6, 0, False)


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("codec", [0, 1, 3])
def test_the_window_names_every_guilty_record(magic, codec):
    times = [NOW, NOW - 101, -1, NOW + 6, NOW - 100, NOW + 5]
    data = build(
        [Record(i, t, None, b"") for i, t in enumerate(times)], magic=magic, compression=codec
    )
    window = {"min_timestamp": NOW - 100, "max_timestamp": NOW + 5}
    with pytest.raises(InvalidTimestamp) as caught:
        append(data, magic=magic, **window)
    assert [error.batch_index for error in caught.value.record_errors] == [1, 3]
    for error in caught.value.record_errors:
        assert str(times[error.batch_index]) in error.message
        assert f"[{NOW - 100}, {NOW + 5}]" in error.message
    # A LogAppendTime topic looks at no producer's time, and format 0 has none to look at.
    append(data, magic=magic, log_append_time=True, **window)
    append(data, magic=0, **window)
    inside = [Record(i, t, None, b"") for i, t in enumerate([NOW - 100, NOW + 5, -1])]
    append(build(inside, magic=magic, compression=codec), magic=magic, **window)


def test_an_open_window_is_written_as_such():
    with pytest.raises(InvalidTimestamp, match=rf"\[\.\.\., {NOW}\]"):
        append(build([Record(0, NOW + 1, None, b"")]), max_timestamp=NOW)


def test_record_errors_are_not_endless():
    many = [Record(i, 0, None, b"") for i in range(MOST_RECORD_ERRORS + 5)]
    with pytest.raises(InvalidTimestamp) as caught:
        append(build(many), min_timestamp=1)
    assert len(caught.value.record_errors) == MOST_RECORD_ERRORS
    assert str(len(many)) in caught.value.message


def test_an_invalid_timestamp_outweighs_a_missing_key():
    data = build([Record(0, 5, None, b""), Record(1, NOW, None, b"")])
    with pytest.raises(InvalidTimestamp) as caught:
        append(data, compacted=True, min_timestamp=NOW)
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1]
    with pytest.raises(InvalidRecord) as caught:
        append(data, compacted=True)
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1]
    append(build([Record(0, 5, b"", b"")]), compacted=True)


@pytest.mark.parametrize("target", [1, 2])
@pytest.mark.parametrize(("magic", "codec"), [(1, 0), (1, 1), (2, 0), (2, 1)])
def test_the_log_append_time_bit_is_not_the_producers(magic, codec, target):
    data = build(THREE, magic=magic, compression=codec, timestamp_type=1, log_append_time=NOW)
    for stamped in (False, True):
        with pytest.raises(InvalidTimestamp) as caught:
            append(data, magic=target, log_append_time=stamped)
        assert [error.batch_index for error in caught.value.record_errors] == [0, 1, 2]
    append(data, magic=0)


def test_one_stamped_message_among_others():
    data = build(THREE[:1], magic=1) + build(
        [THREE[1]], magic=1, timestamp_type=1, log_append_time=NOW
    )
    with pytest.raises(InvalidTimestamp) as caught:
        append(data, magic=1)
    assert [error.batch_index for error in caught.value.record_errors] == [1]


def test_headers_that_contradict_themselves():
    data = build(THREE)
    for position, raw, match in (
        (23, struct.pack(">i", 3), "declares 3 records and 4 offsets"),
        (23, struct.pack(">i", -1), "declares 3 records and 0 offsets"),
        (57, struct.pack(">i", 2), "declares 2 records"),
        (43, struct.pack(">q", 9), "base sequence -1"),
        (21, b"\0\x20", "control"),
    ):
        with pytest.raises(InvalidRecord, match=match):
            append(resealed(data, position, raw))
    four = resealed(resealed(data, 23, struct.pack(">i", 3)), 57, struct.pack(">i", 4))
    with pytest.raises(InvalidRecord, match="ends within"):
        append(four)
    two = resealed(resealed(data, 23, struct.pack(">i", 1)), 57, struct.pack(">i", 2))
    with pytest.raises(InvalidRecord, match="does not fill"):
        append(two)


def test_sets_that_mix():
    one, two = build(THREE, magic=0), build(THREE, magic=1)
    packed = build(THREE, magic=1, compression=1)
    for data in (
        one + two,
        packed + packed,
        two + packed,
        build(THREE) + build(THREE),
        build(THREE) + two,
    ):
        with pytest.raises(InvalidRecord):
            append(data, produce_version=2)


def message(magic, attributes, value, *, offset=0, timestamp=NOW, key=None):
    out = bytearray()
    put_message(out, magic, offset, attributes, timestamp, key, value)
    return bytes(out)


def test_wrappers_that_lie():
    def gz(data):
        return zlib.compress(data, wbits=31)

    inner = message(1, 0, b"x")
    damaged = bytearray(inner)
    damaged[-1] ^= 1
    cases = [
        (message(1, 1, None), InvalidRecord),  # nothing inside
        (message(1, 1, gz(b"")), InvalidRecord),
        (message(1, 1, gz(message(0, 0, b"x"))), InvalidRecord),  # another format inside
        (message(1, 1, gz(inner[:-1])), InvalidRecord),  # cut short inside
        (message(1, 1, gz(message(1, 1, gz(inner)))), InvalidRecord),  # nested
        (message(1, 1, gz(bytes(damaged))), CorruptMessage),  # an inner CRC
        (message(1, 1, gz(inner)[:-9]), CorruptMessage),  # cut short outside
        (message(1, 1, b"no gzip"), CorruptMessage),
        (message(1, 4, b"x"), UnsupportedCompressionType),  # zstd is of format 2
        (message(0, 5, b"x"), InvalidRecord),
    ]
    for data, error in cases:
        with pytest.raises(error):
            append(data, magic=1)
    keyed, _ = append(message(1, 1, gz(inner), key=b"k"), magic=1)
    assert keyed.count == 1


@pytest.mark.parametrize(
    "codec", [3, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 4))]
)
def test_a_bomb_is_refused_before_it_goes_off(codec):
    data = build([Record(0, NOW, None, bytes(70 << 20))], compression=codec)
    assert len(data) < 1 << 20
    with pytest.raises(CorruptMessage, match="unpacks to more"):
        append(data, max_message_bytes=600_000)


def test_old_formats_do_not_drop_what_they_cannot_carry():
    idempotent = build(THREE, producer_id=5, producer_epoch=0, base_sequence=0)
    transactional = build(THREE, is_transactional=True)
    headed = build([Record(0, NOW, None, b"", ((b"h", b""),))])
    for magic in (0, 1):
        for data in (idempotent, transactional, headed):
            with pytest.raises(UnsupportedForMessageFormat, match=r"enable\.idempotence=false"):
                append(data, magic=magic)
    for data in (idempotent, transactional, headed):
        assert not append(data)[0].converted


# --- what is written -----------------------------------------------------------------------------


def test_in_place_costs_sixteen_bytes():
    data = build(THREE, producer_id=5, producer_epoch=2, base_sequence=9)
    prepared, written = append(data, first_offset=10**12, leader_epoch=3)
    assert [len(buffer) for buffer in prepared.buffers] == [16, len(data) - 16]
    assert written[16:] == data[16:]
    assert written[:16] == struct.pack(">qii", 10**12, len(data) - 12, 3)
    assert prepared.batches == [
        (
            *(0, len(data), 10**12, 10**12 + 2, 3, BASE_TIME + 2000, 10**12 + 2, BASE_TIME, False),
            *(5, 2, 9, False, False),
        )
    ]
    assert prepared[3:] == (10**12, 10**12 + 2, 3, False)


@pytest.mark.parametrize(
    ("times", "largest"),
    [
        ([-5, -1], -5),
        ([-1, -1], None),
        ([-7, -5, -1], -5),
        ([3, -1, 2], 3),
        ([INT64_MIN], INT64_MIN),
    ],
)
@pytest.mark.parametrize("codec", range(5))
def test_the_largest_time_is_computed_over_real_times(times, largest, codec):
    sent = [Record(i, time, None, b"") for i, time in enumerate(times)]
    data = build(sent, compression=codec)
    for claim in (123, -1, INT64_MAX):
        prepared, written = append(resealed(data, 35, struct.pack(">q", claim)))
        (batch,) = scan(written)
        assert batch.max_timestamp == (-1 if largest is None else largest)
        assert prepared.batches[0].largest == largest
        assert prepared.batches[0].has_missing == (-1 in times)
        assert [record.timestamp for record in records(written)] == times
        assert written[43:] == data[43:]


def test_negative_times_survive_every_rebuild():
    times = [-5, -1, INT64_MIN, INT64_MAX, 0, -2]
    sent = [Record(i, time, None, b"v") for i, time in enumerate(times)]
    for magic in (1, 2):
        for codec in (0, 1, 3):
            data = build(sent, magic=magic, compression=codec)
            for target in (1, 2):
                for wanted in (0, 1):
                    prepared, written = append(data, magic=target, compression=wanted)
                    assert [record.timestamp for record in records(written)] == times
                    assert (
                        max(batch.largest for batch in prepared.batches if batch.largest)
                        == INT64_MAX
                    )


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_stamps_the_header_and_leaves_the_deltas(codec):
    data = build(THREE, compression=codec)
    prepared, written = append(data, log_append_time=True)
    assert not prepared.converted
    assert written[23:35] == data[23:35]
    assert written[43:] == data[43:]
    (batch,) = scan(written)
    assert (batch.is_log_append_time, batch.max_timestamp) == (True, NOW)
    assert (prepared.batches[0].largest, prepared.batches[0].first) == (NOW, NOW)
    assert {record.timestamp for record in records(written)} == {NOW}


def test_attributes_nobody_knows_stay_where_nothing_is_rewritten():
    data = resealed(build(THREE), 21, b"\x80\x80")
    assert append(data)[1][16:] == data[16:]
    stamped = append(data, log_append_time=True)[1]
    assert stamped[21:23] == b"\0\x08"


def test_log_append_time_stamps_every_plain_message():
    data = build(THREE, magic=1)
    prepared, written = append(data, magic=1, log_append_time=True, first_offset=50)
    assert [(b.last_offset, b.max_timestamp, b.is_log_append_time) for b in scan(written)] == [
        (50, NOW, True),
        (51, NOW, True),
        (52, NOW, True),
    ]
    assert [b.largest_offset for b in prepared.batches] == [50, 51, 52]


def test_log_append_time_stamps_the_wrapper_alone():
    data = build(THREE, magic=1, compression=1)
    _, written = append(data, magic=1, log_append_time=True, first_offset=50)
    (batch,) = scan(written)
    assert (batch.last_offset, batch.max_timestamp, batch.is_log_append_time) == (52, NOW, True)
    assert written[26:] == data[26:]
    inside = list(records(wrapped(written, batch, 9999)))
    assert [record.timestamp for record in inside] == [record.timestamp for record in THREE]


def test_offsets_that_do_not_count_up_are_rebuilt():
    gap = [Record(0, 5, None, b"a"), Record(1, 5, None, b"b"), Record(7, 5, None, b"c")]
    for codec in (0, 3):
        data = bytearray(build(gap, compression=codec))
        data = resealed(data, 23, struct.pack(">i", 2))
        prepared, written = append(data, first_offset=100)
        assert prepared.converted
        assert [record.offset for record in records(written)] == [100, 101, 102]
    prepared, written = append(build(gap, magic=1, compression=1), magic=1, first_offset=100)
    assert prepared.converted
    assert [record.offset for record in records(written)] == [100, 101, 102]


def test_what_grows_beyond_the_limit_is_refused():
    data = build([Record(0, 5, None, b"x" * 5000)], compression=1)
    with pytest.raises(MessageTooLarge):
        append(data, compression=0, max_message_bytes=1000)
    with pytest.raises(MessageTooLarge):
        append(data, magic=1, compression=0, max_message_bytes=1000)
    with pytest.raises(MessageTooLarge):
        append(
            build([vector_record(i) for i in range(30)], magic=0),
            max_message_bytes=400,
        )
    # A message of format 1 takes 34 bytes, and a set may take twice the limit.
    many = build([Record(i, NOW, None, b"") for i in range(100)], compression=1)
    append(many, magic=1, compression=1, unpack_limit=1700)
    with pytest.raises(UnpackedTooLarge, match="more than 2000 bytes to convert"):
        append(many, magic=1, compression=1, unpack_limit=1000)


def test_zstd_onto_an_old_format_becomes_gzip():
    _, written = append(build(THREE, compression=4), magic=1)
    assert [batch.compression for batch in scan(written)] == [Compression.GZIP]
    _, written = append(build(THREE, magic=0), magic=0, compression=4)
    assert [batch.compression for batch in scan(written)] == [Compression.GZIP]


def test_the_broker_may_write_control_batches():
    data = build(
        [Record(0, NOW, b"\0\0\0\1", b"")], is_control=True, producer_id=1, producer_epoch=0
    )
    prepared, written = append(data, internal=True, compression=1)
    assert prepared.batches[0].is_control
    assert not prepared.converted
    assert scan(written)[0].is_control


@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize("target", [0, 1, 2])
@pytest.mark.parametrize("stamped", [False, True])
def test_all_nine_conversions(source, target, stamped):
    rng = random.Random(source * 9 + target)
    for codec in range(5 if source == 2 else 4):
        for wanted in (None, 0, 1, 2, 3):
            sent = random_records(rng, 12)
            data = build(sent, magic=source, compression=codec)
            prepared, written = append(
                data, magic=target, compression=wanted, log_append_time=stamped, first_offset=33
            )
            read = list(records(written))
            assert [r[2:] for r in read] == [r[2:] for r in sent]
            assert [r.offset for r in read] == list(range(33, 45))
            assert {batch.magic for batch in scan(written)} == {target}
            times = [r.timestamp for r in sent] if source else [-1] * 12
            if target == 0:
                times = [-1] * 12
            elif stamped:
                times = [NOW] * 12
            assert [r.timestamp for r in read] == times
            described = [(b.position, b.size, b.last_offset) for b in prepared.batches]
            assert described == [(b.position, b.size, b.last_offset) for b in scan(written)]


def test_the_shortcut_answers_as_the_long_way(monkeypatch):
    if kernels.keep_v2 is None:
        assert kernels.IMPLEMENTATION == "python"
        return
    rng = random.Random(8)
    taken = 0
    sets = [data for magic, data in corpus(6) + corpus(7) if magic == 2]
    shortcut = kernels.keep_v2

    def counted(*args):
        nonlocal taken
        result = shortcut(*args)
        taken += result is not None
        return result

    for data in sets:
        for _ in range(10):
            wishes = {
                "first_offset": rng.choice([0, 10**15]),
                "log_append_time": rng.random() < 0.5,
                "compression": rng.choice([None, None, 0, 3]),
                "compacted": rng.random() < 0.3,
                "leader_epoch": rng.choice([-1, 5]),
                "magic": rng.choice([2, 2, 2, 1]),
                "min_timestamp": rng.choice([INT64_MIN, 0]),
            }
            view = rng.choice([bytes, bytearray, memoryview])(data)
            answers = []
            for way in (counted, None):
                monkeypatch.setattr(kernels, "keep_v2", way)
                try:
                    prepared, written = append(view, **wishes)
                    answers.append((prepared._replace(buffers=[]), written))
                except (InvalidTimestamp, InvalidRecord, UnsupportedForMessageFormat) as error:
                    answers.append((type(error), error.message, error.record_errors))
            assert answers[0] == answers[1]
    assert taken > 50


# --- times that mean none ------------------------------------------------------------------------

ZERO_MS, EPOCH_MS = -62_135_596_800_000, 0


@pytest.mark.parametrize("magic", [1, 2])
@pytest.mark.parametrize("target", [0, 1, 2])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.LZ4])
def test_listed_times_become_none_and_nothing_else_changes(magic, target, codec):
    rng = random.Random(17)
    for count in (1, 2, 3, 100):
        for chance in (0, 0.5, 1):
            sent = random_records(rng, count, times="mixed")
            sent = [
                each._replace(timestamp=ZERO_MS) if rng.random() < chance else each for each in sent
            ]
            listed = rng.choice([(ZERO_MS,), (ZERO_MS, EPOCH_MS), (ZERO_MS, NOW, INT64_MAX)])
            data = build(sent, magic=magic, compression=codec)
            prepared, written = append(data, magic=target, missing=listed if target else ())
            wanted = [
                -1 if not target or each.timestamp in listed else each.timestamp for each in sent
            ]
            found = list(records(written))
            assert [each.timestamp for each in found] == wanted
            assert [each._replace(timestamp=0) for each in found] == [
                each._replace(timestamp=0) for each in sent
            ]
            times = [time for time in wanted if time != -1]
            largest = [each.largest for each in prepared.batches if each.largest is not None]
            assert max(largest, default=None) == max(times, default=None)
            if not {each.timestamp for each in sent} & {*listed}:
                assert written == append(data, magic=target)[1]


def test_replacing_times_takes_no_more_memory_than_is_allowed():
    tiny = [Record(i, ZERO_MS if i % 2 else NOW, None, None) for i in range(10_000)]
    data = build(tiny, compression=Compression.GZIP)
    append(data, unpack_limit=1 << 20, missing=(ZERO_MS,))
    with pytest.raises(UnpackedTooLarge, match="to replace their times"):
        append(data, unpack_limit=1 << 17, missing=(ZERO_MS,))
