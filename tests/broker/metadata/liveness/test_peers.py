"""What one broker of a directory knows of another one that may just have died."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.partitions.inside import eventually
from tidelog.broker.metadata.liveness import peers
from tidelog.broker.metadata.liveness.broker_lock import BrokerLock
from tidelog.broker.metadata.liveness.peers import Peers


@pytest.fixture
async def two(tmp_path):
    """Brokers 1 and 2, which know each other; the deaths that 1 reports once it may; and that event."""
    reported, may_report, heard = [], asyncio.Event(), asyncio.Event()

    async def on_death(broker):
        await may_report.wait()
        reported.append(broker)

    first, second = (Peers(tmp_path, number, on_death) for number in (1, 2))
    await first.open(heard.set)
    await second.open(lambda: None)
    await eventually(lambda: second.notify_commit() or heard.is_set())
    yield first, second, reported, may_report
    await first.close()


async def test_a_broker_has_perhaps_died_from_the_end_of_its_connection_until_that_is_reported(two):
    first, second, reported, may_report = two
    assert first.perhaps_dead() == frozenset()
    await second.close()
    await eventually(lambda: first.perhaps_dead() == {2})
    assert reported == []
    may_report.set()
    await eventually(lambda: first.perhaps_dead() == frozenset())
    assert reported == [2]


async def test_a_process_that_takes_long_to_end_is_reported_when_it_has_ended(two, monkeypatch):
    monkeypatch.setattr(peers, "_CONFIRM_TRIES", 2)
    monkeypatch.setattr(peers, "_CONFIRM_ROUNDS", 10_000)
    first, second, reported, may_report = two
    may_report.set()
    held = []

    def keep(lock):
        held.append(lock)

    with monkeypatch.context() as patched:
        patched.setattr(BrokerLock, "release", keep)
        await second.close()  # all but its lock
    await eventually(lambda: first.perhaps_dead() == {2})
    await asyncio.sleep(0.2)
    assert first.perhaps_dead() == {2}
    assert reported == []
    held[0].release()
    await eventually(lambda: reported == [2])
