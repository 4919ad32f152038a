"""Loading a partition's segments: the steps of a start, in order.

After a clean stop (`.kafka_cleanshutdown` in the log directory) the recovery point is the end of
the log. The headers after the last index entry confirm that, and no more of the log is read. After
any other end, everything from the recovery point on is checked batch by batch, checksum and order,
and the log is cut at the first bad batch (`torn_tail`). Data before the recovery point was durable
and is trusted. A crash during recovery leaves a log that can be recovered again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import filenames
from tidelog.storage.log.recovery import (
    clean_stop,
    gaps,
    leftovers,
    listing,
    torn_tail,
    unknown_append_times,
    verification,
)
from tidelog.storage.segment.appended.checks import Stop
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.segment import Segment
from tidelog.storage.time.adoption import adopted_below
from tidelog.storage.time.corrections import last_step_back
from tidelog.storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.storage.log.times.partition_times import PartitionTimes
    from tidelog.storage.time.adoption import Adopted


class Loaded(NamedTuple):
    """The segments of a partition, checked as far as necessary."""

    segments: tuple[Segment, ...]  # by base offset, at least one; the last is open for append
    last_append_time_ms: int | None
    back_offset: int  # the last reset of the append clock; 0 if the log no longer has it
    gaps_end_offset: int  # up to which the log may have gaps; see `gaps`
    adopted: tuple[Adopted, ...] = ()  # when batches with unknown append times were adopted
    lost_offset: int | None = None  # of a replica: append times from it on were lost with the power
    unindexed_offset: int | None = None  # aborts from it on may lack their entry in the index


class Known(NamedTuple):
    """What is known of a log before it is loaded: from checkpoints, settings and `partition.times`."""

    recovery_point: int
    was_clean: bool
    log_start_offset: int
    cleaned_offset: int | None  # the log was compacted before it; None: never
    is_compacted: bool = False  # the topic's setting
    has_flush_rules: bool = False  # the topic's settings
    times: PartitionTimes | None = None
    boot_id: str = ""  # of this boot of the machine
    now_ms: int = 0


def load(directory: Path, known: Known, index_interval_bytes: int) -> Loaded:
    """Opens the segments of a directory; an empty one gets a segment at the log's start.

    A truncation that was in progress is completed. Raises OSError.
    """
    counted: PartitionTimes | None = None
    if leftovers.tidy(directory) and known.times is not None:
        counted = known.times
        known = known._replace(times=known.times._replace(segments=()))  # of replaced segments
    times, cut_offset = known.times, verification.NO_LIMIT
    if times is not None and times.cut is not None and times.cut.offset is not None:
        cut_offset, known = times.cut.offset, known._replace(was_clean=False)
        leftovers.remove_behind(directory, cut_offset, everything=times.cut.begins_anew)
    found = listing.listed(directory)
    segments = _described(directory, found.base_offsets, known.log_start_offset)
    for segment in segments:
        segment.indexes.interval_bytes = index_interval_bytes
    if counted is not None:
        clean_stop.bound_events(segments, counted)
    if not found.base_offsets:
        return _empty(segments, None if cut_offset == verification.NO_LIMIT else times)
    clean_stop.adopt_times(segments, times, was_clean=known.was_clean)
    is_ours = _lost_power_as_replica(known) or not clean_stop.was_open_in_kafka(segments[-1])
    end_offset = None
    if known.was_clean:
        end_offset = clean_stop.clean_end(segments[-1], known.recovery_point, times)
    recovered = torn_tail.Recovered({})
    if end_offset is not None:
        segments[-1].log.tail = Tail(end_offset, segments[-1].tail.size)
        gaps_end = gaps.gaps_end_after_clean_stop(
            segments, times, cleaned_offset=known.cleaned_offset, end_offset=end_offset
        )
    else:
        gaps_end, recovered = _recover(
            segments, known, index_interval_bytes, cut_offset, is_ours=is_ours
        )
        listing.remove_later_snapshots(
            directory, found.snapshot_offsets, segments[-1].tail.end_offset
        )
    for segment in segments[:-1]:
        segment.seal()
    segments[-1].known.is_closed = (
        end_offset is not None
    )  # a clean stop has closed its append times
    last_time, back_offset, adopted, sure_offset = _judge_append_times(
        segments, known, recovered.stamps, is_ours=is_ours
    )
    lost_offset = _lost_offset(segments, known, sure_offset, recovered.missing_offset)
    segments[-1].activate()
    covered_offset = -1 if times is None else times.covered_offset
    vouched_offset = segments[-1].append_times.end_offset
    if vouched_offset <= covered_offset:
        segments[-1].append_times.let_go_of_end()
    adopted = unknown_append_times.adopted(segments, adopted, known.now_ms)
    gaps_end = min(gaps_end, segments[-1].tail.end_offset)
    return Loaded(
        tuple(segments),
        last_time,
        back_offset,
        gaps_end,
        adopted,
        lost_offset,
        recovered.first_marker,
    )


def _empty(segments: Sequence[Segment], cut: PartitionTimes | None) -> Loaded:
    """Returns a log without records; `cut` is what was known of it if all were truncated."""
    segments[-1].activate()
    if cut is None:
        return Loaded(tuple(segments), None, 0, gaps.NOWHERE)
    return Loaded(tuple(segments), cut.last_append_time_ms, cut.back_offset, gaps.NOWHERE)


def _lost_offset(
    segments: Sequence[Segment], known: Known, sure_offset: int, missing_offset: int | None
) -> int | None:
    """Returns from where on a replica has lost append times that its leader has; None: nowhere.

    None before `sure_offset` was lost in this stop: what is unknown there was unknown before it. But
    a process that dies leaves each entry, which is written before its batch. One that is missing, in
    the segments from `missing_offset` on, was lost by a disk whose sync has failed.
    """
    if known.times is None or not known.times.is_replicated:
        return None
    if missing_offset is not None:
        covered_offset = known.times.covered_offset
        sure_offset = min(sure_offset, max(missing_offset, covered_offset))
    from_offset = max(sure_offset, known.log_start_offset)
    return unknown_append_times.lost_from(segments, from_offset, known.recovery_point)


def _lost_power_as_replica(known: Known) -> bool:
    """Returns whether the power has gone under a replica, which Kafka has no part in.

    Zeros at the end of an index, which Kafka leaves in a log that it has open, are then bytes that
    were never written.
    """
    times = known.times
    return times is not None and times.is_replicated and times.boot_id != known.boot_id


def _described(directory: Path, base_offsets: Sequence[int], start_offset: int) -> list[Segment]:
    """Returns the segments with their file sizes; else one empty segment. Raises OSError."""
    sizes = {
        base: (directory / filenames.segment_file(base, filenames.LOG_SUFFIX)).stat().st_size
        for base in base_offsets
    }
    bases = base_offsets or [start_offset]
    return [
        Segment(directory, base, Tail(following, sizes.get(base, 0)))
        for base, following in zip(bases, [*bases[1:], bases[-1]], strict=True)
    ]


def _recover(
    segments: list[Segment],
    known: Known,
    index_interval_bytes: int,
    cut_offset: int,
    *,
    is_ours: bool,
) -> tuple[int, torn_tail.Recovered]:
    """Checks and cuts a log after a crash; returns up to where it may have gaps, and what was read."""
    gaps_end = gaps.gaps_end(
        segments,
        known.times,
        cleaned_offset=known.cleaned_offset,
        is_compacted=known.is_compacted,
        is_ours=is_ours,
    )
    was_compacted = known.is_compacted or known.cleaned_offset is not None
    recovered = torn_tail.cut_torn_tail(
        segments,
        known.recovery_point,
        index_interval_bytes,
        log_start_offset=known.log_start_offset,
        gaps_end=gaps_end,
        may_end_in_gap=gaps_end != gaps.ANYWHERE or was_compacted,
        known=known.times,
        cut_offset=cut_offset,
        stop=Stop(
            lost_power=known.times is None or known.times.boot_id != known.boot_id,
            keeps_end=known.has_flush_rules and is_ours and known.times is not None,
        ),
    )
    torn_tail.drop_empty(segments, known.log_start_offset, gaps_end, was_compacted=was_compacted)
    return gaps_end, recovered


def _judge_append_times(
    segments: Sequence[Segment],
    known: Known,
    stamps: dict[int, int | None],
    *,
    is_ours: bool,
) -> tuple[int | None, int, tuple[Adopted, ...], int]:
    """Marks the append times that are unknown.

    Returns the last one, the last reset's offset, what was adopted before this start, and the
    offset before which none can have been lost in this stop.
    """
    times = known.times
    back_offset = 0 if times is None else times.back_offset
    is_at_end = back_offset == segments[-1].tail.end_offset  # no batch has been appended since
    if segments[-1].base_offset < back_offset and not is_at_end:
        # The reset was cut off: append times decrease at an earlier one, or nowhere.
        corrections = () if times is None else times.corrections
        back_offset = last_step_back(corrections, segments[-1].base_offset)
    # Entries that are doubted next count too, because append times never decrease.
    last_time = unknown_append_times.last_append_time(segments, back_offset, stamps)
    doubted_offset = unknown_append_times.unknown_from(
        segments, times, was_clean=known.was_clean, is_ours=is_ours, boot_id=known.boot_id
    )
    if doubted_offset is not None:
        unknown_append_times.mark_unknown(segments, doubted_offset, is_ours=times is not None)
    unknown_append_times.note_unknown(
        segments, was_clean=known.was_clean, recovery_point=known.recovery_point
    )
    if times is not None:
        last_time = later(times.last_append_time_ms, last_time)
    adopted = () if times is None else times.adopted
    kept_offset = segments[-1].tail.end_offset
    if doubted_offset is not None and (known.was_clean or not is_ours):
        kept_offset = min(kept_offset, doubted_offset)  # another broker may have replaced the rest
    sure_offset = kept_offset if doubted_offset is None else min(kept_offset, doubted_offset)
    return last_time, back_offset, adopted_below(adopted, kept_offset), sure_offset
