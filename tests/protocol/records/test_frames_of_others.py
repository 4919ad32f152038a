"""No compressed set is stored that Kafka's Java classes cannot read.

Tried on Kafka 3.9.1: Java refuses lz4 frames with blocks that need those before them, with a dictionary's
id, and zstd frames with a window beyond 128 MiB. They are written again, and the records stay.
"""

import subprocess
from pathlib import Path

import lz4.frame
import pytest
import zstandard

from tests.oracle.apache_kafka import available, fetch, find_java
from tests.protocol.records.samples import append
from tidelog.protocol.records.batch import Record, build, pack_v2_header, records, scan
from tidelog.protocol.records.layout import V2_HEADER_SIZE, Compression
from tidelog.protocol.records.legacy import packed_value, put_message

JUDGE = Path(__file__).with_name("RecordsJudge.java")
KAFKA = "3.9.1"
RECORDS = [Record(i, 5, b"k%d" % i, b"value %d " % i * 9_000) for i in range(3)]
LARGEST_WINDOW_OF_JAVA = 128 << 20


def linked(data):
    return lz4.frame.compress(data, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)


def linked_of_known_size(data):
    return lz4.frame.compress(data, block_linked=True, store_size=True, content_checksum=True)


def with_dictionary_id(data):
    """A frame that names dictionary 1 and does not use it; the checksum is that of its 6 bytes."""
    frame = lz4.frame.compress(data, block_linked=False, store_size=False)
    assert frame[4:6] == b"\x60\x40"
    for checksum in range(256):
        named = frame[:4] + b"\x61\x40\1\0\0\0" + bytes([checksum]) + frame[7:]
        try:
            assert lz4.frame.decompress(named) == data
        except RuntimeError:
            continue
        return named
    raise AssertionError("no checksum was right")


def with_large_window(data):
    """The size is known, so that it is unpacked in one step whatever the window is."""
    made = zstandard.ZstdCompressor(write_content_size=False).compress(data)
    assert not made[4] & 0xE3  # neither a size nor a dictionary, and a window
    return made[:4] + bytes([made[4] | 0x80, 18 << 3]) + len(data).to_bytes(4, "little") + made[6:]


FRAMES = [
    (Compression.LZ4, linked),
    (Compression.LZ4, linked_of_known_size),
    (Compression.LZ4, with_dictionary_id),
    (Compression.ZSTD, with_large_window),
]


def batch_with(codec, pack):
    packed = pack(build(RECORDS)[V2_HEADER_SIZE:])
    last = len(RECORDS) - 1
    return packed, (
        pack_v2_header(
            packed,
            base_offset=0,
            last_offset=last,
            leader_epoch=0,
            attributes=codec,
            base_timestamp=5,
            max_timestamp=5,
            producer_id=7,
            producer_epoch=1,
            base_sequence=4,
            count=len(RECORDS),
        )
        + packed
    )


def assert_readable(codec, frame):
    if codec == Compression.LZ4:
        assert frame[4] & 0xE3 == 0x60
    else:
        assert zstandard.get_frame_parameters(frame).window_size <= LARGEST_WINDOW_OF_JAVA


@pytest.mark.parametrize(("codec", "pack"), FRAMES)
def test_a_frame_that_java_refuses_is_written_again(codec, pack):
    packed, data = batch_with(codec, pack)
    _, written = append(data)
    (batch,) = scan(written)
    frame = written[V2_HEADER_SIZE:]
    assert frame != packed
    assert_readable(codec, frame)
    assert list(records(written)) == RECORDS
    assert (batch.attributes & 7, batch.producer_id, batch.base_sequence) == (codec, 7, 4)


@pytest.mark.parametrize("pack", [linked, linked_of_known_size, with_dictionary_id])
def test_a_frame_inside_a_wrapper_is_written_again(pack):
    inner, data = build(RECORDS, magic=1), bytearray()
    packed = pack(inner)
    put_message(data, 1, len(RECORDS) - 1, Compression.LZ4, 5, None, packed)
    _, written = append(bytes(data), magic=1)
    (batch,) = scan(written)
    assert_readable(Compression.LZ4, packed_value(written, batch))
    assert [each.value for each in records(written)] == [each.value for each in RECORDS]


def test_a_frame_that_java_reads_is_kept():
    def independent(data):
        return lz4.frame.compress(data, block_linked=False, content_checksum=True)

    packed, data = batch_with(Compression.LZ4, independent)
    _, written = append(data)
    assert written[V2_HEADER_SIZE:] == packed


@pytest.mark.oracle
@pytest.mark.timeout(300)
def test_kafka_refuses_what_came_and_reads_what_is_stored():
    able = available(KAFKA)
    if not able:
        pytest.skip(able.reason)
    lines = []
    for codec, pack in FRAMES:
        data = batch_with(codec, pack)[1]
        lines += [data.hex(), append(data)[1].hex()]
    for pack in (linked, with_dictionary_id):
        data = bytearray()
        put_message(data, 1, 2, Compression.LZ4, 5, None, pack(build(RECORDS, magic=1)))
        lines += [data.hex(), append(bytes(data), magic=1)[1].hex()]
    done = subprocess.run(
        [find_java(), "-cp", ":".join(map(str, fetch(KAFKA).rglob("*.jar"))), str(JUDGE)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["refused", "3"] * (len(lines) // 2)
