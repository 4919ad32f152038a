"""What one broker of a directory knows of another one that may just have died."""

from __future__ import annotations

import asyncio

from tests.broker.replicas.inside import eventually
from tidelog.broker.metadata.liveness import peers
from tidelog.broker.metadata.liveness.peers import Peers


async def never(_broker):
    raise AssertionError("nobody has died here")


async def test_a_broker_has_perhaps_died_from_the_end_of_its_connection_until_that_is_reported(
    tmp_path,
):
    reported, may_report = [], asyncio.Event()

    async def on_death(broker):
        await may_report.wait()
        reported.append(broker)

    first, second = Peers(tmp_path, 1, on_death), Peers(tmp_path, 2, never)
    await first.open(lambda: None)
    await second.open(lambda: None)
    await eventually(lambda: first._links)
    assert first.perhaps_dead() == frozenset()
    await second.close()
    await eventually(lambda: first.perhaps_dead() == {2})
    assert reported == []
    may_report.set()
    await eventually(lambda: first.perhaps_dead() == frozenset())
    assert reported == [2]
    await first.close()


async def test_a_process_that_takes_long_to_end_is_reported_when_it_has_ended(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(peers, "_CONFIRM_TRIES", 2)
    monkeypatch.setattr(peers, "_CONFIRM_ROUNDS", 10_000)
    reported = []

    async def on_death(broker):
        reported.append(broker)

    first, second = Peers(tmp_path, 1, on_death), Peers(tmp_path, 2, never)
    await first.open(lambda: None)
    await second.open(lambda: None)
    await eventually(lambda: first._links)
    release = second._lock.release
    monkeypatch.setattr(second._lock, "release", lambda: None)
    await second.close()  # all but its lock
    await eventually(lambda: first.perhaps_dead() == {2})
    await asyncio.sleep(0.2)
    assert first.perhaps_dead() == {2}
    assert reported == []
    release()
    await eventually(lambda: reported == [2])
    await first.close()
