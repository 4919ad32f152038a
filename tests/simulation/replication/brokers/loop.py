"""An event loop in virtual time: what a loop promises is kept, and a seed decides everything else.

Callbacks of `call_soon` run in their order, because every loop promises that. Timers of one moment,
data that arrives, and threads that end come in an order by the seed. A thread is a call that is
made at once, some time after it was asked for; the loop hears of its end some time later. So
everything may happen between the two that may happen beside a thread.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.brokers.process import Process


class VirtualLoop(asyncio.AbstractEventLoop):
    """One loop of a process; a process that stands still, or has died, calls nothing."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.network = process.world.wires
        self._timeline = process.world.timeline
        self._ready: deque[asyncio.Handle] = deque()
        self._is_planned = False
        self.stands_still = False
        self.tasks: list[asyncio.Task[Any]] = []

    # --- time -------------------------------------------------------------------------------------

    def time(self) -> float:
        return self._timeline.now_ms / 1000

    def call_soon(self, callback, *args, context=None):
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        self._plan()
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        at_ms = max(math.ceil(when * 1000), self._timeline.now_ms)
        if at_ms / 1000 < when:
            at_ms += 1  # not before, or who looks at the time would wait again, for no time
        self._timeline.after(at_ms - self._timeline.now_ms, self._due, timer)
        return timer

    def _timer_handle_cancelled(self, handle) -> None:
        """Its event finds it cancelled."""

    def _due(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled():
            self._ready.append(timer)
            self._plan()

    # --- its turns --------------------------------------------------------------------------------

    def _plan(self) -> None:
        if not self._is_planned and not self.process.is_dead:
            self._is_planned = True
            self._timeline.after(0, self._turn)

    def _turn(self) -> None:
        self._is_planned = False
        if self.stands_still:
            return
        ready, self._ready = self._ready, deque()
        for handle in ready:
            if self.process.is_dead:
                return
            if not handle.cancelled():
                self._run(handle)
                self.process.stepped()
        if self._ready:
            self._plan()

    def _run(self, handle: asyncio.Handle) -> None:
        asyncio._set_running_loop(self)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(None)

    def go_on(self) -> None:
        """Does what has become due while it stood still."""
        self.stands_still = False
        if self._ready:
            self._plan()

    # --- tasks ------------------------------------------------------------------------------------

    def create_future(self):
        return asyncio.Future(loop=self)

    def create_task(self, coro, *, name=None, context=None):
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        if self.process.is_dead:  # who is closed begins it in a `finally`: it never runs
            task._log_destroy_pending = False
            coro.close()
            return task
        self.tasks = [each for each in self.tasks if not each.done()]
        self.tasks.append(task)
        return task

    def bury(self) -> None:
        """Closes what a dead process was about to do; its files and connections are gone."""
        for task in self.tasks:
            task._log_destroy_pending = False
            asyncio._set_running_loop(self)
            try:
                task.get_coro().close()
            except BaseException:  # somebody waits in a `finally`, or writes to a lost disk
                continue
            finally:
                asyncio._set_running_loop(None)
        self.tasks.clear()
        self._ready.clear()

    # --- threads ----------------------------------------------------------------------------------

    def run_in_executor(self, executor, func, *args):
        if executor._shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = self.create_future()
        self.process.in_thread(partial(func, *args), partial(self._thread_done, future), future)
        return future

    def _thread_done(
        self, future: asyncio.Future, result: Any, error: BaseException | None
    ) -> None:
        self.call_soon(_settle, future, result, error)

    # --- connections ------------------------------------------------------------------------------

    async def create_connection(self, protocol_factory, host=None, port=None, **_options):
        return await self.network.connect(self, protocol_factory, host, port)

    # --- the rest ---------------------------------------------------------------------------------

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context) -> None:
        self.process.failed(context)


def _settle(future: asyncio.Future, result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def arrive(loop: VirtualLoop, call: Callable[..., object], *args: Any) -> None:
    """Lets a loop hear of something from outside."""
    if not loop.process.is_dead:
        loop.call_soon(call, *args)
