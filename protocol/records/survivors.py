"""What compaction makes of one stored batch (KIP-534): untouched, with fewer records, or empty.

A batch keeps its format, codec, time type, leader epoch, producer and sequence, and of format 2 its
first and last offset: a producer's last sequence is still known by them. Offsets and times of the
records that stay are what they were. A format-2 batch with a tombstone, or with a marker of a
transaction of which nothing is left, says in its header from when on these may go, its delete
horizon: a bit, and the base timestamp, from which the records' differences then count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import CorruptMessage, InvalidRecord
from protocol.records import kernels
from protocol.records.batch import pack_v2_header, records, stored_region
from protocol.records.compression import compress
from protocol.records.layout import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from protocol.records.legacy import write_wrapper

if TYPE_CHECKING:
    from protocol.records.key_map import KeyMap, Sifted
    from protocol.records.layout import Batch, Buffer, Region

_EVERYTHING = 2**63 - 1
_MARKER_KEY_SIZE = 4
ABORT, COMMIT = 0, 1  # what a marker of a transaction says


def note(keys: KeyMap, buffer: Buffer, batch: Batch, min_offset: int) -> int | None:
    """Enter the keys of a batch; return the offset of the first record that found no room.

    Raises CorruptMessage.
    """
    region = stored_region(buffer, batch)
    try:
        return keys.note(*region, min_offset)
    except InvalidRecord as error:
        raise _broken(batch, error) from error


def weigh(keys: KeyMap, buffer: Buffer, batch: Batch, min_offset: int) -> None:
    """Let an earlier batch's records win by their time; raises CorruptMessage."""
    region = stored_region(buffer, batch)
    try:
        keys.weigh(*region, min_offset)
    except InvalidRecord as error:
        raise _broken(batch, error) from error


def sift(
    keys: KeyMap, buffer: Buffer, batch: Batch, latest_offset: int, *, keep_tombstones: bool
) -> tuple[Region, Sifted]:
    """Tell which records of a batch stay; raises CorruptMessage."""
    region = stored_region(buffer, batch)
    try:
        return region, keys.sift(*region, latest_offset, keep_tombstones)
    except InvalidRecord as error:
        raise _broken(batch, error) from error


def look_at_all(buffer: Buffer, batch: Batch) -> tuple[Region, Sifted]:
    """Look at a batch of which every record stays; raises CorruptMessage."""
    return sift(kernels.KeyMap(0, False), buffer, batch, -_EVERYTHING, keep_tombstones=True)


def marker_of(buffer: Buffer, batch: Batch) -> int | None:
    """Return what the marker in a control batch says; None where there is none, or another."""
    for record in records(buffer, batch):
        if record.key is not None and len(record.key) >= _MARKER_KEY_SIZE:
            return int.from_bytes(record.key[2:4], "big", signed=True)
    return None


def written(batch: Batch, region: Region, sifted: Sifted, delete_horizon_ms: int | None) -> bytes:
    """Write a batch with the records that stay; with a delete horizon where one is given or there.

    Raises CorruptMessage, for a horizon cannot be in formats before 2 AssertionError.
    """
    codec = batch.attributes & CODEC_MASK
    base_timestamp, attributes = batch.base_timestamp, batch.attributes
    if delete_horizon_ms is not None:
        assert batch.magic == 2, "only format 2 has a delete horizon"
        base_timestamp, attributes = delete_horizon_ms, attributes | DELETE_HORIZON_BIT
    own = region._replace(stamp=None)  # the times under a stamp stay what they were
    try:
        data = kernels.select(*own, sifted.mask, base_timestamp)
    except InvalidRecord as error:
        raise _broken(batch, error) from error
    largest = NO_TIMESTAMP if sifted.largest is None else sifted.largest
    if batch.is_log_append_time:
        largest = batch.max_timestamp
    if batch.magic < 2:
        assert codec, "a plain message stays or goes as it is"
        return write_wrapper(
            data,
            batch.magic,
            codec,
            sifted.last_offset,
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
            count=sifted.kept,
        )
        + packed
    )


def emptied(batch: Batch) -> bytes:
    """Write a format-2 batch without its records: its offsets and its producer stay known.

    Its largest time stays in the header, as in Kafka's; no record has it, and nobody may believe it.
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


def _broken(batch: Batch, error: InvalidRecord) -> CorruptMessage:
    return CorruptMessage(f"the batch at byte {batch.position} is broken: {error.message}")
