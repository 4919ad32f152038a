"""The idempotent producers of a partition, so that a retry is not stored twice (KIP-98).

The state of a producer id is its epoch and its last five batches. A batch that repeats one of the
five is a duplicate and gets the result of the first append. A batch that continues the sequence
(which wraps at the end of int32) is new. Any other batch is refused:

    the epoch is older than the known one          INVALID_PRODUCER_EPOCH (47)
    a newer epoch does not begin at sequence 0     OUT_OF_ORDER_SEQUENCE_NUMBER (45)
    the sequence has a gap or goes back            OUT_OF_ORDER_SEQUENCE_NUMBER (45)

An unknown or expired producer may begin with any sequence. A producer expires when its last batch
was *appended* producer.id.expiration.ms ago, by what its append time counts as
(`storage/time/corrections.py`) and by the time by which records are deleted, which a clock that has
leapt does not move. By record time, as in Kafka, the producers of a backfill would expire at once.
All of this can be read from batch headers; snapshots store it, so that only the tail of the log is
scanned after a start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import BrokerError, InvalidProducerEpoch, OutOfOrderSequenceNumber
from protocol.records.layout import NO_TIMESTAMP
from storage.time.lookup import reaches
from storage.time.retention import expired
from storage.time.timestamp import MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REMEMBERED_BATCHES = 5
NO_SEQUENCE = -1
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
        self.coordinator_epoch = -1  # kept in snapshots, because Kafka needs it
        self.transaction_first_offset = -1

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
    """The producer fields of a batch's header."""

    producer_id: int
    epoch: int
    first_sequence: int
    last_sequence: int


class Producers:
    """All producers of a partition. Not thread-safe."""

    def __init__(self, expiration_ms: int) -> None:
        """Begins without producers; a producer expires after `expiration_ms` without appends."""
        self.expiration_ms = expiration_ms
        self._known: dict[int, Producer] = {}
        self._next_expiry_check_ms = MIN_TIMESTAMP

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._known.values())

    def get(self, producer_id: int) -> Producer | None:
        """Returns the state of a producer; None if it is unknown."""
        return self._known.get(producer_id)

    def put(self, producer: Producer) -> None:
        """Adds a producer that was read from a snapshot."""
        self._known[producer.producer_id] = producer

    def check(self, batch: Sequenced, now_ms: int) -> ProducerBatch | None:
        """Returns the batch that this one duplicates, or None if it may be appended.

        Raises InvalidProducerEpoch and OutOfOrderSequenceNumber.
        """
        known = self._known.get(batch.producer_id)
        if known is None or self._expired(known, now_ms):
            return None
        if batch.epoch > known.epoch and batch.first_sequence == 0:
            return None
        if batch.epoch == known.epoch:
            if batch.first_sequence == known.next_sequence:
                return None
            for earlier in known.batches:
                if earlier[:2] == batch[2:]:
                    return earlier
        raise _refusal(batch, known)

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
        producer_id, epoch, first_sequence, last_sequence = batch
        known = self._known.get(producer_id)
        if known is None or self._expired(known, now_ms):
            self._expire_now_and_then(now_ms)
            known = self._known[producer_id] = Producer(producer_id, epoch)
        elif epoch != known.epoch:
            known.epoch = epoch
            known.batches = ()
        added = ProducerBatch(first_sequence, last_sequence, *offsets)
        known.batches = (*known.batches[1 - REMEMBERED_BATCHES :], added)
        known.last_append_time_ms = append_time_ms

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
        return known.transaction_first_offset < 0 and expired(
            known.last_append_time_ms, now_ms, self.expiration_ms
        )


def _refusal(batch: Sequenced, known: Producer) -> BrokerError:
    """Returns the error of a batch that neither continues the sequence nor is a duplicate."""
    if batch.epoch < known.epoch:
        return InvalidProducerEpoch(
            f"producer {batch.producer_id} sent epoch {batch.epoch}; "
            f"epoch {known.epoch} has taken over"
        )
    if batch.epoch > known.epoch:
        return OutOfOrderSequenceNumber(
            f"producer {batch.producer_id} begins epoch {batch.epoch} at sequence "
            f"{batch.first_sequence} instead of 0"
        )
    return OutOfOrderSequenceNumber(
        f"producer {batch.producer_id} sent sequence {batch.first_sequence} in epoch {known.epoch}, "
        f"where {known.next_sequence} comes next"
    )
