"""A follower's fetch: answered at once if there is an update for it, else parked until there is.

All partitions that a follower replicates from this broker come in one session of fetches
(`session.py`). The leaders of those that a fetch names process it before anything is read: a
fetch acknowledges what the follower has. The answer has the partitions with updates alone, and now and
then others. A fetch that begins a session, or has none, is answered for all that it names; the first
of a session at once, so that the follower learns its id.

A parked fetch ends early when its connection brings the next request: the follower wants to ask for
more partitions than it did.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.network.answers import Pending
from tidelog.broker.network.per_partition import FEW, few_partitions, per_partition
from tidelog.broker.partitions import replication_state
from tidelog.broker.partitions.fetch.parts import failed
from tidelog.broker.partitions.fetch.session_epochs import FIRST, SESSIONLESS
from tidelog.broker.partitions.offload import answer as answer_anywhere
from tidelog.broker.pools import ON_LOOP
from tidelog.protocol.api.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
)
from tidelog.protocol.error_class import error_class
from tidelog.protocol.errors import ErrorCode, NotLeaderOrFollower
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from uuid import UUID

    from tidelog.broker.network.context import Context
    from tidelog.broker.partitions.fetch.followers.pending_fetch import PendingFetch
    from tidelog.broker.partitions.fetch.followers.session import FollowerSession
    from tidelog.broker.partitions.leading.partition_leader import PartitionLeader
    from tidelog.broker.partitions.replication import messages
    from tidelog.broker.partitions.services import Services
    from tidelog.broker.pools import Permit
    from tidelog.protocol.api.fetch import FetchRequest, PartitionData
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.topic_partition import TopicIdPartition, TopicPartition

# How long an update of the high watermark alone waits for records to go with, where consumers read from
# followers. Elsewhere it waits until the parked fetch ends (KAFKA-9952).
_HIGH_WATERMARK_DELAY_S = 0.01


class FollowerFetch:
    """One fetch of a follower."""

    __slots__ = (
        "_context",
        "_converted",
        "_has_session",
        "_left_bytes",
        "_request",
        "_services",
        "_session",
        "_throttled_bytes",
        "_without_records",
        "_woken",
    )

    def __init__(
        self, services: Services, session: FollowerSession, request: FetchRequest, context: Context
    ) -> None:
        """Passes the fetch to the leaders. Raises what `FollowerSession.take` raises."""
        self._services, self._session = services, session
        self._request, self._context = request, context
        self._has_session = request.session_epoch != SESSIONLESS
        self._woken: asyncio.Future[None] | None = None
        self._left_bytes = 0
        self._converted: list[tuple[str, int]] = []  # topics, and how many of their records
        self._throttled_bytes = 0  # those that count against the quota
        self._without_records: frozenset[TopicIdPartition] = frozenset()  # by the quota
        session.take(request)

    # --- waiting ----------------------------------------------------------------------------------

    def answer(self) -> FetchResponse | Coroutine[Any, Any, FetchResponse] | Pending:
        """Returns the response now, a coroutine that waits for a file, or one when there is an update."""
        session, request, connection = self._session, self._request, self._context.connection
        if (
            request.max_wait_ms <= 0
            or request.session_epoch == FIRST
            or session.has_woken
            or not session
            or connection.has_more
        ):
            return self._respond()
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        session.alarm.set(loop.time() + request.max_wait_ms / 1000)
        connection.on_more, session.waiting = self.wake, self
        if session.has_late:
            self.wake_soon()
        return Pending(self._woken, self._finish, self._drop)

    def _finish(self) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
        self._end_wait()
        return self._respond()

    def _drop(self) -> None:
        self._end_wait()
        if not self._has_session:
            self._session.close()

    def _end_wait(self) -> None:
        session = self._session
        if self._has_session:
            session.alarm.clear()
        else:
            session.alarm.close()
        self._context.connection.on_more = session.waiting = None

    def wake(self) -> None:
        """Ends the wait."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def wake_soon(self) -> None:
        """Ends the wait in a moment where consumers read from followers, unless something ends it before."""
        if self._session.directs_consumers:
            loop = asyncio.get_running_loop()
            self._session.alarm.set_sooner(loop.time() + _HIGH_WATERMARK_DELAY_S)

    # --- reading ----------------------------------------------------------------------------------

    def _respond(self) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
        """Reads the partitions to answer, on the loop or in a thread."""
        now_s = self._services.clock.monotonic_s()
        session = self._session
        is_full = self._request.session_epoch <= FIRST
        pending = session.all_of_them(now_s) if is_full else session.answerable(now_s)
        self._without_records = session.throttled.without_records(pending)
        if len(pending) > FEW:
            return self._answered(pending)
        try:
            response = self._read_few(pending)
        except WouldBlock:
            return self._answered(pending)
        self._count()
        return response

    async def _answered(self, pending: list[PendingFetch]) -> FetchResponse:
        read = await answer_anywhere(
            self._services, self._names(pending), partial(self._read_all, pending)
        )
        self._count()  # counters belong to the loop
        return read

    def _count(self) -> None:
        if self._throttled_bytes:
            self._session.throttled.record(self._throttled_bytes)
        for topic, records in self._converted:
            self._services.metrics.down_converted(topic, records)

    def _names(self, pending: list[PendingFetch]) -> Iterator[TopicPartition]:
        for each in pending:
            if each.led is not None:
                yield each.led.partition.topic, each.led.partition.index

    def _read_few(self, pending: list[PendingFetch]) -> FetchResponse:
        by_topic, serve = self._begin_read(pending, ON_LOOP)
        return self._response(
            {
                topic_id: few_partitions(self._services, "fetch", wanted, serve, _failed)
                for topic_id, wanted in by_topic.items()
            }
        )

    async def _read_all(self, pending: list[PendingFetch], permit: Permit) -> FetchResponse:
        by_topic, serve = self._begin_read(pending, permit)
        return self._response(
            {
                topic_id: await per_partition(self._services, "fetch", wanted, serve, _failed)
                for topic_id, wanted in by_topic.items()
            }
        )

    def _begin_read(
        self, pending: list[PendingFetch], permit: Permit
    ) -> tuple[dict[UUID, list[PendingFetch]], Callable[[PendingFetch], PartitionData]]:
        """Returns the partitions to read by topic, and what reads one of them."""
        self._converted, self._throttled_bytes = [], 0
        self._left_bytes = min(
            self._request.max_bytes, self._services.connections.replica_fetch_room()
        )
        by_topic: dict[UUID, list[PendingFetch]] = {}
        for each in pending:
            by_topic.setdefault(each.name[0], []).append(each)
        is_first = [True]

        def serve(each: PendingFetch) -> PartitionData:
            permit.check()
            return self._serve(each, permit, is_first)

        return by_topic, serve

    def _response(self, read: dict[UUID, list[PartitionData]]) -> FetchResponse:
        return FetchResponse(
            session_id=self._session.session_id if self._has_session else 0,
            responses=[
                FetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in read.items()
            ],
            clock_ms=self._services.clock.now_ms(),
        )

    def _serve(self, pending: PendingFetch, permit: Permit, is_first: list[bool]) -> PartitionData:
        """Reads one partition. Raises the error that its leader has answered with."""
        led, answer = pending.led, pending.answer
        if led is None or answer is None:
            raise pending.error
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return _out_of_range(led, pending, answer)
        if answer.error:
            raise (error_class(answer.error) or NotLeaderOrFollower)
        if answer.diverging is not None:
            return _diverging(pending, answer)
        wanted = pending.wanted
        has_records = not self._without_records or pending.name not in self._without_records
        data, size, converted = self._session.shared_reads.read(
            led,
            wanted,
            min(wanted.partition_max_bytes, self._left_bytes) if has_records else 0,
            permit,
            minimum_one=is_first[0] and has_records,
            newest_magic=self._request.newest_magic,
        )
        if not led.leader.is_leading:
            # The read may have waited for a thread, and the log have got another history since.
            raise NotLeaderOrFollower
        if converted:
            self._converted.append((led.partition.topic, converted))
        if size:
            is_first[0] = False
            self._throttled_bytes += self._session.throttled.sent(pending, size)
            self._left_bytes = max(0, self._left_bytes - size)
        return data


def _out_of_range(
    led: PartitionLeader, pending: PendingFetch, answer: messages.FetchAnswer
) -> PartitionData:
    """Returns the leader's offsets, with which the follower comes back into range."""
    data = _failed(pending, None)
    data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    data.high_watermark = answer.high_watermark
    data.log_start_offset = answer.log_start_offset
    data.replication_state = replication_state.state_alone(led.partition)
    data.replication_state.log_end_offset = answer.log_end_offset
    return data


def _diverging(pending: PendingFetch, answer: messages.FetchAnswer) -> PartitionData:
    data = _failed(pending, None)
    data.error_code = ErrorCode.NONE
    assert answer.diverging is not None
    epoch, end_offset = answer.diverging
    data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data


def _failed(pending: PendingFetch, error: BrokerError | None) -> PartitionData:
    return failed(pending.wanted.partition, 0 if error is None else error.code)
