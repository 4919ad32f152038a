"""Compression as record sets carry it, written for the oracle tests alone.

Codecs by number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd. Snappy is framed as the Java library does
it ("xerial"); a raw block is understood too. An LZ4 frame inside a message of format 0 carries a
header checksum that was computed over the magic number as well (KAFKA-3160): `compress` writes it
like that and `decompress` says, as an error, when a frame has not the checksum its format asks for.
Nothing here is shared with the broker under test.
"""

from __future__ import annotations

import gzip
import struct

import cramjam
import lz4.frame
import zstandard

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
ZSTD_OUTPUT_MAX = 16 << 20


def compress(codec: int, data: bytes, magic: int) -> bytes:
    """Compress `data` as a Java producer of format `magic` does."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return gzip.compress(data, 6, mtime=0)
    if codec == SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(data))
        return XERIAL_HEADER + struct.pack(">i", len(block)) + block
    if codec == LZ4:
        frame = lz4.frame.compress(
            data, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
        )
        return break_lz4_header(frame) if magic == 0 else frame
    if codec == ZSTD:
        return zstandard.ZstdCompressor().compress(data)
    raise ValueError(f"unknown codec {codec}")


def decompress(codec: int, data: bytes, magic: int) -> bytes:
    """Undo `compress`, or any other producer's compression. Raises ValueError on bad data."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        return _snappy_decompress(data)
    if codec == LZ4:
        expected = lz4_header_checksum(data, broken=magic == 0)
        at = 4 + lz4_descriptor_size(data)
        if data[at] != expected:
            raise ValueError(f"lz4 header checksum {data[at]} in format {magic}, not {expected}")
        mended = data[:at] + bytes([lz4_header_checksum(data, broken=False)]) + data[at + 1 :]
        return lz4.frame.decompress(mended)
    if codec == ZSTD:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    raise ValueError(f"unknown codec {codec}")


def _snappy_decompress(data: bytes) -> bytes:
    if not data.startswith(XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    position, parts = len(XERIAL_HEADER), []
    while position < len(data):
        (size,) = struct.unpack_from(">i", data, position)
        position += 4 + size
        parts.append(bytes(cramjam.snappy.decompress_raw(data[position - size : position])))
    return b"".join(parts)


def lz4_descriptor_size(frame: bytes) -> int:
    """Bytes between the magic number and the header checksum (content size and dictionary are optional)."""
    return 2 + (8 if frame[4] & 0x08 else 0) + (4 if frame[4] & 0x01 else 0)


def lz4_header_checksum(frame: bytes, *, broken: bool) -> int:
    """The second byte of xxHash32 over the descriptor; `broken` takes the magic number in too."""
    end = 4 + lz4_descriptor_size(frame)
    return xxh32(frame[0 if broken else 4 : end]) >> 8 & 0xFF


def break_lz4_header(frame: bytes) -> bytes:
    """The frame with the header checksum that format 0 asks for."""
    at = 4 + lz4_descriptor_size(frame)
    return frame[:at] + bytes([lz4_header_checksum(frame, broken=True)]) + frame[at + 1 :]


def xxh32(data: bytes) -> int:
    """xxHash32 with seed 0 of fewer than 16 bytes, which is all that an LZ4 header needs."""
    assert len(data) < 16
    mask, prime3, prime4, prime5 = 0xFFFFFFFF, 3266489917, 668265263, 374761393
    value = prime5 + len(data)
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        value = (value + word * prime3) & mask
        value = ((value << 17 | value >> 15) & mask) * prime4 & mask
    for byte in data[whole:]:
        value = (value + byte * prime5) & mask
        value = ((value << 11 | value >> 21) & mask) * 2654435761 & mask
    value = (value ^ value >> 15) * 2246822519 & mask
    value = (value ^ value >> 13) * prime3 & mask
    return value ^ value >> 16
