"""A follower of one partition in one leader epoch: it fetches, appends and truncates.

Each fetch has the end of the follower's log and the last epoch in it. Where the leader's log has
another history, the leader answers with an epoch and its end instead of records. The follower
truncates and asks again until nothing diverges (KIP-101, KIP-279, KIP-320, KIP-595). A follower never
truncates to its own high watermark, because that lags and others may have acknowledged more. After an
unclean election a compacted log may have to be copied again: `_lacks_replaced`.

A new leader, or a new registration of this broker, is a new `Follower`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.partitions.replication.messages import (
    NO_EPOCH,
    NO_OFFSET,
    AdvanceHighWatermark,
    Append,
    FetchRequest,
    Flush,
    RaiseLogStart,
    RestartAt,
    Truncate,
    WaitBefore,
)
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.partitions.replication.messages import (
        Diverging,
        FetchAnswer,
        FollowerAction,
        FollowerLog,
    )

RETRY_MS = 100  # the wait after an error that the metadata, or a moment, will end


class Follower:
    """The follower's side of a partition, which has one fetch under way at a time."""

    __slots__ = (
        "_asked",
        "_broker_epoch",
        "_is_compared",
        "_is_complete",
        "_me",
        "leader",
        "leader_epoch",
        "needs_flush",
    )

    def __init__(
        self, me: int, broker_epoch: int, record: PartitionRecord, *, needs_flush: bool = False
    ) -> None:
        """Follows the leader of a record. `needs_flush`: only what is flushed counts as fetched."""
        self._me = me
        self._broker_epoch = broker_epoch
        self.leader = record.leader
        self.leader_epoch = record.leader_epoch
        self.needs_flush = needs_flush
        self._is_complete = me in (*record.isr, *record.elr)  # it has all that is committed
        self._asked: FetchRequest | None = None
        self._is_compared = False  # the leader has compared this log with its own

    # --- asking -------------------------------------------------------------------------------

    def next_fetch(self, log: FollowerLog) -> FetchRequest | None:
        """Returns what to ask the leader; None while the log waits for its flush."""
        if self._waits_for_flush(log):
            return None
        self._asked = FetchRequest(
            replica=self._me,
            broker_epoch=self._broker_epoch,
            leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.last_epoch,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
        )
        return self._asked

    def _waits_for_flush(self, log: FollowerLog) -> bool:
        """Returns whether a fetch would acknowledge records that a power loss could destroy."""
        return self.needs_flush and log.flushed_offset < log.log_end_offset

    # --- answers ------------------------------------------------------------------------------

    def on_answer(
        self, request: FetchRequest, answer: FetchAnswer, log: FollowerLog
    ) -> list[FollowerAction]:
        """Handles the answer to a request. One to another request than the last is dropped."""
        if not self._is_asked(request, log):
            return []
        self._asked = None
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return [self._back_in_range(answer, log)]
        if answer.error != ErrorCode.NONE:
            return [WaitBefore(RETRY_MS)]
        if answer.diverging is not None:  # its high watermark is not for this log (KAFKA-14704)
            return [self._truncate(self._end_in_common(answer.diverging, log), log)]
        if self._is_beyond_compare(answer, log):
            return [RestartAt(log.log_end_offset, log.log_end_offset), Append()]
        if self._lacks_replaced(answer.log_end_offset, log):
            return [RestartAt(log.log_start_offset, answer.log_end_offset)]
        self._is_compared = True
        return [Append()]

    def on_appended(self, answer: FetchAnswer, log: FollowerLog) -> list[FollowerAction]:
        """Handles that the records of an answer, maybe none, are in the log."""
        actions: list[FollowerAction] = []
        high_watermark = self._high_watermark(answer, log)
        if high_watermark > log.high_watermark:
            actions.append(AdvanceHighWatermark(high_watermark))
        log_start_offset = self._log_start(answer, high_watermark)
        if log_start_offset > log.log_start_offset:
            actions.append(RaiseLogStart(log_start_offset))
        if self._waits_for_flush(log):
            actions.append(Flush())
        return actions

    def _is_asked(self, request: FetchRequest, log: FollowerLog) -> bool:
        return request == self._asked and request.fetch_offset == log.log_end_offset

    # --- rules --------------------------------------------------------------------------------

    def _high_watermark(self, answer: FetchAnswer, log: FollowerLog) -> int:
        """Returns the leader's high watermark within this log; it never goes back.

        A new leader's own high watermark may lag behind the follower's.
        """
        return max(log.high_watermark, min(answer.high_watermark, log.log_end_offset))

    def _log_start(self, answer: FetchAnswer, high_watermark: int) -> int:
        """Returns the leader's log start, as far as the high watermark allows."""
        return min(answer.log_start_offset, high_watermark)

    def _is_beyond_compare(self, answer: FetchAnswer, log: FollowerLog) -> bool:
        """Returns whether nothing shows that this log's records are the leader's.

        The leader's log begins where this one ends, so it has forgotten the epochs of these
        records. Between the append and the next log start a crash would leave them readable.
        """
        has_records = log.log_start_offset < log.log_end_offset
        is_all_deleted = answer.log_start_offset >= log.log_end_offset
        return has_records and is_all_deleted and not self._is_compared

    def _end_in_common(self, leader: Diverging, log: FollowerLog) -> int:
        """Returns the largest offset below which both logs may be equal.

        What the leader has from `leader.end_offset` on is of later epochs than any batch here; what
        this log has after its own end of `leader.epoch` is of epochs that the leader never had.
        """
        epoch, end_offset = log.epochs.end_of(leader.epoch)
        if epoch == NO_EPOCH:
            return min(leader.end_offset, log.log_end_offset)
        return min(leader.end_offset, end_offset, log.log_end_offset)

    def _back_in_range(self, answer: FetchAnswer, log: FollowerLog) -> FollowerAction:
        """Returns how to go on after OFFSET_OUT_OF_RANGE, which is never fatal (KAFKA-7414)."""
        if answer.log_end_offset < log.log_end_offset:
            return self._truncate(answer.log_end_offset, log)
        if answer.log_start_offset > log.log_end_offset:
            return RestartAt(answer.log_start_offset, log.log_end_offset)
        return WaitBefore(RETRY_MS)

    def _lacks_replaced(self, end_offset: int, log: FollowerLog) -> bool:
        """Returns whether this log lacks batches whose replacements the leader has not.

        Compaction has removed them here, because their keys come again before the end of the gaps. The
        leader has nothing of that behind `end_offset` (NO_OFFSET: unknown). Whoever is in sync
        keeps what it has: nothing of that is cut below what is committed.
        """
        has_records = log.log_start_offset < log.log_end_offset
        is_cut = has_records and NO_OFFSET < end_offset < log.gaps_end_offset
        return is_cut and not self._is_complete and not self._is_compared

    def _truncate(self, offset: int, log: FollowerLog) -> FollowerAction:
        if offset < log.log_end_offset and self._lacks_replaced(offset, log):
            return RestartAt(min(offset, log.log_start_offset), offset)
        return Truncate(offset, is_below_high_watermark=offset < log.high_watermark)
