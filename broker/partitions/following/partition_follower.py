"""A partition that follows a leader, in one leader epoch: what the leader sends, on the real log.

Small answers are appended on the event loop; what waits for the disk, or takes long, is done in a
thread, and the partition asks for nothing meanwhile. Large compressed batches wait for memory first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.network.memory.unpacking import reserved
from tidelog.broker.partitions import replication_state
from tidelog.broker.partitions.following.received import (
    is_known,
    is_quick,
    leader_state,
    records_of,
    state_of,
)
from tidelog.broker.partitions.replication.messages import (
    AdvanceHighWatermark,
    Append,
    Flush,
    RaiseLogStart,
    RestartAt,
    Truncate,
    WaitBefore,
)
from tidelog.broker.partitions.views import follower_log, received_answer
from tidelog.protocol.errors import BrokerError, UnpackedTooLarge
from tidelog.protocol.records.batch import count_batches
from tidelog.protocol.records.compression import STORED_LIMIT
from tidelog.storage.would_block import SHORT_UNPACK_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.logging.folded_log import FoldedLog
    from tidelog.broker.network.memory.share import Share
    from tidelog.broker.partitions.following.leader_clocks import LeaderClocks
    from tidelog.broker.partitions.purgatory import Purgatory
    from tidelog.broker.partitions.replication.follower import Follower
    from tidelog.broker.partitions.replication.messages import (
        FetchAnswer,
        FetchRequest,
        FollowerAction,
    )
    from tidelog.broker.pools import Pools
    from tidelog.protocol.api.fetch import PartitionData
    from tidelog.protocol.topic_partition import TopicIdPartition
    from tidelog.storage.log.partition import Partition

log = logging.getLogger("tidelog.replicas")

_LOOP_BATCHES = 256  # what is appended on the event loop at once, beside LOOP_BYTES
_RETRY_S = 1.0  # after records that could not be stored


class _Appended(NamedTuple):
    """What one answer of the leader has brought."""

    start_offset: int
    end_offset: int
    size: int


@dataclass(slots=True)
class FollowerContext:
    """What all partition followers of a broker use."""

    purgatory: Purgatory
    pools: Pools
    unpacked: Share  # memory for large compressed batches
    clocks: LeaderClocks
    clock_ms: Callable[[], int]
    folded: FoldedLog


class PartitionFollower:
    """The follower of a partition, around its log."""

    __slots__ = (
        "_context",
        "_pause",
        "_readable",
        "_unreadable",
        "_waits_for_memory",
        "follower",
        "is_stopped",
        "name",
        "partition",
        "work",
    )

    def __init__(
        self,
        context: FollowerContext,
        name: TopicIdPartition,
        partition: Partition,
        follower: Follower,
    ) -> None:
        """The log follows already, in the machine's leader epoch."""
        self._context = context
        self.name = name
        self.partition = partition
        self.follower = follower
        self.is_stopped = False
        self._pause: asyncio.Future[None] | None = None  # done when it may ask again
        self.work: asyncio.Future[None] | None = None  # what is done to its log in a thread
        self._waits_for_memory = False  # True until the memory is reserved
        self._readable = partition.high_watermark  # up to where fetches of consumers were woken
        self._unreadable: deque[_Appended] = deque()  # what was appended, and may not be read yet

    def stop(self) -> None:
        """Stops following, and wakes the fetches of consumers, which wait on this broker, too.

        Work in a thread goes on. An append that waits for memory is cancelled.
        """
        self.is_stopped = True
        self._context.purgatory.wake(self.partition)
        if self.work is not None and self._waits_for_memory:
            self.work.cancel()

    @property
    def busy(self) -> asyncio.Future[None] | None:
        """What has to be done before it asks again; None if it may ask now, or follows no more."""
        return None if self.is_stopped else self.work or self._pause

    def next_fetch(self) -> FetchRequest | None:
        """Returns what to ask the leader for, or None while the partition is `busy`."""
        if self.work is not None or self.is_stopped or self._pause is not None:
            return None
        request = self.follower.next_fetch(follower_log(self.partition))
        if request is None:  # it has led, and not made all durable
            self._in_thread(self._flush)
        return request

    def take(self, request: FetchRequest, data: PartitionData) -> None:
        """Handles the leader's answer to a request."""
        if self.is_stopped or self.work is not None:
            return
        answer = received_answer(data, self.follower.leader_epoch)
        actions = self.follower.on_answer(request, answer, follower_log(self.partition))
        if not actions:
            return
        if len(actions) == 1 and isinstance(actions[0], Append):
            if not data.records and is_known(self.partition.state, data, self._behind_ms()):
                self._finish(answer)
                return
            try:
                is_appended = self._append_on_loop(data)
            except BrokerError as error:
                self._failed(error)
                return
            if is_appended:
                self._finish(answer)
                return
        if isinstance(actions[0], WaitBefore):
            self._wait(actions[0].ms / 1000)
            return
        if any(isinstance(each, Append) for each in actions):
            self._goes_on(asyncio.ensure_future(self._append_in_thread(actions, data, answer)))
        else:
            self._in_thread(self._carry_out, actions, data, answer)

    # --- on the loop ------------------------------------------------------------------------------

    def _finish(self, answer: FetchAnswer) -> None:
        """Completes an append: advances the high watermark, and wakes the fetches that wait for it."""
        actions = self.follower.on_appended(answer, follower_log(self.partition))
        left: list[FollowerAction] = []
        for action in actions:
            if isinstance(action, AdvanceHighWatermark):
                self._advance(action.offset)
            else:
                left.append(action)
        self._context.purgatory.advanced(self.partition)
        self._wake_readers()
        if left:
            self._in_thread(self._carry_out, left, None, answer)

    def _wake_readers(self) -> None:
        """Wakes the fetches of consumers that wait on this broker, if the high watermark has risen."""
        before, now = self._readable, self.partition.state.ends[1]
        if now == before:
            return
        self._readable, size, reached = now, 0, before
        while self._unreadable and self._unreadable[0].end_offset <= now:
            appended = self._unreadable.popleft()
            if appended.start_offset == reached:
                size, reached = size + appended.size, appended.end_offset
        if reached == now:
            self._context.purgatory.readable(self.partition, size)
        else:  # how many bytes there are is not known: they read
            self._context.purgatory.wake(self.partition)

    def _append_on_loop(self, data: PartitionData) -> bool:
        """Stores an answer if nothing of it waits for the disk or takes long; returns whether it has.

        Raises CorruptMessage and KafkaStorageError.
        """
        batches = count_batches(records_of(data), _LOOP_BATCHES + 1)
        if batches > _LOOP_BATCHES or not is_quick(self.partition.state, data, self._behind_ms()):
            return False
        try:
            self._append(data, SHORT_UNPACK_BYTES // max(batches, 1))
        except UnpackedTooLarge:  # nothing is stored
            return False
        return True

    def _wait(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._pause = pause = loop.create_future()
        loop.call_later(seconds, self._go_on, pause)

    def _go_on(self, pause: asyncio.Future[None]) -> None:
        if self._pause is pause:
            self._pause = None
        pause.set_result(None)

    # --- anywhere ---------------------------------------------------------------------------------

    def _append(self, data: PartitionData, unpack_limit: int = STORED_LIMIT) -> None:
        """Stores the records of an answer, and the leader's state of its log.

        Raises CorruptMessage, KafkaStorageError and, if a batch unpacks to more than `unpack_limit`
        bytes, UnpackedTooLarge; then nothing is stored.
        """
        sent, records = state_of(data), records_of(data)
        start_offset = self.partition.log_end_offset
        self.partition.replica.append_as_follower(
            records,
            replication_state.received_append_times(data),
            replication_state.received_epochs(sent),
            leader_state(data, sent, self._behind_ms()),
            now_ms=self._context.clock_ms(),
            unpack_limit=unpack_limit,
        )
        if records:
            end_offset = self.partition.log_end_offset
            self._unreadable.append(_Appended(start_offset, end_offset, len(records)))

    def _behind_ms(self) -> int:
        """Returns how far the leader's clock is behind the one of this broker."""
        return self._context.clocks.behind_ms(self.follower.leader)

    def _advance(self, offset: int) -> None:
        state = self.partition.state
        with state.append_lock:
            state.advance_high_watermark(offset)

    # --- in a thread ------------------------------------------------------------------------------

    def _in_thread(self, work: Callable[..., None], *arguments: Any) -> None:
        """Runs work on the log in a thread; the partition asks again when that has ended."""
        pool = self._context.pools.syncs.of(self.partition)
        try:
            self._goes_on(pool.submit(work, *arguments))
        except RuntimeError:  # the broker stops
            self.is_stopped = True

    async def _append_in_thread(
        self, actions: list[FollowerAction], data: PartitionData, answer: FetchAnswer
    ) -> None:
        """Carries out actions that append records, in a thread.

        Few batches unpack to more than the first attempt allows. Those are appended again with memory
        reserved. The leader has accepted them, so the last attempt reserves all memory for
        records, and refuses nothing. Nothing is tried any more once the role has ended.
        """
        pools, memory = self._context.pools, self._context.unpacked
        some_bytes = memory.limit_bytes // 4
        attempts = [(SHORT_UNPACK_BYTES, 0), (STORED_LIMIT, memory.limit_bytes)]
        if some_bytes > SHORT_UNPACK_BYTES:
            attempts.insert(1, (some_bytes, some_bytes))
        for unpack_limit, reserved_bytes in attempts:
            if self.is_stopped:
                return
            pool = pools.appends if self.partition.is_read else pools.first_appends
            if len(actions) > 1:  # the log restarts before, which waits for its disk
                pool = pools.syncs.of(self.partition)
            self._waits_for_memory = bool(reserved_bytes)
            async with reserved(memory, reserved_bytes) if reserved_bytes else nullcontext():
                self._waits_for_memory = False
                try:
                    work = pool.submit(self._carry_out, actions, data, answer, unpack_limit)
                except RuntimeError:  # the broker stops
                    self.is_stopped = True
                    return
                try:
                    await work
                except UnpackedTooLarge:
                    if unpack_limit == STORED_LIMIT:
                        raise
                else:
                    return

    def _goes_on(self, work: asyncio.Future[None]) -> None:
        self.work = work
        work.add_done_callback(self._done)

    def _done(self, work: asyncio.Future[None]) -> None:
        self.work = None
        if work.cancelled():
            return
        error = work.exception()
        if error is not None:
            self._failed(error)
            return
        self._context.purgatory.advanced(self.partition)
        self._wake_readers()

    def _failed(self, error: BaseException) -> None:
        """Goes on after a while, unless the log is gone or offline."""
        if self.partition.is_deleted or self.partition.offline is not None:
            self.is_stopped = True
            self._log_failure("partition followers stopped", error)
            return
        if isinstance(error, BrokerError):
            self._log_failure("records not replicated", error)
        else:
            log.error("records not replicated", exc_info=error, extra=self._fields())
        self._wait(_RETRY_S)

    def _log_failure(self, what: str, error: BaseException) -> None:
        """Logs why something fails, once for all partitions to which that happens."""
        name, follower = self._log_name, self.follower
        reason = error.named if isinstance(error, BrokerError) else str(error)
        same = {"leader": follower.leader, "reason": reason.replace(f"{name}: ", "")}
        own = {"epoch": follower.leader_epoch}
        self._context.folded.add(logging.ERROR, what, name, own, **same)

    def _carry_out(
        self,
        actions: list[FollowerAction],
        data: PartitionData | None,
        answer: FetchAnswer,
        unpack_limit: int = STORED_LIMIT,
    ) -> None:
        """Carries out actions, in their order. Raises BrokerError."""
        partition = self.partition
        while actions:
            action, *actions = actions
            if isinstance(action, Append):
                assert data is not None
                self._append(data, unpack_limit)
                actions += self.follower.on_appended(answer, follower_log(partition))
            elif isinstance(action, Truncate):
                self._truncate(action)
            elif isinstance(action, RestartAt):
                self._restart(action, data)
            elif isinstance(action, AdvanceHighWatermark):
                self._advance(action.offset)
            elif isinstance(action, RaiseLogStart):
                partition.retainer.delete_records_before(action.offset)
            elif isinstance(action, Flush):
                self._flush()

    def _truncate(self, action: Truncate) -> None:
        self._note_lost(action.offset)
        self._unreadable.clear()
        self.partition.truncater.truncate_to(
            action.offset, below_high_watermark=action.is_below_high_watermark
        )

    def _restart(self, action: RestartAt, data: PartitionData | None) -> None:
        """Begins an empty log, with the leader's times: the next fetch may bring it into the ISR."""
        self._note_lost(action.end_offset)
        log.warning("follower restarted its log empty", extra=self._fields(offset=action.offset))
        self._unreadable.clear()
        self.partition.truncater.start_at(action.offset)
        if data is not None and data.replication_state is not None and data.error_code:
            self._append(data)

    def _note_lost(self, offset: int) -> None:
        high_watermark = self.partition.high_watermark
        if offset < high_watermark:
            lost = self._fields(end_offset=offset, high_watermark=high_watermark)
            log.error("acknowledged records lost, leader has another history", extra=lost)

    def _flush(self) -> None:
        self.partition.commit()

    @property
    def _log_name(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"

    def _fields(self, **fields: object) -> dict[str, object]:
        return {
            "log": self._log_name,
            "leader": self.follower.leader,
            "epoch": self.follower.leader_epoch,
            **fields,
        }
