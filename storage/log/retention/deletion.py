"""What retention does to segments once `timestamps` has judged them: their files go, and it is said.

A partition decides when, under its locks; this is how. A policy is a rule in `timestamps`, and a limit
in `delete`. It goes on when the disk is full, for then it is
needed most: what a deletion writes is small, and room for it is made from what is about to go.
"""

from __future__ import annotations

import errno
import functools
import logging
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import CorruptMessage
from storage import filenames, files
from storage.time.retention import BY_EVENT_TIME, BY_SIZE, BY_TIME, Candidate, with_inherited_times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from storage.segment.segment import Segment
    from storage.time.retention import Retention
    from storage.time.segment_times import SegmentTimes

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a disk that is full, or of a user who has had enough of it."""

_log = logging.getLogger("tidelog.storage")


def is_full(error: OSError) -> bool:
    """Tell whether a disk is merely full: not a sync that failed, after which nothing is certain."""
    return error.errno in FULL and not isinstance(error, files.SyncError)


class Deletion(NamedTuple):
    """A segment that retention has deleted, and why."""

    base_offset: int
    end_offset: int
    size: int
    policy: str  # the setting that deleted it, or log start offset
    largest_time: int | None  # of its records
    last_append_time: int | None
    limit: int | None  # the setting's value, or the log start offset
    event_time: int | None  # the largest of its records, as far as it counts
    max_event_time: int | None  # the largest the partition has ever had, then


def candidates(segments: Sequence[Segment]) -> list[Candidate]:
    """Present segments to be judged; their times are read if they are asked for, raising OSError."""
    return with_inherited_times(
        Candidate(s.tail.end_offset, s.tail.size, functools.partial(_times_of, s)) for s in segments
    )


def _times_of(segment: Segment) -> SegmentTimes:
    return segment.times


def learn(segments: Sequence[Segment]) -> None:
    """Read what is not known of segments' times: the largest event time outlives what told it.

    One that cannot be read hinders no other from going; its event times are not counted then.
    """
    for segment in segments:
        try:
            segment.times  # noqa: B018 - asked for so that it is known
        except (OSError, CorruptMessage) as error:
            _log.warning(
                "times of a segment not read",
                extra={"segment": segment.path, "reason": str(error)},
            )


def make_room(segments: Sequence[Segment]) -> None:
    """Remove of segments about to go what can be made anew; raises OSError."""
    for segment in segments:
        segment.remove_indexes()
        files.unlink(filenames.snapshot_path(segment.directory, segment.base_offset))


def delete(
    segment: Segment,
    policy: str,
    retention: Retention,
    log_start_offset: int,
    max_event_time: int | None,
) -> tuple[Deletion, list[Path]]:
    """Rename a segment's files; return what to say of it, and what is to be removed later.

    Raises OSError, and then the segment is as it was.
    """
    times, _ = segment.known_times
    limits = {
        BY_TIME: retention.retention_ms,
        BY_SIZE: retention.retention_bytes,
        BY_EVENT_TIME: retention.event_ms,
    }
    deletion = Deletion(
        segment.base_offset,
        segment.tail.end_offset,
        segment.tail.size,
        policy,
        times.largest,
        times.last_append,
        limits.get(policy, log_start_offset),
        times.event,
        max_event_time,
    )
    away = segment.rename_away()
    snapshot = filenames.snapshot_path(segment.directory, segment.base_offset)
    try:
        files.unlink(snapshot)
    except OSError as error:  # the next clean stop removes it
        _log.warning("snapshot left", extra={"file": snapshot, "reason": str(error)})
    return deletion, away


def say(topic: str, partition: int, deletion: Deletion) -> None:
    """Leave a line in the log about a segment that went."""
    _log.info(
        "segment deleted", extra={"topic": topic, "partition": partition, **deletion._asdict()}
    )
