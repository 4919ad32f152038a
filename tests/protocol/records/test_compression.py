"""Codecs as others write them, the bytes we write, and inputs that lie about their size."""

from __future__ import annotations

import gzip
import os
import random
import struct
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pyarrow as pa
import pytest
import snappy
import zstandard
from kafka.codec import snappy_decode, snappy_encode

from tidelog.protocol.errors import CorruptMessage, UnpackedTooLarge, UnsupportedCompressionType
from tidelog.protocol.records.compression import compress, decompress, produce_limit

MIB = 1 << 20
RNG = random.Random(4)
TEXT = b"".join(b"record %d of many, " % i for i in range(20000))
NOISE = RNG.randbytes(200_000)
DATA = [b"x", TEXT, NOISE, NOISE[:70_000] + bytes(70_000) + TEXT]
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4


@pytest.fixture(autouse=True)
def implementation():
    """Codecs are the same with both kernels: these tests run once."""


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_is_packed_unpacks(codec, magic):
    if codec == ZSTD and magic < 2:
        with pytest.raises(UnsupportedCompressionType):
            compress(codec, TEXT, magic)
        return
    for data in DATA:
        packed = compress(codec, data, magic)
        for kind in (bytes, bytearray, memoryview):
            assert bytes(decompress(codec, kind(packed), magic)) == data
            assert compress(codec, kind(data), magic) == packed


@pytest.mark.parametrize("data", DATA)
def test_other_libraries_unpack_what_we_pack(data):
    assert gzip.decompress(compress(GZIP, data, 1)) == data
    assert lz4.frame.decompress(compress(LZ4, data, 1)) == data
    assert bytes(cramjam.lz4.decompress(compress(LZ4, data, 2))) == data
    assert zstandard.decompress(compress(ZSTD, data, 2)) == data


def test_the_headers_kafka_writes():
    assert compress(GZIP, TEXT, 2)[:10].hex() == "1f8b08000000000000ff"
    assert compress(SNAPPY, TEXT, 2)[:16].hex() == "82534e41505059000000000100000001"
    # Independent 64 KB blocks, no content size or checksum; the last byte is the header's
    # checksum, in format 0 over the frame's magic too (KIP-57).
    assert compress(LZ4, TEXT, 0)[:7].hex() == "04224d1860401a"
    assert compress(LZ4, TEXT, 1)[:7].hex() == "04224d18604082"
    assert compress(LZ4, TEXT, 2)[-4:] == bytes(4)
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(compress(LZ4, TEXT, 0))


def test_lz4_frames_of_every_kind():
    for block_linked in (False, True):
        for store_size in (False, True):
            for checksum in (False, True):
                for block_size in (4, 5, 6, 7):
                    frame = lz4.frame.compress(
                        DATA[3],
                        block_linked=block_linked,
                        store_size=store_size,
                        content_checksum=checksum,
                        block_checksum=checksum,
                        block_size=block_size,
                    )
                    assert decompress(LZ4, frame, 2) == DATA[3]
                    wrong = bytearray(frame)
                    wrong[14 if store_size else 6] ^= 0xFF
                    assert decompress(LZ4, wrong, 0) == DATA[3]
                    with pytest.raises(CorruptMessage):
                        decompress(LZ4, wrong, 1)
    for size in range(1, 600):  # as many headers
        frame = bytearray(lz4.frame.compress(bytes(size)))
        frame[14] ^= 0xFF
        assert decompress(LZ4, frame, 0) == bytes(size)


def test_snappy_raw_and_framed():
    raw = bytes(cramjam.snappy.compress_raw(TEXT))
    assert bytes(decompress(SNAPPY, raw, 2)) == TEXT
    head = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    framed = head + struct.pack(">i", len(raw)) + raw
    assert bytes(decompress(SNAPPY, framed * 1, 1)) == TEXT
    twice = framed + struct.pack(">i", len(raw)) + raw
    assert bytes(decompress(SNAPPY, twice, 1)) == TEXT * 2
    assert bytes(decompress(SNAPPY, head, 1)) == b""


