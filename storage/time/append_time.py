"""Append time: when this partition's leader appended a batch. It never goes back."""

from __future__ import annotations

from storage.time.timestamp import NO_TIMESTAMP


def append_time(last_append_time_ms: int | None, now_ms: int) -> int:
    """Return when a batch that arrives now is appended: never before the one before it.

    KIP-32 met this in its rejected option 1: clocks go back, and leaders' clocks differ. A clock
    that shows -1 counts as 0: as a stamp -1 would be no time (KIP-228 advises such a shift).
    """
    if last_append_time_ms is not None and last_append_time_ms > now_ms:
        return last_append_time_ms
    return 0 if now_ms == NO_TIMESTAMP else now_ms


def ahead(append_time_ms: int | None, now_ms: int) -> int:
    """Return how far, in ms, a last append time lies ahead of the clock: until then time stands still."""
    return 0 if append_time_ms is None else max(0, append_time_ms - now_ms)


def goes_back(append_time_ms: int, next_append_time_ms: int) -> bool:
    """Tell whether two append times that follow one another cannot be: somebody changed them."""
    return next_append_time_ms < append_time_ms
