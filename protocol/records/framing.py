"""Whether Kafka's Java classes read the compressed set of a batch, by how it is framed.

They read less than the formats allow, and refuse the rest for ever. Libraries read, and Java does not:

  gzip    several members: Java up to 0.11 overlooks what follows some of them, and every Java calls itself at
          each empty one, until its stack is full
  snappy  many empty blocks in xerial's framing: so does Java up to 2.8. Another version of that framing is
          read by Java, and taken for a block without one by aiokafka
  lz4     blocks that need those before them, a dictionary's id, an empty block
  zstd    a frame that is cut short, a window beyond 128 MiB, a block that is larger than the window

What can be unpacked, and passes here, is read by Java.
"""

from __future__ import annotations

import zlib
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING

from tidelog.protocol.errors import InvalidRecord
from tidelog.protocol.records.layout import CODEC_MASK, V2_HEADER_SIZE, Compression
from tidelog.protocol.records.legacy import packed_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.wire import Buffer

_MOST_EMPTY = 100  # some thousand fill Java's stack
_MOST_BLOCKS = 20_000  # a batch of more is written again: looking at each would take too long

_GZIP_FIRST = 1024  # enough for the first byte of what is compressed, behind its tables
_GZIP_STEP = 1 << 20
_GZIP_SIZE = Struct("<I")

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEAD = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_SIZE = Struct(">I")

_LZ4_HEAD = Struct("<IB")
_LZ4_MAGIC = 0x184D2204
# Of the flags, what Java demands: version 1 and independent blocks, no dictionary, no reserved bit.
_LZ4_MASK, _LZ4_FLAGS = 0xE3, 0x60
_LZ4_HAS_SIZE, _LZ4_HAS_BLOCK_CHECKSUMS = 0x08, 0x10
_LZ4_RAW = 0x80000000
_LZ4_SIZE = Struct("<I")

_ZSTD_HEAD = Struct("<IB")
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A5  # the upper 28 bits of the magic of a frame that readers skip
_ZSTD_SKIPPED = Struct("<4xI")
_ZSTD_IS_ONE_SEGMENT, _ZSTD_HAS_CHECKSUM = 0x20, 0x04
_ZSTD_ID_SIZES = (0, 1, 2, 4)
_ZSTD_CONTENT_SIZES = (Struct("<B"), Struct("<H"), Struct("<I"), Struct("<Q"))
_ZSTD_LARGEST_WINDOW = 1 << 27  # zstd's own limit where a stream is read
_ZSTD_LARGEST_BLOCK = 1 << 17
_ZSTD_BLOCK = Struct("<HB")
_ZSTD_REPEATED = 1  # a block of one byte, which is repeated


def is_readable_by_java(buffer: Buffer, batch: Batch, unpacked_bytes: int | None = None) -> bool:
    """Returns whether Java reads the compressed set of a batch, provided that it can be unpacked.

    True for a batch that is not compressed. A gzip set is unpacked for it unless `unpacked_bytes` says to how
    many bytes that comes.
    """
    check = _CHECKS.get(batch.attributes & CODEC_MASK)
    if check is None:
        return True
    end = batch.position + batch.size
    try:
        if batch.magic == 2:
            start = batch.position + V2_HEADER_SIZE
        else:
            start = end - len(packed_value(buffer, batch))
        return check(buffer, start, end, unpacked_bytes)
    except (InvalidRecord, IndexError, struct_error, zlib.error):
        return False


def _is_one_member(data: Buffer, start: int, end: int, unpacked_bytes: int | None) -> bool:
    packed, member = memoryview(data)[start:end], zlib.decompressobj(wbits=31)
    if unpacked_bytes is not None:
        # The last member ends with its size. If that is everything, those before it are empty.
        (size,) = _GZIP_SIZE.unpack(packed[-4:])
        is_last_all: bool = size == unpacked_bytes
        return is_last_all and bool(member.decompress(packed[:_GZIP_FIRST], 1))
    rest = bytes(packed)
    while not member.eof and rest:
        member.decompress(rest, _GZIP_STEP)
        rest = member.unconsumed_tail
    return member.eof and not member.unused_data


