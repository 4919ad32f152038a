"""What compaction does to each segment of a log, or waits for: facts of `cleanable`, put into words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from storage.compaction import plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.compaction.plan import Dirt, Rules
    from storage.segment.segment import Segment

# What compaction has done to a segment, or does: `SegmentExplanation.compaction`.
CLEAN = "clean"
DUE = "next round"
DIRTY = "dirty"  # it waits until there is more
HELD = "held"  # it is too young, or not shown to consumers yet
ACTIVE = "active"


class Hindrance(NamedTuple):
    """What keeps every round of compaction from a log, whatever is dirty."""

    held_by: str
    sentence: str


class Compacting(NamedTuple):
    """A log under the given settings, as compaction sees it."""

    dirt: Dirt
    rules: Rules
    strategy: str
    hindrance: Hindrance | None = None


def of_segments(segments: Sequence[Segment], compacting: Compacting) -> list[tuple[str, str]]:
    """Say of each segment what it is to compaction: a constant, and a sentence."""
    return [_of(segment, compacting) for segment in segments]


def _of(segment: Segment, compacting: Compacting) -> tuple[str, str]:
    dirt, rules, strategy, hindrance = compacting
    end_offset = segment.tail.end_offset
    if segment.is_active:
        if hindrance is not None:
            return ACTIVE, hindrance.sentence
        return ACTIVE, "Compaction takes it once it has been closed."
    kept = "the newest record by time" if strategy == plan.TIMESTAMP else "the last record"
    if end_offset <= dirt.first_dirty_offset:
        return CLEAN, f"It is compacted: of each key {kept} before it or in it is left."
    if hindrance is not None:
        return HELD, hindrance.sentence
    if end_offset > dirt.upper_offset:
        if dirt.held_by == plan.NOT_SEEN:
            return HELD, "Compaction waits until consumers have been shown all of it."
        return HELD, (
            f"min.compaction.lag.ms={rules.min_lag_ms} keeps it, or one before it, from compaction."
        )
    if dirt.is_due:
        return DUE, f"The next round of compaction leaves of each key {kept}."
    return DIRTY, (
        f"Compaction waits until more than {100 * rules.min_ratio:g} percent of the closed segments' "
        f"bytes are dirty (min.cleanable.dirty.ratio): it is {100 * dirt.ratio:.0f} percent."
    )
