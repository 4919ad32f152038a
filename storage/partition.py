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
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from protocol.errors import (
    CorruptMessage,
    InvalidTxnState,
    KafkaStorageError,
    OffsetOutOfRange,
    RecordListTooLarge,
)
from protocol.records.prepare import Plan, inspect, prepare
from storage import (
    explanation,
    files,
    glance,
    lookup,
    producer_recovery,
    reading,
    retention,
    snapshots,
    timestamps,
)
from storage.compacted_log import CompactedLog
from storage.durable_log import NEWEST_MAGIC
from storage.explanation import Moment
from storage.segment import Segment, Tail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from config.topic import TopicConfig
    from protocol.records.batch import Batch
    from protocol.records.prepare import Prepared
    from storage.compaction_explanation import Hindrance
    from storage.explanation import PartitionExplanation
    from storage.glance import Glance
    from storage.producers import ProducerBatch, Sequenced
    from storage.reading import Fetched, Told
    from storage.retention import Deletion
    from storage.settings import Settings

_log = logging.getLogger("tidelog.storage")

_Answer = TypeVar("_Answer")

_EMPTY_SET = -1


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
    odd: timestamps.Odd | None = None  # about their times


class _Judged(NamedTuple):
    """The oldest segments of a log, which retention lets go of, as they were then."""

    segments: tuple[Segment, ...]
    tail: Tail | None  # of the last of them, where that was active
    rules: timestamps.Retention
    policies: list[str]


