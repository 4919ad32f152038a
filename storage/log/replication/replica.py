"""A log that follows a leader: it appends the batches that it gets, unchanged.

A follower keeps its leader's bytes, offsets and append times. It neither sets times nor rejects
records by time. It rolls its segments by its own settings, from the sizes, record times and append
times that it receives: segment borders may differ between replicas, results of lookups do not.
"""

from __future__ import annotations

import contextlib
import logging
from operator import attrgetter
from typing import TYPE_CHECKING

from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records.compression import STORED_LIMIT
from tidelog.storage import files
from tidelog.storage.checkpoints import EpochStart
from tidelog.storage.log.failures import storage_error, write_error
from tidelog.storage.log.high_watermark import Role
from tidelog.storage.log.producers import stability
from tidelog.storage.log.producers.recovered_producers import sequenced
from tidelog.storage.log.replication import leader_state
from tidelog.storage.log.replication.received import receive
from tidelog.storage.log.rolling import must_roll, roll
from tidelog.storage.log.times import judging
from tidelog.storage.time.append_time import goes_back
from tidelog.storage.time.corrections import event_limit_at
from tidelog.storage.time.event_time import capped, counted_limit
from tidelog.storage.time.timestamp import later

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tidelog.protocol.records.plan import PreparedBatch
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.appender import Appender
    from tidelog.storage.log.replication.leader_state import LeaderState
    from tidelog.storage.log.replication.received import AppendedFrom, Received
    from tidelog.storage.log.replication.truncater import Truncater
    from tidelog.storage.log.retention.retainer import Retainer
    from tidelog.storage.log.state import LogState
    from tidelog.storage.segment.segment import Segment

_log = logging.getLogger("tidelog.storage")


