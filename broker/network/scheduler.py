"""Whose turn it is on the event loop: no request, and no connection, keeps it from the others.

Two things can take long: a connection that has many requests buffered, and one request that names, or is
answered with, a hundred thousand things. Both are served in slices of a few milliseconds. What is not
done after its slice waits in one queue, and the loop polls its sockets between two runs of that queue. So
a request of a connection with nothing else to do waits for a run, not for what others have buffered.

From the first that queues on, time is cut into rounds, one for each time that the loop polls its sockets.
All who are served in a round share its `ROUND_S`: requests as they come, answers that were waited for,
steps of coroutines, and the queue. Who comes after that queues for the next round.

A request that may take long is a coroutine, and where it may be interrupted it awaits `checkpoint()`
(docs/decisions/0061): after each partition of `per_partition()`, in `listed()`, in loops of handlers over
what a client has sent, and between the steps of the codecs. `Scheduler.serve` drives it: it has
no task before it first queues or waits.

While a coroutine awaits `checkpoint()`, anything else may run on the loop. So there is none between two steps
that belong together: those are functions, which cannot await.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.broker.network.answers import Pending
from tidelog.broker.network.memory.garbage import Hold

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable

    from tidelog.broker.network.memory.garbage import Collector

    Turn = Callable[[], float | None]

log = logging.getLogger("tidelog.connection")

FIRST_S: Final = 0.002
"""How long a request is served when it comes, before it has to queue."""
SLICE_S: Final = 0.004
"""How long one that has queued goes on."""
ROUND_S: Final = 0.006
"""How long all are served before the loop polls its sockets."""
_LEAST_S: Final = 0.001  # how long the queue is served where nothing of the round is left for it
_NEW_S: Final = 0.003  # of a round, shared by those that are new
_LEAST_NEW_S: Final = 0.0001  # for each of them
_CROWDED_S: Final = 0.0005  # instead of FIRST_S, while others queue
_UNSEEN_S: Final = 0.002  # of work that has not queued: then a round begins
_LISTED_AT_ONCE: Final = 32

_BEGIN: Final = object()  # what a coroutine waits for that has not begun

Item = TypeVar("Item")
Result = TypeVar("Result")


@coroutine
def checkpoint() -> Generator[None, None, None]:
    """Serves the others first if this request has had its turn.

    Raises CancelledError if nobody waits for the response any more. In a task that no scheduler has made, the
    loop goes round once.
    """
    yield


async def listed(
    items: Iterable[Item], is_wanted: Callable[[Item], object] | None = None
) -> list[Item]:
    """Returns a list of the wanted items, made a few at a time, with a `checkpoint()` after them."""
    results: list[Item] = []
    left = iter(items)
    while True:
        some = list(islice(left, _LISTED_AT_ONCE))
        results += some if is_wanted is None else filter(is_wanted, some)
        await checkpoint()
        if len(some) < _LISTED_AT_ONCE:
            return results


def at_once(work: Coroutine[Any, Any, Result]) -> Result:
    """Returns what a coroutine returns that awaits nothing but `checkpoint()`: in a thread of a pool."""
    try:
        while work.send(None) is None:
            pass
    except StopIteration as end:
        result: Result = end.value
        return result
    work.close()
    raise RuntimeError("what runs at once waits for something")


def _awaited(happened: asyncio.Future[None]) -> Any:
    """Returns what a coroutine yields to its task that awaits a future."""
    return next(iter(happened.__await__()))


class _Slice:
    """A time for which one coroutine is served."""

    __slots__ = ("_raised", "began_s", "held_s")

    def __init__(self, began_s: float, held_s: float, raised: BaseException | None = None) -> None:
        self.began_s = began_s
        self.held_s = held_s
        """How long the slices before it took."""
        self._raised = raised

    def first_step(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Goes on with a coroutine, or raises in it what its wait has raised.

        No frame refers to the error then: the error would refer to the frame.
        """
        if self._raised is None:
            return work.send(None)
        return work.throw(self._take())

    def _take(self) -> BaseException:
        raised, self._raised = self._raised, None
        assert raised is not None
        return raised


