"""Scrubbing: reads a segment's batches again, in slices, and finds those that consumers stop at.

A batch is good if its checksum is right, its header is possible, and its offsets come after those
before it. A checksum covers the records of a batch, and those inside a compressed wrapper of format 0
or 1. The first offset of format 2 lies outside the checksum, and is judged by its neighbours alone.
After a batch with a wrong checksum the next one is read; nothing can be read behind an impossible
length. A batch is also bad if its compressed set is framed as Java clients refuse it; no set is unpacked
but gzip's.

This module changes nothing, and knows no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.batch import verify
from tidelog.protocol.records.framing import is_readable_by_java

if TYPE_CHECKING:
    from tidelog.storage.segment.log_file import Found
    from tidelog.storage.segment.segment import Segment

UNREADABLE = "Java clients cannot read a compressed batch"
"""The event of the log where a batch is found that is sound, but framed as Java clients refuse it."""


class ScrubPosition(NamedTuple):
    """Where the reading of a segment goes on: a position in bytes, and the least offset possible there."""

    position: int
    next_offset: int


class BadBatch(NamedTuple):
    """A bad batch, or the place from which a segment cannot be read."""

    position: int  # in the file, in bytes
    offset: int  # the first that may be in it
    reason: str
    is_spoilt: bool = (
        True  # False: its bytes are as they were written, but Java clients refuse them
    )


class Scrubbed(NamedTuple):
    """The result of one slice: where the next one begins, None at the end of the segment."""

    next: ScrubPosition | None
    read_bytes: int
    bad: tuple[BadBatch, ...]


def scrub(segment: Segment, start: ScrubPosition, most_bytes: int, end_offset: int) -> Scrubbed:
    """Reads up to `most_bytes` of a segment, but one batch at least, from a place where a batch starts.

    Every offset must be below `end_offset`, where the next segment begins. Raises OSError.
    """
    bad: list[BadBatch] = []
    position, next_offset = start
    try:
        for found in segment.walk(start.position):
            first_offset, reason = next_offset, _wrong(found, next_offset, end_offset)
            is_spoilt = reason is not None
            if not is_spoilt:
                next_offset = found.batch.last_offset + 1
                reason = _unreadable(found)
            if reason is not None:
                bad.append(BadBatch(found.position, first_offset, reason, is_spoilt))
            position = found.position + found.batch.size
            if position - start.position >= most_bytes:
                break
    except CorruptMessage as error:
        bad.append(BadBatch(position, next_offset, f"cannot be read from here on: {error.message}"))
        return Scrubbed(None, segment.tail.size - start.position, tuple(bad))
    is_over = position >= segment.tail.size
    following = None if is_over else ScrubPosition(position, next_offset)
    return Scrubbed(following, position - start.position, tuple(bad))


def _wrong(found: Found, next_offset: int, end_offset: int) -> str | None:
    """Returns what is wrong with a batch, None if nothing is."""
    batch = found.batch
    try:
        verify(found.buffer, batch)
    except CorruptMessage as error:
        # The error has the position in the buffer.
        return error.message.replace(f"the batch at byte {batch.position} ", "")
    # A wrapper of format 0 or 1 has its last offset only.
    first = batch.last_offset if batch.base_offset < 0 else batch.base_offset
    if not next_offset <= first <= batch.last_offset < end_offset:
        told = f"has offsets {first} to {batch.last_offset}"
        return f"{told}, where {next_offset} to {end_offset - 1} belong"
    return None


def _unreadable(found: Found) -> str | None:
    if is_readable_by_java(found.buffer, found.batch):
        return None
    return f"has a compressed set that Java clients refuse, up to offset {found.batch.last_offset}"
