"""Appending to a log: batches get their offsets and append times and are stored.

One thread appends at a time; any thread may read, flush or apply retention meanwhile. An append
publishes the log's end last, so every offset below the end can be read. A failure is raised as a
BrokerError and leaves the log as it was: nothing is stored in part, and a partition whose disk
refuses writes continues to serve reads.

Every append has an append time, on every topic. It is written to `.appendtimes` before the batch is
written, and never decreases within a segment (`times/append_clock.py`). The settings may be
replaced at any time; they apply from the next append on, and segments of mixed formats are normal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from tidelog.protocol.errors import (
    CorruptMessage,
    MessageTooLarge,
    NotLeaderOrFollower,
    RecordListTooLarge,
    UnpackedTooLarge,
)
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.protocol.records.markers import build_marker
from tidelog.protocol.records.prepare import inspect, prepare
from tidelog.storage.log import slices
from tidelog.storage.log.failures import read_error, storage_error, write_error
from tidelog.storage.log.producers import recovered_producers, stability
from tidelog.storage.log.rolling import must_roll, roll
from tidelog.storage.log.settings import NEWEST_MAGIC
from tidelog.storage.log.times.append_clock import AppendClock
from tidelog.storage.time.append_time import deletion_time_at
from tidelog.storage.time.event_time import event_limit
from tidelog.storage.time.stamping import reported, stamps_at, within_event_time
from tidelog.storage.time.timestamp import later
from tidelog.storage.would_block import SHORT_UNPACK_BYTES, NeedsMemory, WouldBlock

if TYPE_CHECKING:
    from tidelog.protocol.records.batch import Batch
    from tidelog.protocol.records.markers import Marker
    from tidelog.protocol.records.prepare import Prepared
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.producers.producer_state import ProducerBatch, Sequenced
    from tidelog.storage.log.producers.verification import Guard
    from tidelog.storage.log.settings import AppendSettings
    from tidelog.storage.log.state import LogState
    from tidelog.storage.time.arrivals import TimeAnomaly

_EMPTY_SET = -1
_NEWEST_PRODUCE = 9  # knows format 2 and every codec


class Appended(NamedTuple):
    """The result of an append. An empty set has base offset -1 and count 0."""

    base_offset: int
    last_offset: int
    log_append_time_ms: int  # NO_TIMESTAMP unless the topic is LogAppendTime
    log_start_offset: int
    count: int  # type: ignore[assignment]  # shadows tuple.count
    size: int
    duplicate: bool  # stored before; the result is that of the first append
    converted: bool  # records were encoded again
    anomaly: TimeAnomaly | None = None  # unusual record times


class Appender:
    """Appends to one log."""

    __slots__ = ("_state", "clock")

    def __init__(self, state: LogState) -> None:
        self._state = state
        self.clock = AppendClock(state)

    def append(
        self,
        records: Buffer,
        *,
        now_ms: int,
        produce_version: int,
        internal: bool = False,
        may_block: bool = True,
        guard: Guard | None = None,
        unpack_limit: int | None = None,
        least_ms: int | None = None,
    ) -> Appended:
        """Stores a produced record set; returns the content of the response.

        A batch may unpack to `unpack_limit`; NeedsMemory is raised if the topic allows more. The append
        time is `least_ms` or later, whatever the clock shows.
        `internal` is for what the broker itself writes: format 2, control batches allowed. `guard`
        says that the coordinator knows of the transaction that the records may begin. Raises the
        errors of `inspect`, `prepare` and the producers, RecordListTooLarge, KafkaStorageError,
        NotLeaderOrFollower in a log that follows another broker's, and ClockWentBack while
        `AppendClock.catch_up` has not noted that the clock went back;
        without `may_block` also WouldBlock, if much must be read first.
        """
        state = self._state
        if not state.is_read:
            self.read_for_appends(may_block=may_block)
        rules, leadership = state.rules, state.leadership
        settings = rules.internal_settings if internal else rules.settings
        produced = inspect(
            records, produce_version=produce_version, max_message_bytes=settings.max_message_bytes
        )
        if not produced.batches:
            return self._nothing_appended()
        first, sequenced = produced.batches[0], None
        if first.producer_id >= 0 and len(produced.batches) == 1:  # several are never idempotent
            sequenced = _sequence_of(records, first, settings.magic, internal)
            if sequenced is not None:
                deletion_ms = deletion_time_at(now_ms, state.deletion_ms)
                duplicate = state.read_producers().check(sequenced, deletion_ms, guard)
                if duplicate is not None:
                    return self._answer_duplicate(duplicate)
        last_ms = state.last_append_time_ms
        stamps = stamps_at(
            settings.rules,
            last_ms if least_ms is None else later(last_ms, least_ms),
            now_ms,
            state.timing.corrected_ms,
            may_go_back=not leadership.is_replicated,  # others may have led, whose clocks were right
        )
        most = settings.max_unpacked_bytes
        limit = min(most, unpack_limit or (most if may_block else SHORT_UNPACK_BYTES))
        plan = settings.plan(stamps, state.ends[0], leadership.epoch, internal, limit)
        if settings.event_kept_ms is not None and not internal:
            plan = within_event_time(plan, settings.event_kept_ms, state.max_event_time)
        try:
            prepared = prepare(records, produced, plan)
        except UnpackedTooLarge as error:
            raise (NeedsMemory if limit < most else MessageTooLarge)(error.message) from None
        if not prepared.batches:
            return self._nothing_appended()
        largest = self._store(prepared, stamps.append_time_ms, now_ms, settings, sequenced)
        # The same as Appended(...), without the Python frame of a NamedTuple's constructor.
        return tuple.__new__(
            Appended,
            (
                prepared.first_offset,
                prepared.last_offset,
                reported(stamps),
                state.version.log_start_offset,
                prepared.count,
                prepared.size,
                False,
                prepared.converted,
                # A marker has the time of its broker, which makes no record late.
                None
                if internal and prepared.batches[0].is_control
                else state.arrivals.note(prepared.batches, largest, stamps.append_time_ms, now_ms),
            ),
        )

    def append_marker(
        self,
        producer_id: int,
        epoch: int,
        marker: Marker,
        *,
        now_ms: int,
        may_block: bool = True,
        least_ms: int | None = None,
    ) -> Appended:
        """Ends a producer's transaction here; appended also where it has none open, as in Kafka.

        Raises InvalidProducerEpoch for an epoch that is over, TransactionCoordinatorFenced for a
        coordinator that has been replaced, and KafkaStorageError; without `may_block` also
        WouldBlock.
        """
        data = build_marker(producer_id, epoch, marker, now_ms)
        return self.append(
            data,
            now_ms=now_ms,
            produce_version=_NEWEST_PRODUCE,
            internal=True,
            may_block=may_block,
            least_ms=least_ms,
        )

    def _answer_duplicate(self, duplicate: ProducerBatch) -> Appended:
        """Returns the result of the first append: its offsets and its stored append time."""
        log_append_time_ms = NO_TIMESTAMP
        state = self._state
        with state.hold() as version:
            try:
                batch = slices.batch_at(version.segments, duplicate.first_offset)
            except (OSError, CorruptMessage) as error:
                raise read_error(state, version, error) from error
        if batch is not None and batch.is_log_append_time:
            log_append_time_ms = batch.max_timestamp
        return Appended(
            duplicate.first_offset,
            duplicate.last_offset,
            log_append_time_ms,
            state.version.log_start_offset,
            duplicate.last_offset - duplicate.first_offset + 1,
            0,
            True,
            False,
        )

    def _store(
        self,
        prepared: Prepared,
        append_time_ms: int,
        now_ms: int,
        settings: AppendSettings,
        sequenced: Sequenced | None,
    ) -> int | None:
        """Appends prepared batches, perhaps to a new segment; returns their largest time."""
        size = prepared.size
        largest = prepared.batches[0].largest
        for batch in prepared.batches[1:]:
            largest = later(batch.largest, largest)
        state = self._state
        with state.append_lock:
            if (
                state.is_stopped
                or state.reserve.is_given_up
                or size > settings.segment_bytes
                or state.leadership.has_begun_to_follow
            ):
                self._refuse(size, settings.segment_bytes)
            active, rules, leadership = state.version.segments[-1], state.rules, state.leadership
            try:
                last_offset = prepared.last_offset
                if must_roll(state, settings, size, last_offset, largest, append_time_ms, now_ms):
                    active = roll(state)
                if state.epochs.latest < leadership.epoch:
                    state.epochs.begin(leadership.epoch, prepared.first_offset)
                is_unseen = not state.policy.reads_at_once
                if is_unseen:
                    state.largest_event.appending(active, state.judge)
                limit = event_limit(rules.event_slack_ms, append_time_ms)
                if sequenced is not None and sequenced.marker is not None:
                    offset, producers = prepared.first_offset, state.read_producers()
                    stability.index_abort(state, producers, sequenced, active, offset)
                active.append(
                    prepared.buffers,
                    size,
                    prepared.batches,
                    append_time_ms,
                    limit,
                    settings.index_interval_bytes,
                    now_ms,
                    ends_times=rules.has_flush_rules,
                )
                if is_unseen:
                    state.largest_event.appended(prepared.batches, limit, active.base_offset)
            except OSError as error:
                raise write_error(state, error) from error
            state.begins_segment = False  # also where the active segment was empty
            state.last_append_time_ms = append_time_ms
            if sequenced is not None:
                self._remember_producer(sequenced, prepared, append_time_ms, now_ms)
            state.publish(last_offset + 1)
        return largest

    def _remember_producer(
        self, sequenced: Sequenced, prepared: Prepared, append_time_ms: int, now_ms: int
    ) -> None:
        """Remembers an appended batch of a producer: a duplicate of it, and its transaction."""
        state = self._state
        producers, first_offset = state.read_producers(), prepared.first_offset
        if sequenced.is_transactional:
            stability.note(state, producers, sequenced, first_offset)
        # If the clock is behind, this append time is too early until the next round: by then it is corrected.
        state.deletion_ms = deletion_time_at(now_ms, state.deletion_ms)
        offsets = (first_offset, prepared.last_offset)
        producers.appended(sequenced, offsets, append_time_ms, state.deletion_ms)

    def _refuse(self, size: int, segment_bytes: int) -> NoReturn:
        """Raises the reason why the log does not accept the batches, or their size."""
        state = self._state
        state.check_open()
        if (
            state.is_follower
        ):  # else it would differ from its leader's log, in the leader's own epoch
            raise NotLeaderOrFollower(f"{state.topic}-{state.index}: another broker leads")
        try:
            state.reserve.check()
        except OSError as error:
            raise storage_error(state, "the records were not stored", error) from error
        raise RecordListTooLarge(
            f"{state.topic}-{state.index}: {size} bytes of records, and segment.bytes is "
            f"{segment_bytes}"
        )

    def _nothing_appended(self) -> Appended:
        return Appended(
            _EMPTY_SET,
            _EMPTY_SET,
            NO_TIMESTAMP,
            self._state.version.log_start_offset,
            0,
            0,
            False,
            False,
        )

    def read_for_appends(self, *, may_block: bool = True) -> None:
        """Reads what appends need of the log: its producers and its times.

        This reads up to a segment. The first append does it if it has not been done. Raises
        KafkaStorageError; without `may_block` WouldBlock if it has not been read yet.
        """
        state = self._state
        if not may_block and not state.is_read:
            raise WouldBlock(f"{state.topic}-{state.index}: the log has to be read first")
        state.read_producers()
        try:
            state.active.known.learn()
            self._keep_lost_times_unknown()
        except OSError as error:
            raise storage_error(state, "the log's times cannot be read", error) from error
        state.is_read = True

    def _keep_lost_times_unknown(self) -> None:
        """Keeps batches whose append times a power loss took, where no role has decided on them.

        The next start must not count what is appended now among them. Raises OSError.
        """
        state = self._state
        with state.append_lock:  # a role may be about to decide on them
            before = state.recovery
            if before.lost_offset is None:
                return
            state.recovery = before._replace(lost_offset=None)
            try:
                state.saved_times.save_covered(durable=False)
            except OSError:
                state.recovery = before
                raise


def _sequence_of(records: Buffer, batch: Batch, magic: int, internal: bool) -> Sequenced | None:
    """Returns the producer fields of a batch; None if it has none, or if `prepare` will refuse it.

    `prepare` refuses what is idempotent in a topic of an old format as well. But a retry of what
    was stored before the format was changed is answered as any retry.
    """
    if batch.count < 1:
        return None
    if internal:
        return recovered_producers.sequenced(batch, records)
    if batch.base_sequence < 0 or batch.is_control:
        return None
    if magic != NEWEST_MAGIC and batch.is_transactional:
        return None
    return recovered_producers.sequenced(batch)
