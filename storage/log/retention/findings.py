"""What is known of a log when its times are judged, and what a diagnosis can find in it.

`known_times.py` and `directory/unopened.py` gather facts, and `diagnosis.py` judges them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.time.corrections import Correction
    from tidelog.storage.time.retention import Candidate
    from tidelog.storage.time.segment_times import SegmentTimes

# What was found: `Finding.kind`.
CANNOT_ROLL = "segment cannot roll"
EVENT_TIME_AHEAD = "maxEventTime ahead of the clock"
APPEND_TIME_AHEAD = "append time ahead of the clock"
OUTLIVES = "records outlive their retention"
UNKNOWN = "unknown append times"
WRONG_UNIT = "times in a wrong unit"
ZERO_TIME = "zero times of clients"
CORRECTED = "corrections in force"

# What helps: `Finding.remedy`.
RESET = "reset"  # let append times and maxEventTime go back
END_BY_AGE = "segment.ms"  # end segments by age
APPEND = "append"
REFUSE_OLD = "message.timestamp.before.max.ms"  # refuse records with such times
REFUSE_FUTURE = "message.timestamp.after.max.ms"
NAME_MISSING = "message.timestamp.missing.values"  # store records with such times without one
EXPLAIN = "explain"  # nothing has to be done, or the log lines say what

# The units of figures: `Finding.unit`.
MILLISECONDS = "ms"
SEGMENTS = "segments"
CORRECTIONS = "corrections"
APPENDS = "appends"


class Finding(NamedTuple):
    """One thing that is wrong with the times of a log."""

    kind: str
    figure: int
    unit: str
    sentence: str
    remedy: str
    value: str = ""  # what the remedy sets, where that depends on the topic's settings


class SegmentFacts(NamedTuple):
    """What is known of one segment."""

    base_offset: int
    candidate: Candidate  # with its times as retention judges them
    times: SegmentTimes  # as they were stored
    adopted_ms: int | None  # the latest adoption of a batch with an unknown append time
    unread_bytes: int = 0  # of its log: times of batches there are not known

    @property
    def is_known(self) -> bool:
        """Whether the times of all its batches are known."""
        return not self.unread_bytes


class Facts(NamedTuple):
    """What a diagnosis reads of one log. Times are in ms; None means that there is none."""

    segments: Sequence[SegmentFacts]
    log_start_offset: int
    high_watermark: int
    max_event_time: int | None
    last_append_time: int | None
    corrections: Sequence[Correction] = ()
    is_closed: bool = False  # the next request, or round of retention, that needs the log opens it
    is_replicated: bool = False  # other brokers have copies: append times go back by command alone
    zero_batches: int = 0  # that have arrived here since the log was opened, with a zero time
    zero_time: int | None = None  # the last of these times

    @property
    def unread_segments(self) -> int:
        """The number of segments whose times are not all known."""
        return sum(not segment.is_known for segment in self.segments)

    @property
    def unread_bytes(self) -> int:
        """The bytes of these segments that would have to be read."""
        return sum(segment.unread_bytes for segment in self.segments)


class Readings(NamedTuple):
    """What clocks show when a log is judged."""

    now_ms: int  # what the clock shows
    deletion_ms: int  # the time by which retention deletes
    check_interval_ms: int  # how often it does
