"""Opening a partition: builds a `LogState` from the content of its directory.

After a clean stop nothing of the log is read; after any other end `loading` recovers it first.
Begin here to see which checkpoints and settings count.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import files
from tidelog.storage.log import slices
from tidelog.storage.log.epochs import NO_EPOCH, LeaderEpochs
from tidelog.storage.log.high_watermark import Role
from tidelog.storage.log.recovery import loading
from tidelog.storage.log.settings import has_flush_rules
from tidelog.storage.log.state import LogState
from tidelog.storage.log.times import partition_times
from tidelog.storage.log.times.partition_times import ClockMark
from tidelog.storage.log.values import (
    NO_CLEANING,
    NO_TRUNCATION,
    Cleaning,
    Durability,
    Leadership,
    RecoveryState,
    Timing,
    Truncation,
)
from tidelog.storage.time.adoption import Adoptions
from tidelog.storage.time.corrections import NO_MARK, corrections_within, written_below

if TYPE_CHECKING:
    import uuid
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.config.topic import TopicConfig
    from tidelog.storage.log.times.partition_times import Cut, PartitionTimes
    from tidelog.storage.segment.segment import Segment
    from tidelog.storage.time.corrections import Correction, WrittenBehind

_log = logging.getLogger("tidelog.storage")


def open_log(
    directory: Path,
    topic: str,
    index: int,
    topic_id: uuid.UUID | None,
    config: TopicConfig,
    *,
    now_ms: int,
    recovery_point: int = 0,
    was_clean: bool = False,
    log_start_offset: int = 0,
    high_watermark: int | None = None,
    cleaned_offset: int | None = None,
    producer_id_expiration_ms: int = 86_400_000,
    boot_id: str = "",
    deletion_ms: int | None = None,
) -> LogState:
    """Opens a directory; recovers the log if the last stop was not clean.

    `boot_id` identifies this boot of the machine: appends since the last flush in another boot have
    no reliable append time. Before `cleaned_offset` the log has been compacted; None means never.
    `high_watermark` is that of the checkpoint: a replica of a log may be read so far, once it has a role.
    Raises OSError.
    """
    given = loading.Known(recovery_point, was_clean, log_start_offset, cleaned_offset)
    given = given._replace(boot_id=boot_id, now_ms=now_ms)
    known = _known(partition_times.read(directory), given, config)
    loaded = loading.load(directory, known, config.index_interval_bytes)
    recorded, segments = known.times, loaded.segments
    is_replicated = recorded is not None and recorded.is_replicated
    end_offset = segments[-1].tail.end_offset
    recovery_point, epochs = (
        min(known.recovery_point, end_offset),
        LeaderEpochs(directory, end_offset),
    )
    state = LogState(
        directory,
        topic,
        index,
        topic_id,
        boot_id=boot_id,
        producer_id_expiration_ms=producer_id_expiration_ms,
        config=config,
        segments=segments,
        log_start_offset=min(max(known.log_start_offset, segments[0].base_offset), end_offset),
        largest_event_time=None if recorded is None else recorded.max_event_time,
        durability=Durability(recovery_point, recovery_point, _covered(known, end_offset)),
        leadership=Leadership(
            None if is_replicated else Role.LEADER,
            is_replicated,
            epoch=max(0, epochs.last_begun),
        ),
        timing=Timing(
            Adoptions(loaded.adopted, now_ms),
            ClockMark() if recorded is None else recorded.clock,
            _corrections(known, segments),
            NO_MARK if recorded is None else recorded.mark,
            loaded.back_offset,
            written_behind=_written_behind(recorded, end_offset),
        ),
        recovery=RecoveryState(
            loaded.lost_offset, high_watermark, known.was_clean, loaded.unindexed_offset
        ),
        cleaning=NO_CLEANING if known.cleaned_offset is None else Cleaning(known.cleaned_offset),
        truncation=NO_TRUNCATION
        if recorded is None or recorded.cut is None
        else Truncation((), True),
        gaps_end_offset=loaded.gaps_end_offset,
        last_append_time_ms=loaded.last_append_time_ms,
        deletion_ms=now_ms if deletion_ms is None else deletion_ms,
        epochs=epochs,
    )
    return _begun(state, known, now_ms)


def _begun(state: LogState, known: loading.Known, now_ms: int) -> LogState:
    """Returns the state with its epoch and clocks begun, and saves its times. Raises OSError."""
    if state.epochs.last_begun == NO_EPOCH:
        epoch = max(0, _epoch_of_last_batch(state.version.segments))
        state.leadership = state.leadership._replace(epoch=epoch)
    _begin_clock(state, now_ms)
    state.arrivals.begin(state.max_event_time)
    _save_times(state, known)
    return state


def _known(
    recorded: PartitionTimes | None, given: loading.Known, config: TopicConfig
) -> loading.Known:
    """Returns what is known of a log: after a truncation checkpoints may be older than the log."""
    given = given._replace(
        is_compacted=config.is_compacted, has_flush_rules=has_flush_rules(config)
    )
    if recorded is None:
        return given
    start_offset, cut = max(given.log_start_offset, recorded.log_start_offset), recorded.cut
    if cut is None or (given.was_clean and cut.offset is None):  # the checkpoints are newer
        return given._replace(log_start_offset=start_offset, times=recorded._replace(cut=None))
    return given._replace(
        recovery_point=min(given.recovery_point, cut.recovery_point),
        was_clean=False,
        log_start_offset=recorded.log_start_offset,
        cleaned_offset=_smaller(given.cleaned_offset, cut.cleaned_offset),
        times=recorded,
    )


def _covered(known: loading.Known, end_offset: int) -> int:
    """Returns the offset before which append times survive a power loss."""
    if known.was_clean:
        return end_offset
    covered_offset = 0 if known.times is None else known.times.covered_offset
    return min(covered_offset, end_offset)


def _corrections(known: loading.Known, segments: Sequence[Segment]) -> tuple[Correction, ...]:
    """Returns the corrections of what the log still holds."""
    end_offset = segments[-1].tail.end_offset
    recorded = () if known.times is None else known.times.corrections
    return corrections_within(recorded, segments[0].base_offset, end_offset)


def _written_behind(recorded: PartitionTimes | None, end_offset: int) -> WrittenBehind | None:
    """Returns what leaders before have appended whose clocks were behind, as far as the log has it."""
    return None if recorded is None else written_below(recorded.written_behind, end_offset)


def _begin_clock(state: LogState, now_ms: int) -> None:
    """Counts an active segment from now where nobody knows what the clock showed when it began.

    Its append times still count from its first append. Behind a correction it takes no batches.
    """
    active, end_offset = state.active, state.ends.log_end_offset
    state.begins_segment = active.tail.size > 0 and (
        state.timing.back_offset == end_offset
        or any(each.end_offset == end_offset for each in state.timing.corrections)
    )
    times = active.known.times
    if active.tail.size and times.created_clock is None:
        is_known = active.append_times.at(active.base_offset) is not None
        times.created_clock = (
            now_ms if is_known else state.timing.adoptions.time_of(active.base_offset)
        )


def _save_times(state: LogState, known: loading.Known) -> None:
    """Writes `partition.times` if it does not describe the log as it was opened. Raises OSError."""
    times, was_clean = known.times, known.was_clean
    if times is None:
        is_adopted = state.size > 0 and (not was_clean or state.timing.adoptions.ranges != ())
        if state.size:
            _log.warning(
                "partition.times missing: the largest event time is that of the records in the log",
                extra=state.named(),
            )
        state.saved_times.save_covered(durable=is_adopted, losable=not is_adopted)
    elif times.cut is not None and times.cut.offset is not None:
        _complete(state, times.cut)
    elif (
        times.boot_id,
        times.back_offset,
        times.gaps_end_offset,
        times.adopted,
        times.corrections,
        times.written_behind,
    ) != (
        state.boot_id,
        state.timing.back_offset,
        state.gaps_end_offset,
        state.timing.adoptions.ranges,
        state.timing.corrections,
        state.timing.written_behind,
    ):
        # Batches to come must not be allowed the gaps of batches that were cut off, nor count as
        # written when those were. What is adopted now must not be adopted once more, later.
        has_new_end = times.gaps_end_offset != state.gaps_end_offset and not was_clean
        has_less = times.corrections != state.timing.corrections
        is_adopted = times.adopted != state.timing.adoptions.ranges
        durable = has_new_end or has_less or is_adopted
        state.saved_times.save_covered(durable=durable)
    elif was_clean:
        state.saved_times.note_saved(times)  # the last close wrote it durably


def _complete(state: LogState, cut: Cut) -> None:
    """Completes a truncation that a crash has interrupted, durably; raises OSError."""
    if cut.begins_anew:
        state.epochs.forget_all()
    else:
        state.epochs.truncate_to(state.ends.log_end_offset)
    state.active.sync()
    files.sync(state.directory)
    state.saved_times.save_covered(durable=True)


def _smaller(one: int | None, other: int | None) -> int | None:
    """Returns the smaller of two offsets below which a log was compacted.

    None stands for a log that was never compacted.
    """
    if one is None or other is None:
        return None if one is other else 0
    return min(one, other)


def _epoch_of_last_batch(segments: Sequence[Segment]) -> int:
    """Returns the epoch in the last batch's header, if no checkpoint has it. Raises OSError."""
    try:
        last = slices.last_batch(segments)
    except CorruptMessage:
        return NO_EPOCH
    return NO_EPOCH if last is None else last.leader_epoch
