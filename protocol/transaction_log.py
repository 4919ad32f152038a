"""The records of __transaction_state: keys and values as Apache Kafka writes them.

A key is its version, 0, and a transactional id. A value is written in version 1, which is flexible;
versions 0 and 1 are read. The list of partitions is null exactly if the state is EMPTY. A value of
None is a tombstone.

Source: Kafka's TransactionLogKey and TransactionLogValue messages, and TransactionLog.scala.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.protocol.message import Codec
from tidelog.protocol.records.layout import NO_PRODUCER_ID, NO_TIMESTAMP
from tidelog.protocol.schema import Int8, Int16, Int32, Int64, Message, String, since
from tidelog.protocol.wire import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.protocol.topic_partition import TopicPartition

NO_EPOCH: Final = -1
_KEY: Final = 0
_WRITTEN: Final = 1


class State(IntEnum):
    """The state of a transaction; the value is the number in the log, `word` what clients see."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def word(self) -> str:
        """The name in responses, for example PrepareCommit."""
        return self.name.title().replace("_", "")


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch: what requests name, and what responses give."""

    producer_id: int
    epoch: int


class Metadata(NamedTuple):
    """What the coordinator knows of one transactional id. Times are ms since the epoch.

    `transaction_version` is that of the client's last request. `next_id` is the producer id after
    the end of a transaction in which the epochs ran out, and `previous_id` the one before. The last
    epoch, which a retry may name, is not in the log.
    """

    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    updated_ms: int = 0
    start_ms: int = NO_TIMESTAMP
    transaction_version: int = 0
    previous_id: int = NO_PRODUCER_ID
    next_id: int = NO_PRODUCER_ID
    last_epoch: int = NO_EPOCH


class TransactionLogKey(Message):
    """A transactional id."""

    transactional_id: String = since(0)


class PartitionsSchema(Message):
    """Partitions of one topic."""

    topic: String = since(0)
    partition_ids: list[Int32] = since(0)


class TransactionLogValue(Message):
    """The state of a transactional id."""

    producer_id: Int64 = since(0)
    previous_producer_id: Int64 = since(1, default=NO_PRODUCER_ID, tag=0, ignorable=True)
    next_producer_id: Int64 = since(1, default=NO_PRODUCER_ID, tag=1, ignorable=True)
    producer_epoch: Int16 = since(0)
    transaction_timeout_ms: Int32 = since(0)
    transaction_status: Int8 = since(0)
    transaction_partitions: list[PartitionsSchema] | None = since(0)
    transaction_last_update_timestamp_ms: Int64 = since(0)
    transaction_start_timestamp_ms: Int64 = since(0)
    client_transaction_version: Int16 = since(1, default=0, tag=2, ignorable=True)


_KEY_CODEC: Final = Codec(TransactionLogKey, _KEY, flexible=False)
_VALUE_CODECS: Final = (
    Codec(TransactionLogValue, 0, flexible=False),
    Codec(TransactionLogValue, 1, flexible=True),
)


def key(transactional_id: str) -> bytes:
    """Returns the key of a transactional id. Raises EncodeError for one that is too long."""
    encoded = _KEY_CODEC.encode(TransactionLogKey(transactional_id=transactional_id))
    return _KEY.to_bytes(2, "big") + encoded


def value(metadata: Metadata) -> bytes:
    """Returns the value that holds the metadata. Raises EncodeError."""
    message = TransactionLogValue(
        producer_id=metadata.producer_id,
        previous_producer_id=metadata.previous_id,
        next_producer_id=metadata.next_id,
        producer_epoch=metadata.epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=int(metadata.state),
        transaction_partitions=(
            None if metadata.state is State.EMPTY else _by_topic(metadata.partitions)
        ),
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
        client_transaction_version=metadata.transaction_version,
    )
    return _WRITTEN.to_bytes(2, "big") + _VALUE_CODECS[_WRITTEN].encode(message)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    found: dict[str, list[int]] = {}
    for topic, index in partitions:  # to sort the numbers of a topic is cheaper than to sort pairs
        found.setdefault(topic, []).append(index)
    return [
        PartitionsSchema(topic=topic, partition_ids=sorted(found[topic])) for topic in sorted(found)
    ]


def read_key(data: bytes) -> str | None:
    """Returns the transactional id of a record; None for another type of record.

    Raises DecodeError.
    """
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise DecodeError(f"a key of {len(data)} bytes, version {version}")
    if version != _KEY:
        return None
    found: TransactionLogKey = _KEY_CODEC.decode(data, 2)[0]
    return found.transactional_id


def read_value(data: bytes) -> Metadata:
    """Returns the metadata in a value. Raises DecodeError."""
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or not 0 <= version <= _WRITTEN:
        raise DecodeError(f"a transaction of {len(data)} bytes, version {version}")
    said: TransactionLogValue = _VALUE_CODECS[version].decode(data, 2)[0]
    try:
        state = State(said.transaction_status)
    except ValueError:
        raise DecodeError(f"{said.transaction_status} is no state of a transaction") from None
    return Metadata(
        producer_id=said.producer_id,
        epoch=said.producer_epoch,
        timeout_ms=said.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (each.topic, index)
            for each in said.transaction_partitions or ()
            for index in each.partition_ids
        ),
        updated_ms=said.transaction_last_update_timestamp_ms,
        start_ms=said.transaction_start_timestamp_ms,
        transaction_version=said.client_transaction_version,
        previous_id=said.previous_producer_id,
        next_id=said.next_producer_id,
    )