def xerial_blocks(framed):
    """The blocks of Java's framing, taken apart by hand."""
    assert framed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    position = 16
    while position < len(framed):
        (size,) = struct.unpack_from(">i", framed, position)
        yield framed[position + 4 : position + 4 + size]
        position += 4 + size
    assert position == len(framed)


def by_google(block):
    """Unpack one raw block with Google's own library, which needs the size: the block's first number."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True)


@pytest.mark.parametrize("data", DATA)
def test_other_libraries_read_our_snappy(data):
    framed = bytes(compress(SNAPPY, data, 2))
    blocks = list(xerial_blocks(framed))
    assert b"".join(snappy.uncompress(block) for block in blocks) == data
    assert b"".join(by_google(block) for block in blocks) == data
    assert snappy_decode(framed) == data


@pytest.mark.parametrize("data", DATA)
def test_we_read_the_snappy_of_other_libraries(data):
    for raw in (snappy.compress(data), pa.compress(data, codec="snappy", asbytes=True)):
        assert bytes(decompress(SNAPPY, raw, 2)) == data
        framed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(raw)) + raw
        assert bytes(decompress(SNAPPY, framed, 1)) == data
        with pytest.raises(CorruptMessage):
            decompress(SNAPPY, framed, 1, len(data) - 1)
    for block_size in (1_000, 32 * 1024, 1 << 20):
        framed = snappy_encode(data, xerial_compatible=True, xerial_blocksize=block_size)
        assert bytes(decompress(SNAPPY, framed, 1)) == data
    assert bytes(decompress(SNAPPY, snappy_encode(data, xerial_compatible=False), 1)) == data


def test_gzip_members_behind_each_other():
    members = b"".join(gzip.compress(part) for part in (b"one", b"", TEXT, b"two"))
    assert decompress(GZIP, members, 1) == b"one" + TEXT + b"two"
    many = gzip.compress(b"", mtime=0) * 30_000
    assert decompress(GZIP, many, 1) == b""


def test_zstd_with_and_without_a_size():
    stream = zstandard.ZstdCompressor(write_content_size=False)
    assert decompress(ZSTD, stream.compress(DATA[3]), 2) == DATA[3]
    assert decompress(ZSTD, stream.compress(TEXT) * 2, 2) == TEXT * 2
    known = zstandard.ZstdCompressor().compress(TEXT)
    assert decompress(ZSTD, known + stream.compress(b"more"), 2) == TEXT + b"more"


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_what_is_cut_short_or_garbage(codec, magic):
    if codec == ZSTD and magic < 2:
        return
    packed = compress(codec, TEXT, magic)
    for cut in (1, 5, 9, 15, 17, 21, len(packed) // 2, len(packed) - 1):
        with pytest.raises(CorruptMessage):
            decompress(codec, packed[:cut], magic)
    for garbage in (b"\0" * 30, b"\xff" * 30, os.urandom(50), b"no such thing"):
        with pytest.raises(CorruptMessage):
            decompress(codec, garbage, magic)
    with pytest.raises(CorruptMessage):
        decompress(codec, packed + b"rest that is nothing", magic)
    if codec != SNAPPY:
        with pytest.raises(CorruptMessage):
            decompress(codec, b"", magic)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_numbers_that_are_no_codec(codec):
    with pytest.raises(UnsupportedCompressionType):
        decompress(codec, b"", 2)
    with pytest.raises(UnsupportedCompressionType):
        compress(codec, b"", 2)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_the_limit_is_exact(codec):
    packed = compress(codec, TEXT, 2)
    assert bytes(decompress(codec, packed, 2, len(TEXT))) == TEXT
    with pytest.raises(UnpackedTooLarge, match="unpacks to more"):
        decompress(codec, packed, 2, len(TEXT) - 1)


@pytest.mark.parametrize("size", [(4 << 20) + more for more in (-1, 0, 1, 3 << 20)])
def test_lz4_data_around_what_is_reserved_at_first(size):
    data = (NOISE * (size // len(NOISE) + 1))[:size]
    frame = lz4.frame.compress(data, store_size=False)
    assert decompress(LZ4, frame, 2, 100 << 20) == data
    assert decompress(LZ4, frame, 2, size) == data
    with pytest.raises(UnpackedTooLarge, match="unpacks to more"):
        decompress(LZ4, frame, 2, size - 1)
    with pytest.raises(CorruptMessage, match="cut short"):
        decompress(LZ4, frame[:-8], 2, 100 << 20)
    with pytest.raises(CorruptMessage, match="bytes follow"):
        decompress(LZ4, frame + b"x", 2, 100 << 20)


def test_sizes_that_are_lies():
    lies = [
        # A raw snappy block of five bytes that claims 2 GB, and one in a frame.
        (SNAPPY, b"\xff\xff\xff\xff\x07"),
        (SNAPPY, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 5) + b"\xff\xff\xff\xff\x07"),
        (SNAPPY, b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -5) + b"abcde"),
        # An lz4 frame with a content size of 2**60, and a zstd frame with one of 2**50.
        (LZ4, b"\x04\x22\x4d\x18\x68\x40" + struct.pack("<Q", 1 << 60) + b"\0" * 9),
        (ZSTD, b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 50) + b"\1\0\0"),
    ]
    for codec, data in lies:
        with pytest.raises(CorruptMessage):
            decompress(codec, data, 0 if codec == LZ4 else 2)


def test_bombs_of_one_step():
    million = bytes(1 << 20)
    for codec, bomb in (
        (GZIP, gzip.compress(million) * 110),
        (ZSTD, zstandard.ZstdCompressor().compress(million) * 110),
        (GZIP, zlib.compress(bytes(110 << 20), wbits=31)),
    ):
        with pytest.raises(UnpackedTooLarge, match="unpacks to more"):
            decompress(codec, bomb, 2, 100 << 20)


def packed_in_every_way(size):
    """Zeros, as producers may pack them: by codec and format, with and without a stated size."""
    data = bytes(size)
    unsized = zstandard.ZstdCompressor().compressobj()
    deep = zstandard.ZstdCompressor(
        compression_params=zstandard.ZstdCompressionParameters(window_log=27)
    ).compressobj()
    halves = compress(GZIP, data[: size // 2], 2) + compress(GZIP, data[size // 2 :], 2)
    yield from (("gzip", GZIP, 2, compress(GZIP, data, 2)), ("gzip members", GZIP, 2, halves))
    yield "snappy frames", SNAPPY, 2, compress(SNAPPY, data, 2)
    yield "snappy block", SNAPPY, 2, bytes(cramjam.snappy.compress_raw(data))
    yield "lz4", LZ4, 2, compress(LZ4, data, 2)
    yield "lz4 in format 0", LZ4, 0, compress(LZ4, data, 0)
    yield "lz4 in blocks of 4 MB", LZ4, 2, lz4.frame.compress(data, block_size=7, store_size=False)
    yield "zstd", ZSTD, 2, compress(ZSTD, data, 2)
    yield "zstd of unknown size", ZSTD, 2, unsized.compress(data) + unsized.flush()
    yield "zstd with a large window", ZSTD, 2, deep.compress(data) + deep.flush()


@pytest.fixture(scope="module")
def bombs():
    return list(packed_in_every_way(40 * MIB))


@pytest.mark.parametrize("number", range(10))
def test_a_bomb_is_refused_while_it_unpacks_and_what_fits_is_in_memory_once(bombs, number):
    _, codec, magic, packed = bombs[number]
    tracemalloc.start()
    try:
        with pytest.raises(UnpackedTooLarge, match=f"more than {12 * MIB} bytes"):
            decompress(codec, packed, magic, 12 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
        tracemalloc.reset_peak()
        assert len(decompress(codec, packed, magic, 40 * MIB)) == 40 * MIB
        assert tracemalloc.get_traced_memory()[1] < 60 * MIB
        with pytest.raises(UnpackedTooLarge):
            decompress(codec, packed, magic, 40 * MIB - 1)
    finally:
        tracemalloc.stop()


def test_how_far_a_produced_batch_may_unpack():
    assert produce_limit(0) == produce_limit(1000) == 64 << 20
    assert produce_limit(1 << 20) == 100 << 20
    assert produce_limit(2**31 - 1) == 1 << 30
