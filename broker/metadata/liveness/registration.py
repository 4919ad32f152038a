"""The key of a live broker: its own process writes it, and any broker that finds it dead deletes it.

The key belongs to a lease, and only the process that holds the lock on the broker's id creates it.
A registration therefore deletes the key of an earlier process of that id, and does not wait for its
lease. The old key is deleted in one revision and the new one is created in the next, so others see a
death and a start, and the key has another create revision: the broker epoch (KIP-903).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.liveness.broker_lock import is_held
from tidelog.broker.metadata.store import NO_LEASE, Delete, absent, unchanged_since

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.broker.metadata.store import KeyValue, KeyValueStore, Operation, Put


class BrokerSession(NamedTuple):
    """A session of a broker: its lease, and its broker epoch, the create revision of its key."""

    lease: int
    epoch: int


async def register(
    store: KeyValueStore, live: Put, ttl_ms: int, operations: Sequence[Operation] = ()
) -> BrokerSession:
    """Creates a broker's key under a new lease; the process must hold the lock on its id.

    The operations are applied in the same transaction. Every later put of the key must name the lease, or
    the key would outlive it. Raises KafkaStorageError; then the key may exist or not, and the call may be
    repeated.
    """
    while True:
        await _delete(store, await _pair(store, live.key))
        lease = await store.grant(ttl_ms)
        made = (live._replace(lease=lease), *operations)
        epoch = await store.transact(absent(live.key), made)
        if epoch is not None:
            return BrokerSession(lease, epoch)
        await store.revoke(lease)


async def remove_dead(store: KeyValueStore, directory: Path, broker_id: int, key: str) -> bool:
    """Deletes the key of a broker, with its lease, if no process holds the lock on its id.

    Returns whether no process held it. Raises KafkaStorageError.
    """
    # Read before the lock is checked: a key from before was written by a dead process. A process that
    # has started since has another key, and another lease, which this does not touch.
    pair = await _pair(store, key)
    if is_held(directory, broker_id):
        return False
    await _delete(store, pair)
    return True


async def _pair(store: KeyValueStore, key: str) -> KeyValue | None:
    found = await store.read(key)
    return next((pair for pair in found.pairs if pair.key == key), None)


async def _delete(store: KeyValueStore, pair: KeyValue | None) -> None:
    """Deletes a key as it was read, and ends its lease."""
    if pair is None:
        return
    if pair.lease != NO_LEASE:
        await store.revoke(pair.lease)
    else:
        await store.transact(unchanged_since(pair.key, pair.mod_revision), (Delete(pair.key),))
