"""When batches begin a new segment of a log, and how. `storage/time/rolling.py` has the rules of time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.storage import files
from tidelog.storage.log.producers import producer_snapshots
from tidelog.storage.segment.log_file import Tail
from tidelog.storage.segment.segment import Segment
from tidelog.storage.time.rolling import should_roll

if TYPE_CHECKING:
    from tidelog.storage.log.settings import AppendSettings
    from tidelog.storage.log.state import LogState

_log = logging.getLogger("tidelog.storage")


def must_roll(
    state: LogState,
    settings: AppendSettings,
    size: int,
    last_offset: int,
    largest: int | None,
    append_time_ms: int | None,
    now_ms: int,
) -> bool:
    """Returns whether batches begin a new segment; needs the append lock. Raises OSError.

    An empty segment takes any batch. `size`, `last_offset` and `largest`, a record time, are those of the
    batches. Where their append time is unknown, no segment ends by time.
    """
    active = state.version.segments[-1]
    return active.tail.size > 0 and (
        state.begins_segment
        or active.log.is_ended
        or not active.indexes.has_room(
            size, last_offset, settings.segment_bytes, settings.index_bytes
        )
        or (
            append_time_ms is not None
            and should_roll(
                active.known.learn(),
                largest,
                append_time_ms,
                now_ms,
                settings.segment_ms,
                settings.min_roll_interval_ms,
            )
        )
    )


def roll(state: LogState) -> Segment:
    """Begins a new active segment at the log's end; needs the append lock. Raises OSError.

    The segment before it is written out, with a snapshot of the producers.
    """
    base_offset, previous = state.ends.log_end_offset, state.active
    previous.repair_tail()
    if base_offset <= state.gaps_end_offset:
        # Recovery allows gaps here, so it could not see that batches are missing.
        previous.sync()
        files.sync(state.directory)
    producer_snapshots.write(state.directory, base_offset, state.read_producers())
    if previous.append_times.finish(base_offset) and base_offset:
        if previous.known.times.has_unknown:
            # Without this end the next start would doubt the last append time, too.
            previous.append_times.sync()
        # A power loss may spoil what was written just now: the next flush syncs it too.
        state.limit_recovery_point(base_offset - 1)
    active = Segment(state.directory, base_offset, Tail(base_offset, 0))
    state.configure_segment(active)
    active.known.adoptions = state.timing.adoptions
    try:
        active.activate()
    except OSError:  # a batch may go to the previous segment; then none may begin here
        active.remove()
        raise
    version = state.version
    state.replace_segments((*version.segments, active), version.log_start_offset)
    state.begins_segment = False
    try:
        previous.seal()
    except OSError as error:  # an index that is too short costs time, but results are right
        _log.warning("index not written", extra={"segment": previous.path, "reason": str(error)})
    return active
