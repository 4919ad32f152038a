"""Writing single records and messages, in plain Python.

`build` and the kernels' twin write with these functions; the compiled kernels have their own.
Integers are taken modulo 2**64, because the difference of two times may exceed an int64.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING
from zlib import crc32

from tidelog.protocol.records.layout import MESSAGE_HEAD, MESSAGE_HEAD_V1, MESSAGE_OVERHEAD, int64

if TYPE_CHECKING:
    from tidelog.protocol.wire import Buffer

_INT32 = Struct(">i")
_CRC = Struct(">I")


def put_varint(out: bytearray, value: int) -> None:
    """Appends `value` (an int64, taken modulo 2**64) as a zig-zag varint."""
    if -64 <= value < 64:  # nearly all values
        out.append((value << 1) ^ (value >> 63))
        return
    value = int64(value)
    value = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_field(out: bytearray, field: Buffer | None) -> None:
    """Appends a varint length (-1: null) and the bytes."""
    if field is None:
        out.append(1)
    else:
        put_varint(out, len(field))
        out += field


def put_record(
    out: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: Buffer | None,
    value: Buffer | None,
    header_count: int = 0,
    headers: Buffer = b"",
) -> None:
    """Appends one format-2 record; `headers` are `header_count` encoded headers."""
    body = bytearray(1)
    put_varint(body, timestamp_delta)
    put_varint(body, offset_delta)
    _put_field(body, key)
    _put_field(body, value)
    put_varint(body, header_count)
    body += headers
    put_varint(out, len(body))
    out += body


def put_message(
    out: bytearray,
    magic: int,
    offset: int,
    attributes: int,
    timestamp: int,
    key: Buffer | None,
    value: Buffer | None,
) -> None:
    """Appends one message of format 0 or 1, CRC included."""
    start = len(out)
    size = MESSAGE_OVERHEAD[magic] + len(key or b"") + len(value or b"")
    if magic:
        out += MESSAGE_HEAD_V1.pack(offset, size, 0, magic, attributes, timestamp)
    else:
        out += MESSAGE_HEAD.pack(offset, size, 0, magic, attributes)
    for field in (key, value):
        out += _INT32.pack(-1 if field is None else len(field))
        if field is not None:
            out += field
    # The slice is a copy, because a bytearray with a view on it cannot grow.
    _CRC.pack_into(out, start + 12, crc32(out[start + 16 :]))
