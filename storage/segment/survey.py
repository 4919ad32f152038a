"""Reads a segment's log to learn its times, and to verify what another program wrote.

There are two passes, each over no more than necessary: `catch_up` over what was appended since the
times were last written down, and `verify`, once, over a segment that another program wrote. Kafka's
headers are not always right (one release keeps whatever largest time a client wrote), and then its
indexes are wrong too. So the indexes are built from the records, and headers are used from then on
if they are right.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import summarize
from tidelog.protocol.records.framing import is_readable_by_java
from tidelog.storage.segment.appended.entries import Cursor
from tidelog.storage.segment.scrub import UNREADABLE
from tidelog.storage.time.event_time import capped, counted_limit
from tidelog.storage.time.segment_times import SegmentTimes
from tidelog.storage.time.timestamp import earlier, or_none

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.storage.segment.log_file import Found
    from tidelog.storage.segment.log_times import LogTimes
    from tidelog.storage.segment.segment import Segment


_log = logging.getLogger("tidelog.storage")
_locks = tuple(threading.Lock() for _ in range(64))  # by segment; see `_one_at_a_time`


def _one_at_a_time(known: LogTimes) -> threading.Lock:
    """Returns the lock that keeps two threads from reading the same segment at once."""
    return _locks[hash(known) % len(_locks)]


def catch_up(known: LogTimes) -> None:
    """Reads the batches whose times are not known yet; raises OSError."""
    with _one_at_a_time(known):
        tail = known.log.tail
        if known.size >= tail.size:
            return
        times = known.times.copy()
        for found, append_time_ms in _timed(known, known.size, tail.size):
            _note(known, found, append_time_ms, times)
            _note_framing(known, found, append_time_ms, times)
        known.replace(times, tail.size)
        if known.is_closed:  # else each segment would hold its append times once it was read
            known.rest()


def event_times(
    known: LogTimes, position: int = 0, *, counted_offset: int = 0, counted: int | None = None
) -> Iterator[tuple[int, int | None]]:
    """Yields the end offset of each batch, and its largest event time as it counts; reads all.

    It begins at a position where a batch starts. None: the batch has no event time. `counted` is
    the largest event time before `counted_offset`, as it was counted. No batch counts as more than
    what is known of the segment's. Raises OSError and CorruptMessage.
    """
    largest, size = known.times.event, known.size
    for found, append_time_ms in _timed(known, position):
        times = SegmentTimes()
        _note(known, found, append_time_ms, times)
        if times.event is not None and found.batch.last_offset < counted_offset:
            appended_ms = times.last_append
            assert appended_ms is not None  # `_note` has noted it, or the moment of adoption
            times.event = counted_limit(times.event, appended_ms, counted)
        if times.event is not None and found.position < size:
            times.event = earlier(times.event, largest)
        yield found.batch.last_offset + 1, times.event


def verify(segment: Segment) -> None:
    """Reads every record of a segment that another program wrote; raises OSError.

    Only for a segment that takes no appends. Afterwards its times are known and its indexes are
    rebuilt. Headers are used (`is_true`) if every one agreed with its records.
    """
    known, indexes = segment.known, segment.indexes
    with _one_at_a_time(known):
        if indexes.are_true:
            return
        times, honest = SegmentTimes(), True
        times.created_clock = known.times.created_clock  # it is not in the log
        index, time_index = indexes.new()
        last_indexed = 0
        for found, append_time_ms in _timed(known):
            honest = _note(known, found, append_time_ms, times) and honest
            _note_framing(known, found, append_time_ms, times)
            if found.position - last_indexed > indexes.interval_bytes:
                index.append(found.batch.last_offset, found.position)
                time_index.append(times.largest, times.largest_offset)
                last_indexed = found.position
        time_index.append(times.largest, times.largest_offset)
        known.replace(times, segment.tail.size)
        is_written = indexes.adopt(index, time_index)
        indexes.is_true = honest
        indexes.are_true = honest or is_written
    if not honest:
        _log.warning("batch headers disagree with record times", extra={"segment": segment.path})


def _timed(
    known: LogTimes, position: int = 0, end: int | None = None
) -> Iterator[tuple[Found, int | None]]:
    """Iterates over the batches with their append times, None where unknown; raises OSError."""
    if end is None:
        end = known.log.tail.size  # its append times are all in the file
    times = Cursor(known.append_times)
    for found in known.log.walk(position, end):
        # A wrapper of format 0 or 1 has no first offset; its last one has the same append time.
        yield found, times.at(found.batch.last_offset)


def _note(known: LogTimes, found: Found, append_time_ms: int | None, times: SegmentTimes) -> bool:
    """Takes a batch into account by its records; False if its header disagrees with them.

    If its append time is unknown, the moment of its adoption stands in.
    """
    batch = found.batch
    if append_time_ms is None:
        append_time_ms = known.adoptions.time_of(batch.last_offset)
        times.note_adopted(append_time_ms)
    else:
        times.note_append(append_time_ms)
    if batch.is_control or batch.is_empty:
        times.note_control(append_time_ms)
        return True
    header = or_none(batch.max_timestamp)
    try:
        summary = summarize(found.buffer, batch)
    except CorruptMessage:
        first, largest, offset, missing = header, header, batch.last_offset, header is None
        honest = False
    else:
        first, largest, missing = summary.first, summary.largest, summary.has_missing
        offset, honest = summary.largest_offset, largest == header
    limit = capped(append_time_ms, known.event_slack_ms)
    counted = known.counted_before
    if found.position < counted.size:
        limit = counted_limit(limit, append_time_ms, counted.event)
    times.note(first, largest, offset, missing, append_time_ms, limit)
    return honest


def _note_framing(
    known: LogTimes, found: Found, append_time_ms: int | None, times: SegmentTimes
) -> None:
    """Notes the first batch that another broker wrote, and that Java clients cannot read."""
    is_adopted = append_time_ms is None
    if (
        not is_adopted
        or times.unreadable_offset is not None
        or is_readable_by_java(found.buffer, found.batch)
    ):
        return
    first_offset = found.batch.base_offset
    if first_offset < 0:  # a wrapper says in its header where it ends
        first_offset = found.batch.last_offset
        with contextlib.suppress(CorruptMessage):
            first_offset = summarize(found.buffer, found.batch).base_offset
    times.unreadable_offset = first_offset
    named = {"segment": known.log.path, "offset": first_offset}
    _log.warning(UNREADABLE, extra=named)
