"""What a leader does to a produced record set before it writes it.

`inspect` checks that the bytes are whole, undamaged and allowed in that version of Produce.
`prepare` validates the records and returns the bytes to write: numbered from the log's end, with
the append time on a LogAppendTime topic, in the topic's format and codec. The producer's bytes are
kept in the cases in which Kafka's LogValidator keeps them. Base offset and leader epoch are outside
the CRC of format 2, so the usual result is 16 new bytes and a view of the rest. Times are integers
here: the caller knows the clock and passes the bounds.

Differences from Kafka:

- A LogAppendTime bit that a client sets is always refused.
- The header's largest time is over real times, so that of -5 and -1 is -5.
- Negative times are kept.
- An uncompressed format-2 batch whose offset deltas are not 0, 1, 2 ... is rebuilt instead of
  stored unchanged.
- zstd becomes gzip in formats 0 and 1.
- Times that the plan lists as missing become -1.
- Frames that Java does not read (`framing`) are written again. Kafka refuses them.
- Format 0 has no window.
- Record errors count from the start of the set.
- A rebuilt wrapper keeps the times inside it (3.9 replaces them by the append time, 0.10 did not).
- Lengths below -1, and fields that do not fill their message, are refused.
- The offsets of a produced format-0/1 set mean nothing, as for Kafka 0.8 to 0.10: old clients write -1,
  or 0 everywhere. Later ones refuse a wrapper whose offset is below that of a message inside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    RecordError,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from tidelog.protocol.records import kernels
from tidelog.protocol.records.compression import decompress
from tidelog.protocol.records.framing import is_readable_by_java
from tidelog.protocol.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    GAPS,
    HAS_HEADERS,
    INT64_MAX,
    INT64_MIN,
    NESTED,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    NULL_KEY,
    OUTSIDE,
    V2_HEADER_SIZE,
    Batch,
    Compression,
    Region,
)
from tidelog.protocol.records.legacy import wrapped
from tidelog.protocol.records.missing import narrowed, with_missing_times
from tidelog.protocol.records.place import in_place_v2, in_place_wrapper, rebuilt, stamped_messages
from tidelog.protocol.records.plan import AppendPlan, Prepared, PreparedBatch, Produced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.protocol.records.layout import Findings
    from tidelog.protocol.wire import Buffer

__all__ = ["AppendPlan", "Prepared", "PreparedBatch", "Produced", "inspect", "prepare"]

# An error names at most this many of the refused records, so that the response stays small.
MOST_RECORD_ERRORS = 10_000


# --- inspect -------------------------------------------------------------------------------------


def inspect(records: Buffer, *, produce_version: int, max_message_bytes: int) -> Produced:
    """Checks the headers and CRCs of the batches of a produced record set, as Kafka does.

    Raises InvalidRecord (Produce v3+ takes exactly one batch, of format 2, beginning at offset 0),
    UnsupportedCompressionType (zstd before v7), MessageTooLarge, CorruptMessage. Before v3, any
    number of batches of any format is allowed, also none. A partial batch at the end is dropped
    silently.
    """
    batches = kernels.scan(records, 0, len(records))
    if produce_version >= 3 and (len(batches) != 1 or batches[0].magic != 2):
        raise InvalidRecord(
            f"Produce v{produce_version} takes exactly one batch of message format 2,"
            f" not {len(batches)} of {sorted({batch.magic for batch in batches})}"
        )
    size = 0
    for batch in batches:
        position, size, base_offset, _, magic, attributes = batch[:6]
        codec = attributes & CODEC_MASK
        if codec > Compression.LZ4:
            _check_zstd(codec, magic, produce_version)
        if magic == 2 and base_offset != 0:
            raise InvalidRecord(f"a produced batch begins at offset {base_offset}, not 0")
        if size > max_message_bytes:
            raise MessageTooLarge(
                f"a batch of {size} bytes exceeds max.message.bytes={max_message_bytes}"
            )
        size += position
    damaged = kernels.first_damaged(records, batches)
    if damaged is not None:
        raise CorruptMessage(f"the batch at byte {damaged} of the record set fails its CRC")
    # The same as Produced(batches, size), without the Python frame of a NamedTuple's constructor.
    return tuple.__new__(Produced, (batches, size))


def _check_zstd(codec: int, magic: int, produce_version: int) -> None:
    """Refuses zstd in versions that do not have it, and numbers that are not a codec."""
    if codec != Compression.ZSTD:
        raise InvalidRecord(f"{codec} is not the number of a codec")
    if produce_version < 7 or magic < 2:
        raise UnsupportedCompressionType(
            f"zstd needs Produce v7 and message format 2, not v{produce_version} and {magic}"
        )


# --- prepare -------------------------------------------------------------------------------------


def prepare(records: Buffer, produced: Produced, plan: AppendPlan) -> Prepared:
    """Validates a set that passed `inspect` and returns the bytes to write.

    Raises InvalidTimestamp (outside the window, or the LogAppendTime bit set; `record_errors` names
    each refused record with its value and the window), InvalidRecord (counts, control batch from a
    client, mixed formats, null key on a compacted topic ...), CorruptMessage (data that cannot be
    decompressed, an inner CRC), UnsupportedForMessageFormat (producer id, transaction or headers in
    format 0/1), MessageTooLarge (after conversion).
    """
    batches = produced.batches
    if not batches:
        return Prepared([], 0, [], plan.first_offset, plan.first_offset - 1, 0, False)
    first = batches[0]
    magic = first.magic
    source = first.attributes & CODEC_MASK
    shortcut = kernels.keep_v2 if magic == 2 and len(batches) == 1 else None
    usual = narrowed(plan) if plan.missing else plan
    if shortcut is not None and not source:
        kept = shortcut(records, first, records, usual)
        if kept is not None:
            return kept
    if len(batches) > 1:
        _check_set(batches)
    if magic == 2:
        _check_v2(first, plan)
    region = _open(records, produced, plan)
    may_keep = not source or is_readable_by_java(records, first, len(region.data))
    if shortcut is not None and source and may_keep:
        kept = shortcut(records, first, region.data, usual)
        if kept is not None:
            return kept
    low, high = _window(plan)
    found = kernels.examine(region, low, high, bool(source))
    if plan.missing:
        replaced = with_missing_times(region, found, plan)
        if replaced is not None:
            region, may_keep = replaced, False
            found = kernels.examine(region, low, high, False)
    _check_found(region, batches, plan, found)
    gaps = bool(found.flags & GAPS)
    target = _target_codec(first, plan)
    if target == source and magic == plan.magic and may_keep:
        if magic < 2 and not source:
            return stamped_messages(records, produced, plan, found)
        if magic == 2 and not gaps:
            return in_place_v2(records, first, plan, found)
        if magic == 1 and not gaps:
            return in_place_wrapper(records, first, plan, found)
    return rebuilt(region, first, plan, found, target)


def _window(plan: AppendPlan) -> tuple[int, int]:
    """Returns the bounds of the times: only CreateTime has bounds, and format 0 has no times."""
    if plan.log_append_time or not plan.magic:
        return INT64_MIN, INT64_MAX
    return plan.min_timestamp, plan.max_timestamp


def _open(records: Buffer, produced: Produced, plan: AppendPlan) -> Region:
    """Returns the region of a produced set's records, decompressed if necessary."""
    first = produced.batches[0]
    source = first.attributes & CODEC_MASK
    start, end = first.position, first.position + first.size
    if first.magic == 2:
        data, start = records, start + V2_HEADER_SIZE
        if source:
            data = decompress(source, memoryview(records)[start:end], 2, plan.most_unpacked)
            start, end = 0, len(data)
        return Region(data, start, end, 2, first.count, 0, first.base_timestamp, None)
    if source:
        inner = wrapped(records, first, plan.most_unpacked)
        return Region(inner, 0, len(inner), first.magic, -1, 0, NO_TIMESTAMP, None)
    return Region(records, start, produced.size, first.magic, -1, 0, NO_TIMESTAMP, None)