class Scheduler:
    """Shares the event loop: the queue of those who have had their turn and are not done."""

    def __init__(self, now_s: Callable[[], float], collector: Collector) -> None:
        """`now_s` reads the seconds of the machine; `collector` is held while a request is long."""
        self._now_s = now_s
        self._new: deque[Turn] = deque()  # connections that have not been served in this round
        self._old: deque[Turn] = deque()
        self.has_round = False  # whether a round is under way
        self._ends_s = 0.0  # when this round ends
        self._unseen_s = 0.0  # how long requests have taken since the last round
        self._slice: _Slice | None = None  # the one that is under way
        self._is_closed = False
        self.collector = collector

    def is_crowded(self, now_s: float) -> bool:
        """Returns whether those whose requests come now have to queue like others."""
        return self.has_round and now_s > self._ends_s

    def note(self, began_s: float) -> None:
        """Counts what has been served since `began_s` without queueing: much of it begins a round."""
        if self.has_round:
            return
        self._unseen_s += self._now_s() - began_s
        if self._unseen_s > _UNSEEN_S:
            self._begin()

    def join(self, turn: Turn, *, is_new: bool = False) -> None:
        """Queues: `turn` is called once, on the loop.

        It may return for how many seconds it has left work to the next round. One that `is_new` comes
        before those who have had a turn already.
        """
        if self._is_closed:
            return
        (self._new if is_new else self._old).append(turn)
        if not self.has_round:
            self._begin()

    def new_turn_s(self) -> float:
        """Returns how long one that is new is served: shorter where more of them wait."""
        return max(_LEAST_NEW_S, _NEW_S / (1 + len(self._new)))

    def _begin(self) -> None:
        """Begins the first round."""
        self.has_round = True
        self._begin_round()
        self._ends_s -= min(self._unseen_s, ROUND_S)
        asyncio.get_running_loop().call_soon(self._run)

    def _begin_round(self) -> None:
        self._ends_s = self._now_s() + ROUND_S

    def _run(self) -> None:
        """Serves the queue until the round ends, each at most once, one of the old ones at least.

        The next round begins before all that this run wakes: that is called first.
        """
        loop = asyncio.get_running_loop()
        self._unseen_s = 0.0
        if not self._new and not self._old:
            self.has_round = False
            return
        loop.call_soon(self._begin_round)
        self._ends_s = max(self._ends_s, self._now_s() + _LEAST_S)
        left_s = 0.0  # for the next round
        left = len(self._new) + len(self._old)
        old_served = not self._old
        while left and (self._now_s() + left_s < self._ends_s or not old_served):
            left -= 1
            is_new = self._new and (old_served or self._now_s() + left_s < self._ends_s)
            turn = (self._new if is_new else self._old).popleft()
            if not (is_new or old_served):
                old_served = True
                self._ends_s = max(self._ends_s, self._now_s() + _LEAST_S)
            try:
                left_s += turn() or 0.0
            except Exception:
                log.exception("scheduled work failed")
        loop.call_soon(self._run)

    def close(self) -> None:
        """Serves nothing any more: who has paused does not go on."""
        self._is_closed = True
        self._new.clear()
        self._old.clear()

    # -- coroutines in slices --------------------------------------------------------------------

    def held_s(self) -> float | None:
        """Returns for how long the coroutine that is served now has held the loop; None if none is."""
        now = self._slice
        return None if now is None else now.held_s + self._now_s() - now.began_s

    def serve(self, work: Coroutine[Any, Any, Result]) -> Result | Pending:
        """Returns what a coroutine returns, or a `Pending` of that if it pauses or waits.

        It has no task until then: what needs one, uses `timer.timeout`. Raises what it raises.
        """
        now = _Slice(self._now_s(), 0.0)
        try:
            waits_for = self._go_on(work, now, _CROWDED_S if self.has_round else FIRST_S)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            self.note(now.began_s)
        loop, hold = asyncio.get_running_loop(), Hold(self.collector)
        if waits_for is not None:
            task = loop.create_task(self._rest(work, waits_for, hold, now.held_s))
            return Pending(task, task.result)
        hold.begin()
        turn = loop.create_future()
        task = loop.create_task(self._rest(work, _awaited(turn), hold, now.held_s))
        self._queue(turn)
        return Pending(task, task.result)

    async def in_slices(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Does what `serve` does, in a task."""
        return await self._rest(work, _BEGIN, Hold(self.collector), 0.0)

    def _go_on(self, work: Coroutine[Any, Any, Any], now: _Slice, slice_s: float) -> Any:
        """Serves a coroutine for a slice; returns what it waits for then, None if it only pauses.

        The slice ends with the round at the latest. Raises StopIteration when the coroutine is done.
        """
        ends_s = now.began_s + slice_s
        if self.has_round and ends_s > self._ends_s:
            ends_s = self._ends_s
        now_s, send = self._now_s, work.send
        self._slice = now
        try:
            waits_for = now.first_step(work)
            while waits_for is None and now_s() <= ends_s:
                waits_for = send(None)
        finally:
            self._slice = None
            now.held_s += now_s() - now.began_s
        return waits_for

    async def _rest(
        self, work: Coroutine[Any, Any, Result], waits_for: Any, hold: Hold, held_s: float
    ) -> Result:
        """Serves what is left of a coroutine.

        If it is long, full collections are held back until its end: what it has made, such as the objects of
        a request, is there until then.
        """
        try:
            result: Result = await self._steps(work, waits_for, hold, held_s)
        finally:
            hold.end()
        return result

    @coroutine
    def _steps(
        self, work: Coroutine[Any, Any, Any], waits_for: Any, hold: Hold, held_s: float
    ) -> Generator[Any, Any, Any]:
        has_queued = hold.is_begun
        while True:
            try:
                if waits_for is not _BEGIN:
                    yield waits_for
                now = _Slice(self._now_s(), held_s)
            except BaseException as error:  # noqa: BLE001 - raised again inside the coroutine
                now = _Slice(self._now_s(), held_s, error)
            slice_s = SLICE_S if has_queued else _CROWDED_S if self.has_round else FIRST_S
            try:
                waits_for = self._go_on(work, now, slice_s)
            except StopIteration as end:
                return end.value
            finally:
                self.note(now.began_s)
            held_s, has_queued = now.held_s, waits_for is None
            if has_queued:
                hold.begin()
                turn = asyncio.get_running_loop().create_future()
                self._queue(turn)
                waits_for = _awaited(turn)

    def _queue(self, happened: asyncio.Future[None]) -> None:
        """Queues a coroutine, which goes on when `happened` has its result."""

        def turn() -> float:
            if happened.done():
                return 0.0
            happened.set_result(None)
            return SLICE_S

        self.join(turn)
