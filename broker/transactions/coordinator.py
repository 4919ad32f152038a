"""The coordinator of the transactional ids of this broker: a thin shell around transaction.py.

It passes requests to the machine; `execution.py` carries out the actions that come back. Time-outs and
the expiry of ids follow the broker's clock, and so a manual one.

The topic is read in a thread, partition by partition: by a broker that is alone at its start, by one
of several when it becomes the leader of a partition. What was decided before is continued: markers
are written again.

The coordinator epoch, which markers carry, is the leader epoch of the id's partition of
__transaction_state.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.transactions import coordinator_epochs, state_topic
from tidelog.broker.transactions.execution import Execution
from tidelog.broker.transactions.markers import Markers
from tidelog.broker.transactions.messages import BUMPS_EPOCH_SINCE, VERSION, new
from tidelog.broker.transactions.registry import Kept, TransactionRegistry
from tidelog.broker.transactions.transaction import Transaction
from tidelog.protocol.errors import (
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
)
from tidelog.protocol.records.layout import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tidelog.broker.coordination.ownership import Load
    from tidelog.broker.network.context import Context
    from tidelog.broker.transactions.messages import Action
    from tidelog.broker.transactions.services import Services
    from tidelog.broker.transactions.state_topic import Known
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.protocol.transaction_log import Producer
    from tidelog.storage.log.partition import Appended

_COMPLETE_WAIT_S = 0.2
"""How long EndTxn waits for the markers: then the next transaction begins without a retry."""
_LONGEST_ID = 1_024
"""Characters of a transactional id; each is held in memory until it expires."""


class TransactionCoordinator(TransactionRegistry):
    """The transactional ids of one broker."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._markers = Markers(services)
        self._execution = Execution(services, self, self._markers)

    # -- start and stop -------------------------------------------------------------------------

    def join_cluster(self) -> None:
        """Coordinates only the ids of partitions that this broker leads, of several brokers."""
        from tidelog.broker.transactions.others import OtherBrokers  # one that is alone needs none

        super().join_cluster()
        self._markers.others = OtherBrokers(self._services)

    def start(self) -> None:
        """Starts to read the stored ids, and the timer."""
        self._begin(self._execution.run())

    async def stop(self) -> None:
        """Ends what is under way: what was decided continues after the next start."""
        await self._end()
        await self._execution.stop()
        if self._markers.others is not None:
            await self._markers.others.close()

    def _read(self, index: int, goes_on: Callable[[], bool]) -> Known:
        """Reads the ids of a partition, in a thread."""
        return state_topic.read(
            self._services, index, goes_on, to_log_end=not self.ownership.is_alone
        )

    def _loaded(self, load: Load, known: Known) -> None:
        """Takes in the ids of a partition that has been read, and continues what was decided."""
        # Ages are counted by the time that may delete: a clock that has leapt ends nothing.
        now = self._execution.now()._replace(wall_ms=self._services.clock_watch.deletion_ms())
        for transactional_id, (metadata, epoch) in known.items():
            if self.topic.index_of(transactional_id) != load.partition:
                continue  # of a topic with another number of partitions
            transaction = Transaction(
                transactional_id,
                metadata,
                now,
                version=VERSION,
                is_taken_over=epoch == load.epoch - 1,
            )
            kept = self.kept[transactional_id] = Kept(transaction, load.epoch)
            self._execution.act(kept, transaction.resume(self._execution.now()))

    def _resigned(self, indexes: Sequence[int]) -> None:
        """Drops the ids of partitions that another broker coordinates now."""
        gone = set(indexes)
        for transactional_id in list(self.kept):
            if self.topic.index_of(transactional_id) in gone:
                del self.kept[transactional_id]
                self._execution.forget(transactional_id)

    # -- requests -------------------------------------------------------------------------------

    async def _known(self, transactional_id: str) -> Kept:
        """Returns an id that has been initialised; waits a little while it is being read.

        Raises what `find` raises, and InvalidProducerIdMapping.
        """
        await self.loader.until_loaded(partial(self._find, transactional_id))
        kept = self._find(transactional_id)
        if kept is None:
            raise InvalidProducerIdMapping(f"there is no transactional id {transactional_id}")
        return kept

    async def init(
        self, transactional_id: str, timeout_ms: int, known: Producer | None
    ) -> Producer:
        """Gives a producer its id and epoch; raises the error that it gets.

        Raises PolicyViolation for a new id if there are max.transactional.ids.
        """
        await self.loader.until_loaded(partial(self._find, transactional_id))
        if not 0 < timeout_ms <= self._services.config.transactions.transaction_max_timeout_ms:
            raise InvalidTransactionTimeout(f"transaction.timeout.ms={timeout_ms}")
        kept, new_id = self._find(transactional_id), NO_PRODUCER_ID
        if kept is None and len(transactional_id) > _LONGEST_ID:
            raise InvalidRequest(f"a transactional id has up to {_LONGEST_ID} characters")
        if kept is None or kept.transaction.is_exhausted:
            new_id = await self._services.producer_ids.next()
            epoch = self._epoch_of(transactional_id)
            kept = self.kept.get(transactional_id)  # another request may have come first
            if kept is None:
                self._check_room()
                metadata = new(new_id, timeout_ms, self._execution.now())
                made = Transaction(
                    transactional_id, metadata, self._execution.now(), version=VERSION
                )
                kept = self.kept[transactional_id] = Kept(made, epoch)
        call = partial(kept.transaction.init, known, timeout_ms, new_id)
        return await self._ask(kept, call)

    async def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        transaction_version: int,
    ) -> None:
        """Adds partitions to the transaction; raises the error that the producer gets."""
        kept = await self._known(transactional_id)
        call = partial(kept.transaction.add, producer, frozenset(partitions), transaction_version)
        await self._ask(kept, call)

    def verify(self, transactional_id: str, producer: Producer, partition: TopicPartition) -> None:
        """Checks that a partition is in the open transaction.

        Raises what `find` and `Transaction.verify` raise, and InvalidProducerIdMapping.
        """
        kept = self._find(transactional_id)
        if kept is None:
            raise InvalidProducerIdMapping(f"there is no transactional id {transactional_id}")
        kept.transaction.verify(producer, partition)

    async def check_partition(
        self, transactional_id: str, producer: Producer, name: TopicPartition, *, adds: bool
    ) -> None:
        """Checks that a transaction has a partition, or adds it, wherever it is coordinated.

        Raises what `verify` and `add` raise, and CoordinatorNotAvailable.
        """
        others = self._markers.others
        if others is not None and not self.is_coordinated_here(transactional_id):
            leader = self.topic.leader_of(transactional_id)
            await others.check_partition(leader, transactional_id, producer, name, adds=adds)
        elif adds:
            await self.add(transactional_id, producer, [name], BUMPS_EPOCH_SINCE)
        else:
            self.verify(transactional_id, producer, name)

    async def end(
        self,
        transactional_id: str,
        producer: Producer,
        transaction_version: int,
        *,
        is_commit: bool,
    ) -> Producer:
        """Commits or aborts; returns what the producer continues with, or raises its error."""
        kept = await self._known(transactional_id)
        new_id = await self._execution.spare_id(kept)
        call = partial(
            kept.transaction.end, producer, transaction_version, new_id, is_commit=is_commit
        )
        continued = await self._ask(kept, call)
        await self.settled(transactional_id, _COMPLETE_WAIT_S)
        return continued

    async def settled(self, transactional_id: str, timeout_s: float) -> None:
        """Waits while a change of an id is pending, for a time at most.

        Waits that time if another broker coordinates the id.
        """
        kept = self.kept.get(transactional_id)
        if kept is None and self._following is not None:
            await asyncio.sleep(timeout_s)
        elif kept is not None and kept.transaction.pending_state is not None:
            future = asyncio.get_running_loop().create_future()
            kept.settled.add(future)
            try:
                await asyncio.wait([future], timeout=timeout_s)
            finally:
                kept.settled.discard(future)

    async def _ask(self, kept: Kept, call: Callable[..., list[Action]]) -> Producer:
        """Gives a request to the machine; returns its answer, or raises the error."""
        ticket: asyncio.Future[Producer] = asyncio.get_running_loop().create_future()
        self._execution.act(kept, call(now=self._execution.now(), ticket=ticket))
        return await ticket

    async def largest_epoch_for(self, context: Context, *, catches_up: bool = False) -> int:
        """Returns the largest coordinator epoch that a request's markers may name; see `allowed`."""
        return await coordinator_epochs.allowed(self._services, context, catches_up=catches_up)

    async def check_epoch(self, name: TopicPartition, producer_id: int, epoch: int) -> None:
        """Checks a larger coordinator epoch; raises what `coordinator_epochs.check` raises."""
        await coordinator_epochs.check(self._services, name, producer_id, epoch)

    def begin_marker(
        self,
        name: TopicPartition,
        producer: Producer,
        coordinator_epoch: int,
        *,
        is_commit: bool,
    ) -> Appended | asyncio.Future[Appended] | None:
        """Writes a marker that another coordinator, or an operator, has decided on.

        Returns and raises what `Markers.begin` does.
        """
        return self._markers.begin(name, producer, coordinator_epoch, is_commit=is_commit)

    async def write_marker_here(
        self, name: TopicPartition, producer: Producer, coordinator_epoch: int, *, is_commit: bool
    ) -> None:
        """Writes a marker, as `begin_marker` does, that an epoch would fence which no coordinator has had.

        Raises what `Markers.write_here` raises.
        """
        await self._markers.write_here(name, producer, coordinator_epoch, is_commit=is_commit)
