"""The producers of a partition: no retry is stored twice, and transactions have ends (KIP-98).

The state of a producer id is its epoch and its last five batches. A batch that repeats one of the
five is a duplicate and gets the result of the first append. A batch that continues the sequence
(which wraps at the end of int32) is new. Any other batch is refused:

    the epoch is older than the known one          INVALID_PRODUCER_EPOCH (47)
    a newer epoch does not begin at sequence 0     OUT_OF_ORDER_SEQUENCE_NUMBER (45)
    the sequence has a gap or goes back            OUT_OF_ORDER_SEQUENCE_NUMBER (45)
    no guard, and no transaction is open           INVALID_TXN_STATE (48), see `verification.py`
    plain data while a transaction is open         INVALID_TXN_STATE (48)

The first transactional batch opens a transaction, and a marker ends it. A marker of an older epoch
is refused (47), and so is one of a coordinator that has been replaced (52). A marker of a newer epoch
begins that epoch. Offsets of consumer groups come from the coordinator: they have no sequence, and
only their epoch is checked.

An unknown or expired producer may begin with any sequence. A producer expires when its last batch
was *appended* producer.id.expiration.ms ago, by what its append time counts as
(`storage/time/corrections.py`) and by the time by which records are deleted, which a clock that has
leapt does not move. By record time, as in Kafka, the producers of a backfill would expire at once.
All of this can be read from batch headers; snapshots store it, so that only the tail of the log is
scanned after a start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import (
    BrokerError,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.protocol.records.markers import NO_COORDINATOR_EPOCH
from tidelog.storage.log.producers.verification import UNVERIFIED, Guards
from tidelog.storage.time.lookup import reaches
from tidelog.storage.time.retention import expired
from tidelog.storage.time.timestamp import MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidelog.protocol.records.markers import Marker
    from tidelog.storage.log.producers.verification import Guard

REMEMBERED_BATCHES = 5
NO_SEQUENCE = -1
NO_TRANSACTION = -1
MAX_SEQUENCE = 2**31 - 1
_EXPIRY_CHECK_MS = 60_000


class ProducerBatch(NamedTuple):
    """The stored facts of one appended batch."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int


class Producer:
    """One producer id in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_append_time_ms",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: tuple[ProducerBatch, ...] = ()  # oldest first
        self.last_append_time_ms = NO_TIMESTAMP
        self.coordinator_epoch = NO_COORDINATOR_EPOCH  # of the last marker
        self.transaction_first_offset = NO_TRANSACTION

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self.transaction_first_offset != NO_TRANSACTION

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or NO_SEQUENCE if the epoch has none yet."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def next_sequence(self) -> int:
        """The next sequence: 0 after the end of int32, and in an epoch without records."""
        last = self.last_sequence
        return 0 if last == MAX_SEQUENCE else last + 1


class Sequenced(NamedTuple):
    """The producer fields of a batch's header, and the marker that it holds."""

    producer_id: int
    epoch: int
    first_sequence: int  # NO_SEQUENCE: a marker, or offsets of a group
    last_sequence: int
    is_transactional: bool = False
    marker: Marker | None = None  # None: data


