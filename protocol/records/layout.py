"""The byte layout of records: types and constants for the kernels and all code above them.

Three message formats (magic 0, 1 and 2) exist on disk and on the wire, see KIP-32 and KIP-98. A
*batch* is a unit of the log: one format-2 batch, or one format-0/1 message, which is plain or the
compressed wrapper of other messages. Every batch begins with 12 bytes: offset (int64) and the size
of the rest (int32). All integers are big-endian.

  format 0/1  offset:8 size:4 crc32:4 magic:1 attributes:1 [timestamp:8 in format 1] key value,
              key and value each with an int32 length, -1 for null; the crc covers magic onwards
  format 2    base_offset:8 size:4 leader_epoch:4 magic:1 crc32c:4 attributes:2 last_offset_delta:4
              base_timestamp:8 max_timestamp:8 producer_id:8 producer_epoch:2 base_sequence:4
              count:4, then records; the crc covers attributes onwards
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog.protocol.wire import Buffer

OffsetAndTimestamp = tuple[int, int]  # of one record; the time is the one that a consumer sees

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NEWEST_MAGIC = 2  # the newest message format

PREFIX = Struct(">qi")  # the offset, and the size of the rest
PREFIX_SIZE = PREFIX.size
V2_HEADER_SIZE = 61
MESSAGE_OVERHEAD = (14, 22)  # bytes after the prefix that every format 0 / 1 message has
SMALLEST = (*MESSAGE_OVERHEAD, V2_HEADER_SIZE - PREFIX_SIZE)

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40  # the base timestamp is when tombstones may be removed (KIP-534)
KNOWN_ATTRIBUTES = 0x7F  # the bits above and the delete horizon (KIP-534)

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1

# base_offset, size, leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
# max_timestamp, producer_id, producer_epoch, base_sequence, count
V2_HEADER = Struct(">qiibIhiqqqhii")
# offset, size, crc, magic, attributes; then timestamp in format 1
MESSAGE_HEAD = Struct(">qiIbB")
MESSAGE_HEAD_V1 = Struct(">qiIbBq")

# What `examine` found; each is a bit of Findings.flags.
HAS_MISSING = 1  # a record without a time
GAPS = 2  # offsets are not base, base + 1, base + 2 ...
HAS_HEADERS = 4  # a record has headers
NULL_KEY = 8  # a record has no key
OUTSIDE = 16  # a time that is not -1 is outside the bounds
NESTED = 32  # a message inside a compressed one is compressed itself

# The error text of a kernel for inconsistent records.
NUMBER_CUT = "a record ends within a number"
NUMBER_LONG = "a number in a record takes too many bytes"
COUNT_NEGATIVE = "a batch declares a negative number of records"
RECORD_LONG = "a record is longer than its batch"
FIELD_LENGTH = "a key, value or header has an impossible length"
FIELD_LONG = "a key, value or header is longer than its record"
HEADERS_NEGATIVE = "a record declares a negative number of headers"
HEADER_NULL = "a header has no key"
RECORD_NOT_FILLED = "the fields of a record do not fill it"
BATCH_NOT_FILLED = "the declared number of records does not fill the batch"
MESSAGE_CUT = "a message ends too early"
MESSAGE_SIZE = "a message inside a set claims an impossible size"
MESSAGE_MAGIC = "a message set mixes message formats"
MESSAGE_NOT_FILLED = "the fields of a message do not fill it"
MESSAGE_CRC = "a message inside a set fails its CRC"
TOO_LARGE = "the records would be too large in the format they are converted to"


def int64(value: int) -> int:
    """Returns `value` wrapped to a signed 64-bit integer, as it would be in Java or C."""
    return ((value + 2**63) & 0xFFFFFFFFFFFFFFFF) - 2**63


class Compression(IntEnum):
    """A codec by the number it has in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Batch(NamedTuple):
    """One batch as its header describes it; nothing is verified, nothing decompressed.

    `position` and `size` are bytes within the scanned buffer, the 12-byte prefix included. If a
    format has no such field, leader epoch, producer fields and times are -1. A plain message has
    base_offset == last_offset and count 1. The header of a compressed wrapper has only the last
    offset: base_offset and count are -1. `max_timestamp` is the header's claim (format 2) or the
    message's own time (format 1).
    """

    position: int
    size: int
    base_offset: int
    last_offset: int
    magic: int
    attributes: int
    leader_epoch: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count

    @property
    def compression(self) -> Compression:
        """The codec. Raises ValueError for a number that is not one of Kafka's."""
        return Compression(self.attributes & CODEC_MASK)

    @property
    def is_log_append_time(self) -> bool:
        """Whether the append time replaces the time of every record (KIP-32)."""
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction (KIP-98)."""
        return self.magic > 1 and bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker, not data (KIP-98)."""
        return self.magic > 1 and bool(self.attributes & CONTROL_BIT)

    @property
    def is_empty(self) -> bool:
        """Whether compaction removed all records and kept the header, whose times are then of no record."""
        return self.magic > 1 and not self.count

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove its tombstones and markers (KIP-534); None if not given."""
        has = self.magic > 1 and self.attributes & DELETE_HORIZON_BIT
        return self.base_timestamp if has else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, wrapped after int32's largest; -1 if there is none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset - self.base_offset) & 0x7FFFFFFF


class Record(NamedTuple):
    """One record with its absolute offset and the time that a consumer sees (-1: none)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class Region(NamedTuple):
    """The decompressed bytes of the records of a batch, or of a set of plain messages.

    `count` is the number of records in a format-2 header (-1 for messages, which have no such
    field). `base_offset` is added to the offset that each record carries. `stamp` replaces the time
    of every record: it is the time of a LogAppendTime batch.
    """

    data: Buffer
    start: int
    end: int
    magic: int
    count: int  # type: ignore[assignment]  # hides tuple.count
    base_offset: int
    base_timestamp: int
    stamp: int | None


class Findings(NamedTuple):
    """What one pass over a region found; the times are None if no record has a time."""

    count: int  # type: ignore[assignment]  # hides tuple.count
    first_offset: int
    last_offset: int
    largest: int | None
    first: int | None
    flags: int


class Rewritten(NamedTuple):
    """Records written again: their offsets, and `base_timestamp`, the time of the first."""

    data: bytes
    count: int  # type: ignore[assignment]  # hides tuple.count
    first_offset: int
    last_offset: int
    base_timestamp: int