def _check_set(batches: Sequence[Batch]) -> None:
    """Refuses sets of several batches unless they are plain messages of one format."""
    magic = batches[0].magic
    if any(batch.magic != magic for batch in batches):
        raise InvalidRecord("a record set mixes message formats")
    if magic == 2 or any(batch.attributes & CODEC_MASK for batch in batches):
        raise InvalidRecord("a record set holds a compressed message or a batch beside others")


def _check_v2(batch: Batch, plan: AppendPlan) -> None:
    """Refuses a format-2 header that is inconsistent or that clients must not send."""
    if batch.count <= 0 or batch.last_offset - batch.base_offset + 1 != batch.count:
        raise InvalidRecord(
            f"a batch declares {batch.count} records and"
            f" {batch.last_offset - batch.base_offset + 1} offsets"
        )
    if plan.internal:
        return
    if batch.attributes & CONTROL_BIT:
        raise InvalidRecord("a client may not write control batches")
    if batch.producer_id != NO_PRODUCER_ID and batch.base_sequence < 0:
        raise InvalidRecord(
            f"producer id {batch.producer_id} comes with base sequence {batch.base_sequence}"
        )
    if plan.magic < 2 and (batch.producer_id != NO_PRODUCER_ID or batch.is_transactional):
        raise UnsupportedForMessageFormat(
            "the topic's message format has no place for a producer id or a transaction:"
            " set enable.idempotence=false (and no transactional.id) in the producer"
        )


