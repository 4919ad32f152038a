"""Prepared frames: requests as clients send them, made without the broker's own codecs.

Produce v9 with one record in a format-2 batch, Produce v2 and Fetch v2 of a client of 0.10, Fetch v11 of
many partitions, ListOffsets v7. `raw.py` sends them.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

_CLIENT_ID = b"bench"


def frame_of(payload: bytes) -> bytes:
    """Returns a payload with its length prefix."""
    return struct.pack(">i", len(payload)) + payload


def request_head(key: int, version: int) -> bytes:
    """Returns the header of a request that is not flexible."""
    return struct.pack(">hhih", key, version, 7, len(_CLIENT_ID)) + _CLIENT_ID


def varint(value: int) -> bytes:
    """Returns a signed number as records of format 2 have it."""
    return uvarint((value << 1) ^ (value >> 63))


def uvarint(value: int) -> bytes:
    """Returns an unsigned number as the flexible versions of the protocol write it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Producer(NamedTuple):
    """Who sends a batch in a transaction, and which of its batches it is."""

    producer_id: int
    epoch: int
    sequence: int


_NOBODY = Producer(-1, -1, -1)


def batch_v2(
    values: Sequence[bytes],
    now_ms: int,
    keys: Sequence[bytes] | None = None,
    producer: Producer = _NOBODY,
) -> bytes:
    """Returns one uncompressed format-2 batch; one of a transaction if a producer is given."""
    records = b""
    for index, value in enumerate(values):
        record = (
            b"\0"
            + varint(0)
            + varint(index)
            + (varint(-1) if keys is None else varint(len(keys[index])) + keys[index])
            + varint(len(value))
            + value
            + varint(0)
        )
        records += varint(len(record)) + record
    attributes = 0 if producer is _NOBODY else 0x10
    body = struct.pack(">hiqq", attributes, len(values) - 1, now_ms, now_ms)
    body += struct.pack(">qhii", *producer, len(values))
    checked = body + records
    return struct.pack(">qiibI", 0, 4 + 1 + 4 + len(checked), -1, 2, crc32c(checked)) + checked


def messages_v1(values: Sequence[bytes], now_ms: int) -> bytes:
    """Returns a set of uncompressed format-1 messages."""
    out = b""
    for index, value in enumerate(values):
        checked = struct.pack(">bbqii", 1, 0, now_ms, -1, len(value)) + value
        out += struct.pack(">qiI", index, 4 + len(checked), zlib.crc32(checked)) + checked
    return out


def produce_v9(
    topic: str, partition: int, records: bytes, acks: int = 1, transactional_id: str = ""
) -> bytes:
    """Returns a Produce v9 frame with one record set."""
    name = topic.encode()
    named = b"\0"  # no transactional id
    if transactional_id:
        named = uvarint(len(transactional_id) + 1) + transactional_id.encode()
    return frame_of(
        request_head(0, 9)
        + b"\0"  # header tags
        + named
        + struct.pack(">hi", acks, 30_000)
        + b"\2"
        + uvarint(len(name) + 1)
        + name
        + b"\2"
        + struct.pack(">i", partition)
        + uvarint(len(records) + 1)
        + records
        + b"\0\0\0"
    )


def produce_v9_error_at(topic: str) -> int:
    """Returns the position of the first partition's error code in the response's frame."""
    return 4 + 4 + 1 + 1 + len(uvarint(len(topic) + 1)) + len(topic) + 1 + 4


def produce_v2(topic: str, partition: int, records: bytes, acks: int = 1) -> bytes:
    """Returns a Produce v2 frame, as clients of 0.10 send it."""
    name = topic.encode()
    return frame_of(
        request_head(0, 2)
        + struct.pack(">hiih", acks, 30_000, 1, len(name))
        + name
        + struct.pack(">iii", 1, partition, len(records))
        + records
    )


def produce_v2_error_at(topic: str) -> int:
    """Returns the position of the first partition's error code."""
    return 4 + 4 + 4 + 2 + len(topic) + 4 + 4


def fetch_v2(topic: str, offset: int, max_bytes: int) -> bytes:
    """Returns a Fetch v2 frame for partition 0, as clients of 0.10 send it."""
    name = topic.encode()
    return frame_of(
        request_head(1, 2)
        + struct.pack(">iiiih", -1, 500, 1, 1, len(name))
        + name
        + struct.pack(">iiqi", 1, 0, offset, max_bytes)
    )


def fetch_v11(
    topic: str, partitions: int, max_wait_ms: int, session: tuple[int, int] = (0, -1)
) -> bytes:
    """Returns a Fetch v11 frame for offset 0 of many partitions; `session` is its id and epoch."""
    name = topic.encode()
    wanted = b"".join(
        struct.pack(">iiqqi", index, -1, 0, -1, 1 << 20) for index in range(partitions)
    )
    named = struct.pack(">i", 0)
    if partitions:
        named = struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", partitions) + wanted
    return frame_of(
        request_head(1, 11)
        + struct.pack(">iiiibii", -1, max_wait_ms, 0, 50 << 20, 0, *session)
        + named
        + struct.pack(">ih", 0, 0)
    )


def list_offsets_v7(topic: str, partition: int, timestamp: int) -> bytes:
    """Returns a ListOffsets v7 frame with one lookup."""
    name = topic.encode()
    return frame_of(
        request_head(2, 7)
        + b"\0"  # header tags
        + struct.pack(">ib", -1, 0)
        + b"\2"
        + uvarint(len(name) + 1)
        + name
        + b"\2"
        + struct.pack(">iiq", partition, -1, timestamp)
        + b"\0\0\0"
    )
