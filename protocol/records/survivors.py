"""What compaction does to one stored batch (KIP-534): keep it, remove records, or empty it.

A batch keeps its format, codec, time type, leader epoch, producer and sequence. Format 2 also keeps
its first and last offset, so that the producer's last sequence stays known. Remaining records keep
their offsets and times. A format-2 batch gets a delete horizon if it has a tombstone, or a marker
of a transaction whose records are all gone: a bit in its header, and as its base timestamp the time
from which these may be removed. The records' time deltas then count from that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage, InvalidRecord
from tidelog.protocol.records import kernels
from tidelog.protocol.records.batch import pack_v2_header, records, stored_region
from tidelog.protocol.records.compression import compress
from tidelog.protocol.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from tidelog.protocol.records.legacy import write_wrapper

if TYPE_CHECKING:
    from tidelog.protocol.records.kernels.key_map import Filtered, KeyMap
    from tidelog.protocol.records.layout import Batch, Region
    from tidelog.protocol.wire import Buffer

_EVERYTHING = 2**63 - 1
_MARKER_KEY_SIZE = 4
ABORT, COMMIT = 0, 1  # the types of transaction markers


def note(
    keys: KeyMap,
    buffer: Buffer,
    batch: Batch,
    min_offset: int,
    time_limit: int,
    stamp: int | None = None,
) -> int | None:
    """Adds the keys of a batch to the map; returns the offset of the first record without room.

    No record time counts as more than `time_limit`; all count as `stamp` if there is one. Raises
    CorruptMessage.
    """
    region = _stamped(stored_region(buffer, batch), stamp)
    try:
        return keys.note(region, min_offset, time_limit)
    except InvalidRecord as error:
        raise _broken(batch, error) from error


def update_by_time(
    keys: KeyMap,
    buffer: Buffer,
    batch: Batch,
    min_offset: int,
    time_limit: int,
    stamp: int | None = None,
) -> None:
    """Replaces entries by records of another batch with a larger time.

    No record time counts as more than `time_limit`; all count as `stamp` if there is one. Raises
    CorruptMessage.
    """
    region = _stamped(stored_region(buffer, batch), stamp)
    try:
        keys.update_by_time(region, min_offset, time_limit)
    except InvalidRecord as error:
        raise _broken(batch, error) from error


def filter_records(
    keys: KeyMap, buffer: Buffer, batch: Batch, latest_offset: int, *, keep_tombstones: bool
) -> tuple[Region, Filtered]:
    """Returns which records of a batch compaction keeps. Raises CorruptMessage."""
    region = stored_region(buffer, batch)
    try:
        return region, keys.filter_records(region, latest_offset, keep_tombstones)
    except InvalidRecord as error:
        raise _broken(batch, error) from error


def look_at_all(buffer: Buffer, batch: Batch) -> tuple[Region, Filtered]:
    """Returns the region and facts of a batch whose records all remain. Raises CorruptMessage."""
    return filter_records(
        kernels.KeyMap(0, False), buffer, batch, -_EVERYTHING, keep_tombstones=True
    )


def marker_of(buffer: Buffer, batch: Batch) -> int | None:
    """Returns the type of the marker in a control batch; None for any other content."""
    for record in records(buffer, batch):
        if record.key is not None and len(record.key) >= _MARKER_KEY_SIZE:
            return int.from_bytes(record.key[2:4], "big", signed=True)
    return None


def written(
    batch: Batch, region: Region, filtered: Filtered, delete_horizon_ms: int | None
) -> bytes:
    """Writes a batch with its remaining records, and its delete horizon, given or present.

    Raises CorruptMessage. Raises AssertionError for a delete horizon in a format before 2.
    """
    codec = batch.attributes & CODEC_MASK
    base_timestamp, attributes = batch.base_timestamp, batch.attributes
    if delete_horizon_ms is not None:
        assert batch.magic == 2, "only format 2 has a delete horizon"
        base_timestamp, attributes = delete_horizon_ms, attributes | DELETE_HORIZON_BIT
    try:
        data = kernels.select(region, filtered.mask, base_timestamp)
    except InvalidRecord as error:
        raise _broken(batch, error) from error
    largest = NO_TIMESTAMP if filtered.largest is None else filtered.largest
    if batch.is_log_append_time:
        largest = batch.max_timestamp
    if batch.magic < 2:
        assert codec, "a plain message stays or goes as it is"
        return write_wrapper(
            data,
            batch.magic,
            codec,
            filtered.last_offset,
            largest,
            stamped=batch.is_log_append_time,
        )
    packed = compress(codec, data, 2)
    return (
        pack_v2_header(
            packed,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            leader_epoch=batch.leader_epoch,
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=largest,
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            count=filtered.kept,
        )
        + packed
    )


def emptied(batch: Batch) -> bytes:
    """Writes a format-2 batch without its records, so that its offsets and producer stay known.

    Its largest time remains in the header, as in Kafka. No record has that time, so readers must
    not use it.
    """
    assert batch.magic == 2, "only format 2 can be empty"
    kept = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
    return pack_v2_header(
        b"",
        base_offset=batch.base_offset,
        last_offset=batch.last_offset,
        leader_epoch=batch.leader_epoch,
        attributes=batch.attributes & kept,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=batch.max_timestamp,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        count=0,
    )


def _stamped(region: Region, stamp: int | None) -> Region:
    return region if stamp is None else region._replace(stamp=stamp)


def _broken(batch: Batch, error: InvalidRecord) -> CorruptMessage:
    return CorruptMessage(f"the batch at byte {batch.position} is broken: {error.message}")