def _target_codec(batch: Batch, plan: AppendPlan) -> int:
    """Returns the codec to write with: the topic's, else the producer's."""
    source = batch.attributes & CODEC_MASK
    target = source if plan.compression is None else plan.compression
    if batch.is_control and not source:  # a marker remains readable without decompression
        return source
    if target == Compression.ZSTD and plan.magic < 2:
        return Compression.GZIP
    return target


# --- what is refused -----------------------------------------------------------------------------


def _check_found(
    region: Region, batches: Sequence[Batch], plan: AppendPlan, found: Findings
) -> None:
    """Refuses records that break a rule of the topic."""
    flags = found.flags
    if plan.magic and batches[0].magic:
        _check_bit(batches, found.count)
    if flags & (OUTSIDE | NESTED) or (flags & NULL_KEY and plan.compacted):
        raise _refusal(region, plan, nested=bool(flags & NESTED))
    if flags & HAS_HEADERS and plan.magic < 2:
        raise UnsupportedForMessageFormat(
            "the topic's message format has no place for record headers: send none,"
            " and set enable.idempotence=false in the producer"
        )


def _check_bit(batches: Sequence[Batch], count: int) -> None:
    """Raises InvalidTimestamp where a producer set the LogAppendTime bit."""
    if len(batches) == 1:
        guilty: Sequence[int] = range(count) if batches[0].is_log_append_time else ()
    else:
        guilty = [i for i, batch in enumerate(batches) if batch.is_log_append_time]
    if not guilty:
        return
    message = "the producer set the time type LogAppendTime, which is the broker's to set"
    errors = [RecordError(i, f"record {i}: {message}") for i in guilty[:MOST_RECORD_ERRORS]]
    raise InvalidTimestamp(message, record_errors=errors)


def _refusal(region: Region, plan: AppendPlan, *, nested: bool) -> InvalidTimestamp | InvalidRecord:
    """Names the refused records; a time outside the window has priority over other errors."""
    low, high = _window(plan)
    window = f"[{low if low > INT64_MIN else '...'}, {high if high < INT64_MAX else '...'}]"
    why = plan.too_old and f": {plan.too_old}"
    named, outside, keyless = kernels.offenders(
        region, low, high, plan.compacted, MOST_RECORD_ERRORS
    )
    errors = [
        RecordError(
            index,
            f"record {index}: timestamp {timestamp} is outside the window {window}"
            + (why if timestamp < low else "")
            if is_time
            else f"record {index}: a record of a compacted topic needs a key",
        )
        for index, timestamp, is_time in named
    ]
    if outside:
        times = [timestamp for _, timestamp, is_time in named if is_time]
        is_old = any(timestamp < low for timestamp in times)
        return InvalidTimestamp(
            f"{outside} records have timestamps outside the window {window}{why if is_old else ''}",
            record_errors=errors,
            outside=outside,
            timestamp=times[0] if times else NO_TIMESTAMP,
        )
    if nested:
        return InvalidRecord("a compressed message holds a compressed message")
    return InvalidRecord(
        f"{keyless} records of a compacted topic have no key", record_errors=errors
    )