class Producers:
    """All producers of a partition. Not thread-safe, but any thread may iterate over those of now."""

    def __init__(self, expiration_ms: int) -> None:
        """Begins without producers; a producer expires after `expiration_ms` without appends."""
        self.expiration_ms = expiration_ms
        self.guards = Guards()
        self._known: dict[int, Producer] = {}
        self._next_expiry_check_ms = MIN_TIMESTAMP

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Producer]:
        return iter(list(self._known.values()))

    def get(self, producer_id: int) -> Producer | None:
        """Returns the state of a producer; None if it is unknown."""
        return self._known.get(producer_id)

    def put(self, producer: Producer) -> None:
        """Adds a producer that was read from a snapshot."""
        self._known[producer.producer_id] = producer

    def check(
        self, batch: Sequenced, now_ms: int, guard: Guard | None = None
    ) -> ProducerBatch | None:
        """Returns the batch that this one duplicates, or None if it may be appended.

        Raises InvalidProducerEpoch, OutOfOrderSequenceNumber, InvalidTxnState and
        TransactionCoordinatorFenced.
        """
        known = self._known.get(batch.producer_id)
        if known is not None and self._expired(known, now_ms):
            known = None
        if batch.marker is not None:
            _check_marker(batch, batch.marker, known)
            return None
        if known is None:
            if batch.is_transactional:
                self._check_guard(batch, known, guard)
            return None
        first_sequence, expected = batch.first_sequence, 0
        if batch.epoch == known.epoch:
            expected = known.next_sequence
            if expected != first_sequence != NO_SEQUENCE:
                for earlier in known.batches:
                    if earlier[:2] == batch[2:4]:
                        return earlier
        elif batch.epoch < known.epoch:
            raise _refusal(batch, known)
        if batch.is_transactional and not _is_open(known, batch.epoch):
            self._check_guard(batch, known, guard)
        if expected != first_sequence != NO_SEQUENCE:
            raise _refusal(batch, known)
        if known.transaction_first_offset != NO_TRANSACTION and not batch.is_transactional:
            raise InvalidTxnState(
                f"producer {batch.producer_id} sent a batch outside of the transaction that is open"
            )
        return None

    def _check_guard(self, batch: Sequenced, known: Producer | None, guard: Guard | None) -> None:
        """Checks that the coordinator knows of the transaction that a batch begins.

        Raises InvalidTxnState and OutOfOrderSequenceNumber.
        """
        if guard is UNVERIFIED:
            return
        producer_id, first_sequence = batch.producer_id, batch.first_sequence
        if guard is None or not self.guards.is_current(producer_id, guard):
            raise InvalidTxnState(
                f"a batch of producer {producer_id} is not part of a transaction that is open"
            )
        if first_sequence == NO_SEQUENCE:
            return
        if known is None and guard.raises_epoch and first_sequence:
            raise OutOfOrderSequenceNumber(
                f"producer {producer_id} is not known here and begins its transaction at sequence "
                f"{first_sequence} instead of 0"
            )
        if first_sequence > guard.lowest_sequence:
            raise OutOfOrderSequenceNumber(
                f"producer {producer_id} sent sequence {first_sequence} before "
                f"{guard.lowest_sequence}, which begins its transaction"
            )

    def appended(
        self,
        batch: Sequenced,
        offsets: tuple[int, int],
        append_time_ms: int,
        now_ms: int = MIN_TIMESTAMP,
    ) -> None:
        """Records a batch that was appended at `offsets`, its first and last one.

        Producers that have expired at `now_ms` are forgotten; by default none is.
        """
        producer_id, epoch, first_sequence, last_sequence, is_transactional, marker = batch
        known = self._known.get(producer_id)
        if known is None or self._expired(known, now_ms):
            self._expire_now_and_then(now_ms)
            known = self._known[producer_id] = Producer(producer_id, epoch)
        elif epoch != known.epoch:
            known.epoch = epoch
            known.batches = ()
        known.last_append_time_ms = append_time_ms
        if marker is not None:
            known.coordinator_epoch = marker.coordinator_epoch
            known.transaction_first_offset = NO_TRANSACTION
            self.guards.marker_came(producer_id, epoch)
            return
        added = ProducerBatch(first_sequence, last_sequence, *offsets)
        known.batches = (*known.batches[1 - REMEMBERED_BATCHES :], added)
        if is_transactional:
            self.guards.data_came(producer_id)
            if known.transaction_first_offset == NO_TRANSACTION:
                known.transaction_first_offset = offsets[0]

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raises InvalidProducerEpoch for an epoch that is over in this log."""
        known = self._known.get(producer_id)
        if known is not None and epoch < known.epoch:
            raise InvalidProducerEpoch(_taken_over(producer_id, epoch, known))

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Returns whether a transaction of a producer's epoch is open."""
        return _is_open(self._known.get(producer_id), epoch)

    def coordinator_epoch(self, producer_id: int) -> int:
        """Returns the coordinator epoch of a producer's last marker; NO_COORDINATOR_EPOCH if unknown."""
        known = self._known.get(producer_id)
        return NO_COORDINATOR_EPOCH if known is None else known.coordinator_epoch

    def forget_coordinator(self, producer_id: int, above: int) -> bool:
        """Forgets the coordinator epoch of a producer's last marker if it is larger than `above`."""
        known = self._known.get(producer_id)
        if known is None or known.coordinator_epoch <= above:
            return False
        known.coordinator_epoch = NO_COORDINATOR_EPOCH
        return True

    def open_transactions(self) -> list[Producer]:
        """Returns the producers with an open transaction, the oldest transaction first."""
        opened = [known for known in self if known.has_transaction]
        return sorted(opened, key=lambda known: known.transaction_first_offset)

    def expire(self, now_ms: int) -> None:
        """Removes producers that have not appended for too long."""
        gone = [known.producer_id for known in self if self._expired(known, now_ms)]
        for producer_id in gone:
            del self._known[producer_id]

    def correct(self, judge: Callable[[int, int], int]) -> None:
        """Replaces the last append times; `judge` gets the last offset, and the time.

        The offset is -1 where no batch is known.
        """
        for known in self:
            offset = known.batches[-1].last_offset if known.batches else -1
            known.last_append_time_ms = judge(offset, known.last_append_time_ms)

    def _expire_now_and_then(self, now_ms: int) -> None:
        if reaches(now_ms, self._next_expiry_check_ms):
            self._next_expiry_check_ms = now_ms + _EXPIRY_CHECK_MS
            self.expire(now_ms)

    def _expired(self, known: Producer, now_ms: int) -> bool:
        return known.transaction_first_offset == NO_TRANSACTION and expired(
            known.last_append_time_ms, now_ms, self.expiration_ms
        )


def _is_open(known: Producer | None, epoch: int) -> bool:
    return known is not None and known.has_transaction and known.epoch == epoch


def _check_marker(batch: Sequenced, marker: Marker, known: Producer | None) -> None:
    """Raises InvalidProducerEpoch or TransactionCoordinatorFenced for a marker that is too old."""
    if known is None:
        return
    if batch.epoch < known.epoch:
        raise _refusal(batch, known)
    if marker.coordinator_epoch < known.coordinator_epoch:
        raise TransactionCoordinatorFenced(
            f"a coordinator of epoch {marker.coordinator_epoch} sent a marker for producer "
            f"{batch.producer_id}; epoch {known.coordinator_epoch} has taken over"
        )


def _refusal(batch: Sequenced, known: Producer) -> BrokerError:
    """Returns the error of a batch that neither continues the sequence nor is a duplicate."""
    if batch.epoch < known.epoch:
        return InvalidProducerEpoch(_taken_over(batch.producer_id, batch.epoch, known))
    if batch.epoch > known.epoch:
        return OutOfOrderSequenceNumber(
            f"producer {batch.producer_id} begins epoch {batch.epoch} at sequence "
            f"{batch.first_sequence} instead of 0"
        )
    return OutOfOrderSequenceNumber(
        f"producer {batch.producer_id} sent sequence {batch.first_sequence} in epoch {known.epoch}, "
        f"where {known.next_sequence} comes next"
    )


def _taken_over(producer_id: int, epoch: int, known: Producer) -> str:
    return f"producer {producer_id} sent epoch {epoch}; epoch {known.epoch} has taken over"
