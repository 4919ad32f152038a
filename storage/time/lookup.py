"""Finding offsets by time: which requests name a time, and which segments and index entries can hold it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Target(IntEnum):
    """What a ListOffsets request may ask for instead of a time (KIP-79, KIP-734, KIP-405)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


_LOWEST_TARGET = min(Target)


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
    """Returns whether a time index takes the largest time: if it has grown and is not negative.

    Kafka's tools expect the times of an index to be larger than -1; negative times are found by a
    scan.
    """
    return largest is not None and largest > (-1 if last_indexed is None else last_indexed)


def is_searchable(timestamp: int) -> bool:
    """Returns whether a time index can be asked for a time: indexes hold no negative times."""
    return timestamp >= 0


def count_growing(times: Sequence[int]) -> int:
    """Returns how many first times of a time index are valid: not negative, strictly growing."""
    if times and times[0] >= 0 and all(map(int.__lt__, times, times[1:])):
        return len(times)  # the usual case; the loop below takes ten times as long
    last = -1
    for count, time in enumerate(times):
        if time <= last:
            return count
        last = time
    return len(times)
