"""The accountant of one share: first come, first served, and nothing is lost."""

from __future__ import annotations

import random
from functools import partial

import pytest

from tidelog.broker.network.memory.memory import Memory
from tidelog.broker.network.memory.share import Share
from tidelog.config import BrokerConfig
from tidelog.config.broker.limits import LimitsConfig

MIB = 1 << 20


def test_what_fits_is_reserved_at_once_and_given_back():
    share = Share(10)
    assert share.take(6)
    assert not share.take(5)
    assert share.take(4)
    share.release(6)
    assert (share.reserved_bytes, share.free_bytes) == (4, 6)


def test_those_who_wait_are_served_in_their_order():
    share, served = Share(10), []
    assert share.take(10)
    for name, size in (("first", 8), ("second", 2), ("third", 3)):
        share.wait(size, partial(served.append, name))
    assert not share.take(1), "nobody overtakes those who wait"
    share.release(7)
    assert served == []  # the second would fit, and waits for its turn
    share.release(3)
    assert served == ["first", "second"]
    share.release(8)
    assert served == ["first", "second", "third"]
    assert share.reserved_bytes == 5
    assert (share.waited, share.waiting) == (3, 0)


def test_who_leaves_makes_room_for_those_behind():
    share, served = Share(10), []
    assert share.take(5)
    large = share.wait(9, partial(served.append, "large"))
    small = share.wait(4, partial(served.append, "small"))
    assert share.leave(large)
    assert served == ["small"]
    assert not share.leave(small)  # was granted
    assert share.reserved_bytes == 9


def test_what_could_never_be_granted_is_refused():
    share = Share(10)
    with pytest.raises(ValueError, match="11 bytes are more"):
        share.wait(11, partial(print))
    share.wait(6, partial(print), held_bytes=2)
    assert share.may_wait(6, 2)
    assert not share.may_wait(6, 3)  # 2 and 3 are held, and then one of them could not have 6
    assert not share.may_wait(9, 0)


def test_one_who_is_granted_may_give_back_and_take_at_once():
    share, served = Share(10), []

    def granted():
        served.append("first")
        share.release(10)

    assert share.take(10)
    share.wait(10, granted)
    share.wait(1, partial(served.append, "second"))
    share.release(10)
    assert served == ["first", "second"]
    assert share.reserved_bytes == 1


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_events_keeps_the_limit_and_serves_everybody(seed):
    chance, share = random.Random(seed), Share(100)
    holding, waiting, came, granted = [], {}, [], []

    def hold(number, size):
        del waiting[number]
        granted.append(number)
        holding.append(size)

    for number in range(500):
        size = chance.randint(1, 100)
        if share.take(size):
            assert not waiting
            holding.append(size)
        else:
            came.append(number)
            waiting[number] = None
            waiting[number] = share.wait(size, partial(hold, number, size))
        for _ in range(chance.randint(0, 2)):
            if holding:
                share.release(holding.pop(chance.randrange(len(holding))))
        if waiting and chance.random() < 0.1:
            gone = chance.choice(list(waiting))
            wait = waiting.pop(gone)
            came.remove(gone)
            share.leave(wait)
        assert share.reserved_bytes == sum(holding) <= 100
    while holding:
        share.release(holding.pop())
    assert share.reserved_bytes == share.waiting == 0
    assert granted == came


def test_the_shares_are_together_what_the_limit_says():
    memory = Memory(BrokerConfig())
    assert sum(share.limit_bytes for _, share in memory) == LimitsConfig().memory_limit_bytes
    assert memory.requests.limit_bytes > LimitsConfig().socket_request_max_bytes


def test_queued_max_request_bytes_limits_the_frames():
    config = BrokerConfig(
        limits=LimitsConfig(queued_max_request_bytes=2 * MIB, memory_limit_bytes=64 * MIB)
    )
    memory = Memory(config)
    assert memory.requests.limit_bytes == 2 * MIB
    assert memory.records.limit_bytes == 32 * MIB
