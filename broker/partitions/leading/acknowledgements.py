"""Producers with acks=all that wait for the high watermark of a partition."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.error_class import error_class
from tidelog.protocol.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.storage.log.partition import Appended

    # How to answer an append that ends at an offset and waits until a time; None: not yet.
    Decide = Callable[[int, int], ErrorCode | None]


class _Waiting(NamedTuple):
    appended: Appended
    deadline_ms: int
    answer: asyncio.Future[Appended]


def refusal(code: ErrorCode) -> BrokerError:
    """Returns the error that a producer gets instead of an acknowledgement."""
    return (error_class(code) or BrokerError)()


class Acknowledgements:
    """The appends to one partition, in one leader epoch, whose producers wait."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, appended: Appended, deadline_ms: int) -> asyncio.Future[Appended]:
        """Returns a future of the append, done when it is acknowledged or refused."""
        answer: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(appended, deadline_ms, answer))
        return answer

    def first_deadline_ms(self) -> int | None:
        """Returns the earliest time at which one of them has waited too long."""
        return min((each.deadline_ms for each in self._waiting), default=None)

    def advanced(self, decide: Decide) -> None:
        """Answers those that the high watermark has reached; they wait in the log's order."""
        waiting = self._waiting
        while waiting:
            each = waiting[0]
            code = decide(each.appended.last_offset + 1, each.deadline_ms)
            if code is None:
                return
            waiting.popleft()
            _answer(each, code)

    def look(self, decide: Decide) -> None:
        """Answers every producer whose append is acknowledged, refused or timed out by now."""
        left: deque[_Waiting] = deque()
        for each in self._waiting:
            code = decide(each.appended.last_offset + 1, each.deadline_ms)
            if code is None:
                left.append(each)
            else:
                _answer(each, code)
        self._waiting = left

    def refuse_all(self, code: ErrorCode) -> None:
        """Refuses everybody: this leader epoch is over."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            _answer(each, code)


def _answer(waiting: _Waiting, code: ErrorCode) -> None:
    if waiting.answer.done():  # the producer has left
        return
    if code == ErrorCode.NONE:
        waiting.answer.set_result(waiting.appended)
    else:
        waiting.answer.set_exception(refusal(code))
        waiting.answer.exception()  # its connection may have ended: then nobody asks for it
