"""A peer with one request at a time, while others queue: it never waits behind those who have had a turn."""

from __future__ import annotations

import itertools

import pytest

from broker.clock import SystemClock
from tests.broker import inside


class Hurried(SystemClock):
    """A clock by which 0.2 ms pass between two looks: a new turn is over after one request."""

    def __init__(self):
        looks = itertools.count()
        self.monotonic_s = lambda: next(looks) / 5000


@pytest.fixture
def broker(tmp_path, monkeypatch):
    monkeypatch.setattr(inside, "SystemClock", Hurried)
    with inside.Inside(tmp_path) as broker:
        yield broker


def test_who_has_nothing_left_is_new_with_each_request(broker):
    turns, joined = broker.node.turns, []
    join = turns.join

    def busy():
        """Somebody who takes the whole round, and always has more to do."""
        while turns.are_wanted and not turns.is_crowded(broker.node.clock.monotonic_s()):
            pass
        join(busy)

    def noted(turn, *, is_new=False):
        joined.append(is_new)
        join(turn, is_new=is_new)

    with broker.connect() as neighbour:
        neighbour.ask("ApiVersions", 0)
        turns.join = noted
        broker._loop.call_soon_threadsafe(join, busy)
        for _ in range(20):
            neighbour.ask("ApiVersions", 0)
    assert joined
    assert all(joined)
