"""Finding offsets by time: which requests name a time, and which segments and index entries can hold it."""

from __future__ import annotations

from bisect import bisect_left
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class LookupTarget(IntEnum):
    """What a ListOffsets request may ask for instead of a time (KIP-79, KIP-734, KIP-405)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


_LOWEST_TARGET = min(LookupTarget)


def is_target(timestamp: int) -> bool:
    """Returns whether the timestamp of a ListOffsets request is one of Kafka's special values.

    Because of them, six milliseconds before 1970 cannot be asked for over Kafka's protocol. Any
    smaller value is a time.
    """
    return _LOWEST_TARGET <= timestamp < 0


def reaches(largest: int | None, target: int) -> bool:
    """Returns whether records with this largest time hold one at or after `target` (KIP-33)."""
    return largest is not None and largest >= target


def is_indexed(largest: int | None, last_indexed: int | None) -> bool:
    """Returns whether a time index gets the largest time: if it has grown since the last entry."""
    return largest is not None and (last_indexed is None or largest > last_indexed)


def is_negative(timestamp: int | None) -> bool:
    """Returns whether a record time lies before 1970."""
    return timestamp is not None and timestamp < 0


def count_negative(times: Sequence[int], count: int) -> int:
    """Returns how many of the first `count` times of a time index are negative; the times grow."""
    return bisect_left(times, 0, 0, count)


def count_growing(times: Sequence[int]) -> int:
    """Returns how many first times of a time index are valid: strictly growing."""
    if all(map(int.__lt__, times, times[1:])):
        return len(times)  # the usual case; the loop below takes ten times as long
    for count in range(1, len(times)):
        if times[count] <= times[count - 1]:
            return count
    return len(times)
