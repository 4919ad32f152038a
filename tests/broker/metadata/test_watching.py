"""Watches: how often an idle one looks for commits of other processes."""

from __future__ import annotations

from contextlib import asynccontextmanager

from tidelog.broker.metadata.store import Change
from tidelog.broker.metadata.watching import Watches

CHANGE = [Change(1, "a", b"1")]


async def test_an_idle_watch_looks_less_and_less_often_until_something_changes(monkeypatch):
    pauses, commits = [], {8: CHANGE, 10: [Change(2, "a", b"2")]}

    @asynccontextmanager
    async def passes_at_once(pause_s):
        pauses.append(pause_s)
        yield
        raise AssertionError("the wait is over at once")

    class Waited:
        """An event that nobody sets before the pause is over."""

        def __init__(self):
            self.clear = self.set = lambda: None

        def is_set(self):
            return False

        async def wait(self):
            raise TimeoutError

    monkeypatch.setattr("tidelog.broker.metadata.watching.asyncio.timeout", passes_at_once)
    monkeypatch.setattr("tidelog.broker.metadata.watching.asyncio.Event", Waited)

    async def changes(after):
        return next(
            (
                found
                for at, found in commits.items()
                if at <= len(pauses) and found[0].revision > after
            ),
            [],
        )

    def mark():
        return sum(at <= len(pauses) for at in commits)

    watch = Watches().watch(0, changes, 0.5, mark)
    assert await anext(watch) == CHANGE
    assert pauses == [0.5, 1, 2, 4, 8, 8, 8, 8]
    assert (await anext(watch))[0].revision == 2
    assert pauses[8:] == [0.5, 1]
    await watch.aclose()
