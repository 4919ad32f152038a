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


class CountedBefore(NamedTuple):
    """Event times that have been counted, and that the log is read for again.

    They count as no more than then, although `event.time.ahead.max.ms` may be larger by now.
    """

    size: int  # those in so many bytes of the log, from its beginning
    event: int | None  # the largest of them; None: it is not known, or they have none
