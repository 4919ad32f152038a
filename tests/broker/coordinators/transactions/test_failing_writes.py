"""What the coordinator cannot write it writes later, and not all the time."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker import inside
from tests.broker.asking import create
from tests.broker.coordinators.transactions.requests import NONE, Transactional
from tests.broker.inside import Inside
from tests.broker.subject import eventually
from tidelog.broker.clock import ManualClock
from tidelog.protocol.errors import KafkaStorageError

DAY_MS = 86_400_000


class Coordinating(Inside):
    """A broker that coordinates transactions, by a clock that the test moves."""

    clock: ManualClock

    def __enter__(self):
        super().__enter__()
        self.on_loop(self.transactions.start)
        return self

    def __exit__(self, *error):
        asyncio.run_coroutine_threadsafe(self.transactions.stop(), self._loop).result(60)
        super().__exit__(*error)

    @property
    def transactions(self):
        return self.node.transactions

    def on_loop(self, work, *arguments):
        """Do something on the broker's loop, and let what follows from it happen."""

        async def run():
            result = work(*arguments)
            for _ in range(100):
                await asyncio.sleep(0)
            return result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(60)

    def step(self, ms):
        self.on_loop(self.clock.step, ms)


@pytest.fixture
def broker(tmp_path, monkeypatch):
    clock = ManualClock(10 * DAY_MS)
    monkeypatch.setattr(inside, "SystemClock", lambda: clock)
    with Coordinating(tmp_path) as broker:
        broker.clock = clock
        yield broker


@pytest.fixture
def connection(broker):
    with broker.connect() as connection:
        create(connection, "t")
        yield connection


@pytest.fixture
def producer(connection):
    producer = Transactional(connection, "id")
    assert producer.init(timeout_ms=30_000) == NONE
    return producer


class Failing:
    """Does what a function does, or fails, and counts the calls."""

    def __init__(self, function):
        self._function, self.calls, self.error = function, 0, None

    def __call__(self, *arguments):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self._function(*arguments)


@pytest.fixture
def writes(broker, monkeypatch):
    topic = broker.transactions.runtime.topic
    failing = Failing(topic.append_now)
    monkeypatch.setattr(topic, "append_now", failing)
    return failing


@pytest.mark.parametrize("is_open", [True, False], ids=["times out", "expires"])
def test_what_time_asks_for_is_tried_again_after_a_while(broker, producer, writes, is_open):
    if is_open:
        assert producer.add("t", 0) == [NONE]
    writes.calls, writes.error = 0, KafkaStorageError("the disk is full")
    broker.step(8 * DAY_MS)
    assert writes.calls == 1
    broker.step(500)
    assert writes.calls == 1
    broker.step(1_000)
    assert writes.calls == 2
    writes.error = None
    broker.step(1_000)
    if is_open:
        eventually(lambda: producer.state == "CompleteAbort")
    else:
        eventually(lambda: producer.described()["error_code"])
