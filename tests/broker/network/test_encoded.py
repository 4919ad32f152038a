"""Responses that are made once for everybody: two who make the same one at once disturb nobody."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.broker.network.answers import Encoded, Pending
from tidelog.broker.network.encoded import EncodedOnce


async def test_two_who_make_the_same_response_at_once():
    once, basis = EncodedOnce(), object()
    waiters = []

    async def second():
        waiters.append(once.find("key", basis, 0, lambda: None))
        return Encoded(b"second")

    async def first():
        """While it is being made, another one begins: it did not look, or looked before."""
        waiters.append(once.find("key", basis, 0, lambda: None))
        assert await once.make("key", basis, 0, second) == Encoded(b"second")
        return Encoded(b"first")

    assert once.find("key", basis, 0, lambda: None) is None
    assert await once.make("key", basis, 0, first) == Encoded(b"first")
    for waiter in waiters:
        assert isinstance(waiter, Pending)
        async with asyncio.timeout(10):
            await waiter.happened
    assert once.find("key", basis, 0, lambda: None) == Encoded(b"first")


async def test_who_waits_for_one_that_fails_makes_it_again():
    once, basis = EncodedOnce(), object()
    waiters = []

    async def fail():
        waiters.append(once.find("key", basis, 0, lambda: None))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await once.make("key", basis, 0, fail)
    (waiter,) = waiters
    assert waiter.happened.done()
    assert once.find("key", basis, 0, lambda: None) is None
