"""A peer with few requests at a time while others queue: it does not wait behind those who had a turn."""

from __future__ import annotations

import itertools
import socket

import pytest

from tests.broker import inside
from tests.broker.raw import Pipe, frame, request
from tidelog.broker.clock import SystemClock

LOOK_S = 0.0002  # a turn of the least length is over after one request
SHORT_LOOK_S = 0.00001  # it is over after a few


class Hurried(SystemClock):
    """A clock by which some time passes between two looks, and none otherwise."""

    def __init__(self, look_s):
        looks = itertools.count()
        self.monotonic_s = lambda: next(looks) * look_s


@pytest.fixture
def joined(tmp_path, monkeypatch):
    """Whether a neighbour's connection was new each time that it queued, with a look and at once."""

    def play(look_s, at_once):
        monkeypatch.setattr(inside, "SystemClock", lambda: Hurried(look_s))
        with inside.Inside(tmp_path) as broker:
            return queued(broker, at_once)

    return play


def busy_on(scheduler, now_s, join):
    """Somebody who takes the whole round, and always has more to do."""

    def busy():
        while scheduler.has_round and not scheduler.is_crowded(now_s()):
            pass
        join(busy)

    return busy


def queued(broker, at_once):
    scheduler, seen = broker.node.scheduler, []
    join = scheduler.join
    busy = busy_on(scheduler, broker.node.clock.monotonic_s, join)

    def noted(turn, *, is_new=False):
        seen.append(is_new)
        join(turn, is_new=is_new)

    with Pipe(broker) as neighbour:
        neighbour.ask("ApiVersions", 0)
        scheduler.join = noted
        broker._loop.call_soon_threadsafe(join, busy)
        for _ in range(20):
            neighbour.send(frame(request("ApiVersions", 0)) * at_once)
            for _ in range(at_once):
                assert neighbour.receive()
    return seen


def test_who_has_nothing_left_is_new_with_each_request(joined):
    seen = joined(LOOK_S, 1)
    assert seen
    assert all(seen)


def test_who_sends_a_few_requests_at_once_has_them_served_in_one_turn(joined):
    seen = joined(SHORT_LOOK_S, 5)
    assert seen
    assert all(seen)


def test_who_closes_while_others_have_their_turn_is_still_answered(tmp_path, monkeypatch):
    monkeypatch.setattr(inside, "SystemClock", lambda: Hurried(LOOK_S))
    with inside.Inside(tmp_path) as broker:
        scheduler = broker.node.scheduler
        busy = busy_on(scheduler, broker.node.clock.monotonic_s, scheduler.join)
        with Pipe(broker) as neighbour:
            neighbour.ask("ApiVersions", 0)
            broker._loop.call_soon_threadsafe(scheduler.join, busy)
            for _ in range(5):
                with Pipe(broker) as leaving:
                    leaving.send(frame(request("ApiVersions", 0)) * 200)
                    leaving._socket.shutdown(socket.SHUT_WR)
                    for _ in range(200):
                        assert leaving.receive()
                    assert leaving.receive() is None
