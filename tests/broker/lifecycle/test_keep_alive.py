"""The thread that renews a lease: nothing that is slow or odd keeps it from the next renewal."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.broker.subject import eventually
from tidelog.broker.lifecycle.keep_alive import KeepAlive
from tidelog.broker.lifecycle.lease import Lease
from tidelog.protocol.errors import KafkaStorageError

LEASE_MS = 400


class Store:
    """What a lease needs of a metadata store; each renewal is written down."""

    def __init__(self) -> None:
        self.renewals = []  # whether a look was under way
        self.errors = []  # of the next renewals
        self.is_looking = False
        self.answers = False  # to the question whether it takes writes
        self.refusal = None

    async def keep_alive(self, lease):
        self.renewals.append(self.is_looking)
        if self.errors:
            raise self.errors.pop(0)
        return True

    async def why_no_writes(self):
        self.is_looking = True
        try:
            await asyncio.sleep(0 if self.answers else 3600)
        finally:
            self.is_looking = False
        return self.refusal


@pytest.fixture
def store():
    return Store()


def renewed(store, until):
    """Renews a lease in a thread until something is so, and returns the renewals and the lease."""

    async def play():
        lease = Lease(LEASE_MS, 0)
        found = KeepAlive(store, 7, lease, LEASE_MS, lambda: 0, lambda: None)
        try:
            await asyncio.to_thread(eventually, lambda: until(found), 30)
        finally:
            found.end()
            await asyncio.to_thread(found.join)
        return found, lease

    return asyncio.run(play())


def test_a_store_that_is_slow_to_say_whether_it_takes_writes_delays_no_renewal(store):
    renewed(store, lambda _: sum(store.renewals) > 1)


def test_what_the_store_says_is_kept_and_taken_back(store, caplog):
    store.answers, store.refusal = True, "out of space"
    renewed(store, lambda found: found.refusal == "out of space")
    (line,) = [each for each in caplog.records if each.message == "metadata cannot be changed"]
    assert line.reason == "out of space"

    def is_taken_back(found):
        store.refusal = None if found.refusal else store.refusal
        return len(store.renewals) > 5 and found.refusal is None

    store.refusal = "out of space"
    renewed(store, is_taken_back)


@pytest.mark.parametrize("error", [RuntimeError("odd"), KafkaStorageError("etcd is out of reach")])
def test_an_error_ends_no_lease_and_is_logged(store, caplog, error):
    store.errors = [error]
    _, lease = renewed(store, lambda found: len(store.renewals) > 2 and found.error is None)
    assert not lease.is_lost(0)
    assert [each.levelno for each in caplog.records if "not renewed" in each.message] == [
        logging.ERROR if isinstance(error, RuntimeError) else logging.WARNING
    ]
