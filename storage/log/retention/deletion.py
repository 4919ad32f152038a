"""Deleting segments that retention has expired: renaming their files, and logging why.

A partition decides under its locks when to delete; this module deletes. A new policy is a rule in
`storage/time/retention.py`, and a limit in `delete`. Deletion works on a full disk, where it is
needed most: it writes little, and frees space for that first.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import filenames, files, reserves
from tidelog.storage.time.retention import (
    BY_EVENT_TIME,
    BY_SIZE,
    BY_TIME,
    Candidate,
    with_inherited_times,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.retention import Retention
    from tidelog.storage.time.segment_times import SegmentTimes

_log = logging.getLogger("tidelog.storage")


def is_full(error: OSError) -> bool:
    """Returns whether an error means a full disk, and not a failed sync, which leaves doubt."""
    return error.errno in reserves.FULL and not isinstance(error, files.SyncError)


class Deletion(NamedTuple):
    """A segment that retention has deleted, and the reason."""

    base_offset: int
    end_offset: int
    size: int
    policy: str  # the setting that deleted it, or log start offset
    largest_time: int | None  # the largest record time of the segment
    last_append_time: int | None
    limit: int | None  # the setting's value, or the log start offset
    event_time: int | None  # the largest event time of the segment, as far as it counts
    max_event_time: int | None  # the partition's largest at that moment


def candidates(
    segments: Sequence[Segment], times_of: Callable[[Segment], SegmentTimes]
) -> list[Candidate]:
    """Returns segments for judgement.

    `times_of` returns what the times of a segment count as. It is called on demand, and may raise
    OSError.
    """
    return with_inherited_times(
        Candidate(s.tail.end_offset, s.tail.size, functools.partial(times_of, s)) for s in segments
    )


def learn(segments: Sequence[Segment]) -> None:
    """Reads unknown times of segments, so that the largest event time is kept after them.

    A segment that cannot be read does not prevent the deletion of others; its event times do not
    count.
    """
    for segment in segments:
        try:
            segment.known.learn()
        except (OSError, CorruptMessage) as error:
            _log.warning(
                "segment times not read",
                extra={"segment": segment.path, "reason": str(error)},
            )


def make_room(segments: Sequence[Segment]) -> None:
    """Removes the files of segments to delete that can be built again. Raises OSError."""
    for segment in segments:
        segment.files.remove_indexes()
        files.unlink(filenames.snapshot_path(segment.files.directory, segment.base_offset))


def delete(
    segment: Segment,
    judged: SegmentTimes,
    policy: str,
    retention: Retention,
    log_start_offset: int,
    max_event_time: int | None,
) -> tuple[Deletion, list[Path]]:
    """Renames a segment's files; returns the deletion, and the files to remove later.

    `judged` is what its times count as.

    Raises OSError; then the segment is as it was.
    """
    times = segment.known.times
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
        judged.event,
        max_event_time,
    )
    away = segment.files.rename_away()
    snapshot = filenames.snapshot_path(segment.files.directory, segment.base_offset)
    try:
        files.unlink(snapshot)
    except OSError as error:  # a leftover that the next clean stop removes
        _log.warning(
            "producer snapshot not removed", extra={"file": snapshot, "reason": str(error)}
        )
    return deletion, away


def say(topic: str, partition: int, deletion: Deletion) -> None:
    """Logs the deletion of a segment."""
    _log.info(
        "retention deleted segment",
        extra={"topic": topic, "partition": partition, **deletion._asdict()},
    )
