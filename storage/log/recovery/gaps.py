"""Gaps in a log's offsets: those that compaction left, and those that a power loss left.

Compaction removes records, so a batch may begin later than the batch before it ends. Otherwise
every batch follows the one before it. A log knows the offset up to which it may have gaps, and
keeps it in `partition.times`: a gap is valid if the batch after it begins at that offset or before.
Recovery cuts the log at any other gap, because there a power loss took batches.

What lies before that offset is durable before a later segment begins. So a power loss leaves no gap
that looks like one of compaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.log.times.partition_times import PartitionTimes
    from tidelog.storage.segment.segment import Segment

NOWHERE = 0
ANYWHERE = 2**63


def gaps_end(
    segments: Sequence[Segment],
    known: PartitionTimes | None,
    *,
    cleaned_offset: int | None,
    is_compacted: bool,
    is_ours: bool,
) -> int:
    """Returns the offset up to which a log may have gaps that was not stopped cleanly.

    `is_ours` is false if another broker has written to the log since we did, `is_compacted` is the
    topic's setting. Raises OSError.
    """
    if not is_ours:
        return ANYWHERE
    if known is not None and known.gaps_end_offset is not None:
        return max(known.gaps_end_offset, cleaned_offset or NOWHERE)
    if is_compacted or cleaned_offset is not None:
        return ANYWHERE  # an older tidelog did not record its gaps, or the record is lost
    return _end_of_adopted(segments)


def gaps_end_after_clean_stop(
    segments: Sequence[Segment],
    known: PartitionTimes | None,
    *,
    cleaned_offset: int | None,
    end_offset: int,
) -> int:
    """Returns the offset up to which a log may have gaps that was stopped cleanly.

    If it is not the log that `partition.times` describes, another broker has written to it. All of
    it is durable, so a power loss has left no gap.
    """
    if known is None or known.gaps_end_offset is None:
        return end_offset
    described = {(line.base_offset, line.size) for line in known.segments}
    if any((s.base_offset, s.tail.size) not in described for s in segments):
        return end_offset
    return max(known.gaps_end_offset, cleaned_offset or NOWHERE)


def _end_of_adopted(segments: Sequence[Segment]) -> int:
    """Returns the last offset of the first segments that another broker wrote.

    Such segments have no append times. The first one that has some is ours: it begins where the
    one before it ends. Raises OSError.
    """
    for segment in segments:
        if has_append_times(segment):
            return max(NOWHERE, segment.base_offset - 1) if segment is not segments[0] else NOWHERE
    return ANYWHERE


def has_append_times(segment: Segment) -> bool:
    """Returns whether a segment's append times show that we wrote it.

    An empty file of append times is what a power loss leaves of a new segment. Raises OSError.
    """
    if len(segment.append_times):
        return segment.append_times.at(segment.base_offset) is not None
    return segment.append_times.file.path.exists()
