"""Reading and building batches of any message format.

`scan` lists batches from their headers. `verify` checks one batch. `records` yields readable
objects, slowly. `summarize` and `find_time` answer about times without building records. `build`
writes batches. Offsets are absolute. Times are those that a consumer sees: the append time of a
LogAppendTime batch, else the record's own time, -1 for none (KIP-32).

The functions read bytes that were accepted once, so they raise CorruptMessage for everything that
is inconsistent.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.checksum import crc32c
from tidelog.protocol.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from tidelog.protocol.records import kernels
from tidelog.protocol.records.compression import STORED_LIMIT, compress, decompress
from tidelog.protocol.records.decode import walk
from tidelog.protocol.records.encode import put_message, put_record, put_varint
from tidelog.protocol.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    HAS_MISSING,
    INT64_MAX,
    INT64_MIN,
    LOG_APPEND_TIME_BIT,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PREFIX,
    PREFIX_SIZE,
    TRANSACTIONAL_BIT,
    V2_HEADER,
    V2_HEADER_SIZE,
    Batch,
    Compression,
    Record,
    Region,
)
from tidelog.protocol.records.legacy import wrapped_region, write_wrapper
from tidelog.protocol.records.plain import build_plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.protocol.records.layout import Findings, OffsetAndTimestamp
    from tidelog.protocol.wire import Buffer

__all__ = [
    "NO_PRODUCER_ID",
    "NO_TIMESTAMP",
    "Batch",
    "Compression",
    "Record",
    "Summary",
    "build",
    "build_plain",
    "count_batches",
    "find_last",
    "find_offset",
    "find_time",
    "records",
    "scan",
    "summarize",
    "verify",
]


class Summary(NamedTuple):
    """What the records of a batch say, read in one pass; nothing is taken from the batch's header.

    `largest` and `first` are over the records that have a time; they are None if no record has one.
    `has_missing` says whether a record has no time. `largest_offset` is the offset that Kafka's
    time index stores with the largest time: the last offset of a format-2 or compressed batch, the
    own offset of a plain message.
    """

    count: int  # type: ignore[assignment]  # hides tuple.count
    base_offset: int
    last_offset: int
    largest: int | None
    largest_offset: int
    first: int | None
    has_missing: bool


def scan(buffer: Buffer, start: int = 0, end: int | None = None) -> list[Batch]:
    """Lists the whole batches in buffer[start:end] from their headers; nothing is verified.

    Stops before a partial batch at the end. Raises CorruptMessage for an impossible size or magic.
    """
    return kernels.scan(buffer, start, len(buffer) if end is None else end)


def count_batches(buffer: Buffer, most: int) -> int:
    """Returns how many batches there are, at most `most`; a partial one at the end counts.

    Only their sizes are read: the count ends at an impossible one.
    """
    position = count = 0
    while count < most and position + PREFIX_SIZE <= len(buffer):
        _, size = PREFIX.unpack_from(buffer, position)
        if size <= 0:
            break
        position += PREFIX_SIZE + size
        count += 1
    return count


def find_offset(buffer: Buffer, offset: int, start: int = 0) -> int:
    """Returns the position of the first batch, from `start` on, whose last offset is >= `offset`.

    If there is none, returns the end of the last whole batch. Raises CorruptMessage as `scan` does.
    """
    return kernels.find_offset(buffer, offset, start, len(buffer))


def find_last(buffer: Buffer) -> int:
    """Returns the position of the last whole batch, or -1 if there is none.

    Raises CorruptMessage as `scan` does.
    """
    return kernels.find_last(buffer, 0, len(buffer))


def verify(buffer: Buffer, batch: Batch) -> None:
    """Checks the CRC of one batch and that its header is consistent; raises CorruptMessage if not.

    The records inside are not read: `summarize` does that.
    """
    if not kernels.checksum_ok(buffer, batch.position, batch.size, batch.magic):
        raise CorruptMessage(f"the batch at byte {batch.position} fails its CRC")
    if batch.attributes & CODEC_MASK > (Compression.ZSTD if batch.magic == 2 else Compression.LZ4):
        raise CorruptMessage(f"the batch at byte {batch.position} names a codec that is none")
    if batch.magic == 2 and not 0 <= batch.count <= batch.last_offset - batch.base_offset + 1:
        raise CorruptMessage(
            f"the batch at byte {batch.position} claims {batch.count} records for offsets"
            f" {batch.base_offset} to {batch.last_offset}"
        )


def region_of(buffer: Buffer, batch: Batch, limit: int = STORED_LIMIT) -> Region:
    """Returns the region of a batch's records, decompressed if necessary to at most `limit` bytes.

    Raises InvalidRecord, CorruptMessage or UnsupportedCompressionType for what cannot be read.
    """
    end = batch.position + batch.size
    codec = batch.attributes & CODEC_MASK
    if batch.magic < 2:
        if codec:
            return wrapped_region(buffer, batch, limit)
        stamp = batch.max_timestamp if batch.is_log_append_time else None
        return Region(buffer, batch.position, end, batch.magic, -1, 0, NO_TIMESTAMP, stamp)
    stamp = batch.max_timestamp if batch.attributes & LOG_APPEND_TIME_BIT else None
    data, start = buffer, batch.position + V2_HEADER_SIZE
    if codec:
        data = decompress(codec, memoryview(buffer)[start:end], 2, limit)
        start, end = 0, len(data)
    return Region(data, start, end, 2, batch.count, batch.base_offset, batch.base_timestamp, stamp)


def stored_region(buffer: Buffer, batch: Batch, limit: int = STORED_LIMIT) -> Region:
    """Returns the region as `region_of` does, for a stored batch: every fault is CorruptMessage."""
    try:
        return region_of(buffer, batch, limit)
    except (InvalidRecord, UnsupportedCompressionType) as error:
        raise _corrupt(batch, error) from error


def _corrupt(batch: Batch, error: InvalidRecord | UnsupportedCompressionType) -> CorruptMessage:
    """Turns an error found inside a stored batch into CorruptMessage."""
    return CorruptMessage(f"the batch at byte {batch.position} is broken: {error.message}")


def records(
    buffer: Buffer, batch: Batch | None = None, limit: int = STORED_LIMIT
) -> Iterator[Record]:
    """Yields the records of one batch, or of every whole batch in `buffer`, with control records.

    Raises CorruptMessage at a broken batch, after the records before the fault, and UnpackedTooLarge at
    one of more than `limit` bytes. This is slow, because it builds an object for each record.
    """
    for each in scan(buffer) if batch is None else (batch,):
        try:
            yield from walk(region_of(buffer, each, limit))
        except (InvalidRecord, UnsupportedCompressionType) as error:
            raise _corrupt(each, error) from error


def _examine(buffer: Buffer, batch: Batch, limit: int) -> Findings:
    """Reads the records of a stored batch once."""
    region = stored_region(buffer, batch, limit)
    try:
        return kernels.examine(region, INT64_MIN, INT64_MAX, False)
    except InvalidRecord as error:
        raise _corrupt(batch, error) from error


def summarize(buffer: Buffer, batch: Batch, limit: int = STORED_LIMIT) -> Summary:
    """Counts the records of a batch and finds its times; decompresses it if necessary.

    Control batches are summarized like others: the caller decides whether their times count.
    Offsets of a format-2 batch are those of its header, because compaction may have removed
    records. Offsets of a wrapper are those of its messages. Raises CorruptMessage for a broken
    batch, UnpackedTooLarge for one of more than `limit` bytes.
    """
    if batch.magic == 2 and batch.attributes & LOG_APPEND_TIME_BIT and batch.count > 0:
        stamp = None if batch.max_timestamp == NO_TIMESTAMP else batch.max_timestamp
        last = batch.last_offset
        return Summary(batch.count, batch.base_offset, last, stamp, last, stamp, stamp is None)
    count, base, last, largest, first, flags = _examine(buffer, batch, limit)
    if batch.magic == 2:
        base, last = batch.base_offset, batch.last_offset
    return Summary(count, base, last, largest, last, first, bool(flags & HAS_MISSING))


def find_time(
    buffer: Buffer,
    batch: Batch,
    timestamp: int,
    min_offset: int = 0,
    limit: int = STORED_LIMIT,
) -> OffsetAndTimestamp | None:
    """Returns (offset, time) of the first data record at or after `timestamp`, or None.

    Records below `min_offset` and records without a time are skipped. A control batch has no data
    records. Raises CorruptMessage if the batch is broken before the record that is found, and
    UnpackedTooLarge if it unpacks to more than `limit` bytes.
    """
    if batch.attributes & CONTROL_BIT and batch.magic == 2:
        return None
    region = stored_region(buffer, batch, limit)
    try:
        return kernels.find(region, timestamp, min_offset)
    except InvalidRecord as error:
        raise _corrupt(batch, error) from error


# --- writing -------------------------------------------------------------------------------------


def pack_v2_header(
    payload: Buffer,
    *,
    base_offset: int,
    last_offset: int,
    leader_epoch: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
) -> bytes:
    """Returns the 61 bytes that precede the records of a format-2 batch, CRC included."""
    head = bytearray(
        V2_HEADER.pack(
            base_offset,
            V2_HEADER_SIZE - PREFIX_SIZE + len(payload),
            leader_epoch,
            2,
            0,
            attributes,
            last_offset - base_offset,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            count,
        )
    )
    head[17:21] = crc32c(payload, crc32c(head[21:])).to_bytes(4, "big")
    return bytes(head)


def build(
    records: Sequence[Record],
    *,
    magic: int = 2,
    compression: int = Compression.NONE,
    timestamp_type: int = 0,
    log_append_time: int = NO_TIMESTAMP,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = -1,
) -> bytes:
    """Writes records as one batch: format 2, a wrapper, or (formats 0/1) plain messages.

    Offsets must ascend; gaps are kept. `timestamp_type` 1 (LogAppendTime) writes the append time as
    a broker does: into the header of format 2, the wrapper, or plain messages of format 1. The
    header's largest time is over the records that have one. Formats 0 and 1 drop headers. Raises
    ValueError for no records and for offsets that do not ascend.
    """
    if not records:
        raise ValueError("a batch needs a record")
    if any(a.offset >= b.offset for a, b in pairwise(records)):
        raise ValueError("the offsets of a batch ascend")
    stamp = log_append_time if timestamp_type else None
    times = [record.timestamp for record in records if record.timestamp != NO_TIMESTAMP]
    largest = stamp if stamp is not None else max(times, default=NO_TIMESTAMP)
    if magic < 2:
        return _build_messages(records, magic, compression, stamp, largest)
    base, last, first = records[0].offset, records[-1].offset, records[0].timestamp
    packed = compress(compression, _encode_records(records), 2)
    head = pack_v2_header(
        packed,
        base_offset=base,
        last_offset=last,
        leader_epoch=leader_epoch,
        attributes=compression
        | (LOG_APPEND_TIME_BIT if timestamp_type else 0)
        | (TRANSACTIONAL_BIT if is_transactional else 0)
        | (CONTROL_BIT if is_control else 0),
        base_timestamp=first,
        max_timestamp=largest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        count=len(records),
    )
    return head + packed


def _encode_records(records: Sequence[Record]) -> bytearray:
    """Encodes the records of a format-2 batch, without its header."""
    base, first = records[0].offset, records[0].timestamp
    payload = bytearray()
    for record in records:
        headers = _encode_headers(record.headers)
        put_record(
            payload,
            record.offset - base,
            record.timestamp - first,
            record.key,
            record.value,
            len(record.headers),
            headers,
        )
    return payload


def _encode_headers(headers: tuple[tuple[bytes, bytes | None], ...]) -> bytearray:
    """Encodes the headers of a format-2 record, without their count."""
    out = bytearray()
    for name, content in headers:
        put_varint(out, len(name))
        out += name
        put_varint(out, -1 if content is None else len(content))
        out += content or b""
    return out


def _build_messages(
    records: Sequence[Record], magic: int, compression: int, stamp: int | None, largest: int
) -> bytes:
    """Writes records as messages of format 0 or 1, wrapped if a codec is given."""
    relative = bool(magic and compression)
    base = records[0].offset if relative else 0
    inner_stamp = None if compression else stamp
    attributes = LOG_APPEND_TIME_BIT if magic and inner_stamp is not None else 0
    out = bytearray()
    for record in records:
        timestamp = record.timestamp if inner_stamp is None else inner_stamp
        put_message(
            out, magic, record.offset - base, attributes, timestamp, record.key, record.value
        )
    if not compression:
        return bytes(out)
    return write_wrapper(
        out, magic, compression, records[-1].offset, largest, stamped=stamp is not None
    )
