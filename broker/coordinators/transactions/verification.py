"""Whether a transactional batch may be appended: its transaction must have the partition (KIP-890).

The first batch of a producer that has no transaction open in a partition asks the coordinator. With
transaction.version 2 (Produce v12) the partition is added to the transaction by that; before, the
producer has added it. The coordinator's record is written first, and the data second. The guard shows
that no batch of the producer came between. With transaction.partition.verification.enable=false the
coordinator is asked only where it adds the partition.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import (
    BrokerError,
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
)
from tidelog.protocol.group_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)
from tidelog.protocol.transaction_log import ProducerIdAndEpoch
from tidelog.storage.log.producers.verification import UNVERIFIED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.broker.coordinators.transactions.services import Services
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.producers.verification import Guard

ADDS_SINCE = 12
_ABORTABLE_SINCE = 11
MAGIC_AT = 16
ATTRIBUTES_AT = 22  # the low byte
TRANSACTIONAL = 0x10
_PRODUCER = Struct(">qhi")
_PRODUCER_AT = 43
_RETRY_S, _RETRIES = 0.02, 5  # as Kafka's add.partitions.to.txn.retry.backoff.ms and its maximum
_LATER = (CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)


class Verified(NamedTuple):
    """A partition that may store a transactional batch, with what `append` needs for it."""

    partition: Partition
    guard: Guard | None


def is_transactional(records: Buffer) -> bool:
    """Returns whether a record set is a batch of a transaction, by its header."""
    return (
        len(records) > ATTRIBUTES_AT
        and records[MAGIC_AT] == 2
        and records[ATTRIBUTES_AT] & TRANSACTIONAL != 0
    )


def producer_in(records: Buffer) -> int | None:
    """Returns the producer id of a transactional batch; None if it is no such batch."""
    if is_transactional(records) and len(records) >= _PRODUCER_AT + _PRODUCER.size:
        producer_id: int = _PRODUCER.unpack_from(records, _PRODUCER_AT)[0]
        return producer_id
    return None


def check_one_producer(producer_ids: Iterable[int | None]) -> None:
    """Raises InvalidProducerIdMapping if transactional batches of a request have several producers."""
    if len({*producer_ids} - {None}) > 1:
        raise InvalidProducerIdMapping("the request has batches of several producer ids")


def verify(
    services: Services, partition: Partition, transactional_id: str, records: Buffer, version: int
) -> Verified | asyncio.Future[Verified]:
    """Returns the partition with a guard, now or later; `version` is that of Produce.

    Raises, or the future raises, the error for the producer: InvalidProducerEpoch,
    InvalidProducerIdMapping, InvalidTxnState, TransactionAbortable, ConcurrentTransactions,
    NotEnoughReplicas if the coordinator does not answer, and KafkaStorageError.
    """
    if len(records) < _PRODUCER_AT + _PRODUCER.size:
        return Verified(partition, None)  # the append refuses it
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, _PRODUCER_AT)
    producer, adds = ProducerIdAndEpoch(producer_id, epoch), version >= ADDS_SINCE
    if not (adds or _is_enabled(services)):
        return Verified(partition, UNVERIFIED)
    if (
        not partition.is_read
        or adds
        or not services.transactions.is_coordinated_here(transactional_id)
    ):
        return asyncio.ensure_future(
            _verify_later(services, partition, transactional_id, producer, sequence, version)
        )
    guard = partition.verification(producer_id, epoch, sequence)
    if guard is not None:
        try:
            name = (partition.topic, partition.index)
            services.transactions.verify(transactional_id, producer, name)
        except BrokerError as error:
            raise _as_produce_error(error, version) from None
    return Verified(partition, guard)


async def _verify_later(
    services: Services,
    partition: Partition,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    sequence: int,
    version: int,
) -> Verified:
    """Verifies where the log has to be read, or the coordinator has to write."""
    try:
        guard = await ask(
            services, partition, transactional_id, producer, sequence, adds=version >= ADDS_SINCE
        )
    except BrokerError as error:
        raise _as_produce_error(error, version) from None
    return Verified(partition, guard)


async def ask(
    services: Services,
    partition: Partition,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    sequence: int,
    *,
    adds: bool,
) -> Guard | None:
    """Returns the guard for a batch that begins a transaction; None if it is open here already.

    The coordinator is asked whether the transaction has the partition, or adds it to that. Raises the
    coordinator's error, and KafkaStorageError.
    """
    if not (adds or _is_enabled(services)):
        return UNVERIFIED

    def guarded() -> Guard | None:
        return partition.verification(*producer, sequence, raises_epoch=adds)

    if partition.is_read:
        guard = guarded()
    else:
        guard = await services.pools.first_appends.run(guarded)
    if guard is not None:
        name = (partition.topic, partition.index)
        if adds:
            await _add(services, transactional_id, producer, name)
        else:
            await services.transactions.check_partition(
                transactional_id, producer, name, adds=False
            )
    return guard


def _is_enabled(services: Services) -> bool:
    return services.config.transactions.transaction_partition_verification_enable


async def _add(
    services: Services, transactional_id: str, producer: ProducerIdAndEpoch, name: tuple[str, int]
) -> None:
    """Adds a partition to the transaction; waits a little for the one before to end."""
    for _ in range(_RETRIES):
        try:
            await services.transactions.check_partition(transactional_id, producer, name, adds=True)
        except ConcurrentTransactions:
            await services.transactions.settled(transactional_id, _RETRY_S)
        else:
            return
    await services.transactions.check_partition(transactional_id, producer, name, adds=True)


def _as_produce_error(error: BrokerError, version: int) -> BrokerError:
    """Returns the error that a producer of this version can handle, as Kafka does."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(error.message)
    if isinstance(error, TransactionAbortable) and version < _ABORTABLE_SINCE:
        return InvalidTxnState(error.message)
    if isinstance(error, _LATER):
        return NotEnoughReplicas(error.message)
    if isinstance(error, ConcurrentTransactions) and version < ADDS_SINCE:
        return NotEnoughReplicas(error.message)
    return error
