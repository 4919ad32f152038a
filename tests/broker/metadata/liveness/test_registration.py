"""The key of a live broker: who may delete it, and what a registration leaves of the one before."""

from __future__ import annotations

import pytest

from tidelog.broker.metadata.liveness.broker_lock import BrokerLock, is_held, known_ids
from tidelog.broker.metadata.liveness.registration import register, remove_dead
from tidelog.broker.metadata.memory import MemoryStore
from tidelog.broker.metadata.store import MetadataError, Put

LIVE = Put("live/2", b"first")


@pytest.fixture
async def store():
    store = MemoryStore()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def lock(tmp_path):
    lock = BrokerLock(tmp_path / "metadata", 2)
    await lock.acquire()
    yield lock
    lock.release()


async def test_a_registration_replaces_the_key_and_ends_its_lease(store):
    await store.transact((), (Put("live/20", b"another broker"),))
    first = await register(store, LIVE, 1_000)
    second = await register(store, LIVE._replace(value=b"second"), 1_000, (Put("broker/2", b""),))
    assert (first.epoch, second.epoch) == (2, 4)
    assert not await store.keep_alive(first.lease)
    pairs = {pair.key: pair for pair in (await store.read()).pairs}
    assert pairs["live/2"] == ("live/2", b"second", 4, 4, second.lease)
    assert pairs["broker/2"] == ("broker/2", b"", 4, 4, 0)  # in the same revision, without a lease
    await store.revoke(second.lease)
    assert [pair.key for pair in (await store.read()).pairs] == ["broker/2", "live/20"]


async def test_a_key_without_a_lease_is_replaced_too(store):
    await store.transact((), (LIVE,))
    assert (await register(store, LIVE, 1_000)).epoch == 3


async def test_nobody_deletes_the_key_of_a_broker_whose_lock_is_held(store, lock):
    session = await register(store, LIVE, 1_000)
    assert await remove_dead(store, lock.directory, 2, "live/2") is False
    assert await store.keep_alive(session.lease)
    lock.release()
    assert await remove_dead(store, lock.directory, 2, "live/2") is True
    assert not await store.keep_alive(session.lease)
    assert (await store.read()).pairs == ()


async def test_a_broker_that_starts_while_its_death_is_confirmed_keeps_its_new_key(store, lock):
    """It registers, and even ends again, between the read of the key and the deletion."""
    await register(store, LIVE, 1_000)
    sessions = []

    class Slow:
        """The store as a peer sees it whose read is answered late."""

        revoke = store.revoke

        async def read(self, prefix):
            found = await store.read(prefix)
            sessions.append(await register(store, LIVE, 1_000))
            lock.release()
            return found

    assert await remove_dead(Slow(), lock.directory, 2, "live/2") is True
    (pair,) = (await store.read()).pairs
    assert pair.create_revision == sessions[0].epoch


async def test_a_lock_is_taken_once_and_looked_at_without_taking_it(lock):
    assert is_held(lock.directory, 2)
    assert is_held(lock.directory, 2)
    assert not is_held(lock.directory, 3)
    assert known_ids(lock.directory) == [2]
    with pytest.raises(MetadataError, match=r"broker 2 is running already: process [0-9]+ holds "):
        await BrokerLock(lock.directory, 2).acquire()
    lock.release()
    assert not is_held(lock.directory, 2)
    assert known_ids(lock.directory) == [2]


async def test_a_lock_that_cannot_be_made_says_so(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(MetadataError, match=r"cannot lock .*broker-2\.lock: Not a directory"):
        await BrokerLock(tmp_path / "file" / "metadata", 2).acquire()
