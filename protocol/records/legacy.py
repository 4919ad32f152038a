"""Message formats 0 and 1: finding the messages in a compressed wrapper, and writing them.

A wrapper is a message whose value is a compressed set of messages (KIP-31, KIP-32). Its offset is
that of the last message inside. Inside format 0, offsets are absolute. Inside format 1 they count
from the first message, and the wrapper's LogAppendTime bit and time apply to every message inside;
the messages' own bits are ignored.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from tidelog.protocol.errors import InvalidRecord
from tidelog.protocol.records import kernels
from tidelog.protocol.records.compression import compress, decompress
from tidelog.protocol.records.encode import put_message
from tidelog.protocol.records.layout import (
    CODEC_MASK,
    INT64_MAX,
    INT64_MIN,
    LOG_APPEND_TIME_BIT,
    MESSAGE_HEAD,
    MESSAGE_HEAD_V1,
    NO_TIMESTAMP,
    Compression,
    Region,
)

if TYPE_CHECKING:
    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.wire import Buffer

_INT32 = Struct(">i")


def packed_value(buffer: Buffer, batch: Batch) -> memoryview:
    """Returns the compressed message set inside a wrapper.

    Raises InvalidRecord for a wrapper whose lengths do not fill it.
    """
    end = batch.position + batch.size
    position = batch.position + 18 + 8 * batch.magic
    (key_size,) = _INT32.unpack_from(buffer, position)
    position += 4 + max(key_size, 0)
    if not key_size >= -1 or end - position < 4:
        raise InvalidRecord(f"a compressed message has a key of {key_size} bytes")
    (size,) = _INT32.unpack_from(buffer, position)
    if size < 0 or position + 4 + size != end:
        raise InvalidRecord(f"a compressed message claims to hold {size} bytes")
    return memoryview(buffer)[end - size : end]


def wrapped(buffer: Buffer, batch: Batch, limit: int) -> Buffer:
    """Decompresses the message set inside a compressed wrapper.

    Raises InvalidRecord for a wrapper whose lengths do not fill it, for an empty one, and for zstd,
    which formats 0 and 1 do not have. Raises CorruptMessage for what cannot be decompressed.
    """
    packed = packed_value(buffer, batch)
    codec = batch.attributes & CODEC_MASK
    if codec == Compression.ZSTD:
        raise InvalidRecord("zstd is no codec of message formats 0 and 1")
    inner = decompress(codec, packed, batch.magic, limit)
    if not len(inner):
        raise InvalidRecord("a compressed message holds no messages")
    return inner


def wrapped_region(buffer: Buffer, batch: Batch, limit: int) -> Region:
    """Decompresses a wrapper; returns the region of its messages with the base of their offsets.

    Raises as `wrapped` does, and InvalidRecord if format-1 offsets inside exceed that of the
    wrapper. The wrapper's offset may be 0, because some producers write that.
    """
    inner = wrapped(buffer, batch, limit)
    base = 0
    if batch.magic == 1:
        last = last_inner_offset(inner)
        base = base_of_inner(batch.last_offset, last)
    stamp = batch.max_timestamp if batch.is_log_append_time else None
    return Region(inner, 0, len(inner), batch.magic, -1, base, NO_TIMESTAMP, stamp)


def last_inner_offset(inner: Buffer) -> int:
    """Returns the offset that the last message of a decompressed format-1 set carries."""
    region = Region(inner, 0, len(inner), 1, -1, 0, NO_TIMESTAMP, None)
    found = kernels.examine(region, INT64_MIN, INT64_MAX, False)
    return found.last_offset


def base_of_inner(wrapper_offset: int, last_inner: int) -> int:
    """Returns the offset to which the relative offsets in a format-1 wrapper are added.

    Raises InvalidRecord, as Kafka does, if the wrapper's offset is below that of a message inside
    it and is not 0.
    """
    if wrapper_offset == 0:
        return 0
    if wrapper_offset < last_inner:
        raise InvalidRecord(
            f"a compressed message at offset {wrapper_offset} holds one at {last_inner}"
        )
    return wrapper_offset - last_inner


def write_wrapper(
    messages: Buffer, magic: int, codec: int, last_offset: int, timestamp: int, stamped: bool
) -> bytes:
    """Compresses an encoded message set and wraps it in one message of the same format.

    `stamped` sets the LogAppendTime bit (format 1 only); `timestamp` is ignored by format 0.
    """
    attributes = codec | (LOG_APPEND_TIME_BIT if stamped and magic else 0)
    out = bytearray()
    put_message(
        out, magic, last_offset, attributes, timestamp, None, compress(codec, messages, magic)
    )
    return bytes(out)


def wrapper_head(buffer: Buffer, batch: Batch, last_offset: int, stamp: int, bit: int) -> bytes:
    """Returns the bytes of a wrapper up to its key, with another offset, time and type bit.

    Nothing is compressed again. The CRC is computed again if the bytes that it covers change, which
    cannot happen in format 0: it has neither a time nor the bit.
    """
    size, crc, magic, attributes = _SIZE_TO_ATTRIBUTES.unpack_from(buffer, batch.position + 8)
    if not batch.magic:
        return MESSAGE_HEAD.pack(last_offset, size, crc, magic, attributes)
    stamped = attributes & ~LOG_APPEND_TIME_BIT | bit
    if stamped != attributes or stamp != batch.max_timestamp:
        covered = MESSAGE_HEAD_V1.pack(0, 0, 0, magic, stamped, stamp)[16:]
        rest = memoryview(buffer)[batch.position + 26 : batch.position + batch.size]
        crc = crc32(rest, crc32(covered))
    return MESSAGE_HEAD_V1.pack(last_offset, size, crc, magic, stamped, stamp)


_SIZE_TO_ATTRIBUTES = Struct(">iIbB")
