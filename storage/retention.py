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

from storage import files, recovery, timestamps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from storage.segment import Segment
    from storage.timestamps import Retention

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a disk that is full, or of a user who has had enough of it."""

_log = logging.getLogger("tidelog.storage")


class Deletion(NamedTuple):
    """A segment that retention has deleted, and why."""

    base_offset: int
    end_offset: int
    size: int
    policy: str  # retention.ms, retention.bytes or log start offset
    largest_time: int | None  # of its records
    last_append_time: int | None
    limit: int | None  # the setting's value, or the log start offset


def judge(
    segments: Sequence[Segment],
    retention: Retention,
    *,
    now_ms: int,
    log_start_offset: int,
    high_watermark: int,
) -> list[str]:
    """Return the policy by which each segment goes, from the oldest on; reads times if need be.

    Raises OSError.
    """
    candidates = [
        timestamps.Candidate(s.tail.end_offset, s.tail.size, functools.partial(_times_of, s))
        for s in segments
    ]
    return timestamps.segments_to_delete(
        candidates,
        retention,
        now_ms=now_ms,
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
    )


def _times_of(segment: Segment) -> timestamps.SegmentTimes:
    return segment.times


def make_room(segments: Sequence[Segment]) -> None:
    """Remove of segments about to go what can be made anew; raises OSError."""
    for segment in segments:
        segment.remove_indexes()
        files.unlink(recovery.snapshot_path(segment.directory, segment.base_offset))


def delete(
    segment: Segment, policy: str, retention: Retention, log_start_offset: int
) -> tuple[Deletion, list[Path]]:
    """Rename a segment's files; return what to say of it, and what is to be removed later.

    Raises OSError.
    """
    times, _ = segment.known_times
    limits = {
        timestamps.BY_TIME: retention.retention_ms,
        timestamps.BY_SIZE: retention.retention_bytes,
    }
    deletion = Deletion(
        segment.base_offset,
        segment.tail.end_offset,
        segment.tail.size,
        policy,
        times.largest,
        times.last_append,
        limits.get(policy, log_start_offset),
    )
    away = segment.rename_away()
    files.unlink(recovery.snapshot_path(segment.directory, segment.base_offset))
    return deletion, away


def say(topic: str, partition: int, deletion: Deletion) -> None:
    """Leave a line in the log about a segment that went."""
    _log.info(
        "segment deleted", extra={"topic": topic, "partition": partition, **deletion._asdict()}
    )
