"""Record sets of formats 0, 1 and 2, written and read field by field for the oracle tests alone.

The builders can lie about every field, so that a test can send what no honest client sends. The
parser returns plain values, checks each CRC by its own arithmetic (crc32 and a table-driven
crc32c), and keeps every byte of what it reads in some field: two sets whose parsed values are equal
differ at most in how their payloads were compressed. Nothing here is shared with the broker.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import zstandard
from kafka.record._crc32c import crc as crc32c

from tests.oracle import codecs

if TYPE_CHECKING:
    from collections.abc import Sequence

LAT_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
INT64 = (1 << 64) - 1
UNREADABLE = (
    ValueError,
    IndexError,
    RuntimeError,
    EOFError,
    zlib.error,
    struct.error,
    zstandard.ZstdError,
)


class Rec(NamedTuple):
    """One record to send; its offset inside the set is its place."""

    timestamp: int
    value: bytes | None = b"v"
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def _field(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def message(
    magic: int,
    rec: Rec,
    *,
    offset: int = 0,
    attributes: int = 0,
    bad_crc: bool = False,
    size: int | None = None,
    said_magic: int | None = None,
) -> bytes:
    """One message of format 0 or 1 with its offset and size; `size` and `said_magic` can lie."""
    body = struct.pack(">bB", magic if said_magic is None else said_magic, attributes)
    if magic == 1:
        body += struct.pack(">q", rec.timestamp)
    body += _field(rec.key) + _field(rec.value)
    crc = zlib.crc32(body) ^ (1 if bad_crc else 0)
    return struct.pack(">qiI", offset, len(body) + 4 if size is None else size, crc) + body


def plain_set(magic: int, recs: Sequence[Rec], **lies: Any) -> bytes:
    """Uncompressed messages of format 0 or 1 with offsets 0, 1, 2 ..."""
    return b"".join(message(magic, rec, offset=i, **lies) for i, rec in enumerate(recs))


def wrapper(
    magic: int,
    recs: Sequence[Rec],
    codec: int,
    *,
    offset: int | None = None,
    timestamp: int | None = None,
    inner_offsets: Sequence[int] | None = None,
    inner_set: bytes | None = None,
    inner_attributes: int = 0,
    attributes: int = 0,
    inner_bad_crc: bool = False,
    key: bytes | None = None,
    **lies: Any,
) -> bytes:
    """A compressed message of format 0 or 1 around `recs` (or around `inner_set` as it is).

    Defaults are what an honest producer sends: inner offsets 0, 1, 2 ..., the last one as the
    wrapper's offset, the largest inner timestamp as its timestamp.
    """
    if inner_set is None:
        inner_set = b"".join(
            message(
                magic,
                rec,
                offset=i if inner_offsets is None else inner_offsets[i],
                attributes=inner_attributes,
                bad_crc=inner_bad_crc,
            )
            for i, rec in enumerate(recs)
        )
    if timestamp is None:
        timestamp = max((rec.timestamp for rec in recs), default=-1)
    if offset is None:
        offset = len(recs) - 1
    outer = Rec(timestamp, codecs.compress(codec, inner_set, magic), key)
    return message(magic, outer, offset=offset, attributes=attributes | codec, **lies)


def varint(value: int) -> bytes:
    """Zig-zag and base-128; a value beyond 64 bits wraps, as a Java long does."""
    value &= INT64
    if value >> 63:
        value -= 1 << 64
    zigzag = ((value << 1) ^ (value >> 63)) & INT64
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(rec: Rec, base_timestamp: int, offset_delta: int) -> bytes:
    """One record of format 2 with its size."""
    body = b"\0" + varint(rec.timestamp - base_timestamp) + varint(offset_delta)
    body += _nullable(rec.key) + _nullable(rec.value) + varint(len(rec.headers))
    for name, value in rec.headers:
        body += _nullable(name.encode()) + _nullable(value)
    return varint(len(body)) + body


def batch(
    recs: Sequence[Rec],
    codec: int = codecs.NONE,
    *,
    base_offset: int = 0,
    base_timestamp: int | None = None,
    max_timestamp: int | None = None,
    attributes: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    count: int | None = None,
    last_offset_delta: int | None = None,
    offset_deltas: Sequence[int] | None = None,
    payload: bytes | None = None,
    bad_crc: bool = False,
    said_magic: int = 2,
) -> bytes:
    """A batch of format 2; the keywords replace what an honest producer would write."""
    if base_timestamp is None:
        base_timestamp = recs[0].timestamp if recs else -1
    if max_timestamp is None:
        max_timestamp = max((rec.timestamp for rec in recs), default=-1)
    if payload is None:
        payload = b"".join(
            record(rec, base_timestamp, i if offset_deltas is None else offset_deltas[i])
            for i, rec in enumerate(recs)
        )
        payload = codecs.compress(codec, payload, 2)
    body = struct.pack(
        ">hiqqqhii",
        attributes | codec,
        len(recs) - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(recs) if count is None else count,
    )
    body += payload
    crc = crc32c(body) ^ (1 if bad_crc else 0)
    head = struct.pack(">qiibI", base_offset, len(body) + 9, leader_epoch, said_magic, crc)
    return head + body


def parse(data: bytes) -> tuple[list[dict[str, Any]], int]:
    """Every whole batch or message of `data` as plain values, and how many bytes are left over."""
    found, position = [], 0
    while len(data) - position >= 17:
        (size,) = struct.unpack_from(">i", data, position + 8)
        end = position + 12 + size
        if size < 14 or end > len(data):
            break
        magic = data[position + 16]
        one = data[position:end]
        found.append(parse_batch(one) if magic == 2 else parse_message(one))
        position = end
    return found, len(data) - position


def parse_message(data: bytes) -> dict[str, Any]:
    """One message of format 0 or 1; a compressed one with its inner messages under `inner`."""
    offset, size, crc, magic, attributes = struct.unpack_from(">qiIbB", data)
    fields: dict[str, Any] = {"offset": offset, "magic": magic, "attributes": attributes}
    fields["crc_ok"] = crc == zlib.crc32(data[16:])
    position = 18
    if magic == 1:
        (fields["timestamp"],) = struct.unpack_from(">q", data, position)
        position += 8
    fields["key"], position = _take(data, position)
    value, position = _take(data, position)
    fields["rest"] = len(data) - position
    codec = attributes & 7
    if not codec:
        fields["size"], fields["value"] = size, value
    else:
        try:
            inner = codecs.decompress(codec, value or b"", magic)
            fields["inner"], fields["inner_rest"] = parse(inner)
        except UNREADABLE as error:
            fields["inner"], fields["value"] = f"unreadable: {error!r}", value
    return fields


def _take(data: bytes, position: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, position)
    position += 4
    if size < 0:
        return None, position
    return data[position : position + size], position + size


def parse_batch(data: bytes) -> dict[str, Any]:
    """One batch of format 2 with its header fields and records."""
    names = (
        "offset size leader_epoch magic crc attributes last_offset_delta base_timestamp "
        "max_timestamp producer_id producer_epoch base_sequence count"
    )
    fields = dict(zip(names.split(), struct.unpack_from(">qiibIhiqqqhii", data), strict=True))
    fields["crc_ok"] = fields.pop("crc") == crc32c(data[21:])
    codec = fields["attributes"] & 7
    fields["payload"] = data[61:]
    try:
        payload = codecs.decompress(codec, data[61:], 2)
        if codec:
            fields["size"] = 49 + len(payload)  # what it would be uncompressed
        fields["payload"] = payload
        fields["records"] = parse_records(payload, fields)
    except UNREADABLE as error:
        fields["records"] = f"unreadable: {error!r}"
    return fields


def parse_records(payload: bytes, header: dict[str, Any]) -> list[dict[str, Any]]:
    """The records of a decompressed payload: deltas as they are, times as a consumer sees them."""
    found, position = [], 0
    for _ in range(header["count"]):  # a lie ends at the end of the payload
        size, position = unvarint(payload, position)
        end = position + size
        attributes = payload[position]
        delta, position = unvarint(payload, position + 1)
        offset_delta, position = unvarint(payload, position)
        key, position = _take_varint(payload, position)
        value, position = _take_varint(payload, position)
        header_count, position = unvarint(payload, position)
        headers = []
        for _ in range(header_count):
            name, position = _take_varint(payload, position)
            data, position = _take_varint(payload, position)
            headers.append((name, data))
        stamped = header["attributes"] & LAT_BIT
        time = header["max_timestamp"] if stamped else header["base_timestamp"] + delta
        found.append(
            {
                "attributes": attributes,
                "timestamp": time,
                "offset": header["offset"] + offset_delta,
                "key": key,
                "value": value,
                "headers": headers,
                "rest": end - position,
            }
        )
        position = end
    return found


def unvarint(data: bytes, position: int) -> tuple[int, int]:
    """A zig-zag varint at `position`, and where it ends."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def _take_varint(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = unvarint(data, position)
    if size < 0:
        return None, position
    return data[position : position + size], position + size
