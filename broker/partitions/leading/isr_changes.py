"""The changes of in-sync replicas that this broker's leaders propose, on their way to the metadata.

Proposals that come while one transaction is on its way are written together by the next one. If
that is refused, each half of them is written on its own, and so on: one that was decided on something
old does not make the others fail. Of a partition only the newest proposal is written, and only while the
leader that has made it leads.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.metadata import records
from tidelog.broker.metadata.records import PartitionRecord, partition_key
from tidelog.broker.metadata.store import MOST_COMPARISONS, MOST_OPERATIONS
from tidelog.broker.partitions.replication import isr_change
from tidelog.broker.partitions.replication.messages import Assignment

if TYPE_CHECKING:
    from tidelog.broker.lifecycle.cluster import Cluster
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.store import Compare, KeyValueStore
    from tidelog.broker.metadata.transactions import Transaction
    from tidelog.broker.partitions.replication.messages import ChangeIsr
    from tidelog.protocol.topic_partition import TopicIdPartition

    _Wanted = tuple["Proposer", ChangeIsr, Transaction]

log = logging.getLogger("tidelog.replicas")


class Proposer(Protocol):
    """The leader of a partition."""

    @property
    def name(self) -> TopicIdPartition:
        """The partition."""

    @property
    def is_leading(self) -> bool:
        """Whether it has not stepped down."""

    def isr_changed(self, assignment: Assignment) -> None:
        """Passes on that a change is stored, at the revision of the assignment."""

    def isr_refused(self, change: ChangeIsr, assignment: Assignment | None) -> None:
        """Passes on that a change is certainly not stored, and what is."""

    def isr_unknown(self, change: ChangeIsr) -> None:
        """Passes on that a change may be stored."""


class IsrChanges:
    """Writes what leaders propose, and passes the outcome to each leader."""

    def __init__(self, metadata: ClusterMetadata, cluster: Cluster) -> None:
        self._metadata, self._cluster = metadata, cluster
        self._proposed: list[tuple[Proposer, ChangeIsr]] = []
        self._writing: asyncio.Task[None] | None = None

    def propose(self, led: Proposer, change: ChangeIsr) -> None:
        """Writes a change soon."""
        self._proposed.append((led, change))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    async def close(self) -> None:
        """Waits for the transaction in progress."""
        self._proposed.clear()
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        try:
            while self._proposed:
                together = self._newest()
                self._proposed = together[MOST_OPERATIONS:]
                await self._write_all(together[:MOST_OPERATIONS])
        except Exception:
            log.exception("ISR changes not written")
        finally:
            self._writing = None
            if self._proposed:
                self._writing = asyncio.get_running_loop().create_task(self._write())

    def _newest(self) -> list[tuple[Proposer, ChangeIsr]]:
        """Returns the last proposal of each partition, if its leader leads still.

        A leader proposes again when a newer state is stored, and a leader of the next epoch may
        propose before what is left of the one before was written. Nobody counts on those any more.
        """
        newest = {led.name: (led, change) for led, change in self._proposed}
        return [each for each in newest.values() if each[0].is_leading]

    async def _write_all(self, together: list[tuple[Proposer, ChangeIsr]]) -> None:
        wanted: list[_Wanted] = []
        for led, change in together:
            transaction = self._transaction(led, change)
            if transaction is None:
                await self._refused(led, change)
            else:
                wanted.append((led, change, transaction))
        if wanted:
            await self._store_parts(wanted)

    async def _store_parts(self, wanted: list[_Wanted]) -> None:
        """Stores changes in one transaction, or each half of them if that is too large or refused."""
        is_alone = len(wanted) == 1
        if (is_alone or len(_compares(wanted)) <= MOST_COMPARISONS) and await self._commit(wanted):
            return
        if is_alone:
            await self._refused(*wanted[0][:2])
            return
        half = len(wanted) // 2
        await self._store_parts(wanted[:half])
        await self._store_parts(wanted[half:])

    def _transaction(self, led: Proposer, change: ChangeIsr) -> Transaction | None:
        cluster, image = self._cluster, self._metadata.image
        return isr_change.transaction(image, *led.name, change, cluster.me, cluster.epoch)

    async def _commit(self, wanted: list[_Wanted]) -> bool:
        """Stores changes in one transaction; returns False if that was refused."""
        operations = [each for _, _, one in wanted for each in one.operations]
        try:
            revision = await self._store.transact(_compares(wanted), operations)
        except Exception:  # whatever it was, the change may be stored
            log.exception("outcome of ISR change unknown")
            for led, change, _ in wanted:
                led.isr_unknown(change)
            return True
        if revision is None:
            return False
        for led, change, _ in wanted:
            assignment = Assignment(change.record, revision)
            led.isr_changed(assignment)
        return True

    async def _refused(self, led: Proposer, change: ChangeIsr) -> None:
        """Passes to a leader that its change is certainly not stored, and what is."""
        key = partition_key(*led.name)
        try:
            found = [one for one in (await self._store.read(key)).pairs if one.key == key]
        except Exception:
            log.exception("outcome of ISR change unknown")
            led.isr_unknown(change)
            return
        now = None
        if found:
            record = records.read(key, found[0].value)
            assert isinstance(record, PartitionRecord)
            now = Assignment(record, found[0].mod_revision)
        led.isr_refused(change, now)

    @property
    def _store(self) -> KeyValueStore:
        return self._metadata.store


def _compares(wanted: list[_Wanted]) -> tuple[Compare, ...]:
    """Returns what all of some changes compare, each comparison once."""
    return tuple(dict.fromkeys(each for _, _, one in wanted for each in one.compares))
