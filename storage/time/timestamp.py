"""What a time is: an int of milliseconds since the epoch, or None where there is none.

Negative times are as real as others (KIP-228). On the wire and on disk -1 (NO_TIMESTAMP) says "no
time"; in storage a time that may be missing, or a largest time that does not exist yet, is None.
Record time is what a consumer sees, append time is when this partition's leader appended the batch,
event time is the record time of a data record.
"""

from __future__ import annotations

from tidelog.protocol.records.layout import NO_TIMESTAMP

MIN_TIMESTAMP = -(2**63)

MAX_TIMESTAMP = 2**63 - 1


def or_none(timestamp: int) -> int | None:
    """Returns a stored time as a value: None for -1."""
    return None if timestamp == NO_TIMESTAMP else timestamp


def exceeds(timestamp: int | None, largest: int | None) -> bool:
    """Returns whether a time is larger than the largest so far. A missing time never is."""
    return timestamp is not None and (largest is None or timestamp > largest)


def later(timestamp: int | None, other: int | None) -> int | None:
    """Returns the later of two times that may be missing."""
    return timestamp if exceeds(timestamp, other) else other


def earlier(timestamp: int | None, other: int | None) -> int | None:
    """Returns the earlier of two times that may be missing."""
    if timestamp is None or other is None:
        return other if timestamp is None else timestamp
    return min(timestamp, other)


def earliest(timestamp: int, other: int) -> int:
    """Returns the earlier of two times."""
    return min(timestamp, other)


def left(due_ms: int, now_ms: int) -> int:
    """Returns how many ms remain until a moment; 0 once it has come."""
    return max(due_ms - now_ms, 0)


def is_due(due_ms: int, now_ms: int) -> bool:
    """Returns whether a moment has come."""
    return now_ms >= due_ms


def at_latest(due_ms: int, now_ms: int, delay_ms: int) -> int:
    """Returns when a delay that has begun ends: at `due_ms`, and no later than a delay from now.

    So a clock that has stepped back does not make the delay longer than twice what it was.
    """
    return min(due_ms, now_ms + delay_ms)
