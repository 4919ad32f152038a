"""The coordinator of the transactional ids of this broker: a thin shell around transaction.py.

The shell passes requests to the machine; `execution.py` carries out the actions that come back. Time-outs and
the expiry of ids follow the broker's clock, and so a manual one.

The runtime reads the topic: all partitions at the start of a broker that is alone, else each one that
this broker becomes the leader of. What was decided before is continued: markers are written again.

The coordinator epoch, which markers carry, is the leader epoch of the id's partition of
__transaction_state.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.coordinators.runtime import Runtime
from tidelog.broker.coordinators.transactions import state_topic
from tidelog.broker.coordinators.transactions.execution import Execution
from tidelog.broker.coordinators.transactions.markers import Markers
from tidelog.broker.coordinators.transactions.messages import BUMPS_EPOCH_SINCE, VERSION, new
from tidelog.broker.coordinators.transactions.patterns import Patterns
from tidelog.broker.coordinators.transactions.refusals import Refusals
from tidelog.broker.coordinators.transactions.transaction import Transaction
from tidelog.broker.coordinators.transactions.transaction_metadata import TransactionMetadata
from tidelog.protocol.errors import (
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    PolicyViolation,
)
from tidelog.protocol.group_errors import CoordinatorLoadInProgress, CoordinatorNotAvailable
from tidelog.protocol.records.layout import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.broker.coordinators.groups.services import Services
    from tidelog.broker.coordinators.ownership import Load
    from tidelog.broker.coordinators.transactions.messages import Action
    from tidelog.broker.coordinators.transactions.producer_ids import ProducerIds
    from tidelog.broker.coordinators.transactions.state_topic import Known
    from tidelog.broker.metadata.image import Image
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.protocol.transaction_log import ProducerIdAndEpoch
    from tidelog.storage.log.partition import Partition

_COMPLETE_WAIT_S = 0.2
"""How long EndTxn waits for the markers: then the next transaction begins without a retry."""
_LONGEST_ID = 1_024
"""Characters of a transactional id; each is held in memory until it expires."""


class TransactionCoordinator:
    """The transactional ids of one broker."""

    def __init__(self, services: Services, producer_ids: ProducerIds) -> None:
        """Begins with no ids."""
        self._services, self._producer_ids = services, producer_ids
        declared = state_topic.declared(services.config.transactions)
        self.runtime: Runtime[TransactionMetadata, Known] = Runtime(
            services, declared, services.clock, self
        )
        self.markers = Markers(services)
        self._execution = Execution(services, self.runtime, self.markers, producer_ids)
        self.refusals = Refusals(services.clock, services.metrics)
        self.patterns = Patterns()

    # -- start and stop -------------------------------------------------------------------------

    def start(self) -> None:
        """Starts to read the stored ids, and the timer."""
        self.runtime.start()

    async def stop(self) -> None:
        """Ends what is under way: what was decided continues after the next start."""
        await self.runtime.stop()
        await self.runtime.finish(cancels=True)
        await self.markers.close()

    # -- what the runtime calls -----------------------------------------------------------------

    def read(self, partition: Partition, end_offset: int, is_wanted: Callable[[], bool]) -> Known:
        """Reads the ids of a partition, in a thread."""
        return state_topic.read(partition, end_offset, is_wanted)

    def load(self, load: Load, read: Known) -> None:
        """Adds the ids of a partition that has been read, and continues what was decided."""
        # Ages are counted by the time that may delete: a clock that has leapt ends nothing.
        now = self._execution.now()._replace(wall_ms=self._services.clock_watch.deletion_ms())
        for transactional_id, (metadata, epoch) in read.items():
            if self.runtime.topic.index_of(transactional_id) != load.partition:
                continue  # of a topic with another number of partitions
            transaction = Transaction(
                transactional_id,
                metadata,
                now,
                version=VERSION,
                is_taken_over=epoch == load.epoch - 1,
            )
            entry = TransactionMetadata(transaction, load.epoch)
            self.runtime.entries[transactional_id] = entry
            self._execution.act(entry, transaction.resume(self._execution.now()))

    def unload(self, indexes: set[int], entries: Sequence[TransactionMetadata]) -> None:
        """Does nothing: what was decided is continued by the next coordinator."""

    def deadline_reached(self, entry: TransactionMetadata) -> None:
        """Aborts a transaction that takes too long, or expires an id that nobody uses."""
        self.runtime.spawn(self._execution.tick(entry))

    def image_changed(self, image: Image) -> None:
        """Does nothing: an image changes no id."""

    # -- ids ------------------------------------------------------------------------------------

    def is_coordinated_here(self, transactional_id: str) -> bool:
        """Whether this broker coordinates an id, by the metadata."""
        try:
            return self.runtime.topic.leader_of(transactional_id) == self._services.metadata.node_id
        except CoordinatorNotAvailable:
            return False

    def get(self, transactional_id: str | None) -> Transaction | None:
        """Returns what is known of an id; None for one that has never been initialised.

        Raises InvalidRequest for no id, NotCoordinator, CoordinatorLoadInProgress and
        CoordinatorNotAvailable.
        """
        entry = self.runtime.get(_required(transactional_id))
        return None if entry is None or entry.transaction.is_new else entry.transaction

    def all(self) -> list[Transaction]:
        """Returns every id. Raises CoordinatorLoadInProgress until all have been read."""
        found = [each.transaction for each in self.runtime.all()]
        return [each for each in found if not each.is_new]

    def open_producers(self, most: int) -> list[int] | None:
        """Returns the producer ids whose transactions have not ended.

        Returns None while ids are being read, and if there are more than `most`.
        """
        try:
            found = [each.metadata.producer_id for each in self.all() if each.is_open]
        except CoordinatorLoadInProgress:
            return None
        return found if len(found) <= most else None

    # -- requests -------------------------------------------------------------------------------

    async def _initialized(self, transactional_id: str) -> TransactionMetadata:
        """Returns an id that has been initialised; waits a little while it is being read.

        Raises what `get` raises, and InvalidProducerIdMapping.
        """
        entry = await self.runtime.get_loaded(_required(transactional_id))
        if entry is None:
            raise InvalidProducerIdMapping(f"there is no transactional id {transactional_id}")
        return entry

    async def init(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """Returns the id and epoch of a producer; raises the error for the response.

        Raises PolicyViolation for a new id if there are max.transactional.ids.
        """
        entry, new_id = await self.runtime.get_loaded(_required(transactional_id)), NO_PRODUCER_ID
        if not 0 < timeout_ms <= self._services.config.transactions.transaction_max_timeout_ms:
            raise InvalidTransactionTimeout(f"transaction.timeout.ms={timeout_ms}")
        if entry is None and len(transactional_id) > _LONGEST_ID:
            raise InvalidRequest(f"a transactional id has up to {_LONGEST_ID} characters")
        if entry is None or entry.transaction.is_exhausted:
            new_id = await self._producer_ids.next()
            epoch = self.runtime.topic.epoch_of(transactional_id)
            # another request may have come first
            entry = self.runtime.entries.get(transactional_id)
            if entry is None:
                entry = self._created(transactional_id, new_id, timeout_ms, epoch)
        call = partial(entry.transaction.init, known, timeout_ms, new_id)
        return await self._ask(entry, call)

    def _created(
        self, transactional_id: str, new_id: int, timeout_ms: int, epoch: int
    ) -> TransactionMetadata:
        """Adds a new id. Raises PolicyViolation if no more ids may be coordinated here."""
        most, now = self._services.config.transactions.max_transactional_ids, self._execution.now()
        if len(self.runtime.entries) >= most:
            raise PolicyViolation(f"this broker has max.transactional.ids={most}")
        metadata = new(new_id, timeout_ms, now)
        transaction = Transaction(transactional_id, metadata, now, version=VERSION)
        entry = self.runtime.entries[transactional_id] = TransactionMetadata(transaction, epoch)
        return entry

    async def add(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        transaction_version: int,
    ) -> None:
        """Adds partitions to the transaction; raises the error for the response."""
        entry = await self._initialized(transactional_id)
        call = partial(entry.transaction.add, producer, frozenset(partitions), transaction_version)
        await self._ask(entry, call)

    def verify(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> None:
        """Checks that a partition is in the open transaction.

        Raises what `get` and `Transaction.verify` raise, and InvalidProducerIdMapping.
        """
        entry = self.runtime.get(_required(transactional_id))
        if entry is None:
            raise InvalidProducerIdMapping(f"there is no transactional id {transactional_id}")
        entry.transaction.verify(producer, partition)

    async def check_partition(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        name: TopicPartition,
        *,
        adds: bool,
    ) -> None:
        """Checks that a transaction has a partition, or adds it, wherever it is coordinated.

        Raises what `verify` and `add` raise, and CoordinatorNotAvailable.
        """
        if not self.is_coordinated_here(transactional_id):
            leader = self.runtime.topic.leader_of(transactional_id)
            await self.markers.others.check_partition(
                leader, transactional_id, producer, name, adds=adds
            )
        elif adds:
            await self.add(transactional_id, producer, [name], BUMPS_EPOCH_SINCE)
        else:
            self.verify(transactional_id, producer, name)

    async def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        transaction_version: int,
        *,
        is_commit: bool,
    ) -> ProducerIdAndEpoch:
        """Commits or aborts; returns what the producer continues with, or raises its error."""
        entry = await self._initialized(transactional_id)
        new_id = await self._execution.spare_id(entry)
        call = partial(
            entry.transaction.end, producer, transaction_version, new_id, is_commit=is_commit
        )
        continued = await self._ask(entry, call)
        await self.settled(transactional_id, _COMPLETE_WAIT_S)
        return continued

    async def settled(self, transactional_id: str, timeout_s: float) -> None:
        """Waits while a change of an id is pending, for a time at most.

        Waits that time if another broker coordinates the id.
        """
        entry = self.runtime.entries.get(transactional_id)
        if entry is None:
            if not self.is_coordinated_here(transactional_id):
                await asyncio.sleep(timeout_s)
        elif entry.transaction.pending_state is not None:
            future = asyncio.get_running_loop().create_future()
            entry.settled.add(future)
            try:
                await asyncio.wait([future], timeout=timeout_s)
            finally:
                entry.settled.discard(future)

    async def _ask(
        self, entry: TransactionMetadata, call: Callable[..., list[Action]]
    ) -> ProducerIdAndEpoch:
        """Passes a request to the machine; returns its answer, or raises the error."""
        ticket: asyncio.Future[ProducerIdAndEpoch] = asyncio.get_running_loop().create_future()
        self._execution.act(entry, call(now=self._execution.now(), ticket=ticket))
        return await ticket


def _required(transactional_id: str | None) -> str:
    if not transactional_id:
        raise InvalidRequest("a transactional id is needed")
    return transactional_id
