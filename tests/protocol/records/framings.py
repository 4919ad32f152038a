"""How a compressed set may be framed, by codec: as clients do, as the formats allow, and as neither does.

Everything is written by hand or by the codecs' own libraries. `framings(codec, data, magic)` yields names and
packed bytes. Those in MISREAD are read by libraries, and refused or misread by some Kafka client in
Java since 0.10 (another version of snappy's framing by aiokafka). Those in REFUSED libraries do not read.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import cramjam
import lz4.block
import lz4.frame
import zstandard

from tests.oracle.codecs import GZIP, LZ4, SNAPPY, XERIAL_MAGIC, ZSTD, break_lz4_header, xxh32

if TYPE_CHECKING:
    from collections.abc import Iterator

MANY = 20_000
MISREAD = {
    GZIP: {"empty members", "ten members", "two members at 8192"},
    SNAPPY: {"empty blocks", "another version"},
    LZ4: {
        *("linked", "linked and sized", "a dictionary", "an empty block", "an empty raw block"),
        *("empty blocks", "an empty block first"),
    },
    ZSTD: {
        *("a large window", "a large window second", "a large window behind a skipped frame"),
        *(
            "a small window",
            "no last block",
            "no checksum",
            "no last block second",
            "a magic behind it",
        ),
    },
}

REFUSED = {
    GZIP: {"bytes behind it", "cut short"},
    SNAPPY: {"twice", "the framing format", "cut short"},
    LZ4: {
        *("two frames", "a skipped frame first", "a skipped frame, then linked"),
        *("a skipped frame last", "no end"),
    },
    ZSTD: {"a skipped frame first", "bytes behind it", "a dictionary"},
}


def framings(codec: int, data: bytes, magic: int = 2) -> Iterator[tuple[str, bytes]]:
    """Yields every framing of `data`, which the records of a set come to, for a format."""
    for name, packed in {GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}[codec](data):
        yield name, break_lz4_header(packed) if (codec, magic) == (LZ4, 0) else packed


def _parts(data: bytes, count: int) -> list[bytes]:
    size = -(-len(data) // count)
    return [data[at : at + size] for at in range(0, len(data), size)]


def _chunks(data: bytes, size: int = 1 << 16) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


# --- gzip ----------------------------------------------------------------------------------------


def member(data: bytes, *, level: int = 6, extra: bytes = b"", name: bytes = b"") -> bytes:
    """One member, with the fields that a header may have."""
    deflate = zlib.compressobj(level, zlib.DEFLATED, -15)
    body = deflate.compress(data) + deflate.flush()
    head = b"\x1f\x8b\x08" + bytes([4 * bool(extra) | 8 * bool(name)]) + bytes(5) + b"\xff"
    if extra:
        head += struct.pack("<H", len(extra)) + extra
    if name:
        head += name + b"\0"
    return head + body + struct.pack("<II", zlib.crc32(data), len(data))


def _gzip(data: bytes) -> Iterator[tuple[str, bytes]]:
    first, second = _parts(data, 2)
    yield "plain", member(data)
    yield "stored", member(data, level=0)
    yield "named", member(data, name=b"records", extra=b"ab\4\0more")
    yield "two members", member(first) + member(second)
    yield "ten members", b"".join(map(member, _parts(data, 10)))
    # A reader of 8 KiB has read the trailer of the first and nothing of the second.
    room = -(len(member(first)) + 2) % 8192
    yield "two members at 8192", member(first, extra=bytes(room or 8192)) + member(second)
    yield "an empty member first", member(b"") + member(data)
    yield "an empty member last", member(data) + member(b"")
    yield "empty members", member(b"") * MANY + member(data)
    yield "empty members between", member(first) + member(b"") * MANY + member(second)
    yield "bytes behind it", member(data) + b"and more"
    yield "cut short", member(data)[:-3]


# --- snappy --------------------------------------------------------------------------------------


def _raw(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def xerial(blocks: list[bytes], version: int = 1) -> bytes:
    """The framing of Java's library around blocks."""
    head = XERIAL_MAGIC + struct.pack(">ii", version, 1)
    return head + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _snappy(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "raw", _raw(data)
    yield "plain", xerial([_raw(each) for each in _chunks(data, 1 << 15)])
    yield "ten blocks", xerial([_raw(each) for each in _parts(data, 10)])
    yield "another version", xerial([_raw(data)], version=2)
    yield "an empty block", xerial([_raw(b""), *(_raw(each) for each in _parts(data, 2))])
    yield "empty blocks", xerial([_raw(b"")] * MANY + [_raw(data)])
    yield "twice", xerial([_raw(data[:9])]) + xerial([_raw(data[9:])])
    yield "the framing format", bytes(cramjam.snappy.compress(data))
    yield "cut short", xerial([_raw(data)])[:-1]


# --- lz4 -----------------------------------------------------------------------------------------


def block(data: bytes) -> bytes:
    """One block of a frame, with its size."""
    packed = lz4.block.compress(data, store_size=False)
    return struct.pack("<I", len(packed)) + packed


def raw_block(data: bytes) -> bytes:
    """One that is not compressed."""
    return struct.pack("<I", len(data) | 1 << 31) + data


def frame(*blocks: bytes, flags: int = 0x60, more: bytes = b"") -> bytes:
    """A frame of blocks of 64 KiB; `more` is what `flags` announce in its header."""
    head = bytes([flags, 0x40]) + more
    return (
        b"\x04\x22\x4d\x18" + head + bytes([xxh32(head) >> 8 & 0xFF]) + b"".join(blocks) + bytes(4)
    )


def _lz4(data: bytes) -> Iterator[tuple[str, bytes]]:
    blocks, own = [block(each) for each in _chunks(data)], lz4.frame
    skipped = struct.pack("<II", 0x184D2A50, 5) + b"12345"
    alone = {"block_linked": False, "block_size": own.BLOCKSIZE_MAX64KB}
    yield "plain", frame(*blocks)
    yield "checked", own.compress(data, content_checksum=True, block_checksum=True, **alone)
    yield "large blocks", own.compress(data, block_linked=False, block_size=own.BLOCKSIZE_MAX4MB)
    yield "raw blocks", frame(*map(raw_block, _chunks(data)))
    yield "many blocks", frame(*(block(each) for each in _parts(data, 1000)))
    yield "linked", frame(*blocks, flags=0x40)
    yield "linked and sized", frame(*blocks, flags=0x48, more=struct.pack("<Q", len(data)))
    yield "a dictionary", frame(*blocks, flags=0x61, more=struct.pack("<I", 1))
    yield "an empty block", frame(block(data[:9]), block(b""), *map(block, _chunks(data[9:])))
    yield "an empty block first", frame(block(b""), *blocks)
    yield "empty blocks", frame(block(data[:9]), block(b"") * MANY, *map(block, _chunks(data[9:])))
    yield (
        "an empty raw block",
        frame(block(data[:9]), raw_block(b""), *map(block, _chunks(data[9:]))),
    )
    yield "two frames", frame(block(data[:9])) + frame(*map(block, _chunks(data[9:])))
    yield "a skipped frame first", skipped + frame(*blocks)
    yield "a skipped frame, then linked", skipped + frame(*blocks, flags=0x40)
    yield "a skipped frame last", frame(*blocks) + skipped
    yield "no end", frame(*blocks)[:-4]


# --- zstd ----------------------------------------------------------------------------------------


DICTIONARY = zstandard.train_dictionary(1024, [b"sample %d " % i * 9 for i in range(999)])


def zstd_frame(data: bytes, *, window: int, sized: bool = True, ends: bool = True) -> bytes:
    """A frame of raw blocks with a window of 2 ** `window` bytes."""
    size = struct.pack("<Q", len(data)) if sized else b""
    out = b"\x28\xb5\x2f\xfd" + bytes([0xC0 if sized else 0, window - 10 << 3]) + size
    blocks = _chunks(data, 100_000)
    for number, each in enumerate(blocks):
        is_last = ends and number == len(blocks) - 1
        out += struct.pack("<I", len(each) << 3 | is_last)[:3] + each
    return out


def _zstd(data: bytes) -> Iterator[tuple[str, bytes]]:
    first, second = _parts(data, 2)
    pack = zstandard.ZstdCompressor().compress
    skipped = struct.pack("<II", 0x184D2A5F, 5) + b"12345"

    def stream(data: bytes, **more: bool) -> bytes:
        packer = zstandard.ZstdCompressor(write_content_size=False, **more).compressobj()
        return packer.compress(data) + packer.flush()

    yield "plain", pack(data)
    yield "not sized", stream(data)
    yield "checked", stream(data, write_checksum=True)
    yield "the largest window", zstd_frame(data, window=27)
    yield "two frames", pack(first) + pack(second)
    yield "ten frames", b"".join(map(stream, _parts(data, 10)))
    yield "empty frames", stream(b"") + stream(data) + stream(b"")
    yield "a skipped frame", stream(first) + skipped + stream(second) + skipped
    yield "a skipped frame first", skipped + pack(data)
    yield "a large window", zstd_frame(data, window=28)
    yield "a large window second", pack(first) + zstd_frame(second, window=28)
    yield (
        "a large window behind a skipped frame",
        pack(first) + skipped + zstd_frame(second, window=31),
    )
    yield "a dictionary", zstandard.ZstdCompressor(dict_data=DICTIONARY).compress(data)
    yield "a small window", zstd_frame(data, window=10)
    yield "no last block", zstd_frame(data, window=20, sized=False, ends=False)
    yield (
        "no last block second",
        pack(first) + zstd_frame(second, window=20, sized=False, ends=False),
    )
    yield "no checksum", stream(data, write_checksum=True)[:-4]
    yield "a magic behind it", stream(data) + zstd_frame(b"x", window=20)[:5]
    yield "bytes behind it", stream(data) + b"and more"
