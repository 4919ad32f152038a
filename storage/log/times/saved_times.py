"""Saves what is known of a log's times in `partition.times`, when it has changed.

The content is collected from the log's state; nothing is read for it. What it says of append times
holds after a power loss, so between flushes it covers only those that are durable.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.storage import files
from tidelog.storage.log.times import partition_times
from tidelog.storage.log.times.partition_times import Cut, PartitionTimes
from tidelog.storage.time.corrections import counted_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.storage.log.state import LogState

_log = logging.getLogger("tidelog.storage")

# The boot id of a log that went offline, or that lost append times and has no role since. It differs
# from every other.
NO_BOOT = "offline"


class SavedTimes:
    """The file `partition.times` of one log, and what was last written to it."""

    __slots__ = ("_lock", "_of", "_saved", "_staged")

    def __init__(self, state: LogState) -> None:
        """Begins with nothing that is known to be saved."""
        # Weak, so that a deleted log goes at once: the garbage collector may not look at it again.
        self._of = weakref.ref(state)
        self._lock = threading.Lock()
        self._saved = b""  # the content of the file; empty if it has to be written
        self._staged = b""  # the content of the file that will replace it, if that was `stage`d

    @property
    def _state(self) -> LogState:
        state = self._of()
        assert state is not None  # only the state leads here
        return state

    def current(self) -> PartitionTimes:
        """Returns the content as it is once everything appended is durable."""
        state = self._state
        return PartitionTimes(
            state.max_event_time,
            state.last_append_time_ms,
            state.version.log_start_offset,
            state.ends.log_end_offset,
            state.boot_id,
            partition_times.lines_of(state.version.segments, state.cleaning.replacing),
            state.timing.back_offset,
            self._cut() if state.truncation.was_cut else None,
            state.gaps_end_offset,
            state.timing.adoptions.ranges,
            state.timing.corrections,
            state.timing.steps,
            state.leadership.is_replicated,
            state.timing.mark,
            state.timing.written_behind,
        )

    def _cut(self) -> Cut:
        """Returns the last truncation; nothing behind it is durable."""
        state = self._state
        recovery_point = min((state.durability.recovery_point, *state.truncation.pending[:1]))
        return Cut(recovery_point, state.cleaning.cleaned_offset, *state.truncation.pending)

    def covered(self) -> PartitionTimes:
        """Returns the content with only durable append times."""
        state = self._state
        with state.append_lock:
            return self.current()._replace(covered_offset=state.durability.covered_offset)

    def note_saved(self, times: PartitionTimes) -> None:
        """Records that the file has this content already, durably."""
        self._saved = partition_times.pack(times)

    def save_covered(self, *, durable: bool, losable: bool = False) -> None:
        """Writes what `covered` returns if it has changed. Raises OSError."""
        self._save_in_order(self.covered, durable=durable, losable=losable)

    def save_flushed(self, flushed: PartitionTimes) -> None:
        """Writes, durably, what `current` was when a flush began that has made all of it durable.

        What a follower has noted of its leader's clock since then is durable already, and stays.
        Raises OSError.
        """

        def collect() -> PartitionTimes:
            return self.current()._replace(
                covered_offset=flushed.covered_offset, segments=flushed.segments
            )

        self._save_in_order(collect, durable=True)

    def _save_in_order(
        self, collect: Callable[[], PartitionTimes], *, durable: bool, losable: bool = False
    ) -> None:
        """Collects the content and writes it; what changes meanwhile is written after it."""
        with self._state.append_lock:
            times = collect()
            self._lock.acquire()
        try:
            self._save(times, durable=durable, losable=losable)
        finally:
            self._lock.release()

    def save(self, times: PartitionTimes, *, durable: bool, losable: bool = False) -> None:
        """Writes the file if its content has changed. Raises OSError."""
        with self._lock:
            self._save(times, durable=durable, losable=losable)

    def _save(self, times: PartitionTimes, *, durable: bool, losable: bool = False) -> None:
        state, data = self._state, self._pack(times)
        if data != self._saved:
            partition_times.write(state.directory, data, durable=durable, losable=losable)
            # A log that is offline writes a file that may be lost once more, when it can.
            self._saved = b"" if losable and state.offline is not None else data

    def keep_events(self) -> None:
        """Writes as what the event times of all batches count, before their limit changes.

        Where a clock was corrected they count as less than when they were appended, by the limit.
        And a start after the process was killed would count those behind the last write by the
        new limit. What the disk refuses is logged. Needs the flush lock and the append lock.
        """
        state = self._state
        if state.is_stopped:
            return
        try:
            state.active.known.learn()
            for segment in state.version.segments:
                times = segment.known.times
                times.event = counted_event(times, state.judge(segment, times))
            self.save_covered(durable=False)
        except (OSError, CorruptMessage) as error:
            _log.warning("event times not saved", extra=state.named(reason=str(error)))

    def stage(self) -> None:
        """Writes what `current` returns beside the file if it has changed, for `publish`.

        Raises OSError.
        """
        with self._state.append_lock, self._lock:
            data = self._pack(self.current())
            if data != self._saved:
                files.stage(self._state.directory / partition_times.FILE_NAME, data)
                self._staged = data

    def publish(self) -> None:
        """Replaces the file by what was staged, which is durable; raises OSError."""
        with self._lock:
            if self._staged:
                files.publish(self._state.directory / partition_times.FILE_NAME)
                self._saved, self._staged = self._staged, b""

    def _pack(self, times: PartitionTimes) -> bytes:
        state = self._state
        times = times._replace(gaps_end_offset=state.gaps_end_offset)  # a follower's may be new
        lost_offset, covered_offset = state.recovery.lost_offset, times.covered_offset
        if lost_offset is not None:  # another start before it has a role must find that again
            covered_offset = min(covered_offset, lost_offset)
            times = times._replace(boot_id=NO_BOOT, covered_offset=covered_offset)
        if state.offline is not None:
            times = times._replace(boot_id=NO_BOOT)  # collected before it went offline
        return partition_times.pack(times)

    def sync(self) -> None:
        """Makes durable what was written last, which needs no room on the disk. Raises OSError."""
        with self._lock:
            path = self._state.directory / partition_times.FILE_NAME
            if path.exists():
                files.sync(path)

    def note_offline(self) -> None:
        """Records that the log went offline, as soon as the disk allows it.

        If the disk never allows it, the next start trusts the append times that it reads, unless
        the machine was restarted. What has to be cut off is recorded also where only syncs fail.
        """
        times = self.covered()
        try:
            self.save(times, durable=False)
        except OSError:
            if self._state.truncation.pending:
                with contextlib.suppress(OSError):
                    self.save(times, durable=False, losable=True)
