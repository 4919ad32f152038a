"""Producers with acks=all that wait for the high watermark of a partition."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.timer import Timer
from tidelog.protocol.error_class import error_class
from tidelog.protocol.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.partitions.replication.leader import Leader
    from tidelog.storage.log.partition import Appended


class _Waiting(NamedTuple):
    appended: Appended
    deadline_ms: int
    answer: asyncio.Future[Appended]


def refusal(code: ErrorCode) -> BrokerError:
    """Returns the error that a producer gets instead of an acknowledgement."""
    return (error_class(code) or BrokerError)()


class Acknowledgements:
    """The appends to one partition, in one leader epoch, whose producers wait."""

    __slots__ = ("_leader", "_now_ms", "_timer", "_waiting")

    def __init__(self, leader: Leader, now_ms: Callable[[], int]) -> None:
        """`now_ms` is monotonic."""
        self._leader, self._now_ms = leader, now_ms
        self._waiting: deque[_Waiting] = deque()
        self._timer: Timer | None = None  # for the first producer to wait too long

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, appended: Appended, deadline_ms: int) -> asyncio.Future[Appended]:
        """Returns a future of the append, done when it is acknowledged or refused, or the time is over."""
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(appended, deadline_ms, answer))
        self._set_timer(deadline_ms)
        return answer

    def advanced(self) -> None:
        """Answers those that the high watermark has reached; they wait in the log's order."""
        waiting, judge, now_ms = self._waiting, self._leader.acknowledgement, self._now_ms()
        while waiting:
            each = waiting[0]
            code = judge(each.appended.last_offset + 1, now_ms, each.deadline_ms)
            if code is None:
                return
            waiting.popleft()
            _answer(each, code)

    def refuse_all(self, code: ErrorCode) -> None:
        """Refuses everybody: this leader answers no client any more, or for now."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            _answer(each, code)

    def close(self) -> None:
        """Ends the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _set_timer(self, deadline_ms: int) -> None:
        loop = asyncio.get_running_loop()
        when = loop.time() + (deadline_ms - self._now_ms() + 1) / 1000
        if self._timer is not None:
            if self._timer.at_s <= when:
                return
            self._timer.cancel()
        self._timer = Timer(when, self._expire)

    def _expire(self) -> None:
        """Answers every producer whose append is acknowledged, refused or timed out by now."""
        self._timer = None
        judge, now_ms = self._leader.acknowledgement, self._now_ms()
        left: deque[_Waiting] = deque()
        for each in self._waiting:
            code = judge(each.appended.last_offset + 1, now_ms, each.deadline_ms)
            if code is None:
                left.append(each)
            else:
                _answer(each, code)
        self._waiting = left
        if left:
            self._set_timer(min(each.deadline_ms for each in left))


def _answer(waiting: _Waiting, code: ErrorCode) -> None:
    if waiting.answer.done():  # the producer has left
        return
    if code == ErrorCode.NONE:
        waiting.answer.set_result(waiting.appended)
    else:
        waiting.answer.set_exception(refusal(code))
        waiting.answer.exception()  # its connection may have ended: then nobody asks for it
