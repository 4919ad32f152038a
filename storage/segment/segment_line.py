"""The line of `partition.times` about one segment: what is known without reading its log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog.storage.time.segment_times import SegmentTimes


class SegmentLine(NamedTuple):
    """What is known of the first `size` bytes of a segment's log."""

    base_offset: int
    end_offset: int
    size: int
    times: SegmentTimes
    index_entries: int
    time_index_entries: int
    is_true: bool  # headers and indexes agree with the records
