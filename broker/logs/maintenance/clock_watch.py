"""Watches the broker's clock, and returns the time by which records may be deleted.

Every ten seconds, and before each round of retention, the watch reads the clock, decides whether to
trust it (`storage/time/trusted_clock.py`), and stores its state in the clock checkpoint of the first log
directory; durably once an hour. A step of the clock is checked at once, by the thread that reads the time
(`broker/clock.py`), before the time is used. The state after a step is durable first. Then:

- A leap is logged, and every open partition rolls a segment with its next append.
- After a step back, open partitions correct the append times that are ahead. Others do so when they
  are opened.
- A step forward that is trusted gets a number. Every open partition has applied it before anything is
  deleted by the new time. Partitions that are opened later apply the steps after the last number that
  they have noted.

A checkpoint that is lost or damaged, or cannot be written, is logged, and the watch continues without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import uuid
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.clock import is_manual
from tidelog.config.instants import to_iso
from tidelog.config.release import RELEASED_MS
from tidelog.protocol.errors import BrokerError
from tidelog.storage.directory.clock_file import StoredClock, read_clock, write_clock
from tidelog.storage.directory.opening_clock import ClockNow
from tidelog.storage.filenames import CLOCK_CHECKPOINT
from tidelog.storage.time.corrections import ClockHistory, ForwardStep, is_behind, with_step
from tidelog.storage.time.read_clock import ReadClock
from tidelog.storage.time.trusted_clock import Leap, StepBack, TrustedClock, as_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tidelog.broker.logs.services import Services
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.time.trusted_clock import Change, Reading

log = logging.getLogger("tidelog.clock")

_INTERVAL_S = 10.0
_DURABLE_MS = 3_600_000  # a reading this old may be all that is known after a power loss
_MOST_STEPS_BACK = 32
_ANY_PAUSE_MS = 2**62  # a manual clock may begin at any time


class ClockStatus(NamedTuple):
    """The time of a clock, and how far it is trusted; times in ms since the epoch."""

    is_manual: bool
    now_ms: int
    deletion_ms: int
    leap: Leap | None
    ahead_ms: int  # of the trusted time, while there is a leap; otherwise 0
    behind_ms: int  # the most that the clock has been behind the trusted time; 0: it is not
    steps: tuple[tuple[int, ForwardStep], ...]
    steps_back: tuple[StepBack, ...]


class ClockWatch:
    """The watch of one broker's clock.

    One event loop observes the clock. Any thread may read times, and may be the first to read one after
    a step of the clock.
    """

    def __init__(self, services: Services) -> None:
        """Trusts the clock as it is; `begin` restores the stored state."""
        self._services = services
        self._clock = ReadClock(self._trusted(None))
        self._reading_lock = threading.Lock()  # of the readings of the clock, and its state
        self._changes: list[Change] = []  # that the logs have not applied yet
        self.has_left = False
        """Whether the clock is behind a time that it has shown before."""
        self._has_changed = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.history = ClockHistory(uuid.uuid4().hex)
        self._steps_back: tuple[StepBack, ...] = ()  # the last ones
        self.leaps = self.steps_back = self.steps_forward = 0  # since the start
        self._directory = services.store.log_dirs[0]
        self._stored: StoredClock | None = None
        self._durable_ms: int | None = None  # the time since the start of the last durable reading
        self._can_store = True  # or it has been logged that it cannot be
        self._lock = asyncio.Lock()
        self._uncorrected: list[Partition] = []  # that could not apply the last changes

    def _trusted(self, stored: StoredClock | None) -> TrustedClock:
        reading = self._services.clock.reading()
        pause_ms = self._services.config.clock_start_pause_ms
        if stored is None:
            return TrustedClock.beginning(reading, released_ms=RELEASED_MS, pause_ms=pause_ms)
        state = stored.state
        if is_manual(reading) or is_manual(state.last):
            # Its start is time passing, wherever it was set before: it has not been behind.
            pause_ms, course = _ANY_PAUSE_MS, state.course._replace(behind_ms=0)
            state = state._replace(course=course, left=(), behind_ms=0)
        return TrustedClock(state, released_ms=RELEASED_MS, pause_ms=pause_ms)

    # -- start and stop -------------------------------------------------------------------------

    def begin(self) -> None:
        """Restores the stored state; called before any log is opened."""
        self._stored, wrong = read_clock(self._directory)
        for sentence in wrong:
            log.warning(
                "clock checkpoint file unreadable",
                extra={"reason": sentence},
            )
        if self._stored is None and not wrong and self._services.metadata.image.topics:
            log.warning(
                "clock checkpoint missing, clock trusted as it is",
                extra={"file": self._directory / CLOCK_CHECKPOINT},
            )
        changes: list[Change] = []
        if self._stored is not None:
            self._clock = ReadClock(self._trusted(self._stored))
            self.history = self._stored.history
            self._steps_back = self._stored.steps_back
            changes = self._clock.read(self._services.clock.reading())
            self._clock.apply(self._clock.known())  # no log is open yet
            self._note(changes)
        self._store(durable=self._stored is None or bool(changes))
        self._services.store.clock.ask(self._now)
        self._services.clock.stepped = self._apply_step
        self._apply_changes(())

    async def run(self) -> None:
        """Observes the clock and stores its state, until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL_S):
                    await self._has_changed.wait()
            self._has_changed.clear()
            try:
                await self.observe()
                await self.store_if_changed()
            except Exception:
                log.exception("clock not read")

    def end(self) -> None:
        """Stores the last reading, so that the next start knows how long the broker was off."""
        with self._reading_lock:
            changes = self._clock.read(self._services.clock.reading())
            self._note(changes)  # logs apply a numbered step when they are opened again
            self._store(durable=bool(changes))

    # -- observing ------------------------------------------------------------------------------

    async def observe(self) -> None:
        """Reads the clock; returns when every open log has applied its changes."""
        async with self._lock:
            with self._reading_lock:
                self._apply_changes(self._clock.read(self._services.clock.reading()))
            await self._correct_logs_and_apply()

    async def accept(self, to_ms: int) -> list[ForwardStep]:
        """Trusts the clock after its leap to `to_ms`; returns the steps forward that this makes.

        Changes nothing, and returns an empty list, if the current leap is another one or has ended.
        """
        async with self._lock:
            with self._reading_lock:
                reading = self._services.clock.reading()
                self._apply_changes(self._clock.read(reading))
                leap = self._clock.latest.leap
                is_named = leap is not None and leap.to_ms == to_ms
                steps = self._clock.accept(reading) if is_named else []
                self._apply_changes(steps)
            await self._correct_logs_and_apply()
            return steps

    def _apply_step(self, reading: Reading) -> None:
        """Applies a step of the clock in the thread that read it, before the time is used."""
        with self._reading_lock:
            self._apply_changes(self._clock.read_late(reading))
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the broker has stopped
                self._loop.call_soon_threadsafe(self._has_changed.set)

    def _apply_changes(self, changes: Sequence[Change]) -> None:
        """Stores the changes of a reading durably, and queues them for the logs."""
        if changes:
            self._note(changes)
            self._changes += changes
            self._store(durable=True)
        state = self._clock.latest.state
        self.has_left = bool(state.left)
        self._services.clock.expect(state.last)

    async def _correct_logs_and_apply(self) -> None:
        """Corrects the logs and the offsets of groups by the changes, and then the deletion time."""
        with self._reading_lock:
            known, changes, self._changes = self._clock.known(), self._changes, []
        if changes or self._uncorrected:
            await self._services.pools.maintenance.run_to_end(self._correct_open_logs, changes)
            now_ms = self._services.clock.now_ms()
            await self._services.coordinator.correct_times(
                [as_of(each, now_ms) for each in changes]
            )
        with self._reading_lock:
            self._clock.apply(known)

    def _note(self, changes: Iterable[Change]) -> None:
        """Logs and counts the changes, and numbers each trusted step forward."""
        for change in changes:
            if isinstance(change, Leap):
                self.leaps += 1
                log.warning(
                    "clock leapt forward, deletion by its time suspended",
                    extra={
                        "from": to_iso(change.from_ms),
                        "to": to_iso(change.to_ms),
                        "advice": "correct the machine's clock, or trust it with `tidelog clock accept`",
                    },
                )
            elif isinstance(change, StepBack):
                self.steps_back += 1
                self._steps_back = (*self._steps_back, change)[-_MOST_STEPS_BACK:]
                log.warning(
                    "clock stepped back, later append times corrected",
                    extra={"from": to_iso(change.from_ms), "to": to_iso(change.to_ms)},
                )
            else:
                self.steps_forward += 1
                self.history = with_step(self.history, change)
                log.warning(
                    "clock stepped forward to the right time, earlier append times corrected",
                    extra={"behind_ms": change.shift_ms, "now": to_iso(change.to_ms)},
                )

    # -- correcting the logs --------------------------------------------------------------------

    def _correct_open_logs(self, changes: Iterable[Change]) -> None:
        """Corrects the append times of every open partition by the changes; for a thread.

        Partitions that fail are corrected with the next reading.
        """
        partitions = self._services.store.opened() if changes else self._uncorrected
        has_leapt = any(isinstance(change, Leap) for change in changes)
        self._uncorrected = []
        for partition in partitions:
            if partition.offline is not None or partition.is_deleted:
                continue
            where = {"log": f"{partition.topic}-{partition.index}"}
            try:
                if has_leapt:
                    partition.begin_segment_at_next_append()
                self.correct(partition)
            except BrokerError as error:
                self._uncorrected.append(partition)
                log.error("append times not corrected", extra=where | {"reason": error.message})
            except Exception:  # the failure of one log must not keep others from it
                self._uncorrected.append(partition)
                log.exception("append times not corrected", extra=where)

    def least_append_ms(self, partition: Partition, now_ms: int) -> int | None:
        """Returns the least append time of the next append while the clock is set back; None: no limit.

        Append times of a partition with several replicas never go back, and would stand still: if nothing
        was appended for days, the next append would be days old. So they go on as if the clock had not
        been set back, for an hour: a clock that is back for longer may be right.
        """
        if not (
            partition.state.leadership.is_replicated
            and is_behind(partition.last_append_time, now_ms)
        ):
            return None
        return self._clock.latest.time_without_step_back(self._services.clock.reading())

    def correct(self, partition: Partition) -> None:
        """Corrects the append times of a partition by the clock as it is now. Raises KafkaStorageError."""
        clock = self._now()
        partition.append_clock.catch_up(clock.history, clock.now_ms)

    def _now(self) -> ClockNow:
        """Returns the time and the steps of the clock, which a partition applies when it is opened."""
        while True:
            history, now_ms = self.history, self._services.clock.now_ms()
            if history is self.history:  # else the time may be of before the last step
                return ClockNow(now_ms, self.deletion_ms(), history)

    # -- storing --------------------------------------------------------------------------------

    def _store_durably(self) -> None:
        self._store(durable=True)

    async def store_if_changed(self) -> None:
        """Stores the state of the clock if it has changed."""
        async with self._lock:
            await self._services.pools.maintenance.run_to_end(self._store_reading)

    def _store_reading(self) -> None:
        with self._reading_lock:
            state = self._clock.latest.state
            if self._stored is None or self._stored.state != state:
                elapsed_ms = state.last.elapsed_ms
                is_old = self._durable_ms is None or elapsed_ms - self._durable_ms >= _DURABLE_MS
                self._store(durable=is_old)

    def _store(self, *, durable: bool) -> None:
        """Writes the clock checkpoint; logs the first of several failures."""
        serial = 1 if self._stored is None else self._stored.serial + 1
        stored = StoredClock(serial, self._clock.latest.state, self.history, self._steps_back)
        try:
            write_clock(self._directory, stored, durable=durable)
        except OSError as error:
            if self._can_store:
                log.error("clock checkpoint not written", extra={"reason": str(error)})
            self._can_store = False
        else:
            self._can_store = True
            self._stored = stored
            if durable:
                self._durable_ms = stored.state.last.elapsed_ms

    # -- asking ---------------------------------------------------------------------------------

    def deletion_ms(self) -> int:
        """Returns the time by which records, offsets and ids may be deleted now."""
        reading = self._services.clock.reading()
        with self._reading_lock:
            return self._clock.deletion_time(reading)

    def status(self) -> ClockStatus:
        """Returns the time of the clock, and how far it is trusted."""
        reading = self._services.clock.reading()
        with self._reading_lock:
            clock, deletion_ms = self._clock.in_force, self._clock.deletion_time(reading)
        return ClockStatus(
            is_manual(reading),
            reading.wall_ms,
            deletion_ms,
            clock.leap,
            reading.wall_ms - deletion_ms if clock.leap is not None else 0,
            clock.state.behind_ms,
            self.history.steps,
            self._steps_back,
        )

    @property
    def warning(self) -> str | None:
        """A sentence for an operator while the clock has leapt; None otherwise."""
        status = self.status()
        if status.leap is None:
            return None
        return (
            f"the clock shows {to_iso(status.now_ms)} and has leapt: the deletion time is "
            f"{to_iso(status.deletion_ms)}; `tidelog clock status` says what to do"
        )
