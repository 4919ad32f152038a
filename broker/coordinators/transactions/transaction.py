"""One transactional id: a pure state machine.

    EMPTY -> ONGOING -> PREPARE_COMMIT -> COMPLETE_COMMIT -> ONGOING or EMPTY
                     -> PREPARE_ABORT  -> COMPLETE_ABORT  -> ONGOING or EMPTY

Requests (`init`, `add`, `end`), the passing of time (`tick`), the fate of a write (`stored`,
`not_stored`) and markers (`marker_written`) are its events. Each returns what is to be done, or
raises the error for the response, and then nothing has changed. Nothing here waits or reads a
clock.

What the metadata become at each step is in `successors.py`.

A change counts only when it is in the log: until then it is pending, and other requests are
refused with CONCURRENT_TRANSACTIONS. The end of a transaction pends until its markers are written and
that is in the log as well. EndTxn is answered before, when the decision is in the log.

The version of a request shows its transaction.version: 0 keeps the epoch of the producer, 2 raises it
after each transaction, so that nothing late can reach the next one (KIP-890).

Source: Kafka's TransactionCoordinator as of 3.9 and 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.broker.coordinators.transactions import successors
from tidelog.broker.coordinators.transactions.messages import (
    BUMPS_EPOCH_SINCE,
    COMPLETE,
    LAST_EPOCH,
    ON_END,
    ON_END_AGAIN,
    ON_END_BUMPING,
    Answer,
    End,
    SendMarkers,
    Store,
)
from tidelog.protocol.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
)
from tidelog.protocol.records.layout import NO_PRODUCER_ID
from tidelog.protocol.transaction_log import NO_EPOCH, Metadata, ProducerIdAndEpoch, State

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.coordinators.transactions.messages import Action, Now
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.topic_partition import TopicPartition

_PREPARED = frozenset(COMPLETE)


class Transaction:
    """What one transactional id is doing.

    `version` is the transaction.version of the broker: time-outs and fencing follow it.
    """

    def __init__(
        self,
        transactional_id: str,
        metadata: Metadata,
        now: Now,
        *,
        version: int,
        is_taken_over: bool = False,
    ) -> None:
        """Begins with metadata that are new, or that the log has; then call `resume`.

        A transaction that `is_taken_over` from the coordinator before has all of its time again, because
        that one's clock may have been another. The next coordinator counts the age, or it might never end.
        """
        self.transactional_id = transactional_id
        self.metadata = metadata
        self._version = version
        self._pending: Metadata | None = None
        self._is_storing = False
        self._is_fencing = False
        self._ticket: Any = None
        self._outcome: ProducerIdAndEpoch | BrokerError | None = (
            None  # for the ticket, once it is stored
        )
        self._has_failed_fence = False
        self._unmarked: set[TopicPartition] = set()
        # Ages by the wall clock count once: from here on the steady clock measures.
        age_ms = 0 if is_taken_over else max(0, now.wall_ms - metadata.start_ms)
        self._ongoing_since_ms = now.steady_ms - age_ms
        self.updated_at_ms = now.steady_ms - max(0, now.wall_ms - metadata.updated_ms)
        """When the last change was stored, in ms of the steady clock."""

    # -- questions ------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state that is in the log."""
        return self.metadata.state

    @property
    def is_new(self) -> bool:
        """Whether nothing of it is in the log yet."""
        return self.metadata.epoch == NO_EPOCH

    @property
    def is_open(self) -> bool:
        """Whether it has begun and has not ended everywhere."""
        return self.state is State.ONGOING or self.state in _PREPARED

    @property
    def pending_state(self) -> State | None:
        """The state that it is about to have; None if it is not changing."""
        return None if self._pending is None else self._pending.state

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions in the transaction; while it ends, those that lack their marker."""
        if self.state in _PREPARED and self._pending is not None:
            return frozenset(self._unmarked)
        return self.metadata.partitions

    @property
    def is_exhausted(self) -> bool:
        """Whether the epochs have run out, so that the next change may need a new producer id."""
        return successors.is_exhausted(self.metadata)

    def times_out_at_ms(self) -> int | None:
        """Returns when the transaction is aborted if nobody ends it, in ms of the steady clock."""
        if self.state is not State.ONGOING:
            return None
        return self._ongoing_since_ms + self.metadata.timeout_ms

    def is_idle_since(self, steady_ms: int) -> bool:
        """Returns whether nothing has changed after this time, and nothing is open."""
        return not self.is_open and self._pending is None and self.updated_at_ms <= steady_ms

    # -- InitProducerId -------------------------------------------------------------------------

    def init(
        self, known: ProducerIdAndEpoch | None, timeout_ms: int, new_id: int, now: Now, ticket: Any
    ) -> list[Action]:
        """Answers with the id and epoch of a producer, and fences every other one.

        `known` is what the request names, if anything; `new_id` is used if the epochs have
        run out. A transaction that is open is aborted first; the producer then asks again.
        """
        if self._pending is not None:
            raise ConcurrentTransactions
        metadata = self.metadata
        if known is not None and not self.is_new:
            was_exhausted = known.epoch >= LAST_EPOCH and known.producer_id == metadata.previous_id
            if known.producer_id != metadata.producer_id and not was_exhausted:
                raise ProducerFenced(f"producer id {known.producer_id} is not that of the id")
        if self.state in _PREPARED:
            raise ConcurrentTransactions
        if self.state is State.ONGOING:
            return self._fence(new_id, now, ticket, ConcurrentTransactions())
        target = successors.initialized(metadata, known, new_id, timeout_ms, now)
        return self._store(
            target, now, ticket, ProducerIdAndEpoch(target.producer_id, target.epoch)
        )

    # -- AddPartitionsToTxn, AddOffsetsToTxn ----------------------------------------------------

    def add(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Iterable[TopicPartition],
        transaction_version: int,
        now: Now,
        ticket: Any,
    ) -> list[Action]:
        """Adds partitions to the transaction, which begins with the first ones."""
        if self._pending is not None:
            raise ConcurrentTransactions
        self._check(producer)
        if self.state in _PREPARED:
            raise ConcurrentTransactions
        metadata, added = self.metadata, frozenset(partitions)
        is_ongoing = self.state is State.ONGOING
        if is_ongoing and added <= metadata.partitions:
            return [Answer(ticket, producer)]
        target = metadata._replace(
            state=State.ONGOING,
            partitions=metadata.partitions | added if is_ongoing else added,
            start_ms=metadata.start_ms if is_ongoing else now.wall_ms,
            updated_ms=now.wall_ms,
            transaction_version=transaction_version,
            previous_id=NO_PRODUCER_ID,
        )
        return self._store(target, now, ticket, producer)

    def verify(self, producer: ProducerIdAndEpoch, partition: TopicPartition) -> None:
        """Checks that a partition is in the open transaction, which a leader asks before it appends.

        Raises InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions, and
        TransactionAbortable if it is not. What is pending does not matter.
        """
        self._check(producer)
        if self.state in _PREPARED:
            raise ConcurrentTransactions
        if partition not in self.metadata.partitions:
            topic, index = partition
            raise TransactionAbortable(f"{topic}-{index} was not added to the transaction")

    def _check(self, producer: ProducerIdAndEpoch) -> None:
        metadata = self.metadata
        if producer.producer_id != metadata.producer_id:
            raise InvalidProducerIdMapping
        if producer.epoch != metadata.epoch:
            raise ProducerFenced(f"epoch {producer.epoch} is not {metadata.epoch}")

    # -- EndTxn ---------------------------------------------------------------------------------

    def end(
        self,
        producer: ProducerIdAndEpoch,
        transaction_version: int,
        new_id: int,
        now: Now,
        ticket: Any,
        *,
        is_commit: bool,
    ) -> list[Action]:
        """Commits or aborts. The outcome is what the producer continues with.

        `new_id` is used if the epochs have run out and a request of this version gets a new one.
        """
        is_bumping = transaction_version >= BUMPS_EPOCH_SINCE
        rule = (self._on_bumping_end if is_bumping else self._on_end)(producer, is_commit)
        if rule is End.LATER:
            raise ConcurrentTransactions
        if rule is End.INVALID:
            what = "commit" if is_commit else "abort"
            raise InvalidTxnState(f"cannot {what} a transaction that is {self.state.word}")
        if rule is End.FENCED:
            raise ProducerFenced(f"epoch {producer.epoch} is not {self.metadata.epoch}")
        if rule is End.DONE:
            return [
                Answer(ticket, ProducerIdAndEpoch(self.metadata.producer_id, self.metadata.epoch))
            ]
        target = successors.prepared(
            self.metadata, transaction_version, new_id, now, is_commit=is_commit
        )
        return self._store(target, now, ticket, successors.continued(target))

    def _on_end(self, producer: ProducerIdAndEpoch, is_commit: bool) -> End:
        """Returns what EndTxn does in transaction.version 0."""
        self._check(producer)
        if self._pending is not None:
            raise ConcurrentTransactions
        return ON_END[self.state][not is_commit]

    def _on_bumping_end(self, producer: ProducerIdAndEpoch, is_commit: bool) -> End:
        """Returns what EndTxn does in transaction.version 2."""
        if self._pending is not None:
            raise ConcurrentTransactions
        metadata = self.metadata
        is_rotated = (
            producer == (metadata.previous_id, LAST_EPOCH)
            and metadata.epoch == 0
            and metadata.previous_id != NO_PRODUCER_ID
        )
        if producer.producer_id != metadata.producer_id and not is_rotated:
            raise InvalidProducerIdMapping
        is_again = is_rotated or producer.epoch + 1 == metadata.epoch
        if not is_again and producer.epoch != metadata.epoch:
            raise ProducerFenced(f"epoch {producer.epoch} is not {metadata.epoch}")
        return (ON_END_AGAIN if is_again else ON_END_BUMPING)[self.state][not is_commit]

    # -- time -----------------------------------------------------------------------------------

    def tick(self, now: Now, new_id: int, expire_after_ms: int) -> list[Action]:
        """Aborts a transaction that nobody ends in time, and expires an id that nobody uses."""
        if self._pending is not None:
            return []
        times_out_at_ms = self.times_out_at_ms()
        if times_out_at_ms is not None and times_out_at_ms < now.steady_ms:
            return self._fence(new_id, now)
        if self.is_idle_since(now.steady_ms - expire_after_ms):
            return self._store(self.metadata._replace(state=State.DEAD), now)
        return []

    def _fence(
        self, new_id: int, now: Now, ticket: Any = None, outcome: BrokerError | None = None
    ) -> list[Action]:
        """Aborts the open transaction with a new epoch, so that its producer cannot go on."""
        is_bumping = self._version >= BUMPS_EPOCH_SINCE
        version = self._version if is_bumping else 0
        target = successors.prepared(self.metadata, version, new_id, now, is_commit=False)
        if not is_bumping:
            epoch = target.epoch if self._has_failed_fence else target.epoch + 1
            target = target._replace(epoch=epoch, last_epoch=NO_EPOCH)
        actions = self._store(target, now, ticket, outcome)
        self._is_fencing = True
        return actions

    # -- the log --------------------------------------------------------------------------------

    def _store(
        self,
        target: Metadata,
        now: Now,
        ticket: Any = None,
        outcome: ProducerIdAndEpoch | BrokerError | None = None,
    ) -> list[Action]:
        self._pending, self._is_storing, self._is_fencing = target, True, False
        self._ticket, self._outcome = ticket, outcome
        if target.state is State.ONGOING and self.state is not State.ONGOING:
            self._ongoing_since_ms = now.steady_ms
        return [Store(target)]

    def stored(self, now: Now) -> list[Action]:
        """What was to be written is in the log."""
        target = self._pending
        assert target is not None
        assert self._is_storing
        self.metadata, self._pending, self._is_storing = target, None, False
        self.updated_at_ms = now.steady_ms
        answers = self._answers(self._outcome)
        if target.state not in _PREPARED:
            return answers
        self._has_failed_fence = False
        return [*self._send_markers(now), *answers]

    def not_stored(self, error: BrokerError) -> list[Action]:
        """What was to be written is not in the log, as far as is known.

        A decision that has its markers stays pending: call `complete_again` later. An epoch that
        could not be fenced may be in the log, so its producer cannot go on either.
        """
        target = self._pending
        assert target is not None
        assert self._is_storing
        self._is_storing = False
        if self.state in _PREPARED:
            return []
        self._pending = None
        if self._is_fencing and self._version < BUMPS_EPOCH_SINCE:
            self.metadata = self.metadata._replace(epoch=target.epoch, last_epoch=NO_EPOCH)
            self._has_failed_fence = True
        return self._answers(error)

    def _answers(self, outcome: ProducerIdAndEpoch | BrokerError | None) -> list[Action]:
        ticket, self._ticket, self._outcome = self._ticket, None, None
        return [] if ticket is None or outcome is None else [Answer(ticket, outcome)]

    # -- markers --------------------------------------------------------------------------------

    def resume(self, now: Now) -> list[Action]:
        """Continues what was begun by the log: markers of a decision are written again."""
        return self._send_markers(now) if self.state in _PREPARED else []

    def _send_markers(self, now: Now) -> list[Action]:
        metadata = self.metadata
        self._unmarked = set(metadata.partitions)
        self._pending = successors.completed(self.metadata, now)
        if not self._unmarked:
            return self.complete_again()
        is_commit = self.state is State.PREPARE_COMMIT
        producer = ProducerIdAndEpoch(metadata.producer_id, metadata.epoch)
        return [SendMarkers(producer, is_commit, metadata.partitions)]

    def marker_written(self, partition: TopicPartition, now: Now) -> list[Action]:
        """A partition has its marker, or does not exist any more."""
        if self.state not in _PREPARED or partition not in self._unmarked:
            return []
        self._unmarked.remove(partition)
        if self._unmarked:
            return []
        self._pending = successors.completed(self.metadata, now)
        return self.complete_again()

    def complete_again(self) -> list[Action]:
        """Writes that the transaction is complete, all of whose markers are written."""
        if self._pending is None or self._is_storing or self._unmarked:
            return []
        self._is_storing = True
        return [Store(self._pending)]
