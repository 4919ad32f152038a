"""The transactions in a log directory, as its batches show them: where they are open, and which were aborted.

The last stable offset is in no file. It is the first offset of the first transaction that has no
marker below the high watermark. The newest producer snapshot at or before an offset lists the
transactions open there; batch headers after it show the rest.

What the data of a transaction becomes is decided by the next marker of its producer. So a reader of
committed records looks ahead from the transactional batches that it reads, into later segments too, as
far as it needs. `.txnindex` is not asked: it may be missing, damaged, or lack its last entries, and
nothing in it shows that.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from tidelog.pipeline.source import locations
from tidelog.pipeline.source.batch_headers import Batches
from tidelog.pipeline.source.columns import (
    ATTRIBUTES,
    BASE_OFFSET,
    LAST_OFFSET,
    MAGIC,
    PRODUCER_ID,
)
from tidelog.pipeline.source.splits import NO_END
from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.column_buffers import BATCH_FIELDS
from tidelog.protocol.records.columns import (
    HEADERS,
    BrokenBatch,
    ColumnBuffers,
    RecordSelection,
    append_set,
)
from tidelog.protocol.records.layout import CONTROL_BIT, TRANSACTIONAL_BIT
from tidelog.protocol.records.markers import read_marker
from tidelog.storage import filenames
from tidelog.storage.log.producers import producer_snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.pipeline.source.columns import Ints
    from tidelog.pipeline.source.splits import OffsetRange, PartitionLog, SegmentPart, Split
    from tidelog.protocol.records.layout import Batch
    from tidelog.protocol.wire import Buffer

    Markers = Iterator[tuple[int, int, bool]]

_NEVER = 1 << 62


def last_stable_offset(log: PartitionLog, end: int) -> int:
    """Returns the first offset below `end` of an open transaction, or `end` without one.

    Raises OSError.
    """
    base, open_since = _snapshot_before(log, end)
    for segment in log.segments:
        following = [
            each.base_offset for each in log.segments if each.base_offset > segment.base_offset
        ]
        if following and following[0] <= base:
            continue
        for batch, _ in _batches(segment.location()):
            if batch.last_offset < base:
                continue
            if batch.base_offset >= end:
                break
            if batch.magic < 2 or not batch.is_transactional:
                continue
            if batch.is_control:
                open_since.pop(batch.producer_id, None)
            else:
                open_since.setdefault(batch.producer_id, batch.base_offset)
    return min(open_since.values(), default=end)


def _snapshot_before(log: PartitionLog, end: int) -> tuple[int, dict[int, int]]:
    """Returns the offset of the newest readable snapshot, and the transactions open there."""
    for offset in sorted((each for each in log.snapshots if each <= end), reverse=True):
        location = locations.join(
            log.directory, filenames.segment_file(offset, filenames.SNAPSHOT_SUFFIX)
        )
        data = locations.read(location)
        if data is None:
            continue
        try:
            producers = producer_snapshots.parse(location, data, _NEVER)
        except producer_snapshots.SnapshotError:
            continue
        return offset, {
            producer.producer_id: producer.transaction_first_offset
            for producer in producers
            if producer.transaction_first_offset >= 0
        }
    return log.segments[0].base_offset, {}


def heads(records: Buffer) -> Ints:
    """Reads the headers of all complete batches."""
    buffers = ColumnBuffers()
    with suppress(BrokenBatch):  # the error comes again, with more words, when records are read
        append_set(records, buffers, RecordSelection(depth=HEADERS, verify=False, limit=2**62))
    table = np.frombuffer(buffers.batches, np.int64, buffers.batch_count * BATCH_FIELDS)
    return table.reshape(-1, BATCH_FIELDS)


class Aborts:
    """Finds the aborted transactions in the bytes of a split, which are given in their order."""

    def __init__(self, split: Split, part: SegmentPart) -> None:
        """Names the split and its part of a segment; nothing is read."""
        self._range = split.start_offset, split.end_offset
        self._ahead = _markers(part)
        self._known: dict[int, list[tuple[int, bool]]] = {}  # offset, whether it aborts

    def among(self, records: Buffer) -> dict[int, tuple[OffsetRange, ...]]:
        """Returns the ranges of offsets of aborted records, by producer id.

        A transaction without a marker counts as aborted: it is not committed. Raises OSError.
        """
        table = heads(records)
        start, end = self._range
        is_data = (
            (table[:, MAGIC] == 2)
            & (table[:, ATTRIBUTES] & TRANSACTIONAL_BIT != 0)
            & (table[:, ATTRIBUTES] & CONTROL_BIT == 0)
            & (table[:, LAST_OFFSET] >= start)
            & (table[:, BASE_OFFSET] < end)
        )
        found = {}
        for producer_id in np.unique(table[is_data, PRODUCER_ID]).tolist():
            own = table[is_data & (table[:, PRODUCER_ID] == producer_id)]
            spans = self._spans(producer_id, own)
            if spans:
                found[producer_id] = spans
        return found

    def _spans(self, producer_id: int, own: Ints) -> tuple[OffsetRange, ...]:
        known = self._known_behind(producer_id, int(own[-1, LAST_OFFSET]))
        offsets = np.array([offset for offset, _ in known], np.int64)
        ends = np.searchsorted(offsets, own[:, LAST_OFFSET], side="right")
        spans = []
        for number in np.unique(ends).tolist():
            last, is_abort = known[number] if number < len(known) else (NO_END, True)
            if is_abort:
                spans.append((int(own[ends == number][0, BASE_OFFSET]), last))
        return tuple(spans)

    def _known_behind(self, producer_id: int, offset: int) -> list[tuple[int, bool]]:
        """Returns the markers of a producer, one of them behind an offset if there is one."""
        known = self._known.setdefault(producer_id, [])
        while not known or known[-1][0] <= offset:
            try:
                of, at, is_abort = next(self._ahead)
            except StopIteration:
                break
            self._known.setdefault(of, []).append((at, is_abort))
        return known


def _markers(part: SegmentPart) -> Markers:
    """Yields (producer id, offset, whether it aborts) from a part of a segment to the log's end."""
    yield from _markers_of(part.location, part.start)
    for location in _later_segments(part):
        with suppress(FileNotFoundError):  # retention; what is read of it fails
            yield from _markers_of(location, 0)


def _later_segments(part: SegmentPart) -> list[str]:
    directory = locations.parent(part.location)
    bases = sorted(
        file.offset
        for entry in locations.listed(directory)
        if (file := filenames.parse_segment_file(entry.name)) is not None
        and file.suffix == filenames.LOG_SUFFIX
        and file.offset > part.base_offset
    )
    return [
        locations.join(directory, filenames.segment_file(base, filenames.LOG_SUFFIX))
        for base in bases
    ]


def _markers_of(location: str, position: int) -> Markers:
    """Yields the markers of a segment from a position on."""
    for batch, data in _batches(location, position):
        if batch.is_control and batch.is_transactional:
            with suppress(CorruptMessage):
                marker = read_marker(data, batch)
                if marker is not None:
                    yield batch.producer_id, batch.base_offset, not marker.is_commit


def _batches(location: str, position: int = 0) -> Iterator[tuple[Batch, bytes]]:
    """Yields the headers of a segment's batches and the bytes they are in, up to the first broken one."""
    with locations.File(location) as file:
        yield from Batches(file, position)
