"""A log of which it is known what is durable: `commit`, `flush` and a clean stop move that on.

`commit` makes durable what acknowledgements wait for, `flush` all, indexes too, which moves the recovery
point; both may run in a thread beside appends. A new segment begins here as well: the one before it is
written out then, with a snapshot of the producers.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Required, TypedDict, Unpack

from protocol.errors import CorruptMessage, KafkaStorageError
from storage import filenames, files
from storage.log.opened_log import OpenedLog
from storage.log.producers import producer_snapshots, recovered_producers
from storage.log.recovery import loading
from storage.segment.log_file import Tail
from storage.segment.segment import Segment

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable
    from pathlib import Path

    from config.topic import TopicConfig
    from storage.log.producers.producer_state import Producers

_log = logging.getLogger("tidelog.storage")

_NO_SEGMENT = -1


class Left(TypedDict, total=False):
    """How a log was left, and what its broker knows; see `OpenedLog`."""

    now_ms: Required[int]
    recovery_point: int
    was_clean: bool
    log_start_offset: int
    cleaned_offset: int | None
    producer_id_expiration_ms: int
    boot_id: str


class DurableLog(OpenedLog):
    """The part of a partition that makes it durable."""

    def __init__(
        self,
        directory: Path,
        topic: str,
        index: int,
        topic_id: uuid.UUID | None,
        config: TopicConfig,
        **left: Unpack[Left],
    ) -> None:
        """Open the directory, and in flush mode make durable what was found. Raises OSError."""
        super().__init__(directory, topic, index, topic_id, config, **left)
        self._flushed_base = _NO_SEGMENT  # the segment whose files and names have been made durable
        if self._is_strict and self.durable_offset < self.log_end_offset:
            with contextlib.suppress(KafkaStorageError):  # it is offline then
                self.flush()  # what recovery found is shown to consumers: it must not get lost again

    @property
    def must_commit(self) -> bool:
        """Whether flush.messages has been reached: nothing is acknowledged before a `commit`."""
        return self.log_end_offset - self.durable_offset >= self.config.flush_messages

    # --- what appends need ------------------------------------------------------------------------

    def read_for_appends(self) -> None:
        """Read what an append may need of the log: its producers, its times.

        Up to a segment is read. The first append does it if nobody did. Raises KafkaStorageError.
        """
        self.producers  # noqa: B018 - asked for so that it is known
        try:
            self._active.times  # noqa: B018
        except OSError as error:
            raise self._storage_error("the log's times cannot be read", error) from error
        self.is_read = True

    @property
    def producers(self) -> Producers:
        """What is known of idempotent producers, read from snapshot and log when first asked."""
        while (producers := self._producers) is None:
            swaps = self._settled_swaps()
            try:
                read = recovered_producers.load_producers(
                    self.directory,
                    self._segments,
                    self._producer_id_expiration_ms,
                    self._opened_ms,
                    log_start_offset=self.log_start_offset,
                )
            except (OSError, CorruptMessage) as error:
                if swaps != self.swaps:
                    continue  # segments were replaced meanwhile
                if isinstance(error, CorruptMessage):
                    raise
                raise self._storage_error("producers' state cannot be read", error) from error
            if swaps == self.swaps:
                self._producers = read
        return producers

    def _roll(self) -> Segment:
        """Begin a new active segment at the log's end; raises OSError."""
        base_offset = self.log_end_offset
        previous = self._active
        previous.repair_tail()
        producer_snapshots.write(self.directory, base_offset, self.producers)
        active = Segment(self.directory, base_offset, Tail(base_offset, 0))
        active.event_slack_ms = self._event_slack_ms
        try:
            active.activate()
        except OSError:  # a batch may go to the segment before it, and none must begin here then
            active.remove()
            raise
        self._segments = (*self._segments, active)
        self._active = active
        try:
            previous.seal()
        except OSError as error:  # an index that is too short costs time, not answers
            _log.warning(
                "index not written", extra={"segment": previous.path, "reason": str(error)}
            )
        return active

    # --- make durable -----------------------------------------------------------------------------

    def commit(self) -> int:
        """Make the batches appended so far, and their append times, durable; return up to where.

        What an acknowledgement waits for: two syncs as a rule, for whatever came meanwhile. The
        indexes, and with them the recovery point, are left to `flush`. May run in a thread beside
        appends. Raises KafkaStorageError, and the log is offline when a sync failed.
        """
        with self._commit_lock:
            with self._append_lock:
                end_offset, active = self.log_end_offset, self._active
            self._check_usable()
            if end_offset <= self.durable_offset:
                return self.durable_offset
            if active.base_offset != self._flushed_base:
                return self.flush()  # new files, which need their names, and those before them
            try:
                with self._append_lock:
                    active.append_times.mark_end(active.tail.end_offset)
                self._sync(active.commit)
            except OSError as error:
                raise self._storage_error("the log cannot be made durable", error) from error
            self._now_durable(end_offset)
            return end_offset

    def _now_durable(self, end_offset: int) -> None:
        with self._append_lock:
            self.durable_offset = max(end_offset, self.durable_offset)
            self.high_watermark = max(self.durable_offset, self.high_watermark)
            self._largest_event.advance(self.high_watermark)

    def flush(self) -> int:
        """Make everything appended so far durable, indexes too; return the offset up to which it is.

        May run in a thread beside appends. Raises KafkaStorageError, and the log is offline when a
        sync failed.
        """
        with self._flush_lock:
            if self.offline is not None and not self.is_deleted:
                self._note_offline()
            with self._append_lock:
                end_offset, times = self.log_end_offset, self._times_now()
                active = self._active  # its append times have no file before the first batch
                base_offset = active.base_offset if active.tail.size else _NO_SEGMENT
            self._check_usable()
            if end_offset <= self.recovery_point:
                return self.recovery_point
            try:
                self._sync_all()
                self._save_times(times, durable=True)
            except OSError as error:
                raise self._storage_error("the log cannot be made durable", error) from error
            self.recovery_point = max(end_offset, self.recovery_point)
            self._covered_offset = end_offset
            self._flushed_base = base_offset
            self._now_durable(end_offset)
            self._logged_errors.clear()
            return end_offset

    def _sync(self, sync: Callable[[], None]) -> None:
        """Make files of a segment durable; raises OSError, and KafkaStorageError when a sync failed.

        Nobody else's sync may come between a failure and its being known: it would succeed.
        """
        with self._sync_lock:
            self.check_online()
            try:
                sync()
            except files.SyncError as error:
                raise self._storage_error("the log cannot be made durable", error) from error

    def _sync_all(self) -> None:
        """Make what lies beyond the recovery point durable, with the names of all; raises OSError."""
        for segment in self._segments:
            if segment.tail.end_offset > self.recovery_point:
                self._sync(segment.sync)
        if not self.recovery_point:  # the first time: the partition itself
            metadata = self.directory / filenames.PARTITION_METADATA_FILE
            if metadata.exists():
                files.sync(metadata)
            files.sync(self.directory.parent)
        self._epochs.sync()
        files.sync(self.directory)

    def save_times(self) -> None:
        """Make what is known of the log's times durable; for a thread. Raises KafkaStorageError."""
        try:
            with self._flush_lock:
                self._check_usable()
                self._save_times(self._covered_times(), durable=True)
        except OSError as error:
            raise self._storage_error("the log's times cannot be kept", error) from error

    def close(self) -> None:
        """Stop cleanly: write producers and indexes, make all durable. Raises KafkaStorageError.

        A log that is offline is not closed: the next start reads what the disk has.
        """
        if self.is_deleted or self._is_closed:
            return
        if self.offline is not None:
            self.flush()  # raises that it is
        with self._append_lock:
            self._is_closed = self._is_stopped = True
        try:
            self._active.repair_tail()
            snapshot = filenames.snapshot_path(self.directory, self.log_end_offset)
            if self._producers is not None or not snapshot.exists():
                producer_snapshots.write(self.directory, self.log_end_offset, self.producers)
            loading.remove_stray_snapshots(self.directory, self._segments)
            self._active.complete_indexes()
        except OSError as error:
            raise self._storage_error("the log cannot be closed", error) from error
        self.flush()
        try:
            self._save_times(self._times_now(), durable=True)
            self._active.seal()
        except OSError as error:
            raise self._storage_error("the index cannot be written", error) from error

    def mark_deleted(self) -> None:
        """Take no more batches and write no more files: another log may have their names soon.

        Waits for whoever is at it.
        """
        if self.is_deleted:
            return
        with self._commit_lock, self._flush_lock, self._append_lock:
            self.is_deleted = self._is_stopped = True
            for segment in self._segments:
                segment.rest()
