"""A process: its event loops and its threads, which stand still and die together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.power_loss import PowerLoss
from tests.simulation.replication.brokers.loop import VirtualLoop
from tidelog.broker.lifecycle.keep_alive import Renewals

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tests.simulation.replication.life import Life

THREAD_MS = [(0, 0)] * 4 + [(0, 3)] * 4 + [(5, 60)]
SLOW_THREAD_MS = (200, 2_500)


class Process:
    """A process of a broker, or of clients; `node` is where it is in the network."""

    def __init__(self, world: Life, node: int) -> None:
        self.world = world
        self.node = node
        self.is_dead = False
        self.is_paused = False
        self.slow_threads = 0.0  # how many of them wait for long
        self.jobs: list[_Job] = []
        self.loop = VirtualLoop(self)
        self.keeper = VirtualLoop(self)  # of the thread that renews the lease

    @property
    def loops(self) -> tuple[VirtualLoop, VirtualLoop]:
        return self.loop, self.keeper

    def stepped(self) -> None:
        """Lets the world look at what a step has changed."""
        self.world.stepped(self)

    def failed(self, context: dict[str, Any]) -> None:
        """Takes what a callback has raised: nothing but the loss of power may go so far."""
        error = context.get("exception")
        if self.is_dead or error is None or isinstance(error, PowerLoss):
            return
        if "never retrieved" in context["message"]:
            return  # told by the collector, whenever that runs
        self.world.fail(error)

    # --- threads ----------------------------------------------------------------------------------

    def in_thread(
        self,
        work: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None],
        future: asyncio.Future[Any],
    ) -> None:
        """Makes a call as a thread would."""
        job = _Job(self, work, done, future)
        self.jobs.append(job)
        self.world.timeline.after(self._thread_ms(), job.run)

    def _thread_ms(self) -> int:
        pick = self.world.timeline.random
        if self.slow_threads and pick.random() < self.slow_threads:
            return pick.randint(*SLOW_THREAD_MS)
        return pick.randint(*pick.choice(THREAD_MS))

    def finish_jobs(self) -> None:
        """Lets all threads end now, as a pool does that is stopped."""
        while self.jobs and not self.is_dead:
            self.jobs[0].run()

    # --- faults -----------------------------------------------------------------------------------

    def pause(self, *, is_hung: bool) -> None:
        """Stands still; `is_hung`: its event loop alone."""
        self.is_paused = not is_hung
        self.loop.stands_still = True
        self.keeper.stands_still = not is_hung

    def resume(self) -> None:
        """Goes on."""
        self.is_paused = False
        for loop in self.loops:
            loop.go_on()
        for job in self.jobs:
            if job.is_due:
                self.world.timeline.after(0, job.run)

    def die(self) -> None:
        """Does nothing more."""
        self.is_dead = True
        self.jobs.clear()


class _Job:
    """A call in a thread."""

    def __init__(
        self,
        process: Process,
        work: Callable[[], Any],
        done: Callable[[Any, BaseException | None], None],
        future: asyncio.Future[Any],
    ) -> None:
        self._process, self._work, self._done, self._future = process, work, done, future
        self.is_due = False

    def run(self) -> None:
        """Makes the call, unless the process stands still: then once it goes on."""
        process = self._process
        if process.is_paused:
            self.is_due = True
            return
        if self not in process.jobs:
            return
        process.jobs.remove(self)
        if self._future.cancelled():
            return
        result, error = None, None
        try:
            result = self._work()
        except BaseException as raised:  # the loop raises it where it is awaited
            error = raised
        process.stepped()
        if not process.is_dead:
            process.world.timeline.after(process._thread_ms(), self._tell, result, error)

    def _tell(self, result: Any, error: BaseException | None) -> None:
        if not self._process.is_dead:
            self._done(result, error)


class VirtualKeepAlive(Renewals):
    """Renews a lease on the second loop of its process."""

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        keeper = self._loop.process.keeper
        self._task = keeper.create_task(self._run(keeper))

    def end(self) -> None:
        super().end()
        self._task.cancel()

    async def _run(self, loop: VirtualLoop) -> None:
        while True:
            await _slept(loop, self.interval_s)
            if self.is_over or not self.may_go_on() or not await self.renew():
                return


async def _slept(loop: VirtualLoop, seconds: float) -> None:
    woken = loop.create_future()
    timer = loop.call_later(seconds, _wake, woken)
    try:
        await woken
    finally:
        timer.cancel()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
