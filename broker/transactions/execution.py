"""Carries out what the state machine of a transactional id asks for: records, markers, answers, deadlines.

What needs no wait happens at once, the rest in tasks, which end with `stop`. The markers of many partitions
are written in slices. A change that could not be stored is tried again. One timer serves all deadlines, by
the broker's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

from tidelog.broker.coordination.coordinating import resolve
from tidelog.broker.coordination.deadlines import Deadlines
from tidelog.broker.coordination.ownership import NO_EPOCH
from tidelog.broker.network.scheduler import with_checkpoints
from tidelog.broker.transactions import state_topic
from tidelog.broker.transactions.messages import Now, SendMarkers, Store
from tidelog.broker.transactions.state_topic import TOPIC
from tidelog.protocol.errors import (
    BrokerError,
    MessageTooLarge,
    RecordListTooLarge,
    UnknownServerError,
)
from tidelog.protocol.records.layout import NO_PRODUCER_ID
from tidelog.protocol.transaction_log import State

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from tidelog.broker.transactions.markers import Markers
    from tidelog.broker.transactions.messages import Action
    from tidelog.broker.transactions.registry import Kept, TransactionRegistry
    from tidelog.broker.transactions.services import Services
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.log.partition import Appended

log = logging.getLogger("tidelog.transactions")

_RETRY_MS = 1_000
"""After how long a change that could not be stored is tried again where nobody asks for it."""
_AT_ONCE = 16
"""So many markers are written at once; each takes a tenth of a millisecond."""


class Execution:
    """The actions and deadlines of the ids of one registry."""

    def __init__(self, services: Services, registry: TransactionRegistry, markers: Markers) -> None:
        """Starts nothing yet: `run` serves the deadlines."""
        self._services, self._clock = services, services.clock
        self._registry, self._markers = registry, markers
        self._deadlines = Deadlines(services.clock, self._deadline_reached)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serves the deadlines until it is cancelled."""
        await self._deadlines.run()

    async def stop(self) -> None:
        """Ends the tasks that are under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def now(self) -> Now:
        """Returns both times of the broker's clock."""
        return Now(self._clock.now_ms(), self._clock.steady_ms())

    def forget(self, transactional_id: str) -> None:
        """Drops the deadline of an id that is coordinated here no more."""
        self._deadlines.forget(transactional_id)

    # -- actions --------------------------------------------------------------------------------

    def act(self, kept: Kept, actions: Iterable[Action]) -> None:
        """Carries out actions, and those that follow from them: at once where nothing waits."""
        left = deque(actions)
        while left:
            action = left.popleft()
            if isinstance(action, Store):
                left.extendleft(reversed(self._store(kept, action)))
            elif isinstance(action, SendMarkers):
                left.extendleft(reversed(self._send(kept, action)))
            else:
                resolve(action.ticket, action.outcome)
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
            stored = self._registry.topic.append_now(transactional_id, written)
        except BrokerError as error:
            return self._not_stored(kept, error)
        if stored is None:
            self._task(self._store_later(kept, written))
            return []
        return self._stored(kept)

    async def _store_later(self, kept: Kept, written: list[tuple[bytes, bytes | None]]) -> None:
        transactional_id = kept.transaction.transactional_id
        try:
            await self._registry.topic.append(transactional_id, written, kept.epoch)
        except BrokerError as error:
            self.act(kept, self._not_stored(kept, error))
        else:
            self.act(kept, self._stored(kept))

    def _stored(self, kept: Kept) -> list[Action]:
        actions = kept.transaction.stored(self.now())
        self._count(kept)
        if kept.transaction.state is State.DEAD:
            self._registry.forget(kept)
        return actions

    def _count(self, kept: Kept) -> None:
        """Counts what has been decided, once it is stored."""
        counts, state = self._services.metrics.transactions, kept.transaction.state
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
        log.warning("transaction not stored: %s", error.named, extra=where)
        if isinstance(error, MessageTooLarge | RecordListTooLarge):  # as in Kafka
            error = UnknownServerError(error.message)
        actions = transaction.not_stored(error)
        kept.not_before_ms = self._clock.steady_ms() + _RETRY_MS
        if transaction.is_new:
            self._registry.forget(kept)
        elif transaction.pending_state is not None:  # all markers are written
            self._task(self._complete_again(kept))
        return actions

    async def _complete_again(self, kept: Kept) -> None:
        await asyncio.sleep(_RETRY_MS / 1000)
        if self._registry.is_kept(kept):
            self.act(kept, kept.transaction.complete_again())

    def _task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- markers --------------------------------------------------------------------------------

    def _send(self, kept: Kept, action: SendMarkers) -> list[Action]:
        """Writes markers: a few now, many in slices; returns what follows from those that are there now."""
        epoch = self._coordinator_epoch(kept)
        if len(action.partitions) > _AT_ONCE:
            self._task(self._services.scheduler.in_slices(self._send_many(kept, action, epoch)))
            return []
        actions: list[Action] = []
        for name in sorted(action.partitions):
            actions += self._send_one(kept, action, name, epoch)
        return actions

    async def _send_many(self, kept: Kept, action: SendMarkers, epoch: int) -> None:
        for name in with_checkpoints(action.partitions):
            if not self._registry.is_kept(kept):
                return  # another coordinator writes the rest
            actions = self._send_one(kept, action, name, epoch)
            if actions:
                self.act(kept, actions)

    def _send_one(
        self, kept: Kept, action: SendMarkers, name: TopicPartition, epoch: int
    ) -> list[Action]:
        """Writes a marker, now or in a task; returns what follows if it is there now."""
        begun: Appended | asyncio.Future[Appended] | None = None
        with contextlib.suppress(BrokerError):  # the task asks again, and judges the error
            begun = self._markers.begin(name, action.producer, epoch, is_commit=action.is_commit)
        if begun is None or isinstance(begun, asyncio.Future):
            self._task(self._send_later(kept, action, name, epoch, begun))
            return []
        return kept.transaction.marker_written(name, self.now())

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
            goes_on=partial(self._registry.is_kept, kept),
        )
        if is_written and self._registry.is_kept(kept):
            self.act(kept, kept.transaction.marker_written(name, self.now()))

    def _coordinator_epoch(self, kept: Kept) -> int:
        """Returns the leader epoch of an id's partition of the topic, which has just been used.

        It never goes back: a log that Kafka wrote has the last epoch that Kafka's markers carry.
        """
        if kept.epoch != NO_EPOCH:
            return kept.epoch
        index = self._registry.topic.index_of(kept.transaction.transactional_id)
        opened = self._services.store.opened_partition(TOPIC, index)
        return 0 if opened is None else opened.leader_epoch

    async def spare_id(self, kept: Kept) -> int:
        """Returns a new producer id if the epochs have run out."""
        if kept.transaction.is_exhausted:
            return await self._services.producer_ids.next()
        return NO_PRODUCER_ID

    # -- time -----------------------------------------------------------------------------------

    def _schedule(self, kept: Kept) -> None:
        transaction = kept.transaction
        if transaction.pending_state is not None or not self._registry.is_kept(kept):
            return  # what is pending calls this again
        at_ms = transaction.times_out_at_ms()
        if at_ms is None:
            at_ms = (
                transaction.updated_at_ms
                + self._services.config.transactions.transactional_id_expiration_ms
            )
        self._deadlines.set(transaction.transactional_id, max(at_ms + 1, kept.not_before_ms))

    def _deadline_reached(self, transactional_id: str, _now_ms: int) -> None:
        kept = self._registry.kept.get(transactional_id)
        if kept is not None:
            self._task(self._tick(kept))

    async def _tick(self, kept: Kept) -> None:
        try:
            new_id = await self.spare_id(kept)
        except BrokerError as error:
            where = {"transactional_id": kept.transaction.transactional_id}
            log.warning("no producer id for a new epoch: %s", error.named, extra=where)
            kept.not_before_ms = self._clock.steady_ms() + _RETRY_MS
            self._schedule(kept)
            return
        if not self._registry.is_kept(kept):
            return
        transaction = kept.transaction
        expire_after_ms = self._services.config.transactions.transactional_id_expiration_ms
        actions = transaction.tick(self.now(), new_id, expire_after_ms)
        if actions and transaction.state is State.ONGOING:
            kept.has_timed_out = True
            log.info(
                "transaction timed out",
                extra={"transactional_id": transaction.transactional_id},
            )
        self.act(kept, actions)
