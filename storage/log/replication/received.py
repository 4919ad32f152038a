"""Batches that a follower receives from its leader: parsed and checked, but never changed.

Offsets and times are the leader's. Each batch is verified (checksum, ascending offsets) and read
once: the data for indexes, retention and idempotence come from its records, as on the leader.
Append times and leader epochs come beside the bytes, because formats 0 and 1 have no fields for
them. A partial batch at the end of the bytes is dropped, because it comes again.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import scan, summarize, verify
from tidelog.protocol.records.compression import STORED_LIMIT
from tidelog.protocol.records.plan import PreparedBatch
from tidelog.storage.segment.appended import layout
from tidelog.storage.time.timestamp import or_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.protocol.records.batch import Batch, Summary
    from tidelog.protocol.wire import Buffer

_OFFSET = attrgetter("offset")


class AppendedFrom(NamedTuple):
    """From `offset` to the next entry, batches were appended at `time_ms`; None: unknown."""

    offset: int
    time_ms: int | None


class Received(NamedTuple):
    """A batch of the leader's log, as it will be in this one."""

    data: memoryview
    buffer: Buffer  # what `batch` is a part of
    batch: Batch
    prepared: PreparedBatch
    append_time_ms: int | None  # None: unknown to the leader, too
    is_true: bool  # the header agrees with the records


def receive(
    data: Buffer, append_times: Sequence[AppendedFrom], unpack_limit: int = STORED_LIMIT
) -> list[Received]:
    """Parses and verifies the whole batches of fetched bytes.

    Raises CorruptMessage if a batch fails its checksum, or offsets do not ascend, and
    UnpackedTooLarge if one unpacks to more than `unpack_limit` bytes.
    """
    received: list[Received] = []
    for batch in scan(data):
        verify(data, batch)
        summary = summarize(data, batch, unpack_limit)
        base_offset = batch.base_offset if batch.base_offset >= 0 else summary.base_offset
        expected = received[-1].prepared.last_offset + 1 if received else 0
        if not expected <= base_offset <= batch.last_offset:
            raise CorruptMessage(f"offset {base_offset} comes where {expected} is the next")
        prepared = _prepared(batch, summary, base_offset)
        is_true = prepared.is_control or summary.largest == or_none(batch.max_timestamp)
        here = memoryview(data)[batch.position : batch.position + batch.size]
        received.append(
            Received(here, data, batch, prepared, _time_of(append_times, batch), is_true)
        )
    return received


def _time_of(append_times: Sequence[AppendedFrom], batch: Batch) -> int | None:
    """Returns the append time of a batch; None if it is unknown."""
    # The header of a format-0/1 wrapper lacks its first offset; its last has the same append time.
    number = bisect_right(append_times, batch.last_offset, key=_OFFSET) - 1
    return append_times[number].time_ms if number >= 0 else None


def _prepared(batch: Batch, summary: Summary, base_offset: int) -> PreparedBatch:
    """Describes a batch as an append does; one without records has no times, as control batches."""
    has_no_data = batch.is_control or batch.is_empty
    return PreparedBatch(
        batch.position,
        batch.size,
        base_offset,
        batch.last_offset,
        summary.count,
        None if has_no_data else summary.largest,
        summary.largest_offset,
        None if has_no_data else summary.first,
        not has_no_data and summary.has_missing,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.is_transactional,
        has_no_data,
    )


def unpacked(slices: Sequence[tuple[int, bytes]]) -> list[AppendedFrom]:
    """Returns append times by log offset, from the entries that a leader sends for each slice.

    A slice has a segment's base offset and entries of its `.appendtimes`; no entries mean unknown.
    Raises CorruptMessage for torn entries.
    """
    entries: list[AppendedFrom] = []
    for base_offset, data in slices:
        if len(data) % layout.ENTRY_SIZE:
            raise CorruptMessage("append times end within an entry")
        here = [
            AppendedFrom(base_offset + offset, None if time == layout.UNKNOWN else time)
            for time, offset in layout.ENTRY.iter_unpack(data)
        ]
        if not here or here[0].offset > base_offset:
            entries.append(AppendedFrom(base_offset, None))
        entries += here
    return entries
