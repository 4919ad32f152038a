"""Codecs as Kafka's clients write and read them, with a limit on the decompressed size.

  gzip        any number of members; written as one, with the header bytes that the JDK writes
  snappy      written in xerial's framing (magic, two versions, then length-prefixed blocks), which
              the Java clients and all old clients read; a single raw block (librdkafka) is read too
  lz4         a frame; written with independent 64 KB blocks and no content size, because Kafka's
              reader takes nothing else. In format 0 the header checksum is wrong by tradition
              (KIP-57): it covers the frame's magic too. It is ignored on reading and written so.
  zstd        a frame, format 2 only

Whatever the input claims, no output beyond `limit` is built: UnpackedTooLarge is raised while unpacking.
The output is in memory once, but for a step of a few MiB and, with zstd of unknown size, the codec's window.
"""

from __future__ import annotations

import zlib
from struct import Struct
from struct import error as struct_error
from threading import local
from typing import TYPE_CHECKING

import cramjam
import lz4.block
import lz4.frame
import zstandard

from tidelog.protocol.errors import CorruptMessage, UnpackedTooLarge, UnsupportedCompressionType
from tidelog.protocol.records.layout import Compression

if TYPE_CHECKING:
    from tidelog.protocol.wire import Buffer

# Nothing that is decompressed is longer than this before it is checked against the limit. Decompressors
# reserve as much as they may return, and malloc serves this much from memory that it has; the pages of
# much more are new each time, which costs more than lz4.
_STEP = 4 << 20

_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_GZIP_TAIL = Struct("<II")
_GZIP_CHUNK = 4096

_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEAD = _XERIAL_MAGIC + b"\0\0\0\1\0\0\0\1"
_XERIAL_BLOCK = 32 * 1024
_XERIAL_SIZE = Struct(">i")
_SNAPPY_RATIO = 32  # a copy of 64 bytes takes 3 bytes, so no valid block has a higher ratio

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK = 64 * 1024
_LZ4_HEAD = _LZ4_MAGIC + b"\x60\x40\x82"  # version 1, independent 64 KB blocks, checksum
_LZ4_HEAD_V0 = _LZ4_MAGIC + b"\x60\x40\x1a"  # the checksum of all six bytes, as readers expect
_LZ4_RAW = 0x80000000
_LZ4_SIZE = Struct("<I")
_LZ4_CONTENT_SIZE = Struct("<Q")
_LZ4_RATIO = 255

