"""What a log answers to those who read it: slices, lookups by time, explanations.

Any thread may ask, beside an append, retention or compaction: who has read while segments went or were
replaced reads again, so an answer is of one state of the log. Where an answer is found is written in
`reading`, `lookup`, `explanation` and `glance`; here is what they are asked about, and what their errors
mean to a client.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from protocol.errors import CorruptMessage, OffsetOutOfRange
from storage.log import lookup, reading
from storage.log.retained_log import RetainedLog
from storage.log.retention import deletion, explanation, glance
from storage.log.retention.explanation import Moment
from storage.time.retention import retention_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from config.topic import TopicConfig
    from storage.compaction.explain import CompactionBlocker
    from storage.log.reading import Fetched, Told
    from storage.log.retention.explanation import PartitionExplanation
    from storage.log.retention.glance import Glance

_Answer = TypeVar("_Answer")


class ReadableLog(RetainedLog):
    """The part of a partition that is asked."""

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
        its size. Raises OffsetOutOfRange and KafkaStorageError; with `at_hand` WouldBlock where
        much has to be read before it is known where the offset lies.
        """
        if self.offline is not None:
            self.check_online()
        while True:
            # The start last: what lies behind it then is in these segments, whatever retention does.
            swaps, segments = self._settled_swaps(), self._segments
            if not self.log_start_offset <= offset <= self.log_end_offset:
                raise OffsetOutOfRange(
                    f"{self.topic}-{self.index}: offset {offset} is not between "
                    f"{self.log_start_offset} and {self.log_end_offset}"
                )
            try:
                fetched = reading.read(
                    segments,
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
        """Return (the largest epoch up to `epoch`, where it ended); (-1, -1) if still to come.

        The one that is led in ends where the log does, though nothing may have been written in it yet.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log_end_offset
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
        blocker: CompactionBlocker | None = None,
    ) -> PartitionExplanation:
        """Say of each segment what will delete it, and when, or what holds it; nothing is changed.

        By other settings than the topic's where `config` is given; `blocker` keeps compaction from
        it. Meant for a thread: what is not known of segments' times is read. Raises KafkaStorageError
        and CorruptMessage.
        """
        config = self.config if config is None else config
        rules = retention_of(config)
        return self._looking(
            lambda: explanation.explain(
                self.topic, self.index, self._moment(now_ms, config, blocker), rules, now_ms
            )
        )

    def glance(self, now_ms: int) -> Glance:
        """Say what is known of the log's times without reading anything."""
        rules = retention_of(self.config)
        return glance.at(
            self._segments,
            rules,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
            high_watermark=self.high_watermark,
            max_event_time=None if rules.event_ms is None else self.max_event_time,
        )

    def _moment(
        self, now_ms: int, config: TopicConfig, blocker: CompactionBlocker | None
    ) -> Moment:
        self.read_max_event_time()
        with self._append_lock:
            moment = Moment(
                self._segments,
                deletion.candidates(self._segments),
                self.log_start_offset,
                self.high_watermark,
                self.log_end_offset,
                self.max_event_time,
                self._last_append_time_ms,
            )
        compacting = self.compacting(moment.segments, now_ms, config, blocker)
        return moment._replace(compacting=compacting)
