"""Which metadata follow at the steps of a transactional id: its states, producer ids and epochs.

Pure functions of the metadata that are in the log. `transaction.py` decides when a step is made, and what it
answers. A producer id has epochs up to LAST_EPOCH; then the next step needs a new id, which the caller
has allocated in the cluster's metadata.

Source: Kafka's TransactionMetadata as of 3.9 and 4.1; KIP-360, KIP-890.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.transactions.messages import (
    BUMPS_EPOCH_SINCE,
    COMPLETE,
    LAST_EPOCH,
)
from tidelog.protocol.errors import ProducerFenced
from tidelog.protocol.records.layout import NO_PRODUCER_ID, NO_TIMESTAMP
from tidelog.protocol.transaction_log import NO_EPOCH, Metadata, ProducerIdAndEpoch, State

if TYPE_CHECKING:
    from tidelog.broker.coordinators.transactions.messages import Now


def is_exhausted(metadata: Metadata) -> bool:
    """Returns whether the epochs have run out, so that the next change may need a new producer id."""
    return metadata.epoch >= LAST_EPOCH


def initialized(
    metadata: Metadata, known: ProducerIdAndEpoch | None, new_id: int, timeout_ms: int, now: Now
) -> Metadata:
    """Returns what InitProducerId makes of an id that has nothing open. Raises ProducerFenced.

    `known` is what the request names, if anything; `new_id` is used if the epochs have run out.
    """
    producer, last_epoch = _next_producer(metadata, known, new_id)
    is_same = producer.producer_id == metadata.producer_id
    return metadata._replace(
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        previous_id=NO_PRODUCER_ID if is_same else metadata.producer_id,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=State.EMPTY,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP,
        updated_ms=now.wall_ms,
    )


def _next_producer(
    metadata: Metadata, known: ProducerIdAndEpoch | None, new_id: int
) -> tuple[ProducerIdAndEpoch, int]:
    """Returns the next id and epoch of a producer, and the epoch that a retry may name."""
    if is_exhausted(metadata) and (known is None or known.epoch == metadata.epoch):
        assert new_id != NO_PRODUCER_ID
        return ProducerIdAndEpoch(new_id, 0), NO_EPOCH if known is None else metadata.epoch
    if known is None or metadata.epoch == NO_EPOCH:
        return ProducerIdAndEpoch(metadata.producer_id, metadata.epoch + 1), NO_EPOCH
    if known.epoch == metadata.epoch:
        return ProducerIdAndEpoch(metadata.producer_id, metadata.epoch + 1), metadata.epoch
    if known.epoch == metadata.last_epoch:
        return ProducerIdAndEpoch(metadata.producer_id, metadata.epoch), metadata.last_epoch
    raise ProducerFenced(f"epoch {known.epoch} is not {metadata.epoch}")


def prepared(
    metadata: Metadata, transaction_version: int, new_id: int, now: Now, *, is_commit: bool
) -> Metadata:
    """Returns the decision to commit or to abort.

    Since BUMPS_EPOCH_SINCE it has the next epoch, or `new_id` for later if the epochs have run out.
    """
    if metadata.state is not State.ONGOING:  # an abort of nothing, which bumps the epoch
        metadata = metadata._replace(partitions=frozenset(), start_ms=now.wall_ms)
    target = metadata._replace(
        state=State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
        updated_ms=now.wall_ms,
        transaction_version=transaction_version,
        previous_id=NO_PRODUCER_ID,
    )
    if transaction_version < BUMPS_EPOCH_SINCE:
        return target
    assert not is_exhausted(metadata) or new_id != NO_PRODUCER_ID
    return target._replace(
        epoch=metadata.epoch + 1,
        last_epoch=metadata.epoch,
        next_id=new_id if is_exhausted(metadata) else NO_PRODUCER_ID,
    )


def completed(metadata: Metadata, now: Now) -> Metadata:
    """Returns what follows a decision when its markers are written."""
    target = metadata._replace(
        state=COMPLETE[metadata.state], partitions=frozenset(), updated_ms=now.wall_ms
    )
    if metadata.next_id == NO_PRODUCER_ID:
        return target
    producer = continued(metadata)
    return target._replace(
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        previous_id=metadata.producer_id,
        next_id=NO_PRODUCER_ID,
    )


def continued(decision: Metadata) -> ProducerIdAndEpoch:
    """Returns what a producer continues with after the end of a transaction."""
    if decision.next_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(decision.next_id, 0)
    return ProducerIdAndEpoch(decision.producer_id, decision.epoch)