_ZSTD_WINDOW = 8 << 20  # what a context that is kept may take for itself; more makes a new one
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class _Zstd(local):
    """One pair of zstd contexts for each thread: they are costly to create and cannot be shared."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=3)
        self.decompressor = zstandard.ZstdDecompressor()


_zstd = _Zstd()


def decompress(codec: int, data: Buffer, magic: int, limit: int) -> Buffer:
    """Decompresses the records of a compressed batch of format `magic`.

    Raises CorruptMessage for data that is not of that codec or is truncated, and UnpackedTooLarge
    for data that exceeds `limit` bytes when decompressed. Raises UnsupportedCompressionType for a
    number that is not a codec.
    """
    unpack = _UNPACK.get(codec)
    if unpack is None:
        raise UnsupportedCompressionType(f"{codec} is not the number of a codec")
    try:
        return unpack(data, magic, limit)
    except _FOREIGN as error:
        name = Compression(codec).name.lower()
        raise CorruptMessage(f"the {name} data of a batch cannot be unpacked: {error}") from error


def compress(codec: int, data: Buffer, magic: int) -> bytes:
    """Compresses the records of a batch of format `magic`, as Kafka's Java code does.

    Raises UnsupportedCompressionType for an unknown number, and for zstd in formats 0 and 1.
    """
    if codec == Compression.GZIP:
        return _gzip(data, zlib.Z_DEFAULT_COMPRESSION)
    if codec == Compression.SNAPPY:
        return _xerial(data)
    if codec == Compression.LZ4:
        return _lz4_frame(data, magic)
    if codec == Compression.ZSTD and magic >= 2:
        return _zstd.compressor.compress(data)
    raise UnsupportedCompressionType(f"codec {codec} cannot be written in message format {magic}")


def _too_large(limit: int) -> UnpackedTooLarge:
    """Builds the error for an output that exceeds its limit."""
    return UnpackedTooLarge(f"a compressed batch unpacks to more than {limit} bytes")


# --- gzip ----------------------------------------------------------------------------------------


def _gzip(data: Buffer, level: int) -> bytes:
    """Writes one gzip member with the header bytes that the JDK writes."""
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    body = deflate.compress(data) + deflate.flush()
    return _GZIP_HEAD + body + _GZIP_TAIL.pack(zlib.crc32(data), len(data) & 0xFFFFFFFF)


def _gunzip(data: Buffer, _magic: int, limit: int) -> Buffer:
    """Reads one gzip member, or several in a row."""
    member = zlib.decompressobj(wbits=31)
    first = member.decompress(data, min(limit + 1, _STEP))
    if member.eof and not member.unused_data and len(first) <= limit:
        return first
    out = bytearray(first)
    while not member.eof and len(out) <= limit:
        size = len(out)
        out += member.decompress(member.unconsumed_tail, min(limit + 1 - size, _STEP))
        if len(out) == size and not member.eof:
            raise CorruptMessage("the gzip data of a batch is cut short")
    if len(out) > limit:
        raise _too_large(limit)
    return _gunzip_members(out, member.unused_data, limit)


def _gunzip_members(out: bytearray, rest: bytes, limit: int) -> bytearray:
    """Appends the members of `rest` to `out`, in small chunks: zlib copies the input that it leaves."""
    position = 0
    while position < len(rest):
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            chunk = member.unconsumed_tail or rest[position : position + _GZIP_CHUNK]
            if not chunk:
                raise CorruptMessage("the gzip data of a batch is cut short")
            if not member.unconsumed_tail:
                position += len(chunk)
            out += member.decompress(chunk, min(limit + 1 - len(out), _STEP))
            if len(out) > limit:
                raise _too_large(limit)
        position -= len(member.unused_data)
    return out


# --- snappy --------------------------------------------------------------------------------------


def _xerial(data: Buffer) -> bytes:
    """Writes xerial's framing with its default block of 32 KB."""
    view = memoryview(data)
    parts: list[Buffer] = [_XERIAL_HEAD]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_XERIAL_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _snappy_block(block: Buffer, limit: int, have: int = 0) -> bytearray:
    """Reads one raw snappy block that follows `have` bytes."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > _SNAPPY_RATIO * len(block):
        raise CorruptMessage(f"a snappy block of {len(block)} bytes claims to hold {size}")
    if have + size > limit:
        raise _too_large(limit)
    out = bytearray(size)
    if not size:
        if len(block) != 1:
            raise CorruptMessage("bytes follow an empty snappy block")
    elif cramjam.snappy.decompress_raw_into(block, out) != size:
        raise CorruptMessage("a snappy block holds less than it claims")
    return out


def _unsnappy(data: Buffer, _magic: int, limit: int) -> Buffer:
    """Reads xerial's framing or one raw block; the first bytes tell which."""
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _snappy_block(data, limit)
    view = memoryview(data)
    if len(view) < len(_XERIAL_HEAD):
        raise CorruptMessage("the snappy data of a batch is cut short")
    out, position = bytearray(), len(_XERIAL_HEAD)
    while position < len(view):
        (size,) = _XERIAL_SIZE.unpack_from(view, position)
        position += 4
        if not 0 < size <= len(view) - position:
            raise CorruptMessage(f"a snappy block claims {size} bytes")
        out += _snappy_block(view[position : position + size], limit, len(out))
        position += size
    return out


# --- lz4 -----------------------------------------------------------------------------------------


def _lz4_frame(data: Buffer, magic: int) -> bytes:
    """Writes an lz4 frame of independent 64 KB blocks."""
    view = memoryview(data)
    parts: list[Buffer] = [_LZ4_HEAD if magic else _LZ4_HEAD_V0]
    for start in range(0, len(view), _LZ4_BLOCK):
        block = view[start : start + _LZ4_BLOCK]
        packed = lz4.block.compress(block, store_size=False)
        if len(packed) < len(block):
            parts += (_LZ4_SIZE.pack(len(packed)), packed)
        else:
            parts += (_LZ4_SIZE.pack(len(block) | _LZ4_RAW), block)
    parts.append(_LZ4_SIZE.pack(0))
    return b"".join(parts)


