"""Requests as a broker keeps them, and whether a producer's batch is in the log already."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.cluster.log import Batch, Log
    from tidelog.broker.replication.messages import FetchRequest


class Produce(NamedTuple):
    """A batch as a producer sends it."""

    key: str
    value: int
    count: int
    acks: int
    record_time: int
    producer: int
    producer_epoch: int
    sequence: int


class Parked(NamedTuple):
    """A fetch that waits for news."""

    number: int
    request: FetchRequest
    reply: Callable[..., None]


class Waiting(NamedTuple):
    """A batch that waits for the in-sync replicas."""

    request: Produce
    batch: Batch
    deadline_ms: int
    reply: Callable[..., None]


def known_batch(log: Log, request: Produce) -> Batch | ErrorCode | None:
    """Returns a duplicate's batch, or why a batch is refused; None if it is the next one.

    A producer that the log does not know may begin with any sequence, as in Kafka.
    """
    if request.producer not in log.producers:
        return None
    epoch, last = log.producers[request.producer]
    if request.producer_epoch < epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    first = 0 if request.producer_epoch > epoch else last + 1
    if request.sequence == first:
        return None
    for batch in log.batches:
        if (batch.producer, batch.producer_epoch, batch.sequence) == request[5:]:
            return batch
    return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
