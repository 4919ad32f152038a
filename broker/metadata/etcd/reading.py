"""Reads many keys of etcd in pages, all at one revision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from tidelog.broker.metadata.etcd.members import RefusedError
from tidelog.broker.metadata.store import Snapshot
from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from tidelog.broker.metadata.etcd.members import EtcdMembers
    from tidelog.broker.metadata.etcd.wire import Keys
    from tidelog.broker.metadata.store import KeyValue

_TRIES = 5


async def read_keys(
    members: EtcdMembers, keys: Keys, prefix: str = "", *, keys_only: bool = False
) -> Snapshot:
    """Returns all keys with a prefix, at a revision that is not older than the call.

    Raises KafkaStorageError. `keys_only` leaves the values out.
    """
    for _ in range(_TRIES):
        try:
            return await _read(members, keys, prefix, keys_only=keys_only)
        except RefusedError as error:  # a compaction has passed the revision of the first page
            if error.code is not grpc.StatusCode.OUT_OF_RANGE:
                raise KafkaStorageError(f"etcd: {error}") from None
            compacted = str(error)
    raise KafkaStorageError(f"etcd is compacted faster than it is read: {compacted}")


async def _read(members: EtcdMembers, keys: Keys, prefix: str, *, keys_only: bool) -> Snapshot:
    first, end = keys.range_of(prefix)
    revision = 0
    found: list[KeyValue] = []
    while True:
        page: Any = await members.call(
            lambda member: member.kv.Range,
            keys.page(first, end, revision, keys_only=keys_only),
            is_repeatable=True,
        )
        revision = revision or page.header.revision
        found += keys.pairs(page.kvs)
        if not page.more:
            return Snapshot(revision, tuple(found))
        first = page.kvs[-1].key + b"\0"
