"""Append time: when this partition's leader appended a batch. It never decreases."""

from __future__ import annotations

from protocol.records.layout import NO_TIMESTAMP


def append_time(last_append_time_ms: int | None, now_ms: int) -> int:
    """Returns the append time of a batch that arrives now: never less than the one before it.

    Clocks go back, and the clocks of leaders differ (KIP-32, rejected alternative 1). A clock
    reading of -1 counts as 0, because -1 as a stamp means "no time" (KIP-228).
    """
    if last_append_time_ms is not None and last_append_time_ms > now_ms:
        return last_append_time_ms
    return 0 if now_ms == NO_TIMESTAMP else now_ms


def ahead(append_time_ms: int | None, now_ms: int) -> int:
    """Returns how many ms the last append time is ahead of the clock; 0 if it is not.

    Until the clock has caught up, every batch gets that last append time.
    """
    return 0 if append_time_ms is None else max(0, append_time_ms - now_ms)


def goes_back(append_time_ms: int, next_append_time_ms: int) -> bool:
    """Returns whether an append time is smaller than the one before: the file is damaged."""
    return next_append_time_ms < append_time_ms
