"""Append time: when this partition's leader appended a batch.

It stands still while the clock is a little behind it. It decreases only where a clock was corrected
(`corrections.py`).
"""

from __future__ import annotations

from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.storage.time.corrections import is_behind
from tidelog.storage.time.timestamp import MIN_TIMESTAMP
from tidelog.storage.would_block import WouldBlock


class ClockWentBack(WouldBlock):
    """The clock is further behind the last append than it may be: the log must note a correction first.

    Or somebody has read it before the log noted that it had been behind, and must read it again.
    """


def append_time(
    last_append_time_ms: int | None,
    now_ms: int,
    corrected_ms: int = MIN_TIMESTAMP,
    *,
    may_go_back: bool = True,
) -> int:
    """Returns the append time of a batch that arrives now: never less than the one before it.

    Clocks go back, and the clocks of leaders differ (KIP-32, rejected alternative 1). A clock
    reading of -1 counts as 0, because -1 as a stamp means "no time" (KIP-228). Raises ClockWentBack
    if the one before, or what the clock showed at its last correction, is too far ahead of the clock to
    wait for it. Without `may_go_back` it waits for the one before however far that is: that may be of
    another leader, whose clock may have been right.
    """
    if corrected_ms > now_ms and is_behind(corrected_ms, now_ms):
        raise ClockWentBack("the clock went back")
    if last_append_time_ms is not None and last_append_time_ms > now_ms:
        if may_go_back and is_behind(last_append_time_ms, now_ms):
            raise ClockWentBack("the clock went back")
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


def deletion_time_at(now_ms: int, last_round_ms: int) -> int:
    """Returns the time by which may be deleted, by what it was at the last round of retention.

    It is never later than the clock, which may have gone back since.
    """
    return min(now_ms, last_round_ms)
