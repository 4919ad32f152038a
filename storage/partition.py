"""One partition's log: where batches are numbered, stamped, stored, read and looked up.

One thread appends at a time; any thread may read, flush or apply retention meanwhile. An append
publishes `log_end_offset` last, so whoever sees an offset can read it. What fails is raised as a
BrokerError and leaves the log as it was: nothing is half stored, and a partition whose disk refuses
bytes goes on serving reads.

Every append has an append time, on every topic: it never goes back, and is kept in `.appendtimes`
before the batch is written. `config` may be replaced at any time; the next append goes by it, and
segments of mixed formats are normal.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from config.setting import LONG_MAX
from protocol.errors import (
    BrokerError,
    InvalidTxnState,
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
from protocol.records.prepare import Plan, inspect, prepare
from storage import (
    filenames,
    files,
    lookup,
    partition_times,
    producer_recovery,
    reading,
    recovery,
    retention,
    snapshots,
    timestamps,
)
from storage.epochs import LeaderEpochs
from storage.leaving import Leaving
from storage.segment import Segment, Tail
from storage.settings import settings_of

if TYPE_CHECKING:
    import uuid
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from config.topic import TopicConfig
    from protocol.records.batch import Batch
    from protocol.records.prepare import Prepared
    from storage.producers import ProducerBatch, Producers, Sequenced
    from storage.reading import Fetched
    from storage.retention import Deletion
    from storage.settings import Settings

_log = logging.getLogger("tidelog.storage")

_Answer = TypeVar("_Answer")

_NEWEST_MAGIC = 2
_EMPTY_SET = -1
_NO_SEGMENT = -1
_NO_BOOT = "offline"  # names no start of any machine


class Appended(NamedTuple):
    """What an append tells the producer. An empty set has base offset -1 and count 0."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 unless the topic is LogAppendTime
    log_start_offset: int
    count: int  # type: ignore[assignment]  # shadows tuple.count
    size: int
    duplicate: bool  # stored before; the answer is that of the first time
    converted: bool  # records were written anew


