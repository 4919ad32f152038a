"""When a batch counts as appended whose append time nobody knows: when this broker adopted it.

A batch is adopted when this broker first finds it without a known append time: in a directory that
another broker wrote or that was copied without `.appendtimes`, or after a power loss. The dates of
files say nothing about it: copies, archives and images of containers set them as they like. The
moments are stored in `partition.times`, so a restart does not make adopted records younger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.time.timestamp import MAX_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MOST_RANGES = 32


class Adopted(NamedTuple):
    """Batches before `end_offset`, and not before that of the range before, were adopted then."""

    end_offset: int
    time_ms: int


class Adoptions(NamedTuple):
    """When batches with unknown append times were adopted, by offset."""

    ranges: tuple[Adopted, ...]  # by end offset
    latest_ms: int  # of batches that are in no range

    def time_of(self, offset: int) -> int:
        """Returns when the batch with this offset was adopted, if its append time is unknown."""
        for end_offset, time_ms in self.ranges:
            if offset < end_offset:
                return time_ms
        return self.latest_ms

    def latest_within(self, base_offset: int, end_offset: int) -> int:
        """Returns the latest moment at which a batch in these offsets may have been adopted."""
        start_offset, found = 0, [self.latest_ms]
        for range_end, time_ms in self.ranges:
            if range_end > base_offset and start_offset < end_offset:
                found.append(time_ms)
            start_offset = range_end
        return max(found[1:] or found)

    def corrected(self, correct: Callable[[int], int], start_offset: int = 0) -> Adoptions:
        """Returns the same with each moment, from an offset on, replaced by what it counts as."""
        ranges = tuple(
            Adopted(end_offset, correct(ms) if end_offset > start_offset else ms)
            for end_offset, ms in self.ranges
        )
        return Adoptions(ranges, correct(self.latest_ms))


# Of a segment of which nobody has said when it was adopted: no policy may delete it for its age.
NOT_ADOPTED = Adoptions((), MAX_TIMESTAMP)


def adopted_below(ranges: Sequence[Adopted], offset: int) -> tuple[Adopted, ...]:
    """Returns the ranges without what lies at an offset or after it."""
    kept = []
    for adopted in ranges:
        if adopted.end_offset >= offset:
            kept.append(Adopted(offset, adopted.time_ms))
            break
        kept.append(adopted)
    return tuple(kept)


def adopt(ranges: Sequence[Adopted], end_offset: int, now_ms: int) -> tuple[Adopted, ...]:
    """Returns the ranges with one more, from the last one's end to `end_offset`.

    Of too many ranges the oldest are joined, and count from the later moment.
    """
    if ranges and ranges[-1].end_offset >= end_offset:
        return tuple(ranges)
    return (*ranges, Adopted(end_offset, now_ms))[-_MOST_RANGES:]


def told_by_leader(
    told: Sequence[Adopted], own: Sequence[Adopted], end_offset: int
) -> tuple[Adopted, ...]:
    """Returns the ranges of a follower that ends at `end_offset`: its leader's, then its own.

    A new leader may know append times that the leader before it did not. It tells of no adoption
    there, and what the follower has without append times stays as old as it was.
    """
    told_end = told[-1].end_offset if told else -1
    behind = [each for each in adopted_below(own, end_offset) if each.end_offset > told_end]
    return (*told, *behind)[-_MOST_RANGES:]
