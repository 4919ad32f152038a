"""Carries out what the state machine of a transactional id asks for: records, markers, answers, deadlines.

What needs no wait happens at once, the rest in tasks of the runtime. The markers of many partitions are
written in slices. A change that could not be stored is tried again. Deadlines follow the broker's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.coordinators.runtime import resolve
from tidelog.broker.coordinators.transactions import state_topic
from tidelog.broker.coordinators.transactions.messages import Now, SendMarkers, Store
from tidelog.broker.network.scheduler import checkpoint
from tidelog.protocol.errors import (
    BrokerError,
    MessageTooLarge,
    RecordListTooLarge,
    UnknownServerError,
)
from tidelog.protocol.records.layout import NO_PRODUCER_ID
from tidelog.protocol.transaction_log import State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.coordinators.groups.services import Services
    from tidelog.broker.coordinators.internal_topic import Written
    from tidelog.broker.coordinators.runtime import Runtime
    from tidelog.broker.coordinators.transactions.markers import Markers
    from tidelog.broker.coordinators.transactions.messages import Action
    from tidelog.broker.coordinators.transactions.producer_ids import ProducerIds
    from tidelog.broker.coordinators.transactions.state_topic import Known
    from tidelog.broker.coordinators.transactions.transaction_metadata import TransactionMetadata
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.log.partition import Appended

log = logging.getLogger("tidelog.transactions")

_RETRY_MS = 1_000
"""After how long a change that could not be stored is tried again where no client does."""
_AT_ONCE = 16
"""So many markers are written at once, each in a tenth of a millisecond."""


class Execution:
    """Carries out the actions of the ids of one coordinator."""

    def __init__(
        self,
        services: Services,
        runtime: Runtime[TransactionMetadata, Known],
        markers: Markers,
        producer_ids: ProducerIds,
    ) -> None:
        self._services, self._clock = services, services.clock
        self._runtime, self._markers, self._producer_ids = runtime, markers, producer_ids

    def now(self) -> Now:
        """Returns both times of the broker's clock."""
        return Now(self._clock.now_ms(), self._clock.steady_ms())

    # -- actions --------------------------------------------------------------------------------

    def act(self, entry: TransactionMetadata, actions: Iterable[Action]) -> None:
        """Carries out actions, and those that follow from them: at once where nothing waits."""
        left = deque(actions)
        while left:
            action = left.popleft()
            if isinstance(action, Store):
                left.extendleft(reversed(self._store(entry, action)))
            elif isinstance(action, SendMarkers):
                left.extendleft(reversed(self._send(entry, action)))
            else:
                resolve(action.ticket, action.outcome)
        transaction = entry.transaction
        if transaction.pending_state is None:
            for future in entry.settled:
                if not future.done():
                    future.set_result(None)
            entry.settled.clear()
        self._schedule(entry)

    def _store(self, entry: TransactionMetadata, action: Store) -> list[Action]:
        """Writes to the log, now or in a task; returns what follows if it is there now."""
        transaction = entry.transaction
        transactional_id = transaction.transactional_id
        written = [state_topic.record(transactional_id, action.metadata)]
        topic = self._runtime.topic
        partition = topic.log_to_append(transactional_id)
        try:
            stored = partition and topic.append_now(partition, written, entry.epoch)
        except BrokerError as error:
            return self._not_stored(entry, error)
        if stored is None:
            self._runtime.spawn(self._store_later(entry, written))
            return []
        return self._stored(entry)

    async def _store_later(self, entry: TransactionMetadata, written: list[Written]) -> None:
        transactional_id = entry.transaction.transactional_id
        try:
            await self._runtime.topic.append(transactional_id, written, entry.epoch)
        except BrokerError as error:
            self.act(entry, self._not_stored(entry, error))
        else:
            self.act(entry, self._stored(entry))

    def _stored(self, entry: TransactionMetadata) -> list[Action]:
        actions = entry.transaction.stored(self.now())
        self._count(entry)
        if entry.transaction.state is State.DEAD:
            self._runtime.delete(entry)
        return actions

    def _count(self, entry: TransactionMetadata) -> None:
        """Counts what has been decided, once it is stored."""
        counts, state = self._services.metrics.transactions, entry.transaction.state
        if state is State.PREPARE_COMMIT:
            counts.committed += 1
        elif state is State.PREPARE_ABORT:
            counts.aborted += 1
            counts.timed_out += entry.has_timed_out
        elif state is State.DEAD:
            counts.expired_ids += 1
        entry.has_timed_out = False

    def _not_stored(self, entry: TransactionMetadata, error: BrokerError) -> list[Action]:
        transaction = entry.transaction
        where = {"transactional_id": transaction.transactional_id, "reason": error.named}
        log.warning("transaction not stored", extra=where)
        if isinstance(error, MessageTooLarge | RecordListTooLarge):  # as in Kafka
            error = UnknownServerError(error.message)
        actions = transaction.not_stored(error)
        entry.not_before_ms = self._clock.steady_ms() + _RETRY_MS
        if transaction.is_new:
            self._runtime.delete(entry)
        elif transaction.pending_state is not None:  # all markers are written
            self._runtime.spawn(self._complete_again(entry))
        return actions

    async def _complete_again(self, entry: TransactionMetadata) -> None:
        await asyncio.sleep(_RETRY_MS / 1000)
        if self._runtime.has(entry):
            self.act(entry, entry.transaction.complete_again())

    # -- markers --------------------------------------------------------------------------------

    def _send(self, entry: TransactionMetadata, action: SendMarkers) -> list[Action]:
        """Writes markers: a few now, many in slices; returns what follows from those that are there now."""
        epoch = entry.epoch
        if len(action.partitions) > _AT_ONCE:
            self._runtime.spawn(
                self._services.scheduler.in_slices(self._send_many(entry, action, epoch))
            )
            return []
        actions: list[Action] = []
        for name in sorted(action.partitions):
            actions += self._send_one(entry, action, name, epoch)
        return actions

    async def _send_many(self, entry: TransactionMetadata, action: SendMarkers, epoch: int) -> None:
        for name in action.partitions:
            if not self._runtime.has(entry):
                return  # another coordinator writes the rest
            actions = self._send_one(entry, action, name, epoch)
            if actions:
                self.act(entry, actions)
            await checkpoint()

    def _send_one(
        self, entry: TransactionMetadata, action: SendMarkers, name: TopicPartition, epoch: int
    ) -> list[Action]:
        """Writes a marker, now or in a task; returns what follows if it is there now."""
        begun: Appended | asyncio.Future[Appended] | None = None
        with contextlib.suppress(BrokerError):  # the task asks again, and judges the error
            begun = self._markers.begin(name, action.producer, epoch, is_commit=action.is_commit)
        if begun is None or isinstance(begun, asyncio.Future):
            self._runtime.spawn(self._send_later(entry, action, name, epoch, begun))
            return []
        return entry.transaction.marker_written(name, self.now())

    async def _send_later(
        self,
        entry: TransactionMetadata,
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
            goes_on=partial(self._runtime.has, entry),
        )
        if is_written and self._runtime.has(entry):
            self.act(entry, entry.transaction.marker_written(name, self.now()))

    async def spare_id(self, entry: TransactionMetadata) -> int:
        """Returns a new producer id if the epochs have run out."""
        if entry.transaction.is_exhausted:
            return await self._producer_ids.next()
        return NO_PRODUCER_ID

    # -- time -----------------------------------------------------------------------------------

    def _schedule(self, entry: TransactionMetadata) -> None:
        transaction = entry.transaction
        if transaction.pending_state is not None:
            return  # what is pending calls this again
        at_ms = transaction.times_out_at_ms()
        if at_ms is None:
            at_ms = (
                transaction.updated_at_ms
                + self._services.config.transactions.transactional_id_expiration_ms
            )
        self._runtime.schedule(entry, max(at_ms + 1, entry.not_before_ms))

    async def tick(self, entry: TransactionMetadata) -> None:
        """Aborts a transaction that takes too long, or expires an id that nobody uses."""
        try:
            new_id = await self.spare_id(entry)
        except BrokerError as error:
            transactional_id = entry.transaction.transactional_id
            where = {"transactional_id": transactional_id, "reason": error.named}
            log.warning("transaction end or id expiry delayed, no producer id", extra=where)
            entry.not_before_ms = self._clock.steady_ms() + _RETRY_MS
            self._schedule(entry)
            return
        if not self._runtime.has(entry):
            return
        transaction = entry.transaction
        expire_after_ms = self._services.config.transactions.transactional_id_expiration_ms
        actions = transaction.tick(self.now(), new_id, expire_after_ms)
        if actions and transaction.state is State.ONGOING:
            entry.has_timed_out = True
            log.info(
                "transaction timed out",
                extra={"transactional_id": transaction.transactional_id},
            )
        self.act(entry, actions)
