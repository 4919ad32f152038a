"""The coordinator of the transactional ids of this broker: a thin shell around transaction.py.

It passes events to the machine and carries out the actions that come back: it writes to
__transaction_state, sends markers and answers requests. One timer serves all deadlines. Time-outs
and the expiry of ids follow the broker's clock, and so a manual one.

The topic is read in a thread, partition by partition: by a broker that is alone at its start, by one
of several when it becomes the leader of a partition. What was decided before is continued: markers
are written again.

The coordinator epoch, which markers carry, is the leader epoch of the id's partition of
__transaction_state.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.coordination.deadlines import Deadlines
from broker.coordination.loading import Loader
from broker.coordination.ownership import NO_EPOCH
from broker.transactions import state_topic
from broker.transactions.markers import Markers
from broker.transactions.messages import (
    BUMPS_EPOCH_SINCE,
    VERSION,
    Answer,
    Now,
    Producer,
    SendMarkers,
    Store,
    new,
)
from broker.transactions.registry import Kept, TransactionRegistry
from broker.transactions.state_topic import TOPIC
from broker.transactions.transaction import Transaction
from protocol.errors import (
    BrokerError,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    MessageTooLarge,
    RecordListTooLarge,
    UnknownServerError,
)
from protocol.records.layout import NO_PRODUCER_ID
from protocol.transaction_log import State

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from broker.coordination.following import Following
    from broker.coordination.ownership import Load
    from broker.node import Node
    from broker.transactions.messages import Action
    from broker.transactions.state_topic import Known
    from protocol.topic_partition import TopicPartition
    from storage.log.partition import Appended

log = logging.getLogger("tidelog.transactions")

_COMPLETE_WAIT_S = 0.2
"""How long EndTxn waits for the markers: then the next transaction begins without a retry."""
_LONGEST_ID = 1_024
"""Characters of a transactional id; each is held in memory until it expires."""
_RETRY_MS = 1_000
"""After how long a change that could not be stored is tried again where nobody asks for it."""


class TransactionCoordinator(TransactionRegistry):
    """The transactional ids of one node."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._markers = Markers(node)
        self._deadlines = Deadlines(self._clock, self._deadline_reached)
        self._loader = Loader(
            node,
            TOPIC,
            self.ownership,
            read=self._read,
            loaded=self._loaded,
            resigned=self._resigned,
        )
        self._following: Following | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._chores: list[asyncio.Task[None]] = []

    # -- start and stop -------------------------------------------------------------------------

    def join_cluster(self) -> None:
        """Coordinates only the ids of partitions that this broker leads, of several brokers."""
        # A broker that is alone needs none of these.
        from broker.coordination.following import Following
        from broker.transactions.others import OtherBrokers

        self.ownership.join()
        self._markers.others = OtherBrokers(self._node)
        self._following = Following(
            self._node,
            TOPIC,
            self._node.config.transaction_state_log_replication_factor,
            self.ownership,
            carry_out=self._loader.carry_out,
        )

    def roles_changed(self) -> None:
        """Hears that a log on this broker leads now, or leads no more."""
        if self._following is not None:
            self._following.look_again()

    def start(self) -> None:
        """Starts to read the stored ids, and the timer."""
        work = [self._loader.run(), self._deadlines.run()]
        if self._following is not None:
            work.append(self._following.run())
        elif not self._topic.is_missing:
            self._loader.carry_out(self.ownership.begin_alone(self._topic.partitions()))
        loop = asyncio.get_running_loop()
        self._chores = [loop.create_task(each) for each in work]

    async def stop(self) -> None:
        """Ends what is under way: what was decided continues after the next start."""
        tasks = [*self._chores, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._markers.others is not None:
            await self._markers.others.close()

    def _read(self, index: int, goes_on: Callable[[], bool]) -> Known:
        """Reads the ids of a partition, in a thread."""
        return state_topic.read(self._node, index, goes_on, to_log_end=not self.ownership.is_alone)

    def _loaded(self, load: Load, known: Known) -> None:
        """Takes in the ids of a partition that has been read, and continues what was decided."""
        for transactional_id, metadata in known.items():
            if self._topic.index_of(transactional_id) != load.partition:
                continue  # of a topic with another number of partitions
            transaction = Transaction(transactional_id, metadata, self._now(), version=VERSION)
            kept = self._kept[transactional_id] = Kept(transaction, load.epoch)
            self._act(kept, transaction.resume(self._now()))

    def _resigned(self, indexes: Sequence[int]) -> None:
        """Drops the ids of partitions that another broker coordinates now."""
        gone = set(indexes)
        for transactional_id in list(self._kept):
            if self._topic.index_of(transactional_id) in gone:
                del self._kept[transactional_id]
                self._deadlines.forget(transactional_id)

    def _now(self) -> Now:
        return Now(self._clock.now_ms(), self._clock.steady_ms())

    # -- requests -------------------------------------------------------------------------------

    async def _known(self, transactional_id: str) -> Kept:
        """Returns an id that has been initialised; waits a little while it is being read.

        Raises what `find` raises, and InvalidProducerIdMapping.
        """
        await self._loader.until_loaded(partial(self._find, transactional_id))
        kept = self._find(transactional_id)
        if kept is None:
            raise InvalidProducerIdMapping(f"there is no transactional id {transactional_id}")
        return kept

    async def init(
        self, transactional_id: str, timeout_ms: int, known: Producer | None
    ) -> Producer:
        """Gives a producer its id and epoch; raises the error that it gets."""
        await self._loader.until_loaded(partial(self._find, transactional_id))
        if not 0 < timeout_ms <= self._node.config.transaction_max_timeout_ms:
            raise InvalidTransactionTimeout(f"transaction.timeout.ms={timeout_ms}")
        kept, new_id = self._find(transactional_id), NO_PRODUCER_ID
        if kept is None and len(transactional_id) > _LONGEST_ID:
            raise InvalidRequest(f"a transactional id has up to {_LONGEST_ID} characters")
        if kept is None or kept.transaction.is_exhausted:
            new_id = await self._node.next_producer_id()
            epoch = self._epoch_of(transactional_id)
            kept = self._kept.get(transactional_id)  # another request may have come first
            if kept is None:
                metadata = new(new_id, timeout_ms, self._now())
                made = Transaction(transactional_id, metadata, self._now(), version=VERSION)
                kept = self._kept[transactional_id] = Kept(made, epoch)
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
            leader = self.leader_of(transactional_id)
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
        new_id = await self._spare_id(kept)
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
        kept = self._kept.get(transactional_id)
        if kept is None and self._following is not None:
            await asyncio.sleep(timeout_s)
        elif kept is not None and kept.transaction.pending_state is not None:
            future = asyncio.get_running_loop().create_future()
            kept.settled.add(future)
            try:
                await asyncio.wait([future], timeout=timeout_s)
            finally:
                kept.settled.discard(future)

    async def _spare_id(self, kept: Kept) -> int:
        """Returns a new producer id if the epochs have run out."""
        if kept.transaction.is_exhausted:
            return await self._node.next_producer_id()
        return NO_PRODUCER_ID

    async def _ask(self, kept: Kept, call: Callable[..., list[Action]]) -> Producer:
        """Gives a request to the machine; returns its answer, or raises the error."""
        ticket: asyncio.Future[Producer] = asyncio.get_running_loop().create_future()
        self._act(kept, call(now=self._now(), ticket=ticket))
        return await ticket

    # -- actions --------------------------------------------------------------------------------

    def _act(self, kept: Kept, actions: Iterable[Action]) -> None:
        """Carries out actions, and those that follow from them: at once where nothing waits."""
        left = deque(actions)
        while left:
            action = left.popleft()
            if isinstance(action, Store):
                left.extendleft(reversed(self._store(kept, action)))
            elif isinstance(action, SendMarkers):
                left.extendleft(reversed(self._send(kept, action)))
            else:
                _resolve(action)
        transaction = kept.transaction
        if transaction.pending_state is None:
            for future in kept.settled:
                if not future.done():
                    future.set_result(None)
            kept.settled.clear()
        self._schedule(kept)

    def _store(self, kept: Kept, action: Store) -> list[Action]:
        """Writes to the log, now or in a task; returns what follows if it is there now."""
        transaction = kept.transaction
        transactional_id = transaction.transactional_id
        written = [state_topic.record(transactional_id, action.metadata)]
        try:
            stored = self._topic.append_now(transactional_id, written)
        except BrokerError as error:
            return self._not_stored(kept, error)
        if stored is None:
            self._task(self._store_later(kept, written))
            return []
        return self._stored(kept)

    async def _store_later(self, kept: Kept, written: list[tuple[bytes, bytes | None]]) -> None:
        transactional_id = kept.transaction.transactional_id
        try:
            await self._topic.append(transactional_id, written, kept.epoch)
        except BrokerError as error:
            self._act(kept, self._not_stored(kept, error))
        else:
            self._act(kept, self._stored(kept))

    def _stored(self, kept: Kept) -> list[Action]:
        actions = kept.transaction.stored(self._now())
        self._count(kept)
        if kept.transaction.state is State.DEAD:
            self._forget(kept)
        return actions

    def _count(self, kept: Kept) -> None:
        """Counts what has been decided, once it is stored."""
        counts, state = self._node.metrics.transactions, kept.transaction.state
        if state is State.PREPARE_COMMIT:
            counts.committed += 1
        elif state is State.PREPARE_ABORT:
            counts.aborted += 1
            counts.timed_out += kept.has_timed_out
        elif state is State.DEAD:
            counts.expired_ids += 1
        kept.has_timed_out = False

    def _not_stored(self, kept: Kept, error: BrokerError) -> list[Action]:
        transaction = kept.transaction
        where = {"transactional_id": transaction.transactional_id}
        log.warning("transaction not stored: %s", error.message, extra=where)
        if isinstance(error, MessageTooLarge | RecordListTooLarge):  # as in Kafka
            error = UnknownServerError(error.message)
        actions = transaction.not_stored(error)
        kept.not_before_ms = self._clock.steady_ms() + _RETRY_MS
        if transaction.is_new:
            self._forget(kept)
        elif transaction.pending_state is not None:  # all markers are written
            self._task(self._complete_again(kept))
        return actions

    async def _complete_again(self, kept: Kept) -> None:
        await asyncio.sleep(_RETRY_MS / 1000)
        if self._is_kept(kept):
            self._act(kept, kept.transaction.complete_again())

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- markers --------------------------------------------------------------------------------

    def _send(self, kept: Kept, action: SendMarkers) -> list[Action]:
        """Writes markers, now or in tasks; returns what follows from those that are there now."""
        epoch = self._coordinator_epoch(kept)
        actions: list[Action] = []
        for name in sorted(action.partitions):
            begun: Appended | asyncio.Future[Appended] | None = None
            with contextlib.suppress(BrokerError):  # the task asks again, and judges the error
                begun = self._markers.begin(
                    name, action.producer, epoch, is_commit=action.is_commit
                )
            if begun is None or isinstance(begun, asyncio.Future):
                self._task(self._send_later(kept, action, name, epoch, begun))
            else:
                actions += kept.transaction.marker_written(name, self._now())
        return actions

    async def _send_later(
        self,
        kept: Kept,
        action: SendMarkers,
        name: TopicPartition,
        epoch: int,
        begun: asyncio.Future[Appended] | None,
    ) -> None:
        is_written = await self._markers.write_in_the_end(
            name,
            action.producer,
            epoch,
            is_commit=action.is_commit,
            begun=begun,
            goes_on=partial(self._is_kept, kept),
        )
        if is_written and self._is_kept(kept):
            self._act(kept, kept.transaction.marker_written(name, self._now()))

    def _coordinator_epoch(self, kept: Kept) -> int:
        """Returns the leader epoch of an id's partition of the topic, which has just been used.

        It never goes back: a log that Kafka wrote has the last epoch that Kafka's markers carry.
        """
        if kept.epoch != NO_EPOCH:
            return kept.epoch
        index = self._topic.index_of(kept.transaction.transactional_id)
        opened = self._node.store.opened_partition(TOPIC, index)
        return 0 if opened is None else opened.leader_epoch

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

    # -- time -----------------------------------------------------------------------------------

    def _schedule(self, kept: Kept) -> None:
        transaction = kept.transaction
        if transaction.pending_state is not None or not self._is_kept(kept):
            return  # what is pending calls this again
        at_ms = transaction.times_out_at_ms()
        if at_ms is None:
            at_ms = transaction.updated_at_ms + self._node.config.transactional_id_expiration_ms
        self._deadlines.set(transaction.transactional_id, max(at_ms + 1, kept.not_before_ms))

    def _deadline_reached(self, transactional_id: str, _now_ms: int) -> None:
        kept = self._kept.get(transactional_id)
        if kept is not None:
            self._task(self._tick(kept))

    async def _tick(self, kept: Kept) -> None:
        try:
            new_id = await self._spare_id(kept)
        except BrokerError as error:
            where = {"transactional_id": kept.transaction.transactional_id}
            log.warning("no producer id for a new epoch: %s", error.message, extra=where)
            kept.not_before_ms = self._clock.steady_ms() + _RETRY_MS
            self._schedule(kept)
            return
        if not self._is_kept(kept):
            return
        transaction = kept.transaction
        expire_after_ms = self._node.config.transactional_id_expiration_ms
        actions = transaction.tick(self._now(), new_id, expire_after_ms)
        if actions and transaction.state is State.ONGOING:
            kept.has_timed_out = True
            log.info(
                "transaction timed out",
                extra={"transactional_id": transaction.transactional_id},
            )
        self._act(kept, actions)


def _resolve(answer: Answer) -> None:
    ticket, outcome = answer.ticket, answer.outcome
    if ticket.done():
        return
    if isinstance(outcome, BrokerError):
        ticket.set_exception(outcome)
    else:
        ticket.set_result(outcome)
