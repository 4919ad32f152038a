"""A log on disk as it was opened: its segments, what is known of its times, whether it is online.

The ground a partition stands on. A sync that fails takes the log offline until the process ends: the system
says once that it has lost something, and whoever asks again hears that all is well. A disk that is full
is no such failure.

Of the locks `_append_lock` keeps the active segment and which segments there are, `_flush_lock` keeps
flushing and retention apart, `_commit_lock` commits. Who needs several takes them from the last to the
first. Whatever writes files holds one of them, and a deletion takes all: behind it nothing is written.
The other two are held for one sync or one file, and nothing more is asked for but `_append_lock`.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from config.setting import LONG_MAX
from protocol.errors import BrokerError, CorruptMessage, KafkaStorageError, UnknownTopicOrPartition
from storage import files
from storage.log import partition_times, reading
from storage.log.epochs import NO_EPOCH, LeaderEpochs
from storage.log.largest_event import LargestEvent
from storage.log.recovery import loading
from storage.log.retention import deletion
from storage.log.retention.pending_deletes import PendingDeletes
from storage.log.settings import settings_of
from storage.segment.segment_line import SegmentLine
from storage.time.arrivals import Arrivals
from storage.time.event_time import event_slack

if TYPE_CHECKING:
    import uuid
    from pathlib import Path

    from config.topic import TopicConfig
    from storage.log.producers.producer_state import Producers
    from storage.segment.segment import Segment

_log = logging.getLogger("tidelog.storage")

NEWEST_MAGIC = 2
_NO_BOOT = "offline"  # names no start of any machine


class OpenedLog:
    """The segments of one partition, and what is known of them."""

    swaps = 0  # how often segments were replaced, counted when it begins and when it has ended
    _replacing: frozenset[int] = frozenset()  # base offsets of segments that are about to be

    def __init__(
        self,
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
        cleaned_offset: int | None = None,
        producer_id_expiration_ms: int = 86_400_000,
        boot_id: str = "",
    ) -> None:
        """Open the directory; recover the log when the last stop was not clean. Raises OSError.

        `boot_id` names this start of the machine: what was appended since the last flush of another one
        has no append time that could be relied on. Before `cleaned_offset` it was compacted: None is never.
        """
        self.directory = directory
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self._segments: tuple[Segment, ...] = ()
        self.arrivals = Arrivals(config)
        self.config = config
        self.leader_epoch = 0  # ours: the last one that began in this directory, wherever it was
        self.is_deleted = False
        self.offline: str | None = None  # why it is, from a failed sync to the end of the process
        self._is_closed = False
        self._is_stopped = False  # deleted, offline or closed: takes no batch
        self._logged_errors: set[tuple[str, str]] = set()  # said once, until a flush succeeds
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._opened_ms = now_ms
        self._producers: Producers | None = None  # read when the first sequence arrives
        self.is_read = False  # what appends need of the log is in memory; see `read_for_appends`
        self._flush_lock = threading.Lock()
        self._append_lock = threading.RLock()  # the active segment, and which segments there are
        self._commit_lock = threading.Lock()
        self._sync_lock = threading.Lock()  # one learns of a failure before another asks again
        self._times_lock = threading.Lock()  # partition.times is written
        self._boot_id = boot_id
        self._kept = b""  # what partition.times has
        self._pending_deletes = PendingDeletes()
        self.cleaned_offset = cleaned_offset  # for the checkpoint
        self._open(recovery_point, log_start_offset, was_clean=was_clean)

    def _open(self, recovery_point: int, log_start_offset: int, *, was_clean: bool) -> None:
        """Read what the directory holds, recovering it where that is needed; raises OSError."""
        directory, config, boot_id = self.directory, self.config, self._boot_id
        known = partition_times.read(directory)
        if known is not None:
            log_start_offset = max(log_start_offset, known.log_start_offset)
        loaded = loading.load(
            directory,
            recovery_point=recovery_point,
            was_clean=was_clean,
            log_start_offset=log_start_offset,
            index_interval_bytes=config.index_interval_bytes,
            contiguous=not config.is_compacted and self.cleaned_offset is None,
            known=known,
            boot_id=boot_id,
        )
        self._largest_event = LargestEvent(None if known is None else known.max_event_time)
        self._segments = loaded.segments
        for segment in loaded.segments:
            segment.event_slack_ms = self._event_slack_ms
        self._active = loaded.segments[-1]
        self._last_append_time_ms = loaded.last_append_time_ms
        self._back_offset = loaded.back_offset
        end_offset = self._active.tail.end_offset
        self.recovery_point = min(recovery_point, end_offset)
        self.log_start_offset = min(
            max(log_start_offset, loaded.segments[0].base_offset), end_offset
        )
        self._epochs = LeaderEpochs(directory, end_offset)
        self.leader_epoch = max(0, self._epochs.last_begun, self._epoch_of_last_batch())
        self.log_end_offset = end_offset
        self.high_watermark = end_offset
        self.arrivals.begin(self.max_event_time)
        self.durable_offset = self.recovery_point
        # Up to where append times would outlive a power loss.
        self._covered_offset = 0 if known is None else min(known.covered_offset, end_offset)
        if was_clean:
            self._covered_offset = end_offset
        self.is_read = not self.size
        if known is None and self.size:
            _log.warning(
                "partition.times missing: the largest event time is that of what the log holds",
                extra={"topic": self.topic, "partition": self.index},
            )
        if known is None or (known.boot_id, known.back_offset) != (boot_id, self._back_offset):
            self._save_times(self._covered_times(), durable=False, losable=known is None)
        elif was_clean:
            self._kept = partition_times.pack(known)  # as the last close left it, durably

    def _epoch_of_last_batch(self) -> int:
        """Return the epoch in the last batch's header, where no checkpoint tells; raises OSError."""
        if self._epochs.last_begun != NO_EPOCH:
            return NO_EPOCH
        try:
            last = reading.last_batch(self._segments)
        except CorruptMessage:
            return NO_EPOCH
        return NO_EPOCH if last is None else last.leader_epoch

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} at {self.log_end_offset}>"

    # --- what it is -------------------------------------------------------------------------------

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; a replacement holds from the next append on."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self._is_strict = config.flush_messages == 1
        self.has_flush_rules = (config.flush_messages, config.flush_ms) != (LONG_MAX, LONG_MAX)
        self._event_slack_ms = event_slack(config)
        for segment in self._segments:
            segment.event_slack_ms = self._event_slack_ms
        self.arrivals.expect(config)
        self._settings = settings_of(config, config.target_magic)
        self._internal_settings = settings_of(config, NEWEST_MAGIC)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided: there are none open here."""
        return self.high_watermark

    @property
    def last_append_time(self) -> int | None:
        """When the last batch was appended; None when nobody knows."""
        return self._last_append_time_ms

    @property
    def max_event_time(self) -> int | None:
        """The largest event time there ever was below the high watermark; see `largest_event`.

        Of segments whose times are not known yet nothing is read for it.
        """
        with self._append_lock:
            return self._largest_event.below(self.high_watermark, self._segments)

    def read_max_event_time(self) -> int | None:
        """Return `max_event_time`, reading what is not known of segments' times; raises OSError."""
        for segment in self._segments:
            segment.times  # noqa: B018 - asked for so that it is known
        return self.max_event_time

    @property
    def unknown_append_bytes(self) -> int | None:
        """The bytes of segments in which some append time is unknown; None where there are none.

        Nothing is read for it.
        """
        segments = (s for s in self._segments if s.known_times[0].has_unknown)
        return sum(segment.tail.size for segment in segments) or None

    @property
    def size(self) -> int:
        """The bytes of all segments' logs."""
        return sum(segment.tail.size for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments by base offset; the last one is active."""
        return self._segments

    def _settled_swaps(self) -> int:
        """Return `swaps` when no names are being changed: waits for that.

        Who reads files of segments while it is odd, or while it changes, may have read of two.
        """
        swaps = self.swaps
        if swaps & 1:
            with self._append_lock:
                swaps = self.swaps
        return swaps

    # --- what is known of times -------------------------------------------------------------------

    def _times_now(self) -> partition_times.PartitionTimes:
        """Gather what `partition.times` keeps; nothing is read for it."""
        lines = []
        for segment in self._segments:
            times, size = segment.known_times
            tail = segment.tail
            if size == tail.size and segment.base_offset not in self._replacing:
                line = SegmentLine(
                    segment.base_offset,
                    *tail,
                    times.copy(),
                    *segment.index_entries,
                    segment.is_true,
                )
                lines.append(line)
        return partition_times.PartitionTimes(
            self.max_event_time,
            self._last_append_time_ms,
            self.log_start_offset,
            self.log_end_offset,
            self._boot_id,
            tuple(lines),
            self._back_offset,
        )

    def _save_times(
        self, times: partition_times.PartitionTimes, *, durable: bool, losable: bool = False
    ) -> None:
        """Write `partition.times` where it has changed; raises OSError."""
        with self._times_lock:
            if self.offline is not None:
                times = times._replace(boot_id=_NO_BOOT)  # gathered before it was
            data = partition_times.pack(times)
            if data != self._kept:
                partition_times.write(self.directory, data, durable=durable, losable=losable)
                self._kept = data

    def _covered_times(self) -> partition_times.PartitionTimes:
        """Gather times, claiming no more append times than have been made durable."""
        with self._append_lock:
            return self._times_now()._replace(covered_offset=self._covered_offset)

    # --- when the disk fails ----------------------------------------------------------------------

    def check_online(self) -> None:
        """Raise KafkaStorageError when the log is offline."""
        if self.offline is not None:
            raise KafkaStorageError(f"{self.topic}-{self.index} is offline: {self.offline}")

    def _check_usable(self) -> None:
        """Raise what is wrong with a log whose files are not to be written; for holders of a lock."""
        self._check_deleted()
        self.check_online()

    def _check_deleted(self) -> None:
        if self.is_deleted:
            raise UnknownTopicOrPartition(f"{self.topic}-{self.index} has been deleted")

    def _go_offline(self, why: str) -> None:
        """Serve nothing until the next start, which finds out what the disk has.

        The system has said once that it lost something, and may have dropped it from memory: whoever
        tries again hears of success. What memory still holds would hide from recovery what
        is missing, so it is given up; and append times beyond what was made durable are not trusted.
        """
        with self._append_lock:
            if self.offline is not None:
                return
            self.offline, self._is_stopped = why, True
            segments = self._segments
        _log.critical(
            "log offline",
            extra={"topic": self.topic, "partition": self.index, "reason": why},
        )
        self._boot_id = _NO_BOOT
        self._note_offline()
        for segment in segments:
            if segment.tail.end_offset > self.recovery_point:
                with contextlib.suppress(OSError):
                    segment.forget_cached()

    def _note_offline(self) -> None:
        """Have partition.times say that the log went offline, as soon as the disk takes it.

        A start on a disk that never took it believes what append times it reads, unless the machine
        was started again: what cannot be written down cannot be heeded.
        """
        with contextlib.suppress(OSError):
            self._save_times(self._covered_times(), durable=False)

    def _storage_error(self, what: str, error: OSError) -> BrokerError:
        """Return the error for the client; a failed sync takes the log offline."""
        if self.is_deleted:
            return UnknownTopicOrPartition(f"{self.topic}-{self.index} has been deleted")
        reason = error.strerror or str(error)
        if error.errno in deletion.FULL:
            reason = f"the disk is full ({reason})"
        if isinstance(error, files.SyncError):
            self._go_offline(f"{what}: {reason}")
        if (what, reason) not in self._logged_errors:  # a full disk fails every append
            self._logged_errors.add((what, reason))
            _log.error(
                "storage error",
                extra={
                    "topic": self.topic,
                    "partition": self.index,
                    "what": what,
                    "reason": reason,
                },
            )
        return KafkaStorageError(f"{self.topic}-{self.index}: {what}: {reason}")
