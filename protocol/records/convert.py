"""Conversions for a fetch by a client that is older than the stored batches (KIP-32, KIP-110).

`down_convert` writes batches in an older message format: 2 to 1, 2 to 0, 1 to 0. Batches that are
old enough are copied byte for byte. Offsets never change. The older formats cannot hold control
batches, headers, or the fields of producers and transactions, so these are dropped; format 0 cannot
hold times. A LogAppendTime batch stays one in format 1. As in Kafka, records below the fetch offset
are dropped from uncompressed batches only: readers of compressed batches skip them. A compressed batch
that has no others, since compaction removed its end, is dropped: its wrapper would end before the
offset that the reader asks for, and the reader would ask for that offset again, for ever.

`down_convert_copy` does so for a replica, and keeps what would lose more than its times.

`transcode_zstd` keeps the format and replaces zstd, which is newer than format 2, by gzip, the one
codec that every client has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.checksum import crc32c
from tidelog.protocol.errors import CorruptMessage, InvalidRecord, MessageTooLarge, UnpackedTooLarge
from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import stored_region
from tidelog.protocol.records.compression import STORED_LIMIT, compress, decompress
from tidelog.protocol.records.layout import (
    CODEC_MASK,
    HAS_HEADERS,
    INT64_MAX,
    INT64_MIN,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    V2_HEADER_SIZE,
    Compression,
)
from tidelog.protocol.records.legacy import write_wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.wire import Buffer


class Converted(NamedTuple):
    """Batches in an older format.

    `records` counts the records that were written again, without those that were copied.
    `next_offset` follows the last whole batch that was read, even if nothing of it remained. A
    caller that got no data reads on from there, so that no client gets stuck at a control batch.
    """

    data: bytes
    records: int
    next_offset: int


def _go_on() -> None:
    """Lets a conversion continue that cannot be cancelled."""


def _joined(buffers: Sequence[Buffer]) -> Buffer:
    """Returns one buffer of all the buffers, because a batch may span two."""
    return buffers[0] if len(buffers) == 1 else b"".join(buffers)


def down_convert(
    buffers: Sequence[Buffer],
    *,
    target_magic: int,
    fetch_offset: int,
    check: Callable[[], None] = _go_on,
    most_bytes: int = STORED_LIMIT,
) -> Converted:
    """Converts stored batches so that none has a newer format than `target_magic` (0 or 1).

    A partial batch at the end is dropped. No batch unpacks to more than `most_bytes`, nor to more
    than twice that in the older format; it ends before one that would, and where all that is
    converted takes more. UnpackedTooLarge is raised if that leaves nothing. `check` is called before
    each step of converting a batch; an exception that it raises ends the conversion. Raises
    CorruptMessage for a broken batch.
    """
    stored = _joined(buffers)
    parts: list[Buffer] = []
    count, size, following = 0, 0, fetch_offset
    for batch in kernels.scan(stored, 0, len(stored)):
        if batch.magic <= target_magic:
            parts.append(memoryview(stored)[batch.position : batch.position + batch.size])
        elif not batch.is_control:
            check()
            try:
                data, converted = _down_convert_batch(
                    stored, batch, target_magic, fetch_offset, check, most_bytes
                )
            except UnpackedTooLarge:
                if not parts:
                    raise
                break
            parts.append(data)
            count += converted
            size += len(data)
        following = batch.last_offset + 1
        if size > most_bytes:
            break
    return Converted(b"".join(parts), count, following)


def down_convert_copy(
    buffers: Sequence[Buffer], *, target_magic: int, check: Callable[[], None] = _go_on
) -> Converted:
    """Converts stored batches for a replica that stores no newer format than `target_magic`.

    A copy may lose times, as format 0 has none, and nothing else. So a batch stays as it is if it
    has a producer id or headers, if it is a control batch, and if its last record is gone: without
    it the copy would end before the batch does. A partial batch at the end is dropped. `check` is
    called as in `down_convert`. Raises CorruptMessage for a broken batch.
    """
    stored = _joined(buffers)
    parts: list[Buffer] = []
    count, following = 0, -1
    for batch in kernels.scan(stored, 0, len(stored)):
        following = batch.last_offset + 1
        if batch.magic > target_magic and is_convertible(batch):
            check()
            found = kernels.examine(stored_region(stored, batch), INT64_MIN, INT64_MAX, False)
            if found.last_offset == batch.last_offset and not found.flags & HAS_HEADERS:
                data, converted = _down_convert_batch(
                    stored, batch, target_magic, INT64_MIN, check, STORED_LIMIT
                )
                parts.append(data)
                count += converted
                continue
        parts.append(memoryview(stored)[batch.position : batch.position + batch.size])
    return Converted(b"".join(parts), count, following)


def is_convertible(batch: Batch) -> bool:
    """Returns whether an older format can hold a batch, by its header: it may still have headers."""
    return batch.producer_id == NO_PRODUCER_ID and not batch.is_control and batch.count != 0


def _down_convert_batch(
    stored: Buffer,
    batch: Batch,
    target_magic: int,
    fetch_offset: int,
    check: Callable[[], None],
    most_bytes: int,
) -> tuple[bytes, int]:
    """Writes one batch as messages, or as one wrapper if compressed; returns (bytes, records)."""
    codec = batch.attributes & CODEC_MASK
    region = stored_region(stored, batch, most_bytes)
    relative = target_magic == 1 and codec != Compression.NONE
    try:
        found = kernels.examine(region, INT64_MIN, INT64_MAX, False)
        if found.last_offset < fetch_offset:
            return b"", 0
        check()
        written = kernels.rewrite(
            region,
            target_magic,
            None,
            INT64_MIN if codec else fetch_offset,
            relative,
            2 * most_bytes,
        )
    except MessageTooLarge as error:
        raise UnpackedTooLarge(
            f"a batch takes more than {2 * most_bytes} bytes to convert"
        ) from error
    except InvalidRecord as error:
        message = f"the batch at byte {batch.position} is broken: {error.message}"
        raise CorruptMessage(message) from error
    if not codec or not written.count:
        return written.data, written.count
    check()
    wrapper = write_wrapper(
        written.data,
        target_magic,
        Compression.GZIP if codec == Compression.ZSTD else codec,
        written.last_offset,
        NO_TIMESTAMP if found.largest is None else found.largest,
        stamped=region.stamp is not None,
    )
    return wrapper, written.count


def transcode_zstd(
    buffers: Sequence[Buffer],
    check: Callable[[], None] = _go_on,
    most_bytes: int = STORED_LIMIT,
) -> bytes:
    """Returns the whole batches, with gzip in place of zstd.

    Only the codec, the size and the CRC of a batch change. A partial batch at the end is dropped.
    It ends before a batch that unpacks to more than `most_bytes`; UnpackedTooLarge is raised if that
    is the first.
    `check` is called before each batch is decompressed and before it is compressed; an exception
    that it raises ends the work. Raises CorruptMessage for what cannot be decompressed.
    """
    stored = _joined(buffers)
    parts: list[Buffer] = []
    for batch in kernels.scan(stored, 0, len(stored)):
        whole = memoryview(stored)[batch.position : batch.position + batch.size]
        if batch.attributes & CODEC_MASK != Compression.ZSTD or batch.magic != 2:
            parts.append(whole)
            continue
        check()
        try:
            payload = decompress(Compression.ZSTD, whole[V2_HEADER_SIZE:], 2, most_bytes)
        except UnpackedTooLarge:
            if not parts:
                raise
            break
        check()
        packed = compress(Compression.GZIP, payload, 2)
        head = bytearray(whole[:V2_HEADER_SIZE])
        head[8:12] = (V2_HEADER_SIZE - PREFIX_SIZE + len(packed)).to_bytes(4, "big")
        head[22] = head[22] & ~CODEC_MASK | Compression.GZIP
        head[17:21] = crc32c(packed, crc32c(head[21:])).to_bytes(4, "big")
        parts += (head, packed)
    return b"".join(parts)
