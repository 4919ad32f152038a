"""The bytes of an append: the producer's own bytes if they can be kept, else a new encoding.

Kept (as Kafka's LogValidator decides, see `prepare`): format 2 gets a new base offset and leader
epoch, which its CRC does not cover. If the LogAppendTime bit or the largest time changes, it gets a
new CRC. Record times are unchanged, so the bytes of a LogAppendTime topic still hold the producer's
times. A compressed format-1 message gets a new offset, time and bit around the same compressed
bytes. Plain messages are numbered, and on a LogAppendTime topic each gets the append time.

Encoded again: one format-2 batch, one wrapper, or plain messages, whatever the set was before.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from tidelog.protocol.checksum import crc32c
from tidelog.protocol.errors import MessageTooLarge, UnpackedTooLarge
from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import pack_v2_header
from tidelog.protocol.records.compression import compress
from tidelog.protocol.records.layout import (
    CONTROL_BIT,
    HAS_MISSING,
    INT64_MIN,
    KNOWN_ATTRIBUTES,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    Compression,
)
from tidelog.protocol.records.legacy import wrapper_head, write_wrapper
from tidelog.protocol.records.plan import Prepared, PreparedBatch

if TYPE_CHECKING:
    from tidelog.protocol.records.layout import Batch, Findings, Region
    from tidelog.protocol.records.plan import AppendPlan, Produced
    from tidelog.protocol.wire import Buffer

_V2_PATCH = Struct(">qii")  # base offset, size, leader epoch
_V2_STAMP = Struct(">hiqq")  # attributes, last offset delta, base timestamp, max timestamp
_V2_CRC = Struct(">I")


# --- bytes kept ----------------------------------------------------------------------------------


def in_place_v2(records: Buffer, batch: Batch, plan: AppendPlan, found: Findings) -> Prepared:
    """Keeps a format-2 batch; a new CRC is made only if the bit or the largest time changes."""
    attributes, highest = batch.attributes, _highest_v2(plan, found)
    if plan.log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    start, size = batch.position, batch.size
    view = memoryview(records)
    patch = _V2_PATCH.pack(plan.first_offset, size - 12, plan.leader_epoch)
    if attributes == batch.attributes and highest == batch.max_timestamp:
        rest = view[start + 16 : start + size]
    else:
        known = attributes & KNOWN_ATTRIBUTES  # as Kafka, which writes the attributes that it knows
        head = _V2_STAMP.pack(known, batch.count - 1, batch.base_timestamp, highest)
        crc = crc32c(view[start + 43 : start + size], crc32c(head))
        patch = b"".join((patch, b"\2", _V2_CRC.pack(crc), head))
        rest = view[start + 43 : start + size]
    whole = _describe_v2(size, attributes, batch, plan, found)
    return Prepared(
        [patch, rest], size, [whole], plan.first_offset, whole.last_offset, whole.count, False
    )


def _highest_v2(plan: AppendPlan, found: Findings) -> int:
    """Returns the largest time that the header of a format-2 batch states."""
    if plan.log_append_time:
        return plan.append_time_ms
    return NO_TIMESTAMP if found.largest is None else found.largest


def _describe_v2(
    size: int, attributes: int, batch: Batch, plan: AppendPlan, found: Findings
) -> PreparedBatch:
    """Describes a format-2 batch with these attributes; it keeps the fields of its producer."""
    largest, first, missing = found.largest, found.first, bool(found.flags & HAS_MISSING)
    if plan.log_append_time:
        largest = first = plan.append_time_ms
        missing = False
    last = plan.first_offset + found.count - 1
    return PreparedBatch(
        0,
        size,
        plan.first_offset,
        last,
        found.count,
        largest,
        last,
        first,
        missing,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        bool(attributes & TRANSACTIONAL_BIT),
        bool(attributes & CONTROL_BIT),
    )


def _wrapper_batch(size: int, last: int, plan: AppendPlan, found: Findings) -> PreparedBatch:
    """Describes a compressed message of format 0/1 that ends at offset `last`."""
    largest, first, missing = found.largest, found.first, bool(found.flags & HAS_MISSING)
    if not plan.magic:
        largest = first = None
        missing = True
    elif plan.log_append_time:
        largest = first = plan.append_time_ms
        missing = False
    return PreparedBatch(
        0,
        size,
        plan.first_offset,
        last,
        found.count,
        largest,
        last,
        first,
        missing,
        -1,
        -1,
        -1,
        False,
        False,
    )


def in_place_wrapper(records: Buffer, batch: Batch, plan: AppendPlan, found: Findings) -> Prepared:
    """Keeps a compressed format-1 message: only its offset, time and bit are new."""
    last = plan.first_offset + found.count - 1
    bit, stamp = 0, NO_TIMESTAMP if found.largest is None else found.largest
    if plan.log_append_time:
        bit, stamp = LOG_APPEND_TIME_BIT, plan.append_time_ms
    head = wrapper_head(records, batch, last, stamp, bit)
    rest = memoryview(records)[batch.position + len(head) : batch.position + batch.size]
    whole = _wrapper_batch(batch.size, last, plan, found)
    return Prepared([head, rest], batch.size, [whole], plan.first_offset, last, found.count, False)


def stamped_messages(
    records: Buffer, produced: Produced, plan: AppendPlan, found: Findings
) -> Prepared:
    """Assigns offsets to plain messages, and gives each its append time on a LogAppendTime topic (KIP-32)."""
    start = produced.batches[0].position
    data = bytearray(memoryview(records)[start : produced.size])
    stamp = plan.append_time_ms if plan.log_append_time else None
    kernels.stamp_messages(data, 0, len(data), plan.first_offset, stamp)
    return _plain_messages(data, produced.batches, plan, found.count, converted=False)


def _plain_messages(
    data: bytes | bytearray,
    batches: list[Batch],
    plan: AppendPlan,
    count: int,
    *,
    converted: bool,
) -> Prepared:
    """Describes plain messages that are already numbered; each is a batch of its own."""
    prepared = kernels.describe_messages(batches, plan)
    last = plan.first_offset + count - 1
    return Prepared([data], len(data), prepared, plan.first_offset, last, count, converted)


# --- bytes encoded again -------------------------------------------------------------------------


def rebuilt(
    region: Region, batch: Batch, plan: AppendPlan, found: Findings, target: int
) -> Prepared:
    """Encodes the set in the topic's format and codec: one batch, one wrapper, or messages."""
    stamp = plan.append_time_ms if plan.log_append_time and plan.magic == 1 else None
    # Inside a wrapper the producer's times remain, as KIP-32 keeps them when nothing is rebuilt.
    inner_stamp = None if target else stamp
    relative = plan.magic == 1 and target != Compression.NONE
    most_bytes = 2 * plan.most_unpacked
    try:
        written = kernels.rewrite(
            region if inner_stamp is None else region._replace(stamp=inner_stamp),
            plan.magic,
            plan.first_offset,
            INT64_MIN,
            relative,
            most_bytes,
        )
    except MessageTooLarge:
        raise UnpackedTooLarge(f"a batch takes more than {most_bytes} bytes to convert") from None
    if plan.magic == 2:
        return _rebuilt_v2(written.data, written.base_timestamp, batch, plan, found, target)
    if not target:
        batches = kernels.scan(written.data, 0, len(written.data))
        for each in batches:
            _check_size(each.size, plan)
        return _plain_messages(written.data, batches, plan, found.count, converted=True)
    largest = NO_TIMESTAMP if found.largest is None else found.largest
    data = write_wrapper(
        written.data,
        plan.magic,
        target,
        written.last_offset,
        largest if stamp is None else stamp,
        stamped=stamp is not None,
    )
    _check_size(len(data), plan)
    whole = _wrapper_batch(len(data), written.last_offset, plan, found)
    return Prepared(
        [data],
        len(data),
        [whole],
        plan.first_offset,
        written.last_offset,
        found.count,
        True,
    )


def _rebuilt_v2(
    payload: bytes,
    base_timestamp: int,
    batch: Batch,
    plan: AppendPlan,
    found: Findings,
    target: int,
) -> Prepared:
    """Puts a format-2 header before encoded records; it keeps the producer's fields."""
    attributes = target
    if batch.magic == 2:
        attributes |= batch.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT)
    if plan.log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    packed = compress(target, payload, 2)
    last = plan.first_offset + found.count - 1
    head = pack_v2_header(
        packed,
        base_offset=plan.first_offset,
        last_offset=last,
        leader_epoch=plan.leader_epoch,
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=_highest_v2(plan, found),
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        count=found.count,
    )
    size = len(head) + len(packed)
    _check_size(size, plan)
    whole = _describe_v2(size, attributes, batch, plan, found)
    return Prepared([head, packed], size, [whole], plan.first_offset, last, found.count, True)


def _check_size(size: int, plan: AppendPlan) -> None:
    """Raises an error if conversion made the set larger than the topic allows."""
    if size > plan.max_message_bytes:
        raise MessageTooLarge(
            f"the batch is {size} bytes in the topic's format, which exceeds"
            f" max.message.bytes={plan.max_message_bytes}"
        )
