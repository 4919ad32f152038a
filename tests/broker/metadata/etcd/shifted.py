"""etcd's store as the model of the contract expects it: revisions from 0 on, and small lease ids.

etcd counts the revisions of all its keys. While nobody else writes, the store's own are those since
it was opened.
"""

from __future__ import annotations

import contextlib

from tidelog.broker.metadata.etcd.store import EtcdStore
from tidelog.broker.metadata.store import Put

UNKNOWN_LEASE = 2**62


class Leases:
    """Lease ids in the order in which they were granted, for all clients of one schedule."""

    def __init__(self):
        self._ids = []

    def add(self, lease):
        self._ids.append(lease)
        return len(self._ids)

    def of(self, number):
        """The id in etcd; one that was never granted for a number that was not."""
        if number == 0:
            return 0
        return self._ids[number - 1] if number <= len(self._ids) else UNKNOWN_LEASE + number

    def number(self, lease):
        return 0 if lease == 0 else self._ids.index(lease) + 1


class Shifted(EtcdStore):
    """An EtcdStore that numbers revisions from a base, which is 0."""

    def __init__(self, *arguments, leases=None, base=None, more_ms=0, **options):
        """`more_ms` is added to each lease: it does not end by itself."""
        super().__init__(*arguments, **options)
        self.base = base
        self._leases = leases or Leases()
        self._more_ms = more_ms

    async def open(self):
        await super().open()
        if self.base is None:
            self.base = self._log.end

    async def read(self, prefix=""):
        found = await super().read(prefix)
        pairs = tuple(
            each._replace(
                create_revision=each.create_revision - self.base,
                mod_revision=each.mod_revision - self.base,
                lease=self._leases.number(each.lease),
            )
            for each in found.pairs
        )
        return found._replace(revision=found.revision - self.base, pairs=pairs)

    async def transact(self, compares, operations):
        compared = [
            # 0 means that there is no such key, which no base changes
            each._replace(revision=each.revision + self.base) if each.revision > 0 else each
            for each in compares
        ]
        changed = [
            each._replace(lease=self._leases.of(each.lease)) if isinstance(each, Put) else each
            for each in operations
        ]
        revision = await super().transact(compared, changed)
        return None if revision is None else revision - self.base

    async def changes(self, after):
        return self._own(await super().changes(after + self.base))

    async def watch(self, after):
        async with contextlib.aclosing(super().watch(after + self.base)) as found:
            async for changes in found:
                yield self._own(changes)

    async def grant(self, ttl_ms):
        return self._leases.add(await super().grant(ttl_ms + self._more_ms))

    async def keep_alive(self, lease):
        return await super().keep_alive(self._leases.of(lease))

    async def revoke(self, lease):
        await super().revoke(self._leases.of(lease))

    def _own(self, changes):
        return [each._replace(revision=each.revision - self.base) for each in changes]
