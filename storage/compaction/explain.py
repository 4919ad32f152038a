"""What compaction does to each segment of a log, or what it waits for, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.compaction import plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.storage.compaction.plan import CompactionRules, DirtySection
    from tidelog.storage.segment.segment import Segment

# What compaction has done to a segment, or does: `SegmentExplanation.compaction`.
CLEAN = "clean"
DUE = "next round"
DIRTY = "dirty"  # compaction waits until more bytes are dirty
HELD = "held"  # too young, or not below the high watermark
ACTIVE = "active"


class CompactionBlocker(NamedTuple):
    """A reason why no round compacts a log at all."""

    held_by: str
    sentence: str


class Compacting(NamedTuple):
    """A log under the given settings, as compaction sees it."""

    dirty_section: DirtySection
    rules: CompactionRules
    strategy: str
    blocker: CompactionBlocker | None = None


def of_segments(segments: Sequence[Segment], compacting: Compacting) -> list[tuple[str, str]]:
    """Returns for each segment its state, one of the constants above, and a sentence on it."""
    return [_of(segment, compacting) for segment in segments]


def _of(segment: Segment, compacting: Compacting) -> tuple[str, str]:
    dirty_section, rules, strategy, blocker = compacting
    end_offset = segment.tail.end_offset
    if segment.log.is_active:
        if blocker is not None:
            return ACTIVE, blocker.sentence
        return ACTIVE, "Compaction takes it once it has been closed."
    kept = "the newest record by time" if strategy == plan.TIMESTAMP else "the last record"
    if end_offset <= dirty_section.first_dirty_offset:
        return CLEAN, f"It is compacted: of each key {kept} before it or in it is left."
    if blocker is not None:
        return HELD, blocker.sentence
    if end_offset > dirty_section.upper_offset:
        if dirty_section.held_by == plan.NOT_SEEN:
            return HELD, "Compaction waits until consumers have been shown all of it."
        return HELD, (
            f"min.compaction.lag.ms={rules.min_lag_ms} keeps it, or one before it, from compaction."
        )
    if dirty_section.is_due:
        return DUE, f"The next round of compaction leaves of each key {kept}."
    return DIRTY, (
        f"Compaction waits until more than {100 * rules.min_ratio:g} percent of the closed segments' "
        f"bytes are dirty (min.cleanable.dirty.ratio): it is {100 * dirty_section.ratio:.0f} percent."
    )
