"""The home of time: every rule of the log that looks at a timestamp is decided here.

A time is an int of milliseconds since the epoch, in the range of an int64; negative ones are as
real as others. On the wire and on disk -1 (NO_TIMESTAMP) says "no time", and here a time that may
be missing, or a largest time that does not exist yet, is None. Three names:

- record time: what a consumer sees (the producer's time, or the append time on a LogAppendTime
  topic); control batches have none;
- append time: when this partition's leader appended the batch; it never goes back;
- the window: which record times a CreateTime topic accepts at a given moment (KIP-32, KIP-937).

Other modules carry times about; only this one compares them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from config.topic import TopicConfig

NO_TIMESTAMP = -1
MIN_TIMESTAMP = -(2**63)
MAX_TIMESTAMP = 2**63 - 1

LOG_APPEND_TIME = "LogAppendTime"


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
    """Tell whether the timestamp of a ListOffsets request is one of Kafka's special values.

    Those six milliseconds before 1970 cannot be asked for over Kafka's protocol; anything below is
    a real time and is answered.
    """
    return _LOWEST_TARGET <= timestamp < 0


# --- append time ---------------------------------------------------------------------------------


def append_time(last_append_time_ms: int | None, now_ms: int) -> int:
    """Return when a batch that arrives now is appended: never before the one before it.

    KIP-32 met this in its rejected option 1: clocks go back, and leaders' clocks differ.
    """
    if last_append_time_ms is not None and last_append_time_ms > now_ms:
        return last_append_time_ms
    return now_ms


def goes_back(append_time_ms: int, next_append_time_ms: int) -> bool:
    """Tell whether two append times that follow one another cannot be: somebody changed them."""
    return next_append_time_ms < append_time_ms


# --- what is done to the times of a produced batch -----------------------------------------------


class Rules(NamedTuple):
    """What a topic's settings say about the times of what is appended to it."""

    log_append_time: bool
    before_ms: int | None  # how far a record may lie behind the clock; None: as far as it likes
    after_ms: int | None  # how far ahead of it


class Stamps(NamedTuple):
    """The rules at one moment, as integers that kernels can compare."""

    append_time_ms: int
    log_append_time: bool
    min_timestamp: int  # the window, both ends inside; -1 ("no time") is exempt from it
    max_timestamp: int


def rules_of(config: TopicConfig, magic: int) -> Rules:
    """Read the rules off a topic's settings, for batches to be stored in format `magic`.

    A LogAppendTime topic has no window, for it overwrites what the window would judge. Format 0
    carries no time, so nothing is judged either (KIP-32, migration phase 1: the field is ignored).
    """
    log_append_time = config.message_timestamp_type == LOG_APPEND_TIME
    if log_append_time or magic == 0:
        return Rules(log_append_time, None, None)
    before_ms, after_ms = config.timestamp_window
    return Rules(log_append_time, before_ms, after_ms)


def stamps_at(rules: Rules, last_append_time_ms: int | None, now_ms: int) -> Stamps:
    """Apply the rules at a moment.

    The window lies around the clock, not around the append time: a clock that was ahead for a
    while and has been set right must not go on admitting records from the future.
    """
    log_append_time, before_ms, after_ms = rules
    return Stamps(
        append_time(last_append_time_ms, now_ms),
        log_append_time,
        MIN_TIMESTAMP if before_ms is None else max(now_ms - before_ms, MIN_TIMESTAMP),
        MAX_TIMESTAMP if after_ms is None else min(now_ms + after_ms, MAX_TIMESTAMP),
    )


def reported(stamps: Stamps) -> int:
    """Return the time a ProduceResponse v2+ tells the producer: the stamp, or -1 (KIP-32, 6)."""
    return stamps.append_time_ms if stamps.log_append_time else NO_TIMESTAMP


# --- largest times and lookups -------------------------------------------------------------------


def or_none(timestamp: int) -> int | None:
    """Turn a time as it is written into a time as it is meant: -1 is none."""
    return None if timestamp == NO_TIMESTAMP else timestamp


def exceeds(timestamp: int | None, largest: int | None) -> bool:
    """Tell whether a time is larger than the largest so far; a missing time never is."""
    return timestamp is not None and (largest is None or timestamp > largest)


def reaches(largest: int | None, target: int) -> bool:
    """Tell whether records with this largest time hold one at or after `target` (KIP-33)."""
    return largest is not None and largest >= target


def expired(last_append_time_ms: int, now_ms: int, keep_ms: int) -> bool:
    """Tell whether something last touched at an append time has been idle for `keep_ms`."""
    return now_ms - last_append_time_ms >= keep_ms