def _unlz4(data: Buffer, magic: int, limit: int) -> Buffer:
    """Reads one lz4 frame that fills `data`."""
    if len(data) < 7:
        raise CorruptMessage("the lz4 data of a batch is cut short")
    if data[4] & 0x08:
        (claimed,) = _LZ4_CONTENT_SIZE.unpack_from(data, 6)
        if claimed > _LZ4_RATIO * len(data):
            raise CorruptMessage(f"an lz4 frame of {len(data)} bytes claims to hold {claimed}")
        if claimed > limit:
            raise _too_large(limit)
    if magic == 0:
        data = _with_true_checksum(data)
    if _LZ4_RATIO * len(data) <= min(limit, _STEP):  # the format itself bounds the output
        out, used = lz4.frame.decompress(data, return_bytes_read=True)
    else:
        frame = lz4.frame.LZ4FrameDecompressor()
        out = frame.decompress(data, max_length=min(limit + 1, _STEP))
        if len(out) == _STEP and not frame.eof:
            out = bytearray(out)
        while len(out) <= limit and not frame.eof:
            size = len(out)
            out += frame.decompress(b"", max_length=min(limit + 1 - size, _STEP))
            if len(out) == size and not frame.eof:
                raise CorruptMessage("the lz4 data of a batch is cut short")
        used = len(data) - len(frame.unused_data or b"")
        if len(out) > limit:
            raise _too_large(limit)
    if used != len(data):
        raise CorruptMessage("bytes follow the lz4 frame of a batch")
    return out  # type: ignore[no-any-return]


def _with_true_checksum(frame: Buffer) -> Buffer:
    """Returns the frame with the right header checksum, whatever it was (format 0, KIP-57)."""
    end = 6 + (8 if frame[4] & 0x08 else 0) + (4 if frame[4] & 0x01 else 0)
    checksum = (_xxh32(bytes(frame[4:end])) >> 8) & 0xFF
    if len(frame) <= end or frame[end] == checksum:
        return frame
    fixed = bytearray(frame)
    fixed[end] = checksum
    return fixed


def _xxh32(data: bytes) -> int:
    """Returns xxHash-32 (seed 0) of less than 16 bytes, enough for an lz4 frame header."""
    mask = 0xFFFFFFFF
    value = (374761393 + len(data)) & mask
    position = 0
    while len(data) - position >= 4:
        value = (
            value + int.from_bytes(data[position : position + 4], "little") * 3266489917
        ) & mask
        value = (((value << 17) | (value >> 15)) * 668265263) & mask
        position += 4
    for byte in data[position:]:
        value = (value + byte * 374761393) & mask
        value = (((value << 11) | (value >> 21)) * 2654435761) & mask
    value = ((value ^ (value >> 15)) * 2246822519) & mask
    value = ((value ^ (value >> 13)) * 3266489917) & mask
    return value ^ (value >> 16)


# --- zstd ----------------------------------------------------------------------------------------


def _unzstd(data: Buffer, _magic: int, limit: int) -> Buffer:
    """Reads zstd frames; the size that they claim is checked against the limit, not trusted."""
    if bytes(data[:4]) != _ZSTD_MAGIC:
        raise CorruptMessage("the zstd data of a batch does not begin with a frame")
    claimed = zstandard.frame_content_size(data)
    if claimed > limit:
        raise _too_large(limit)
    if claimed > 0:
        try:
            return _zstd.decompressor.decompress(data, allow_extra_data=False)
        except zstandard.ZstdError:
            pass  # more frames follow, or the data is broken: the reader below decides
    decompressor = _zstd.decompressor
    if zstandard.get_frame_parameters(data).window_size > _ZSTD_WINDOW:
        decompressor = zstandard.ZstdDecompressor()
    reader = decompressor.stream_reader(data, read_across_frames=True)
    first: bytes = reader.read(min(limit + 1, max(_LZ4_BLOCK, 8 * len(data)), _STEP))
    more = bytearray()
    while part := reader.read(min(limit + 1 - len(more or first), _STEP)):
        more += part if more else first + part
    out = more or first
    if len(out) > limit:
        raise _too_large(limit)
    if len(out) < claimed:
        raise CorruptMessage("the zstd data of a batch is cut short")
    return out


_UNPACK = {
    int(Compression.GZIP): _gunzip,
    int(Compression.SNAPPY): _unsnappy,
    int(Compression.LZ4): _unlz4,
    int(Compression.ZSTD): _unzstd,
}
# The errors that the libraries raise for invalid input.
_FOREIGN = (
    zlib.error,
    zstandard.ZstdError,
    cramjam.DecompressionError,
    struct_error,
    RuntimeError,
    ValueError,
    EOFError,
    OverflowError,
    MemoryError,
)