class Partition(CompactedLog):
    """The log of one partition of a topic."""

    # --- append -----------------------------------------------------------------------------------

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
        bytes is CorruptMessage, for a caller who has no time for it. Until `is_read`, the log is read
        first. Raises what `inspect` and `prepare` raise, the producers' errors, RecordListTooLarge,
        KafkaStorageError.
        """
        if not self.is_read:
            self.read_for_appends()
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
            largest = self._write(prepared, stamps.append_time_ms, settings)
            self._last_append_time_ms = stamps.append_time_ms
            if sequenced is not None:
                offsets = (prepared.first_offset, prepared.last_offset)
                self.producers.appended(sequenced, offsets, stamps.append_time_ms)
            self.log_end_offset = end_offset = prepared.last_offset + 1
            if not self._is_strict:
                self.high_watermark = end_offset
        # What Appended(...) does, without the Python frame of a NamedTuple's constructor.
        return tuple.__new__(
            Appended,
            (
                prepared.first_offset,
                prepared.last_offset,
                timestamps.reported(stamps),
                self.log_start_offset,
                prepared.count,
                prepared.size,
                False,
                prepared.converted,
                self.arrivals.note(prepared.batches, largest, stamps.append_time_ms, now_ms),
            ),
        )

    def _sequence_of(self, batch: Batch, magic: int, internal: bool) -> Sequenced | None:
        """Return what an idempotent batch says of its producer; None where `prepare` refuses it."""
        if batch.is_transactional and magic == NEWEST_MAGIC and not internal:
            raise InvalidTxnState(
                f"{self.topic}-{self.index}: this broker does not serve transactions yet"
            )
        if batch.base_sequence < 0 or batch.count < 1:
            return None
        return producer_recovery.sequenced(batch)

    def _answer_duplicate(self, duplicate: ProducerBatch) -> Appended:
        """Answer as the first time: its offsets, and its stamp, which the stored header has."""
        log_append_time_ms = timestamps.NO_TIMESTAMP
        batch = self._looking(lambda: reading.batch_at(self._segments, duplicate.first_offset))
        if batch is not None and batch.is_log_append_time:
            log_append_time_ms = batch.max_timestamp
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

    def _write(self, prepared: Prepared, append_time_ms: int, settings: Settings) -> int | None:
        """Put prepared batches behind the last one, in a new segment if they do not fit.

        Returns their largest time.
        """
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
            is_unseen = self._is_strict
            if is_unseen:
                self._largest_event.appending(active)
            event_limit = timestamps.event_limit(settings.rules, append_time_ms)
            active.append(
                prepared.buffers,
                size,
                prepared.batches,
                append_time_ms,
                event_limit,
                settings.index_interval_bytes,
            )
            if is_unseen:
                self._largest_event.appended(prepared, event_limit)
        except OSError as error:
            raise self._storage_error("the records were not stored", error) from error
        return largest

    def _roll(self) -> Segment:
        """Begin a new active segment at the log's end; raises OSError."""
        base_offset = self.log_end_offset
        previous = self._active
        previous.mend()
        snapshots.write(self.directory, base_offset, self.producers)
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

    # --- read -------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_offset: int,
        minimum_one: bool,
        at_hand: bool = False,
    ) -> Fetched:
        """Read from the batch that holds `offset`, at most `max_bytes`, below `upper_offset`.

        Whole slices of the log, unchanged: the first batch may begin before `offset`, the last may
        be cut short by `max_bytes`. With `minimum_one` the first batch comes whole, whatever
        its size. Raises OffsetOutOfRange and KafkaStorageError; with `at_hand` NotAtHandError where
        much has to be read before it is known where the offset lies.
        """
        if self.offline is not None:
            self.check_online()
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"{self.topic}-{self.index}: offset {offset} is not between "
                f"{self.log_start_offset} and {self.log_end_offset}"
            )
        while True:
            swaps = self._settled_swaps()
            try:
                fetched = reading.read(
                    self._segments,
                    offset,
                    max_bytes,
                    upper_offset=upper_offset,
                    minimum_one=minimum_one,
                    at_hand=at_hand,
                )
            except CorruptMessage:
                if swaps == self.swaps:
                    raise
            except OSError as error:
                if swaps != self.swaps:
                    continue
                if offset < self.log_start_offset:  # retention was faster
                    raise OffsetOutOfRange(
                        f"{self.topic}-{self.index}: offset {offset} is gone; the log starts at "
                        f"{self.log_start_offset}"
                    ) from error
                raise self._storage_error("the log cannot be read", error) from error
            else:
                if swaps == self.swaps:
                    return fetched

    def read_with_append_times(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper_offset: int,
        minimum_one: bool,
        at_hand: bool = False,
    ) -> tuple[Fetched, list[Told]]:
        """As `read`, and when what was read was appended: of these batches, whatever compaction does."""
        while True:
            segments, swaps = self._segments, self._settled_swaps()
            fetched = self.read(
                offset,
                max_bytes,
                upper_offset=upper_offset,
                minimum_one=minimum_one,
                at_hand=at_hand,
            )
            told = self._looking(partial(self._append_times_of, fetched))
            if swaps == self.swaps and segments[0] is self._segments[0]:
                return fetched, told

    def _append_times_of(self, fetched: Fetched) -> list[Told]:
        return reading.append_times_of(self._segments, fetched)

    # --- look up ----------------------------------------------------------------------------------

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

    def find_by_append_time(
        self, append_time_ms: int, *, upper_offset: int
    ) -> lookup.AppendedSince:
        """Return the first offset from the log's start on that was appended at or after a time.

        Below `upper_offset`; what nobody knows is said, not guessed. Raises KafkaStorageError.
        """
        return self._looking(
            lambda: lookup.find_append_time(
                self._segments,
                append_time_ms,
                start_offset=self.log_start_offset,
                upper_offset=upper_offset,
                back_offset=self._back_offset,
            )
        )

    def times_of(self, offset: int) -> lookup.OffsetTimes:
        """Return both times of an offset: its record's own, and when it was appended.

        Raises OffsetOutOfRange, CorruptMessage and KafkaStorageError.
        """
        return self._looking(
            lambda: lookup.times_of(
                self._segments,
                offset,
                start_offset=self.log_start_offset,
                upper_offset=self.high_watermark,
            )
        )

    def first_record(self, offset: int) -> tuple[int, lookup.OffsetTimes] | None:
        """Return the first data record from an offset on, and both its times; None if none is left.

        Raises CorruptMessage and KafkaStorageError.
        """
        return self._looking(
            lambda: lookup.first_record(
                self._segments,
                offset,
                start_offset=self.log_start_offset,
                upper_offset=self.high_watermark,
            )
        )

    def size_before(self, offset: int) -> int:
        """Return how many bytes of batches lie before an offset; raises KafkaStorageError."""
        return self._looking(
            lambda: lookup.size_before(self._segments, offset, start_offset=self.log_start_offset)
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
        """Look something up; again, if the log has lost or replaced segments meanwhile."""
        self.check_online()
        while True:
            segments, swaps = self._segments, self._settled_swaps()
            try:
                answer = look()
            except CorruptMessage:
                if swaps == self.swaps:
                    raise
            except OSError as error:
                if swaps == self.swaps and segments[0] is self._segments[0]:
                    raise self._storage_error("the log cannot be read", error) from error
            else:
                if swaps == self.swaps:
                    return answer

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the largest epoch up to `epoch`, where it ended); (-1, -1) if still to come."""
        return self._epochs.end_offset_of(epoch, self.log_end_offset)

    def leader_epoch_at(self, offset: int) -> int:
        """Return the leader epoch of what is stored at an offset, -1 where that is not known.

        At the log's end it is the epoch of what comes next.
        """
        if offset >= self.log_end_offset:
            return self.leader_epoch
        return self._epochs.epoch_of(offset)

    def append_time_of(self, offset: int) -> int | None:
        """Return when the batch with this offset was appended, None when nobody knows.

        Raises KafkaStorageError.
        """
        if not self.log_start_offset <= offset < self.log_end_offset:
            return None
        return self._looking(lambda: lookup.append_time_of(self._segments, offset))

    def explain(
        self,
        now_ms: int,
        config: TopicConfig | None = None,
        hindrance: Hindrance | None = None,
    ) -> PartitionExplanation:
        """Say of each segment what will delete it, and when, or what holds it; nothing is changed.

        By other settings than the topic's where `config` is given; `hindrance` keeps compaction from
        it. Meant for a thread: what is not known of segments' times is read. Raises KafkaStorageError
        and CorruptMessage.
        """
        config = self.config if config is None else config
        rules = timestamps.retention_of(config)
        return self._looking(
            lambda: explanation.explain(
                self.topic, self.index, self._moment(now_ms, config, hindrance), rules, now_ms
            )
        )

    def glance(self, now_ms: int) -> Glance:
        """Say what is known of the log's times without reading anything."""
        rules = timestamps.retention_of(self.config)
        return glance.at(
            self._segments,
            rules,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            max_event_time=None if rules.event_ms is None else self.max_event_time,
        )

    def _moment(self, now_ms: int, config: TopicConfig, hindrance: Hindrance | None) -> Moment:
        self.read_max_event_time()
        with self._append_lock:
            moment = Moment(
                self._segments,
                retention.candidates(self._segments),
                self.log_start_offset,
                self.high_watermark,
                self.log_end_offset,
                self.max_event_time,
                self._last_append_time_ms,
            )
        compacting = self.compacting(moment.segments, now_ms, config, hindrance)
        return moment._replace(compacting=compacting)

    # --- let go -----------------------------------------------------------------------------------

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
                    self._leaving.remove_due(now_ms)
                    if self._still_holds(judged):
                        return self._delete_old_segments(judged, now_ms)
        except OSError as error:
            raise self._storage_error("retention failed", error) from error

    def _judge(self, now_ms: int) -> _Judged:
        """Tell which segments are to go, reading what is not known of their times; raises OSError.

        Under no lock, for a whole log may be read: commits and a deletion do not wait for it. It
        writes nothing.
        """
        segments, rules = self._segments, timestamps.retention_of(self.config)
        # Before anything of it is looked at: what comes later is not judged.
        tail = segments[-1].tail
        if rules.event_ms is not None:
            retention.learn(segments)
        policies = timestamps.segments_to_delete(
            retention.candidates(segments),
            rules,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            max_event_time=self.max_event_time,
        )
        retention.learn(segments[: len(policies)])
        is_all = len(policies) == len(segments)
        return _Judged(segments[: len(policies)], tail if is_all else None, rules, policies)

    def _still_holds(self, judged: _Judged) -> bool:
        """Tell whether the segments judged are the oldest still, and the settings those they were."""
        return (
            self._segments[: len(judged.segments)] == judged.segments
            and timestamps.retention_of(self.config) == judged.rules
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
                self._keep_times(self._covered_times(), durable=True)
        except OSError as error:
            raise self._storage_error("records cannot be deleted", error) from error
        return self.log_start_offset

    def let_append_time_go_back(self, now_ms: int) -> int | None:
        """Let the next batch be appended at the clock's time, once, although the last ones came later.

        For a clock that was far ahead: its times would be given until it is right again. The mark in the
        log is a new segment, for within one append times never go back. Not beside an append. `keep_times`
        makes it outlive the process, `flush` and `keep_times` a power loss. Returns the last append time
        until now; None if it was not ahead, and nothing is changed. Raises KafkaStorageError.
        """
        last_time = self._last_append_time_ms
        if not timestamps.ahead(last_time, now_ms):
            return None
        with self._append_lock:
            if self._is_stopped:
                self._check_usable()
                raise KafkaStorageError(f"{self.topic}-{self.index} takes no batches now")
            try:
                if self._active.tail.size:
                    self._roll()
            except OSError as error:
                raise self._storage_error("no segment could be begun", error) from error
            self._last_append_time_ms, self._back_offset = None, self.log_end_offset
        _log.warning(
            "append time goes back",
            extra={
                "topic": self.topic,
                "partition": self.index,
                "offset": self.log_end_offset,
                "from": last_time,
                "to": now_ms,
            },
        )
        return last_time

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
            self._segments = self._segments[len(going) :]
            self._start_at(self._segments[0].base_offset)
        deletions: list[Deletion] = []
        try:
            self._keep_times_on_full_disk(going)
            for segment, policy in zip(going, policies, strict=True):
                deletion, away = retention.delete(
                    segment, policy, judged.rules, log_start_offset, max_event_time
                )
                self._leaving.add(away, now_ms + self.config.file_delete_delay_ms)
                retention.say(self.topic, self.index, deletion)
                deletions.append(deletion)
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
            if not retention.is_full(error):
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
            if not retention.is_full(error):
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