def _has_few_empty_blocks(data: Buffer, position: int, end: int, _: int | None) -> bool:
    head = bytes(data[position : position + len(_XERIAL_HEAD)])
    if head != _XERIAL_HEAD:
        return not head.startswith(_XERIAL_MAGIC)  # one block without a frame
    position += len(_XERIAL_HEAD)
    empty = 0
    while position < end:
        (size,) = _XERIAL_SIZE.unpack_from(data, position)
        empty += size <= 1
        position += 4 + size
    return empty <= _MOST_EMPTY


def _is_plain_lz4(data: Buffer, position: int, end: int, _: int | None) -> bool:
    magic, flags = _LZ4_HEAD.unpack_from(data, position)
    if magic != _LZ4_MAGIC or flags & _LZ4_MASK != _LZ4_FLAGS:
        return False
    position += 15 if flags & _LZ4_HAS_SIZE else 7
    between = 8 if flags & _LZ4_HAS_BLOCK_CHECKSUMS else 4
    left = _MOST_BLOCKS
    while left:
        (size,) = _LZ4_SIZE.unpack_from(data, position)
        if not size:
            return position < end
        if size in (1, _LZ4_RAW):  # an empty block, compressed or not
            return False
        position += between + (size & ~_LZ4_RAW)
        left -= 1
    return False


def _is_whole_zstd(data: Buffer, position: int, end: int, _: int | None) -> bool:
    left = _MOST_BLOCKS
    while position < end and left > 0:
        magic, descriptor = _ZSTD_HEAD.unpack_from(data, position)
        if magic == _ZSTD_MAGIC:
            position, left = _end_of_frame(data, position + 5, descriptor, left)
        elif magic >> 4 == _ZSTD_SKIPPABLE:
            position += 8 + _ZSTD_SKIPPED.unpack_from(data, position)[0]
            left -= 1
        else:
            return False
    return position == end and left > 0


def _end_of_frame(data: Buffer, position: int, descriptor: int, left: int) -> tuple[int, int]:
    """Returns where a zstd frame ends, and `left` less its blocks; 0 for one that Java refuses."""
    size = _ZSTD_CONTENT_SIZES[descriptor >> 6]
    if descriptor & _ZSTD_IS_ONE_SEGMENT:  # the window is the content
        position += _ZSTD_ID_SIZES[descriptor & 3] + size.size
        (window,) = size.unpack_from(data, position - size.size)
        window += 256 if size.size == 2 else 0
    else:
        exponent, mantissa = divmod(data[position], 8)
        window = (8 + mantissa) << exponent + 7
        position += 1 + _ZSTD_ID_SIZES[descriptor & 3] + (size.size if descriptor >> 6 else 0)
    if window > _ZSTD_LARGEST_WINDOW:
        return position, 0
    largest = min(window, _ZSTD_LARGEST_BLOCK)
    while left > 0:
        low, high = _ZSTD_BLOCK.unpack_from(data, position)
        size_of_block = (low | high << 16) >> 3
        if size_of_block > largest:
            return position, 0
        position += 3 + (1 if low >> 1 & 3 == _ZSTD_REPEATED else size_of_block)
        left -= 1
        if low & 1:
            break
    return position + (4 if descriptor & _ZSTD_HAS_CHECKSUM else 0), left


_CHECKS: dict[int, Callable[[Buffer, int, int, int | None], bool]] = {
    int(Compression.GZIP): _is_one_member,
    int(Compression.SNAPPY): _has_few_empty_blocks,
    int(Compression.LZ4): _is_plain_lz4,
    int(Compression.ZSTD): _is_whole_zstd,
}