class Replica:
    """The part of a partition that follows a leader. One thread appends at a time."""

    __slots__ = ("_appender", "_retainer", "_state", "_truncater")

    def __init__(
        self, state: LogState, appender: Appender, retainer: Retainer, truncater: Truncater
    ) -> None:
        self._state = state
        self._appender = appender
        self._retainer = retainer
        self._truncater = truncater

    def append_as_follower(
        self,
        records: Buffer,
        append_times: Sequence[AppendedFrom],
        epochs: Sequence[EpochStart],
        leader: LeaderState,
        *,
        now_ms: int,
        unpack_limit: int = STORED_LIMIT,
    ) -> int:
        """Stores batches as the leader has them, and applies the leader's facts about its log.

        A partial batch at the end of the bytes is left for the next fetch. `epochs` are the
        leader's entries for these offsets, because formats 0 and 1 have none in their bytes. A
        batch with an unknown append time ages from when the leader adopted it, or from `now_ms` if
        the leader does not say. Returns the log end offset. Raises CorruptMessage for batches that
        cannot follow this log, and UnpackedTooLarge for one that unpacks to more than
        `unpack_limit` bytes; then nothing is stored. Raises KafkaStorageError, and then the batches
        before the one that failed may be stored.
        """
        state = self._state
        state.check_online()
        if not state.is_follower:
            state.take_role(Role.FOLLOWER)
        received = receive(records, append_times, unpack_limit)
        if received:
            self._begin_at_first(received[0])
            self._check_times(received, leader.back_offset)
        is_outdated = leader_state.is_outdated(state, leader)
        is_newer = not is_outdated and self._take_corrections(leader, epochs, bool(received))
        if received:
            if not state.is_read:
                self._appender.read_for_appends()
            self._store_all(received, epochs, leader, now_ms)
        if not is_outdated:
            self._take_times(leader, is_newer=is_newer)
        self._follow(leader)
        return state.ends.log_end_offset

    def _begin_at_first(self, first: Received) -> None:
        """Checks that a batch follows the log; an empty log begins with the batch at its start.

        A leader's log may start within a batch, and a follower that begins there gets the whole
        batch.
        """
        state, base_offset = self._state, first.prepared.base_offset
        end_offset = state.ends.log_end_offset
        if base_offset >= end_offset:
            return
        if state.size or first.prepared.last_offset < end_offset:
            raise CorruptMessage(
                f"{state.topic}-{state.index}: the leader sent offset {base_offset} where {end_offset} "
                "comes next"
            )
        self._truncater.start_at(base_offset)

    def _check_times(self, received: Sequence[Received], back_offset: int) -> None:
        """Raises CorruptMessage if append times decrease and the append clock was not reset before."""
        last: int | None = None
        if self._state.timing.back_offset >= back_offset:
            last = self._last_stored_time()
        for batch in received:
            time, base_offset = batch.append_time_ms, batch.prepared.base_offset
            if time is None or base_offset < back_offset:
                continue  # only the last reset is known: times may decrease before it
            if last is not None and goes_back(last, time):
                raise CorruptMessage(
                    f"{self._state.topic}-{self._state.index}: offset {base_offset} was appended at "
                    f"{time}, and the batch before it at {last}"
                )
            last = time

    def _last_stored_time(self) -> int | None:
        """Returns the last known append time of the batches behind the last reset; None: none is."""
        state, active = self._state, self._state.active
        if active.tail.end_offset > state.timing.back_offset:
            last = active.append_times.last_time
            if last is not None:
                return last
        times = (
            segment.append_times.last_time
            for segment in reversed(state.version.segments)
            if segment.tail.end_offset > state.timing.back_offset
        )
        return next((time for time in times if time is not None), None)

    def _store_all(
        self,
        received: Sequence[Received],
        epochs: Sequence[EpochStart],
        leader: LeaderState,
        now_ms: int,
    ) -> None:
        state = self._state
        with state.append_lock:
            state.check_open()
            try:
                state.reserve.check()
                known = state.epochs.latest
                has_new = any(entry.epoch > known for entry in epochs) or any(
                    each.batch.leader_epoch > known for each in received
                )
                state.epochs.adopt(self._epochs_of(received, epochs) if has_new else ())
                self._record_gaps(received, leader.high_watermark)
                for batch in received:
                    self._store(batch, leader, now_ms)
            except OSError as error:
                raise write_error(state, error) from error

    def _epochs_of(
        self, received: Sequence[Received], epochs: Sequence[EpochStart]
    ) -> Iterator[EpochStart]:
        """Yields the epochs of batches: those received, and those in the headers of format 2."""
        first_offset = self._state.version.segments[0].base_offset
        end_offset = received[-1].prepared.last_offset + 1
        entries = [
            EpochStart(entry.epoch, max(entry.start_offset, first_offset))
            for entry in epochs
            if entry.start_offset < end_offset
        ]
        latest = max((entry.epoch for entry in entries), default=-1)
        for each in received:
            if each.batch.leader_epoch > latest:
                latest = each.batch.leader_epoch
                entries.append(EpochStart(latest, each.prepared.base_offset))
        return iter(sorted(entries, key=attrgetter("epoch", "start_offset")))

    def _record_gaps(self, received: Sequence[Received], high_watermark: int) -> None:
        """Records, before batches are stored, that the log has gaps between them. Raises OSError.

        The leader's compaction left them. It compacts nothing above its high watermark, so up to
        there more gaps may follow; they are recorded at once, to save writes. Segments before are
        made durable, because recovery could no longer see that batches are missing there. The
        record is durable too: a commit does not write it, and recovery cuts at any other gap.
        """
        state = self._state
        expected_offset, last_gap_end = state.ends.log_end_offset, -1
        for each in received:
            if each.prepared.base_offset > expected_offset:
                last_gap_end = each.prepared.base_offset
            expected_offset = each.prepared.last_offset + 1
        before = state.gaps_end_offset
        if last_gap_end <= before:
            return
        durable_offset = max(before, state.durability.recovery_point)
        for segment in state.version.segments[:-1]:
            if segment.tail.end_offset > durable_offset:
                segment.sync()
        files.sync(state.directory)
        state.gaps_end_offset = max(expected_offset, high_watermark)
        try:
            state.saved_times.save_covered(durable=True)
        except OSError:
            state.gaps_end_offset = before
            raise

    def _store(self, received: Received, leader: LeaderState, now_ms: int) -> None:
        """Appends a batch and publishes it. Raises OSError."""
        state, time = self._state, received.append_time_ms
        prepared, settings = received.prepared, state.rules.settings
        first_offset = prepared.base_offset
        active = self._active_for(received, leader.back_offset, now_ms)
        is_told = leader.adopted is not None
        adopted_ms = state.timing.adoptions.time_of(first_offset) if is_told else now_ms
        append_time_ms = adopted_ms if time is None else time
        limits = self._event_limits(prepared, append_time_ms, leader)
        producers = state.read_producers()  # read from the log before the batch is added
        batch = received.batch
        fields = sequenced(batch, received.buffer) if batch.producer_id >= 0 else None
        state.largest_event.appending(active, state.judge)
        if fields is not None and fields.marker is not None:
            stability.index_abort(state, producers, fields, active, first_offset)
        active.append(
            (received.data,),
            prepared.size,
            (prepared._replace(position=0) if prepared.position else prepared,),
            append_time_ms,
            limits[0],
            settings.index_interval_bytes,
            now_ms,
            is_time_known=time is not None,
            ends_times=state.rules.has_flush_rules,
        )
        active.indexes.is_true = active.indexes.is_true and received.is_true
        state.largest_event.appended((prepared,), limits[1], active.base_offset)
        if time is None:
            if not is_told:
                judging.adopt(state, first_offset, prepared.last_offset + 1, now_ms)
        else:
            state.last_append_time_ms = later(state.last_append_time_ms, time)
        if fields is not None:
            if fields.is_transactional:
                stability.note(state, producers, fields, first_offset)
            offsets = (first_offset, prepared.last_offset)
            producers.appended(fields, offsets, append_time_ms)
        state.publish(prepared.last_offset + 1)

    def _event_limits(
        self, prepared: PreparedBatch, append_time_ms: int, leader: LeaderState
    ) -> tuple[int, int]:
        """Returns as what an event time of a batch counts at most, and with the corrections.

        What the leader has counted below its high watermark counts as no more here.
        """
        state = self._state
        told = leader.max_event_time if prepared.last_offset < leader.high_watermark else None
        stored = capped(append_time_ms, state.rules.event_slack_ms)
        corrected = event_limit_at(
            state.timing.corrections,
            prepared.last_offset,
            append_time_ms,
            state.rules.event_slack_ms,
        )
        return (
            counted_limit(stored, append_time_ms, told),
            counted_limit(corrected, append_time_ms, told),
        )

    def _active_for(self, received: Received, back_offset: int, now_ms: int) -> Segment:
        """Returns the segment for a batch, a new one if necessary. Raises OSError.

        The log's own limits of size and index apply, and the time rules, by the leader's append time
        and the own clock. If the append time is unknown, no time rule applies. Append times never
        decrease within a segment, so a reset of the append clock begins a new one.
        """
        state, time = self._state, received.append_time_ms
        prepared, active = received.prepared, state.active
        if state.timing.back_offset < back_offset <= prepared.base_offset:
            self._take_mark(back_offset, None)
            return state.active
        last_time = active.append_times.last_time
        is_back = (
            active.tail.size > 0
            and time is not None
            and last_time is not None
            and goes_back(last_time, time)
        )
        settings, size, last_offset = state.rules.settings, prepared.size, prepared.last_offset
        is_due = is_back or must_roll(
            state, settings, size, last_offset, prepared.largest, time, now_ms
        )
        return roll(state) if is_due else active

    def _take_mark(self, back_offset: int, last_append_time_ms: int | None) -> None:
        """Resets the append clock at the log's end, as the leader did.

        Raises OSError; then the clock is as before, and the next answer resets it.
        """
        state = self._state
        if state.active.tail.size:
            roll(state)
        times = state.saved_times.covered()._replace(
            back_offset=back_offset, last_append_time_ms=last_append_time_ms
        )
        state.saved_times.save(times, durable=True)  # before an append time is lower
        state.replace_timing(state.timing._replace(back_offset=back_offset))
        state.last_append_time_ms = last_append_time_ms

    # --- what the leader says of its log ----------------------------------------------------------

    def _take_corrections(
        self, leader: LeaderState, epochs: Sequence[EpochStart], has_batches: bool
    ) -> bool:
        """Judges append times as the leader does; returns whether its mark is newer.

        Notes before the batches of this answer are stored if the leader's clock is behind.
        """
        state = self._state
        with state.append_lock:
            state.check_usable()
            try:
                is_newer = leader_state.take_corrections(state, leader)
            except OSError as error:
                raise storage_error(state, "a correction is not kept", error) from error
            try:
                leader_state.note_behind(state, leader, epochs, has_batches, is_newer=is_newer)
            except OSError as error:
                raise storage_error(state, "the leader's clock is not noted", error) from error
            return is_newer

    def _take_times(self, leader: LeaderState, *, is_newer: bool) -> None:
        """Goes on from the leader's last append time, and its largest event time."""
        state = self._state
        with state.append_lock:
            state.check_usable()
            end_offset = state.ends.log_end_offset
            try:
                if state.timing.back_offset < leader.back_offset == end_offset:
                    self._take_mark(end_offset, leader.last_append_time_ms)
            except OSError as error:
                raise storage_error(state, "no segment could be begun", error) from error
            leader_state.take_last_append_time(state, leader, is_newer=is_newer)
            tells_more = leader_state.tells_more(state, leader)
            state.largest_event.keep(leader.max_event_time)
            if tells_more:
                with contextlib.suppress(OSError):  # the next answer tells it again
                    state.saved_times.save_covered(durable=False)

    def _follow(self, leader: LeaderState) -> None:
        """Applies the leader's high watermark and log start, up to the log's end."""
        state = self._state
        with state.append_lock:
            state.check_usable()
            state.advance_high_watermark(min(leader.high_watermark, state.ends.log_end_offset))
        start_offset = min(leader.log_start_offset, state.ends.high_watermark)
        if start_offset > state.version.log_start_offset:
            self._retainer.delete_records_before(start_offset)
