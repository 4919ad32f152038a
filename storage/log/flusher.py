"""Making a log durable: commit, flush and a clean stop.

`commit` makes durable what acknowledgements wait for. `flush` makes everything durable, indexes
too, and moves the recovery point. Both may run in a thread during appends.

A commit needs no room on the disk: the batches are there already, and it only syncs them. So a
full disk refuses a batch before it is stored or not at all, and what was refused never comes back.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage import filenames, files
from tidelog.storage.log.failures import storage_error
from tidelog.storage.log.producers import producer_snapshots
from tidelog.storage.log.recovery import listing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.storage.log.state import LogState
    from tidelog.storage.segment.segment import Segment

_NO_SEGMENT = -1


class Flusher:
    """Makes one log durable."""

    __slots__ = ("_flushed_base", "_has_new_end", "_state")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._has_new_end = False  # `begin_close` has written the end of the append times
        self._flushed_base = _NO_SEGMENT  # the segment whose files and names are durable

    @property
    def must_commit(self) -> bool:
        """Returns whether flush.messages is reached: acknowledgements must wait for a `commit`."""
        state = self._state
        unflushed = state.ends.log_end_offset - state.durability.durable_offset
        return unflushed >= state.rules.config.flush_messages

    def forget_flushed(self) -> None:
        """Makes the next commit sync the names of files again, after a truncation has changed them."""
        self._flushed_base = _NO_SEGMENT

    def commit(self) -> int:
        """Makes all appended batches and their append times durable.

        Returns the offset up to which.

        Acknowledgements wait for this: usually two syncs, for everything that was appended
        meanwhile. The indexes, and with them the recovery point, are left to `flush`. Where the
        disk has no room for what `flush` writes, this is left to the next one. May run in a thread
        during appends. Raises KafkaStorageError; if a sync failed, the log is offline.
        """
        state = self._state
        with state.commit_lock:
            with state.append_lock:
                end_offset, active = state.ends.log_end_offset, state.active
            state.check_usable()
            if end_offset <= state.durability.durable_offset:
                return state.durability.durable_offset
            try:
                if active.base_offset != self._flushed_base:
                    return self._commit_new_files(end_offset, active)
                self._mark_end(active)
                self.sync(active.commit)
            except OSError as error:
                raise storage_error(state, "the log cannot be made durable", error) from error
            state.mark_durable(end_offset)
            return end_offset

    def _commit_new_files(self, end_offset: int, active: Segment) -> int:
        """Makes durable what was appended, together with the names of new files.

        Returns the offset up to which. Raises OSError and KafkaStorageError.
        """
        state = self._state
        try:
            return self.flush()
        except KafkaStorageError:
            if state.offline is not None or state.is_deleted:
                raise
        with state.flush_lock:
            state.check_usable()
            self._mark_end(active)
            for segment in state.version.segments:
                if segment.tail.end_offset > state.durability.durable_offset:
                    self.sync(segment.commit)
            self.sync(state.saved_times.sync)  # it shows that the append times are this log's
            self._sync_names()
        state.mark_durable(end_offset)
        return end_offset

    def _mark_end(self, active: Segment) -> None:
        """Marks the append times as complete and durable, if the disk has room.

        In flush mode each append has done so, or was refused. Without the mark, those that are not
        covered yet are unknown after a power loss.
        """
        state = self._state
        with state.append_lock:
            try:
                active.append_times.mark_end(active.tail.end_offset)
            except OSError as error:
                storage_error(state, "the end of the append times is not marked", error)

    def flush(self) -> int:
        """Makes everything appended durable, indexes too; returns the offset up to which it is.

        May run in a thread during appends. Raises KafkaStorageError; if a sync failed, the log is
        offline.
        """
        state = self._state
        with state.flush_lock:
            if state.offline is not None and not state.is_deleted:
                state.saved_times.note_offline()
            with state.append_lock:
                end_offset, times = state.ends.log_end_offset, state.saved_times.current()
                active = state.active  # its append times file is created with the first batch
                base_offset = active.base_offset if active.tail.size else _NO_SEGMENT
            state.check_usable()
            if end_offset <= state.durability.recovery_point:
                return state.durability.recovery_point
            try:
                if active.append_times.has_end:
                    self._mark_end(active)  # it must not be behind what is covered
                self.sync_all()
                state.saved_times.save_flushed(times)
            except OSError as error:
                raise storage_error(state, "the log cannot be made durable", error) from error
            with state.append_lock:
                # A roll at this offset may have ended the append times after they were synced.
                is_ended = state.active is not active and active.tail.end_offset == end_offset
                recovery_point = end_offset - 1 if is_ended else end_offset
                state.mark_durable(
                    end_offset, recovery_point=recovery_point, covered_offset=end_offset
                )
            self._flushed_base = base_offset
            state.logged_errors = frozenset()
            return end_offset

    def sync(self, sync: Callable[[], None]) -> None:
        """Makes files of a segment durable. Raises OSError, and KafkaStorageError if a sync failed.

        No other sync may run between a failure and its report, because it would succeed.
        """
        state = self._state
        with state.sync_lock:
            state.check_online()
            try:
                sync()
            except files.SyncError as error:
                raise storage_error(state, "the log cannot be made durable", error) from error

    def sync_all(self) -> None:
        """Makes everything after the recovery point durable, with the names of all files.

        Needs the flush lock. Raises OSError, and KafkaStorageError if a sync failed.
        """
        for segment in self._unflushed():
            self.sync(segment.sync)
        self._sync_names()

    def _unflushed(self) -> Iterator[Segment]:
        """Returns the segments of which something lies behind the recovery point."""
        state = self._state
        for segment in state.version.segments:
            if segment.tail.end_offset > state.durability.recovery_point:
                yield segment

    def _sync_names(self) -> None:
        """Makes the names of all files durable, and the leader epochs; needs the flush lock."""
        state = self._state
        if (
            not state.durability.recovery_point
        ):  # the first time, sync the partition's directory itself
            metadata = state.directory / filenames.PARTITION_METADATA_FILE
            if metadata.exists():
                files.sync(metadata)
            files.sync(state.directory.parent)
        state.epochs.sync()
        files.sync(state.directory)

    def close(self) -> None:
        """Stops cleanly: writes producers and indexes, makes all durable. Raises KafkaStorageError.

        A log that is offline is not closed: the next start reads what is on disk.
        """
        if self.begin_close():
            self.end_close(is_synced=False)

    def begin_close(self, *, stages_times: bool = False) -> bool:
        """Writes what a clean stop leaves, but for `partition.times`; nothing is durable yet.

        With `stages_times` that is written, too, and gets its name in `end_close`. Returns False if
        the log is closed or deleted. Raises KafkaStorageError.
        """
        state = self._state
        if state.is_deleted or state.stopped.is_closed:
            return False
        if state.offline is not None:
            self.flush()  # raises because the log is offline
        with state.append_lock:
            state.stop(state.stopped._replace(is_closed=True))
        end_offset, active = state.ends.log_end_offset, state.active
        try:
            active.repair_tail()
            snapshot = filenames.snapshot_path(state.directory, end_offset)
            if state.producers is not None or not snapshot.exists():
                producer_snapshots.write(state.directory, end_offset, state.read_producers())
            listing.remove_stray_snapshots(state.directory, state.version.segments)
            active.indexes.complete()
            for segment in self._unflushed():
                if segment is not active:
                    segment.indexes.write()
            if active.append_times.has_end:
                self._mark_end(active)
            self._has_new_end = active.append_times.finish(end_offset)
            if stages_times:
                state.saved_times.stage()
        except OSError as error:
            raise storage_error(state, "the log cannot be closed", error) from error
        return True

    def end_close(self, *, is_synced: bool) -> None:
        """Completes what `begin_close` has begun: all is durable after it. Raises KafkaStorageError.

        `is_synced` says that all files and names are durable already, also what was staged. Then the
        name of a new `partition.times` is left to `sync_directory`.
        """
        state, active = self._state, self._state.active
        is_flushed = state.ends.log_end_offset <= state.durability.recovery_point
        try:
            if is_synced:
                self._note_synced()
            else:
                self.flush()
                if self._has_new_end and is_flushed:
                    self.sync(active.append_times.sync)
                state.saved_times.save(state.saved_times.current(), durable=True)
            active.seal()
        except OSError as error:
            raise storage_error(state, "the index cannot be written", error) from error

    def _note_synced(self) -> None:
        """Notes that all of a closed log is durable; what was staged gets its name.

        Raises OSError and KafkaStorageError.
        """
        state = self._state
        with state.flush_lock:
            state.check_usable()
            state.saved_times.publish()
            end_offset = state.ends.log_end_offset
            state.mark_durable(end_offset, recovery_point=end_offset)

    def sync_directory(self) -> None:
        """Makes the names of the log's files durable. Raises KafkaStorageError."""
        state = self._state
        try:
            self.sync(partial(files.sync, state.directory))
        except OSError as error:
            raise storage_error(state, "the log cannot be made durable", error) from error
