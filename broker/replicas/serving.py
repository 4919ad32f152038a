"""A follower's fetch: answered at once if there is news for it, else parked until there is.

All partitions that a follower replicates from this broker come in one request. The machines of all
of them take it before anything is read: a fetch acknowledges what the follower has. The answer has
the partitions with news alone, and now and then all of them.

A parked fetch ends early when its connection brings the next request: the follower wants to ask for
more partitions than it did.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.network.per_partition import per_partition
from broker.partitions import replication_state
from broker.partitions.offload import answer as answer_anywhere
from broker.replicas.views import received_fetch
from protocol.api.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from protocol.errors import ErrorCode, NotLeaderOrFollower, UnknownTopicId, error_class

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from uuid import UUID

    from broker.network.context import Context
    from broker.node import Node
    from broker.pools import Permit
    from broker.replicas.led import Led
    from broker.replicas.replicas import Replicas
    from broker.replication import messages
    from protocol.api.fetch import FetchPartition, FetchRequest
    from protocol.errors import BrokerError
    from protocol.topic_partition import TopicPartition

SINCE_VERSION = 15  # the follower's broker epoch
_HIGH_WATERMARK_DELAY_S = 0.01  # news of the high watermark alone may come with the next records
_TOLD_WITHIN_S = 0.5


class _Asked(NamedTuple):
    """One partition of a fetch, and what its leader says. `led` is None if it is not led here."""

    topic_id: UUID
    wanted: FetchPartition
    request: messages.FetchRequest
    led: Led | None
    answer: messages.FetchAnswer | None
    error: type[BrokerError]

    def has_news(self) -> bool:
        """Returns whether the follower should be answered."""
        led, answer, request = self.led, self.answer, self.request
        if led is None or answer is None or answer.error or answer.diverging is not None:
            return True
        if request.fetch_offset < answer.log_end_offset:
            return True
        return request.log_start_offset < answer.log_start_offset or led.leader.has_news(request)


class FollowerFetch:
    """One fetch of a follower."""

    __slots__ = (
        "_asked",
        "_context",
        "_late",
        "_left_bytes",
        "_node",
        "_replicas",
        "_request",
        "_woken",
    )

    def __init__(
        self, node: Node, replicas: Replicas, request: FetchRequest, context: Context
    ) -> None:
        """Tells the leaders of the fetch."""
        self._node, self._replicas = node, replicas
        self._request, self._context = request, context
        self._woken: asyncio.Future[None] | None = None
        self._late: asyncio.TimerHandle | None = None
        self._left_bytes = 0
        self._asked = [
            self._ask(topic.topic_id, wanted)
            for topic in request.topics
            for wanted in topic.partitions
        ]

    def _ask(self, topic_id: UUID, wanted: FetchPartition) -> _Asked:
        replica = self._request.replica_state
        assert replica is not None
        request = received_fetch(wanted, replica)
        led = self._replicas.led_by_id(topic_id, wanted.partition)
        error: type[BrokerError] = NotLeaderOrFollower
        if led is None and topic_id not in self._node.metadata.image.topics_by_id:
            error = UnknownTopicId
        answer = None if led is None else led.on_fetch(request)
        return _Asked(topic_id, wanted, request, led, answer, error)

    # --- waiting ----------------------------------------------------------------------------------

    def answer(self) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
        """Returns the response now, or a coroutine that waits for news or for a file."""
        if self._request.max_wait_ms <= 0 or not self._asked:
            return self._respond(self._asked)
        news = [each for each in self._asked if each.has_news()]
        return self._respond(self._with_late(news)) if news else self._wait()

    async def _wait(self) -> FetchResponse:
        loop = asyncio.get_running_loop()
        self._woken = loop.create_future()
        connection = self._context.connection
        timer = loop.call_later(self._request.max_wait_ms / 1000, self.wake)
        connection.on_more = self.wake
        if connection.has_more:  # it came together with this fetch
            self.wake()
        for each in self._asked:
            if each.led is not None:
                each.led.parked[self] = each.request
                if each.led.leader.has_news(each.request):
                    self.wake()  # it came after the fetch was judged, and before this ran
        try:
            await self._woken
        finally:
            timer.cancel()
            if self._late is not None:
                self._late.cancel()
            connection.on_more = None
            for each in self._asked:
                if each.led is not None:
                    each.led.parked.pop(self, None)
        self._asked = [
            each if each.led is None else each._replace(answer=each.led.on_wake(each.request))
            for each in self._asked
        ]
        news = [each for each in self._asked if each.has_news()]
        response = self._respond(self._with_late(news))
        return await response if asyncio.iscoroutine(response) else response

    def wake(self) -> None:
        """Ends the wait."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def wake_soon(self) -> None:
        """Ends the wait in a moment, unless something ends it before."""
        if self._late is None and self._woken is not None:
            loop = asyncio.get_running_loop()
            self._late = loop.call_later(_HIGH_WATERMARK_DELAY_S, self.wake)

    def _with_late(self, news: list[_Asked]) -> list[_Asked]:
        """Returns the partitions to answer: those with news, and those not answered for long."""
        now_s = self._node.clock.monotonic_s()
        follower = self._request.replica_state.replica_id  # type: ignore[union-attr]
        if len(news) < len(self._asked):
            told = set(map(id, news))
            for each in self._asked:
                led = each.led
                if (
                    id(each) not in told
                    and led is not None
                    and now_s - led.told_s.get(follower, 0.0) >= _TOLD_WITHIN_S
                ):
                    news.append(each)
        for each in news:
            if each.led is not None:
                each.led.told_s[follower] = now_s
        return news

    # --- reading ----------------------------------------------------------------------------------

    def _respond(self, asked: list[_Asked]) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
        """Reads the partitions, on the loop or in a thread."""

        def attempt(permit: Permit) -> FetchResponse:
            return self._read_all(asked, permit)

        return answer_anywhere(self._node, self._names(asked), attempt)

    def _names(self, asked: list[_Asked]) -> Iterator[TopicPartition]:
        for each in asked:
            if each.led is not None:
                yield each.led.partition.topic, each.led.partition.index

    def _read_all(self, asked: list[_Asked], permit: Permit) -> FetchResponse:
        self._left_bytes = min(self._request.max_bytes, self._node.connections.fetch_room())
        by_topic: dict[UUID, list[_Asked]] = {}
        for each in asked:
            by_topic.setdefault(each.topic_id, []).append(each)
        is_first = [True]

        def serve(each: _Asked) -> PartitionData:
            permit.check()
            return self._serve(each, permit, is_first)

        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=topic_id,
                    partitions=per_partition(self._node, "fetch", wanted, serve, _failed),
                )
                for topic_id, wanted in by_topic.items()
            ]
        )

    def _serve(self, asked: _Asked, permit: Permit, is_first: list[bool]) -> PartitionData:
        """Reads one partition. Raises the error that its leader has answered with."""
        led, answer = asked.led, asked.answer
        if led is None or answer is None:
            raise asked.error
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return _out_of_range(led, asked, answer)
        if answer.error:
            raise (error_class(answer.error) or NotLeaderOrFollower)
        if answer.diverging is not None:
            return _diverging(asked, answer)
        wanted = asked.wanted
        data, size = replication_state.read_for_follower(
            led.partition,
            wanted,
            min(wanted.partition_max_bytes, self._left_bytes),
            minimum_one=is_first[0],
            may_block=permit.may_block,
        )
        if size:
            is_first[0] = False
            self._left_bytes = max(0, self._left_bytes - size)
        return data


def _out_of_range(led: Led, asked: _Asked, answer: messages.FetchAnswer) -> PartitionData:
    """Returns the leader's offsets, with which the follower comes back into range."""
    data = _failed(asked, None)
    data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    data.high_watermark = answer.high_watermark
    data.log_start_offset = answer.log_start_offset
    data.replication_state = replication_state.state_alone(led.partition)
    data.replication_state.log_end_offset = answer.log_end_offset
    return data


def _diverging(asked: _Asked, answer: messages.FetchAnswer) -> PartitionData:
    data = _failed(asked, None)
    data.error_code = ErrorCode.NONE
    assert answer.diverging is not None
    epoch, end_offset = answer.diverging
    data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data


def _failed(asked: _Asked, error: BrokerError | None) -> PartitionData:
    return PartitionData(
        partition_index=asked.wanted.partition,
        error_code=0 if error is None else error.code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )
