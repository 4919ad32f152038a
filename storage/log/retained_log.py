"""A log of which the oldest segments go: by retention, and up to where somebody deletes records.

What is to go is judged by `timestamps`, under no lock, for it may have to be read; how files go is in
`retention`. In between the log makes sure that what was judged still is so, keeps what the segments have
told of event time, and moves its start, which no restart moves back.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import CorruptMessage, OffsetOutOfRange
from storage.log.compacted_log import CompactedLog
from storage.log.retention import deletion
from storage.time.retention import Retention, retention_of, segments_to_delete

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.log.retention.deletion import Deletion
    from storage.segment.log_file import Tail
    from storage.segment.segment import Segment

_log = logging.getLogger("tidelog.storage")


class _Judged(NamedTuple):
    """The oldest segments of a log, which retention lets go of, as they were then."""

    segments: tuple[Segment, ...]
    tail: Tail | None  # of the last of them, where that was active
    rules: Retention
    policies: list[str]


class RetainedLog(CompactedLog):
    """The part of a partition that lets go of what is old."""

    def apply_retention(self, now_ms: int) -> list[Deletion]:
        """Delete the oldest segments as far as the topic's settings say; return what went.

        Each deletion is logged. Files that were deleted file.delete.delay.ms ago are removed. Meant
        for a thread, now and then. Raises KafkaStorageError.
        """
        self.check_online()
        try:
            while True:
                swaps = self._settled_swaps()
                try:
                    judged = self._judge(now_ms)
                except (OSError, CorruptMessage):
                    if swaps == self.swaps:
                        raise
                    continue  # segments were replaced under its eyes
                with self._flush_lock:
                    self._check_usable()
                    self._pending_deletes.remove_due(now_ms)
                    if self._still_holds(judged):
                        return self._delete_old_segments(judged, now_ms)
        except OSError as error:
            raise self._storage_error("retention failed", error) from error

    def _judge(self, now_ms: int) -> _Judged:
        """Tell which segments are to go, reading what is not known of their times; raises OSError.

        Under no lock, for a whole log may be read: commits and a deletion do not wait for it. It
        writes nothing.
        """
        segments, rules = self._segments, retention_of(self.config)
        # Before anything of it is looked at: what comes later is not judged.
        tail = segments[-1].tail
        if rules.event_ms is not None:
            deletion.learn(segments)
        policies = segments_to_delete(
            deletion.candidates(segments),
            rules,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            max_event_time=self.max_event_time,
        )
        deletion.learn(segments[: len(policies)])
        is_all = len(policies) == len(segments)
        return _Judged(segments[: len(policies)], tail if is_all else None, rules, policies)

    def _still_holds(self, judged: _Judged) -> bool:
        """Tell whether the segments judged are the oldest still, and the settings those they were."""
        return (
            self._segments[: len(judged.segments)] == judged.segments
            and retention_of(self.config) == judged.rules
        )

    def delete_records_before(self, offset: int) -> int:
        """Let the log start at `offset`, if it starts before; return where it starts (KIP-107).

        It is durable then. Whole segments before it go with the next `apply_retention`. Raises
        OffsetOutOfRange and KafkaStorageError.
        """
        self.check_online()
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"{self.topic}-{self.index}: offset {offset} is not between 0 and "
                f"{self.high_watermark}"
            )
        try:
            with self._flush_lock:
                self._check_usable()
                with self._append_lock:
                    self._start_at(offset)
                # What lies before the start must be on the disk, or a power loss would bring back
                # a log that ends before it starts.
                if self.recovery_point < self.log_start_offset:
                    self._sync_all()
                self._save_times(self._covered_times(), durable=True)
        except OSError as error:
            raise self._storage_error("records cannot be deleted", error) from error
        return self.log_start_offset

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            _log.info(
                "log start moved",
                extra={"topic": self.topic, "partition": self.index, "log_start_offset": offset},
            )

    def _delete_old_segments(self, judged: _Judged, now_ms: int) -> list[Deletion]:
        """Delete what has been judged; what the disk does not let go of stays, and goes next time."""
        policies = judged.policies
        if not policies:
            return []
        with self._append_lock:
            if self._is_stopped:
                return []
            if judged.tail is not None:
                last = judged.segments[-1]
                is_judged = self._active is last and last.tail == judged.tail
                if not is_judged or not self._roll_if_there_is_room():
                    policies.pop()
            going = judged.segments[: len(policies)]
            if not going:
                return []
            max_event_time, log_start_offset = self.max_event_time, self.log_start_offset
            self._largest_event.keep(max_event_time)
            # The start first: who finds the segments gone must not find the old start (`read`).
            self._start_at(self._segments[len(going)].base_offset)
            self._segments = self._segments[len(going) :]
        deletions: list[Deletion] = []
        try:
            self._save_times_on_full_disk(going)
            for segment, policy in zip(going, policies, strict=True):
                deleted, away = deletion.delete(
                    segment, policy, judged.rules, log_start_offset, max_event_time
                )
                self._pending_deletes.add(away, now_ms + self.config.file_delete_delay_ms)
                deletion.say(self.topic, self.index, deleted)
                deletions.append(deleted)
        except OSError:
            # Their files would be segments again after a restart. They are before the log's start now.
            with self._append_lock:
                self._segments = (*going[len(deletions) :], *self._segments)
            raise
        self._forget_epochs()
        return deletions

    def _roll_if_there_is_room(self) -> bool:
        """Begin a new segment, so that the last one may go too; False when the disk is full."""
        try:
            self._roll()
        except OSError as error:
            if not deletion.is_full(error):
                raise
            return False
        return True

    def _save_times_on_full_disk(self, going: Sequence[Segment]) -> None:
        """Keep what segments about to go have told; let them go even where there is no room for it.

        What is not kept then is kept with the next flush. Raises OSError.
        """
        try:
            self._save_times(self._covered_times(), durable=True)
        except OSError as error:
            if not deletion.is_full(error):
                raise
            deletion.make_room(going)
            with contextlib.suppress(OSError):
                self._save_times(self._covered_times(), durable=True)

    def _forget_epochs(self) -> None:
        """Drop leader epochs that have gone with their segments, or do so next time."""
        try:
            self._epochs.forget_before(self.log_start_offset)
        except OSError as error:
            _log.warning("leader epochs not written", extra={"reason": str(error)})