class Partition:
    """The log of one partition of a topic."""

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
        producer_id_expiration_ms: int = 86_400_000,
        boot_id: str = "",
    ) -> None:
        """Open the directory; recover the log when the last stop was not clean. Raises OSError.

        `boot_id` names this start of the machine: what was appended since the last flush of another one
        has no append time that could be relied on.
        """
        self.directory = directory
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.config = config
        self.leader_epoch = 0
        self.is_deleted = False
        self.offline: str | None = (
            None  # why the log is, from a failed sync to the end of the process
        )
        self._is_closed = False
        self._is_stopped = False  # deleted, offline or closed: takes no batch
        self._logged_errors: set[tuple[str, str]] = set()  # said once, until a flush succeeds
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._opened_ms = now_ms
        self._producers: Producers | None = None  # read when the first sequence arrives
        self._flush_lock = threading.Lock()
        self._append_lock = threading.RLock()  # the active segment, and which segments there are
        self._commit_lock = threading.Lock()
        self._flushed_base = _NO_SEGMENT  # the segment whose files and names have been made durable
        self._boot_id = boot_id
        self._kept = b""  # what partition.times has
        self._leaving = Leaving()
        known = partition_times.read(directory)
        if known is not None:
            log_start_offset = max(log_start_offset, known.log_start_offset)
        loaded = recovery.load(
            directory,
            recovery_point=recovery_point,
            was_clean=was_clean,
            first_offset=log_start_offset,
            index_interval_bytes=config.index_interval_bytes,
            contiguous=not config.is_compacted,
            known=known,
            boot_id=boot_id,
        )
        self._max_event_time = None if known is None else known.max_event_time
        self._segments = loaded.segments
        self._active = loaded.segments[-1]
        self._last_append_time_ms = loaded.last_append_time_ms
        end_offset = self._active.tail.end_offset
        self.recovery_point = min(recovery_point, end_offset)
        self.log_start_offset = min(
            max(log_start_offset, loaded.segments[0].base_offset), end_offset
        )
        self._epochs = LeaderEpochs(directory, end_offset)
        self.log_end_offset = end_offset
        self.high_watermark = end_offset
        self.durable_offset = self.recovery_point
        # Up to where append times would outlive a power loss.
        self._covered_offset = 0 if known is None else min(known.covered_offset, end_offset)
        if was_clean:
            self._covered_offset = end_offset
        if known is None or known.boot_id != boot_id:
            self._keep_times(self._covered_times(), durable=False, losable=known is None)
        if self._is_strict and self.durable_offset < end_offset:
            with contextlib.suppress(KafkaStorageError):  # it is offline then
                self.flush()  # what recovery found is shown to consumers: it must not get lost again

    def __repr__(self) -> str:
        return f"<Partition {self.topic}-{self.index} at {self.log_end_offset}>"

    # --- what it is ------------------------------------------------------------------------------

    @property
    def config(self) -> TopicConfig:
        """The topic's settings; a replacement holds from the next append on."""
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self._config = config
        self._is_strict = config.flush_messages == 1
        self.has_flush_rules = min(config.flush_messages, config.flush_ms) != LONG_MAX
        self._settings = settings_of(config, config.target_magic)
        self._internal_settings = settings_of(config, _NEWEST_MAGIC)

    @property
    def last_stable_offset(self) -> int:
        """The offset below which every transaction is decided: there are none open here."""
        return self.high_watermark

    @property
    def must_commit(self) -> bool:
        """Whether flush.messages has been reached: nothing is acknowledged before a `commit`."""
        return self.log_end_offset - self.durable_offset >= self.config.flush_messages

    @property
    def last_append_time(self) -> int | None:
        """When the last batch was appended; None when nobody knows."""
        return self._last_append_time_ms

    @property
    def max_event_time(self) -> int | None:
        """The largest event time ever, each counted at most a bounded way beyond its append time.

        Of segments whose times are not known yet nothing is read for it.
        """
        largest = self._max_event_time
        for segment in self._segments:
            largest = timestamps.later(segment.known_times[0].event, largest)
        return largest

    @property
    def size(self) -> int:
        """The bytes of all segments' logs."""
        return sum(segment.tail.size for segment in self._segments)

    @property
    def unknown_append_bytes(self) -> int | None:
        """The bytes of segments in which some append time is unknown; None where there are none.

        Nothing is read for it.
        """
        segments = (s for s in self._segments if s.known_times[0].has_unknown)
        return sum(segment.tail.size for segment in segments) or None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments by base offset; the last one is active."""
        return self._segments

    # --- append ----------------------------------------------------------------------------------

    def append(
        self,
        records: files.Buffer,
        *,
        now_ms: int,
        produce_version: int,
        internal: bool = False,
        unpack_limit: int | None = None,
    ) -> Appended:
        """Store a produced record set; return where it went and what the producer is told.

        `internal`: the broker's own append, or one to a topic of its own, which is format 2
        whatever the settings say, and may hold control batches. A transactional batch is refused with
        InvalidTxnState (48): transactions are not served yet. What unpacks to more than `unpack_limit`
        bytes is CorruptMessage, for a caller who has no time for it. Raises what `inspect` and
        `prepare` raise, the producers' errors, RecordListTooLarge, KafkaStorageError.
        """
        settings = self._internal_settings if internal else self._settings
        produced = inspect(
            records,
            produce_version=produce_version,
            max_message_bytes=settings.max_message_bytes,
        )
        batches = produced.batches
        if not batches:
            return self._nothing_appended()
        first, sequenced = batches[0], None
        if first.producer_id >= 0 and len(batches) == 1:  # no set of several may be idempotent
            sequenced = self._sequence_of(first, settings.magic, internal)
            if sequenced is not None:
                duplicate = self.producers.check(sequenced, now_ms)
                if duplicate is not None:
                    return self._answer_duplicate(duplicate)
        stamps = timestamps.stamps_at(settings.rules, self._last_append_time_ms, now_ms)
        prepared = prepare(
            records,
            produced,
            Plan(
                self.log_end_offset,
                settings.magic,
                settings.compression,
                *stamps,
                self.leader_epoch,
                settings.compacted,
                settings.max_message_bytes,
                internal,
                unpack_limit,
            ),
        )
        if not prepared.batches:
            return self._nothing_appended()
        with self._append_lock:
            self._write(prepared, stamps.append_time_ms, settings)
            self._last_append_time_ms = stamps.append_time_ms
            if sequenced is not None:
                offsets = (prepared.first_offset, prepared.last_offset)
                self.producers.appended(sequenced, offsets, stamps.append_time_ms)
            self.log_end_offset = end_offset = prepared.last_offset + 1
            if not self._is_strict:
                self.high_watermark = end_offset
        return Appended(
            prepared.first_offset,
            prepared.last_offset,
            timestamps.reported(stamps),
            self.log_start_offset,
            prepared.count,
            prepared.size,
            False,
            prepared.converted,
        )

    def _sequence_of(self, batch: Batch, magic: int, internal: bool) -> Sequenced | None:
        """Return what an idempotent batch says of its producer; None where `prepare` refuses it."""
        if batch.is_transactional and magic == _NEWEST_MAGIC and not internal:
            raise InvalidTxnState(
                f"{self.topic}-{self.index}: this broker does not serve transactions yet"
            )
        if batch.base_sequence < 0 or batch.count < 1:
            return None
        return producer_recovery.sequenced(batch)

    def _answer_duplicate(self, duplicate: ProducerBatch) -> Appended:
        """Answer as the first time: its offsets, and its stamp, which the stored header has."""
        log_append_time_ms = timestamps.NO_TIMESTAMP
        segment = reading.segment_of(self._segments, duplicate.first_offset)
        try:
            found = None if segment is None else segment.header_of(duplicate.first_offset)
        except OSError as error:
            raise self._storage_error("a duplicate's first batch cannot be read", error) from error
        if found is not None and found.batch.is_log_append_time:
            log_append_time_ms = found.batch.max_timestamp
        return Appended(
            duplicate.first_offset,
            duplicate.last_offset,
            log_append_time_ms,
            self.log_start_offset,
            duplicate.last_offset - duplicate.first_offset + 1,
            0,
            True,
            False,
        )

    def _write(self, prepared: Prepared, append_time_ms: int, settings: Settings) -> None:
        """Put prepared batches behind the last one, in a new segment if they do not fit."""
        if self._is_stopped:
            self._check_deleted()
            self.check_online()
            raise KafkaStorageError(f"{self.topic}-{self.index} is closed")
        size = prepared.size
        if size > settings.segment_bytes:
            raise RecordListTooLarge(
                f"{self.topic}-{self.index}: {size} bytes of records, and segment.bytes is "
                f"{settings.segment_bytes}"
            )
        largest = prepared.batches[0].largest
        for batch in prepared.batches[1:]:
            largest = timestamps.later(batch.largest, largest)
        active = self._active
        try:
            if not active.has_room(
                size, prepared.last_offset, settings.segment_bytes, settings.max_index_entries
            ) or timestamps.should_roll(
                active.times,
                largest,
                append_time_ms,
                settings.segment_ms,
                settings.min_roll_interval_ms,
            ):
                active = self._roll()
            if self._epochs.latest < self.leader_epoch:
                self._epochs.begin(self.leader_epoch, prepared.first_offset)
            active.append(
                prepared.buffers,
                size,
                prepared.batches,
                append_time_ms,
                timestamps.event_limit(settings.rules, append_time_ms),
                settings.index_interval_bytes,
            )
        except OSError as error:
            raise self._storage_error("the records were not stored", error) from error

    def _roll(self) -> Segment:
        """Begin a new active segment at the log's end; raises OSError."""
        base_offset = self.log_end_offset
        previous = self._active
        previous.mend()
        snapshots.write(self.directory, base_offset, self.producers)
        active = Segment(self.directory, base_offset, Tail(base_offset, 0))
        active.activate()
        self._segments = (*self._segments, active)
        self._active = active
        try:
            previous.seal()
        except OSError as error:  # an index that is too short costs time, not answers
            _log.warning(
                "index not written", extra={"segment": previous.path, "reason": str(error)}
            )
        return active

    @property
    def producers(self) -> Producers:
        """What is known of idempotent producers, read from snapshot and log when first asked."""
        producers = self._producers
        if producers is None:
            try:
                producers = producer_recovery.load_producers(
                    self.directory,
                    self._segments,
                    self._producer_id_expiration_ms,
                    self._opened_ms,
                )
            except OSError as error:
                raise self._storage_error("producers' state cannot be read", error) from error
            self._producers = producers
        return producers

    # --- read ------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, upper_offset: int, minimum_one: bool) -> Fetched:
        """Read from the batch that holds `offset`, at most `max_bytes`, below `upper_offset`.

        Whole slices of the log, unchanged: the first batch may begin before `offset`, the last may
        be cut short by `max_bytes`. With `minimum_one` the first batch comes whole, whatever
        its size. Raises OffsetOutOfRange and KafkaStorageError.
        """
        if self.offline is not None:
            self.check_online()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic}-{self.index}: offset {offset} is not between "
                f"{self.log_start_offset} and {self.log_end_offset}"
            )
        try:
            return reading.read(
                self._segments,
                offset,
                max_bytes,
                upper_offset=upper_offset,
                minimum_one=minimum_one,
            )
        except OSError as error:
            if offset < self.log_start_offset:  # retention was faster
                raise OffsetOutOfRange(
                    f"{self.topic}-{self.index}: offset {offset} is gone; the log starts at "
                    f"{self.log_start_offset}"
                ) from error
            raise self._storage_error("the log cannot be read", error) from error

    # --- look up ---------------------------------------------------------------------------------

    def find_by_time(self, timestamp: int, *, upper_offset: int) -> tuple[int, int] | None:
        """Return (offset, time) of the first data record at or after a time, or None.

        Exact, in offset order, below `upper_offset`; any time is a real one here, -1 excepted.
        Raises KafkaStorageError.
        """
        return self._looking(
            lambda: lookup.find_time(
                self._segments,
                timestamp,
                start_offset=self.log_start_offset,
                upper_offset=upper_offset,
            )
        )

    def find_largest_time(self, *, upper_offset: int) -> tuple[int, int] | None:
        """Return (offset, time) of the first record with the largest time, or None (KIP-734).

        Raises KafkaStorageError.
        """
        return self._looking(
            lambda: lookup.find_largest(
                self._segments, start_offset=self.log_start_offset, upper_offset=upper_offset
            )
        )

    def offsets_before_v0(self, timestamp: int, max_offsets: int) -> list[int]:
        """Answer ListOffsets v0; see `lookup.offsets_before`. Raises KafkaStorageError."""
        return self._looking(
            lambda: lookup.offsets_before(
                self._segments,
                timestamp,
                max_offsets,
                start_offset=self.log_start_offset,
                upper_offset=self.high_watermark,
            )
        )

    def _looking(self, look: Callable[[], _Answer]) -> _Answer:
        """Look something up; once more, if the log has lost segments meanwhile."""
        self.check_online()
        segments = self._segments
        try:
            return look()
        except OSError as error:
            if segments[0] is self._segments[0]:
                raise self._storage_error("the log cannot be read", error) from error
        try:
            return look()
        except OSError as error:
            raise self._storage_error("the log cannot be read", error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the largest epoch up to `epoch`, where it ended); (-1, -1) if still to come."""
        return self._epochs.end_offset_of(epoch, self.log_end_offset)

    def append_time_of(self, offset: int) -> int | None:
        """Return when the batch with this offset was appended, None when nobody knows.

        Raises KafkaStorageError.
        """
        segment = reading.segment_of(self._segments, offset)
        if segment is None or not self.log_start_offset <= offset < self.log_end_offset:
            return None
        try:
            return segment.append_times.at(offset)
        except OSError as error:
            raise self._storage_error("append times cannot be read", error) from error

    # --- keep ------------------------------------------------------------------------------------

    def commit(self) -> int:
        """Make the batches appended so far, and their append times, durable; return up to where.

        What an acknowledgement waits for: two syncs as a rule, for whatever came meanwhile. The
        indexes, and with them the recovery point, are left to `flush`. May run in a thread beside
        appends. Raises KafkaStorageError, and the log is offline when a sync failed.
        """
        with self._commit_lock:
            with self._append_lock:
                end_offset, active = self.log_end_offset, self._active
            self.check_online()
            if end_offset <= self.durable_offset:
                return self.durable_offset
            if active.base_offset != self._flushed_base:
                return self.flush()  # new files, which need their names, and those before them
            try:
                with self._append_lock:
                    active.append_times.mark_end(active.tail.end_offset)
                active.commit()
            except OSError as error:
                raise self._storage_error("the log cannot be made durable", error) from error
            self._now_durable(end_offset)
            return end_offset

    def _now_durable(self, end_offset: int) -> None:
        with self._append_lock:
            self.durable_offset = max(end_offset, self.durable_offset)
            self.high_watermark = max(self.durable_offset, self.high_watermark)

    def flush(self) -> int:
        """Make everything appended so far durable, indexes too; return the offset up to which it is.

        May run in a thread beside appends. Raises KafkaStorageError, and the log is offline when a
        sync failed.
        """
        with self._flush_lock:
            with self._append_lock:
                end_offset, times = self.log_end_offset, self._times_now()
                base_offset = self._active.base_offset
            self.check_online()
            if end_offset <= self.recovery_point:
                return self.recovery_point
            try:
                self._sync_all()
                self._keep_times(times, durable=True)
            except OSError as error:
                raise self._storage_error("the log cannot be made durable", error) from error
            self.recovery_point = max(end_offset, self.recovery_point)
            self._covered_offset = end_offset
            self._flushed_base = base_offset
            self._now_durable(end_offset)
            self._logged_errors.clear()
            return end_offset

    def _sync_all(self) -> None:
        """Make what lies beyond the recovery point durable, with the names of all; raises OSError."""
        for segment in self._segments:
            if segment.tail.end_offset > self.recovery_point:
                segment.sync()
        if not self.recovery_point:  # the first time: the partition itself
            metadata = self.directory / filenames.PARTITION_METADATA_FILE
            if metadata.exists():
                files.sync(metadata)
            files.sync(self.directory.parent)
        self._epochs.sync()
        files.sync(self.directory)

    def _times_now(self) -> partition_times.PartitionTimes:
        """Gather what `partition.times` keeps; nothing is read for it."""
        lines = []
        for segment in self._segments:
            times, size = segment.known_times
            tail = segment.tail
            if size == tail.size:
                line = partition_times.SegmentLine(
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
        )

    def _keep_times(
        self, times: partition_times.PartitionTimes, *, durable: bool, losable: bool = False
    ) -> None:
        """Write `partition.times` where it has changed; raises OSError."""
        data = partition_times.pack(times)
        if data != self._kept:
            partition_times.write(self.directory, data, durable=durable, losable=losable)
            self._kept = data

    def close(self) -> None:
        """Stop cleanly: write producers and indexes, make all durable. Raises KafkaStorageError.

        A log that is offline is not closed: the next start reads what the disk has.
        """
        if self.is_deleted or self._is_closed:
            return
        self.check_online()
        with self._append_lock:
            self._is_closed = self._is_stopped = True
        try:
            self._active.mend()
            snapshot = recovery.snapshot_path(self.directory, self.log_end_offset)
            if self._producers is not None or not snapshot.exists():
                snapshots.write(self.directory, self.log_end_offset, self.producers)
            recovery.remove_stray_snapshots(self.directory, self._segments)
            self._active.complete_indexes()
        except OSError as error:
            raise self._storage_error("the log cannot be closed", error) from error
        self.flush()
        try:
            self._keep_times(self._times_now(), durable=True)
            self._active.seal()
        except OSError as error:
            raise self._storage_error("the index cannot be written", error) from error

    # --- let go ----------------------------------------------------------------------------------

    def apply_retention(self, now_ms: int) -> list[Deletion]:
        """Delete the oldest segments as far as the topic's settings say; return what went.

        Each deletion is logged. Files that were deleted file.delete.delay.ms ago are removed. Meant
        for a thread, now and then. Raises KafkaStorageError.
        """
        self.check_online()
        rules = timestamps.retention_of(self.config)
        try:
            self._leaving.remove_due(now_ms)
            with self._flush_lock:
                return self._delete_old_segments(now_ms, rules)
        except OSError as error:
            raise self._storage_error("retention failed", error) from error

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
                with self._append_lock:
                    self._start_at(offset)
                # What lies before the start must be on the disk, or a power loss would bring back
                # a log that ends before it starts.
                if self.recovery_point < self.log_start_offset:
                    self._sync_all()
                self._keep_times(self._covered_times(), durable=True)
        except OSError as error:
            raise self._storage_error("records cannot be deleted", error) from error
        return self.log_start_offset

    def _covered_times(self) -> partition_times.PartitionTimes:
        """Gather times, claiming no more append times than have been made durable."""
        with self._append_lock:
            return self._times_now()._replace(covered_offset=self._covered_offset)

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            _log.info(
                "log start moved",
                extra={"topic": self.topic, "partition": self.index, "log_start_offset": offset},
            )

    def _delete_old_segments(self, now_ms: int, rules: timestamps.Retention) -> list[Deletion]:
        segments = self._segments
        policies = retention.judge(
            segments,
            rules,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
        )
        if not policies:
            return []
        judged = segments[len(policies) - 1].tail
        with self._append_lock:
            if self._is_stopped:
                return []
            if len(policies) == len(segments):
                is_judged = self._active is segments[-1] and self._active.tail == judged
                if not is_judged or not self._roll_if_there_is_room():
                    policies.pop()
            going = segments[: len(policies)]
            if not going:
                return []
            self._max_event_time = self.max_event_time
            self._segments = self._segments[len(going) :]
            self._start_at(self._segments[0].base_offset)
        self._keep_times_on_full_disk(going)
        deletions = []
        for segment, policy in zip(going, policies, strict=True):
            deletion, away = retention.delete(segment, policy, rules, self.log_start_offset)
            self._leaving.add(away, now_ms + self.config.file_delete_delay_ms)
            retention.say(self.topic, self.index, deletion)
            deletions.append(deletion)
        self._forget_epochs()
        return deletions

    def _roll_if_there_is_room(self) -> bool:
        """Begin a new segment, so that the last one may go too; False when the disk is full."""
        try:
            self._roll()
        except OSError as error:
            if error.errno not in retention.FULL or isinstance(error, files.SyncError):
                raise
            return False
        return True

    def _keep_times_on_full_disk(self, going: Sequence[Segment]) -> None:
        """Keep what segments about to go have told; let them go even where there is no room for it.

        What is not kept then is kept with the next flush. Raises OSError.
        """
        try:
            self._keep_times(self._covered_times(), durable=True)
        except OSError as error:
            if error.errno not in retention.FULL or isinstance(error, files.SyncError):
                raise
            retention.make_room(going)
            with contextlib.suppress(OSError):
                self._keep_times(self._covered_times(), durable=True)

    def _forget_epochs(self) -> None:
        """Drop leader epochs that have gone with their segments, or do so next time."""
        try:
            self._epochs.forget_before(self.log_start_offset)
        except OSError as error:
            _log.warning("leader epochs not written", extra={"reason": str(error)})

    def mark_deleted(self) -> None:
        """Refuse appends from now on: the files are about to go."""
        self.is_deleted = self._is_stopped = True
        for segment in self._segments:
            segment.rest()

    def _nothing_appended(self) -> Appended:
        return Appended(
            _EMPTY_SET,
            _EMPTY_SET,
            timestamps.NO_TIMESTAMP,
            self.log_start_offset,
            0,
            0,
            False,
            False,
        )

    def check_online(self) -> None:
        """Raise KafkaStorageError when the log is offline."""
        if self.offline is not None:
            raise KafkaStorageError(f"{self.topic}-{self.index} is offline: {self.offline}")

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
        with contextlib.suppress(OSError):
            self._keep_times(self._covered_times(), durable=False)
        for segment in segments:
            if segment.tail.end_offset > self.recovery_point:
                with contextlib.suppress(OSError):
                    segment.forget_cached()

    def _storage_error(self, what: str, error: OSError) -> BrokerError:
        """Return the error for the client; a failed sync takes the log offline."""
        if self.is_deleted:
            return UnknownTopicOrPartition(f"{self.topic}-{self.index} has been deleted")
        reason = error.strerror or str(error)
        if error.errno in retention.FULL:
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
