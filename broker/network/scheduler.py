"""Whose turn it is on the event loop: no request, and no connection, keeps it from the others.

Two things can take long: a connection that has many requests buffered, and one request that names, or is
answered with, a hundred thousand things. Both are served in slices of a few milliseconds. What is not
done after its slice waits in one queue, and the loop polls its sockets between two runs of that queue. So
a request of a connection with nothing else to do waits for a run, not for what others have buffered.

From the first that queues on, time is cut into rounds, one for each time that the loop polls its sockets.
All who are served in a round share its `ROUND_S`: requests as they come, answers that were waited for,
steps of coroutines, and the queue. Who comes after that queues for the next round.

A request is cut into slices without any change to its handler: it runs in a greenlet, and where it may be
interrupted it calls `checkpoint()`, which returns at once until the slice is over (docs/decisions/0041). The
places are `per_partition()`, the codecs, and loops of handlers over `with_checkpoints()`. Outside of a
greenlet of this file, as in a thread of a pool, `checkpoint()` does nothing.

While `checkpoint()` waits, anything else may run on the loop. So it must not be called with a lock held, or
between two steps that belong together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from tidelog.broker.garbage import Hold
from tidelog.broker.network.answers import Pending
from tidelog.broker.network.leftovers import Leftovers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator

    from tidelog.broker.garbage import Collector

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
_IDLE_WORKERS: Final = 8

Item = TypeVar("Item")
Result = TypeVar("Result")

_PAUSED: Final = object()


def checkpoint() -> None:
    """Serves the others first if this request has had its turn.

    Raises CancelledError if nobody waits for the response any more.
    """
    me = getcurrent()
    if type(me) is _Worker and me.now_s() > me.ends_s:
        me.wait()


def is_in_slices() -> bool:
    """Returns whether what runs now is a request that is served in slices."""
    return type(getcurrent()) is _Worker


def held_s() -> float | None:
    """Returns for how long what runs now has held the loop; None if it is not served in slices."""
    me = getcurrent()
    return me.held_s + me.now_s() - me.began_s if type(me) is _Worker else None


def with_checkpoints(items: Iterable[Item]) -> Iterator[Item]:
    """Returns the items, with a `checkpoint()` after each."""
    for each in items:
        yield each
        checkpoint()


class _Failed:
    """The error that a job has raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Worker(greenlet):  # type: ignore[misc]
    """Runs one job after the other; switches back to the loop when a job ends or pauses.

    An outcome is left in `outcome` for who switches to the worker, and is taken from there: nothing of a
    job stays in memory while the worker waits for the next one.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        super().__init__()
        self.now_s = now_s
        self.ends_s = 0.0
        self.began_s = self.held_s = (
            0.0  # when this slice began, and how long the ones before it took
        )
        self.outcome: Any = None

    def run(self, job: Callable[[], Any]) -> None:
        """Runs `job`, and each that it is switched to with later."""
        loop = self.parent
        assert loop is not None
        while True:
            try:
                self.outcome = job()
            except GreenletExit:
                raise
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - raised by `take`
                self.outcome = _Failed(error)
            del job
            job = loop.switch()

    def go_on(self, value: Any) -> bool:
        """Switches to the worker, with a job or with what `checkpoint()` raises; whether the job is done."""
        return self.switch(value) is not _PAUSED

    def take(self) -> Any:
        """Returns the outcome of a job that is done; raises what it has raised."""
        outcome, self.outcome = self.outcome, None
        if not isinstance(outcome, _Failed):
            return outcome
        try:
            raise outcome.error
        finally:
            del outcome  # else the error would refer to this frame, and the frame to the error

    def wait(self) -> None:
        """Waits for the next turn."""
        assert self.parent is not None
        self.held_s += self.now_s() - self.began_s
        error = self.parent.switch(_PAUSED)
        if error is not None:
            raise error


class Scheduler:
    """Shares the event loop: the queue of those who have had their turn and are not done."""

    def __init__(self, now_s: Callable[[], float], collector: Collector) -> None:
        """`now_s` reads the seconds of the machine; `collector` is held while a request is long."""
        self._now_s = now_s
        self._new: deque[Turn] = deque()  # connections that have not been served in this round
        self._old: deque[Turn] = deque()
        self._idle: list[_Worker] = []
        self.has_round = False  # whether a round is under way
        self._ends_s = 0.0  # when this round ends
        self._unseen_s = 0.0  # how long requests have taken since the last round
        self.collector = collector
        self.leftovers = Leftovers(now_s, self.join)

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
        """Ends all workers: nothing is served any more, and who has paused does not go on."""
        for turn in (*self._new, *self._old):
            if isinstance(turn, partial) and isinstance(turn.args[0], _Worker):
                turn.args[0].throw(GreenletExit)
        for worker in self._idle:
            worker.throw(GreenletExit)
        self._new.clear()
        self._old.clear()
        self._idle.clear()

    # -- requests in slices ----------------------------------------------------------------------

    def serve(self, job: Callable[[], Result]) -> Result | Pending:
        """Returns what `job` returns, or a Pending of that if it pauses; raises what it raises."""
        worker = self._worker()
        is_done = worker.go_on(job)
        self.note(worker.began_s)
        if is_done:
            return self._end(worker)  # type: ignore[no-any-return]
        self.collector.hold()
        happened = asyncio.get_running_loop().create_future()
        self.join(partial(self._go_on, worker, happened))
        return Pending(happened, happened.result)

    def _worker(self) -> _Worker:
        worker = self._idle.pop() if self._idle else _Worker(self._now_s)
        self._begin_slice(worker, _CROWDED_S if self.has_round else FIRST_S)
        worker.held_s = 0.0
        return worker

    def _begin_slice(self, worker: _Worker, slice_s: float) -> None:
        """Begins a slice of a worker, which ends with the round at the latest."""
        worker.began_s = now_s = self._now_s()
        worker.ends_s = now_s + slice_s
        if self.has_round and worker.ends_s > self._ends_s:
            worker.ends_s = self._ends_s

    def _end(self, worker: _Worker) -> Any:
        """Returns the outcome of a job that is done; raises what it has raised."""
        if len(self._idle) < _IDLE_WORKERS:
            self._idle.append(worker)
            return worker.take()
        try:
            return worker.take()
        finally:
            worker.throw(GreenletExit)  # one that is only dropped would stay in memory for ever

    def _go_on(self, worker: _Worker, happened: asyncio.Future[Any]) -> None:
        """Goes on with a job that has paused; ends it if nobody waits for it."""
        self._begin_slice(worker, SLICE_S)
        if not worker.go_on(asyncio.CancelledError() if happened.done() else None):
            self.join(partial(self._go_on, worker, happened))
            return
        self.collector.release()
        try:
            value = self._end(worker)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - raised by finish
            if not happened.done():
                happened.set_exception(error)
            return
        if not happened.done():
            happened.set_result(value)

    def in_slices(self, pending: Coroutine[Any, Any, Result]) -> Coroutine[Any, Any, Result]:
        """Returns a coroutine that awaits another one, of which every step may pause.

        If what asks for it is long already, full collections are held back from now on: what it has
        made, such as the objects of a request, is there until the coroutine ends.
        """
        hold, me = Hold(self.collector), getcurrent()
        if type(me) is _Worker and me.held_s:
            hold.begin()
        return self._in_slices(pending, hold)

    async def _in_slices(self, pending: Coroutine[Any, Any, Result], hold: Hold) -> Result:
        try:
            result: Result = await self._steps(pending, hold)
        finally:
            hold.end()
        return result

    @coroutine
    def _steps(self, pending: Coroutine[Any, Any, Any], hold: Hold) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = partial(pending.send, None)
        while True:
            worker = self._worker()
            is_done = worker.go_on(step)
            self.note(worker.began_s)
            while not is_done:
                hold.begin()
                error = None
                try:
                    yield from self._turn()
                except BaseException as raised:  # noqa: BLE001 - raised again by checkpoint()
                    error = raised
                self._begin_slice(worker, SLICE_S)
                is_done = worker.go_on(error)
            try:
                waits_for = self._end(worker)
            except StopIteration as end:
                return end.value
            del worker
            try:
                step = partial(pending.send, (yield waits_for))
            except BaseException as raised:  # noqa: BLE001 - raised again inside the coroutine
                step = partial(pending.throw, raised)

    def _turn(self) -> asyncio.Future[None]:
        """Returns what happens when the queue has come to who waits for it."""
        happened = asyncio.get_running_loop().create_future()

        def turn() -> float:
            if happened.done():
                return 0.0
            happened.set_result(None)
            return SLICE_S

        self.join(turn)
        return happened
