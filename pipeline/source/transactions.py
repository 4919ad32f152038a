"""The last stable offset of a partition in a log directory, which no file contains.

It is the first offset of the first transaction that has no marker below the high watermark. The
newest producer snapshot at or before an offset lists the transactions open there; batch headers
after it show the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipeline.source import locations
from tidelog.pipeline.source.batch_headers import HEADER_SIZE, size_at
from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import scan
from tidelog.storage import filenames
from tidelog.storage.log.producers import producer_snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.pipeline.source.splits import Log, Segment
    from tidelog.protocol.records.layout import Batch

_CHUNK = 4 << 20
_NEVER = 1 << 62


def last_stable_offset(log: Log, end: int) -> int:
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
        for batch in _batches(segment):
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


def _snapshot_before(log: Log, end: int) -> tuple[int, dict[int, int]]:
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


def _batches(segment: Segment) -> Iterator[Batch]:
    """Yields the headers of a segment's batches, up to the first incomplete one."""
    with locations.File(segment.location()) as file:
        position, chunk = 0, _CHUNK
        while position < file.size:
            data = file.read_at(position, chunk)
            try:
                batches = scan(data)
            except CorruptMessage:
                return
            yield from batches
            if batches:
                position += batches[-1].position + batches[-1].size
                chunk = _CHUNK
            elif position + len(data) >= file.size or len(data) < HEADER_SIZE:
                return
            else:
                chunk = max(size_at(data), 2 * chunk)
