"""Rounds by the clock: one however far it was stepped, and a failed one ends nothing."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from tidelog.broker.logs.maintenance.rounds import DueRounds
from tidelog.protocol.errors import KafkaStorageError

INTERVAL_MS = 300_000


class Clock:
    """A manual clock: what is waited for is reached when somebody steps that far."""

    def __init__(self):
        self.now = 0
        self.stepped = asyncio.Event()
        self.waiting = asyncio.Queue()  # for what, as it begins to

    def steady_ms(self):
        return self.now

    async def reached(self, due_ms):
        while self.now < due_ms:
            self.waiting.put_nowait(due_ms)
            await self.stepped.wait()
            self.stepped.clear()

    def step(self, span_ms):
        self.now += span_ms
        self.stepped.set()


class Rounds(DueRounds):
    """Rounds that note when they were done, and fail when told to."""

    log = logging.getLogger("tidelog.test_rounds")
    failed = "the round failed"

    def __init__(self, clock):
        super().__init__(SimpleNamespace(clock=clock))
        self.clock = clock
        self.done = []
        self.reasons = []

    def _interval_ms(self):
        return INTERVAL_MS

    async def _do_due(self):
        self.done.append(self.clock.now)
        if self.reasons:
            raise self.reasons.pop()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def rounds(clock):
    return Rounds(clock)


async def test_nothing_is_done_before_it_is_due(rounds, clock):
    clock.step(INTERVAL_MS - 1)
    await rounds.catch_up()
    assert rounds.done == []
    clock.step(1)
    await rounds.catch_up()
    assert rounds.done == [INTERVAL_MS]


async def test_a_step_over_many_rounds_is_one(rounds, clock):
    clock.step(100 * INTERVAL_MS)
    await rounds.catch_up()
    await rounds.catch_up()
    assert rounds.done == [100 * INTERVAL_MS]


async def test_a_failed_round_is_told_and_the_next_one_comes(rounds, clock, caplog):
    rounds.reasons.append(ValueError("no"))
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(rounds.run())
        for _ in range(2):
            assert await clock.waiting.get() == clock.now + INTERVAL_MS
            clock.step(INTERVAL_MS)
        await clock.waiting.get()
        task.cancel()
    assert rounds.done == [INTERVAL_MS, 2 * INTERVAL_MS]
    told = [record.getMessage() for record in caplog.records if record.name == Rounds.log.name]
    assert told == ["the round failed"]


async def test_a_round_that_fails_for_the_disk_is_told_in_a_line(rounds, clock, caplog):
    rounds.reasons.append(KafkaStorageError("No space left on device"))
    clock.step(INTERVAL_MS)
    await rounds.catch_up()
    assert rounds.done == [INTERVAL_MS]
    (told,) = (record for record in caplog.records if record.name == Rounds.log.name)
    assert (told.getMessage(), told.reason) == ("the round failed", "No space left on device")
    assert told.exc_info is None
