"""The records of Kafka's `__cluster_metadata`, as far as they say which topics a KRaft cluster has.

A record's value begins with the version of its frame (1), the number of its type and its version,
each as an unsigned varint; then comes a flexible message. Types that are not declared here are
skipped: brokers, features, quotas and the like. They are only read, never written.

Source: Kafka's metadata/src/main/resources/common/metadata/*.json, and its MetadataRecordSerde.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidelog.protocol.message import Codec
from tidelog.protocol.schema import Int8, Int32, Int64, Message, String, Uuid, since
from tidelog.protocol.wire import DecodeError, read_uvarint

if TYPE_CHECKING:
    from collections.abc import Mapping

_FRAME: Final = 1
NO_CHANGE: Final = -2
"""The leader of a PartitionChange that leaves the leader as it is."""
OF_TOPIC: Final = 2
"""The resource type of a ConfigChange that is about a topic."""
OF_BROKER: Final = 4
"""The resource type of a ConfigChange that is about a broker, or by the name "" about all of them."""


class TopicCreated(Message):
    """TopicRecord: a new topic."""

    name: String = since(0)
    topic_id: Uuid = since(0)


class PartitionCreated(Message):
    """PartitionRecord: the state of a partition, also in a snapshot."""

    partition_id: Int32 = since(0, default=-1)
    topic_id: Uuid = since(0)
    replicas: list[Int32] = since(0)
    isr: list[Int32] = since(0)
    removing_replicas: list[Int32] = since(0)
    adding_replicas: list[Int32] = since(0)
    leader: Int32 = since(0, default=-1)
    leader_recovery_state: Int8 = since(0, tag=0)
    leader_epoch: Int32 = since(0, default=-1)
    partition_epoch: Int32 = since(0, default=-1)
    directories: list[Uuid] = since(1)
    eligible_leader_replicas: list[Int32] | None = since(2, default=None, tag=1)
    last_known_elr: list[Int32] | None = since(2, default=None, tag=2)


class ConfigChange(Message):
    """ConfigRecord: a setting of a resource; the value None removes it."""

    resource_type: Int8 = since(0)
    resource_name: String = since(0)
    name: String = since(0)
    value: String | None = since(0)


class PartitionChange(Message):
    """PartitionChangeRecord: what has changed of a partition; a field that is None has not."""

    partition_id: Int32 = since(0, default=-1)
    topic_id: Uuid = since(0)
    isr: list[Int32] | None = since(0, default=None, tag=0)
    leader: Int32 = since(0, default=NO_CHANGE, tag=1)
    replicas: list[Int32] | None = since(0, default=None, tag=2)
    removing_replicas: list[Int32] | None = since(0, default=None, tag=3)
    adding_replicas: list[Int32] | None = since(0, default=None, tag=4)
    leader_recovery_state: Int8 = since(0, default=-1, tag=5)
    eligible_leader_replicas: list[Int32] | None = since(2, default=None, tag=6)
    last_known_elr: list[Int32] | None = since(2, default=None, tag=7)
    directories: list[Uuid] | None = since(1, default=None, tag=8)


class TopicRemoved(Message):
    """RemoveTopicRecord: a topic that was deleted, with its partitions and settings."""

    topic_id: Uuid = since(0)


class ProducerIds(Message):
    """ProducerIdsRecord: the first producer id that no broker has been given."""

    broker_id: Int32 = since(0)
    broker_epoch: Int64 = since(0, default=-1)
    next_producer_id: Int64 = since(0)


class TransactionBegun(Message):
    """BeginTransactionRecord: what follows counts when the transaction has ended (KIP-868)."""

    name: String | None = since(0, default=None, tag=0)


class TransactionEnded(Message):
    """EndTransactionRecord: what has come since the begin counts."""


class TransactionAborted(Message):
    """AbortTransactionRecord: what has come since the begin does not count."""

    reason: String | None = since(0, default=None, tag=0)


MetadataRecord: TypeAlias = (
    TopicCreated
    | PartitionCreated
    | ConfigChange
    | PartitionChange
    | TopicRemoved
    | ProducerIds
    | TransactionBegun
    | TransactionEnded
    | TransactionAborted
)

_TYPES: Final[Mapping[int, tuple[type[Any], int]]] = MappingProxyType(
    {  # with the newest version of each that is known
        2: (TopicCreated, 0),
        3: (PartitionCreated, 2),
        4: (ConfigChange, 0),
        5: (PartitionChange, 2),
        9: (TopicRemoved, 0),
        15: (ProducerIds, 0),
        23: (TransactionBegun, 0),
        24: (TransactionEnded, 0),
        25: (TransactionAborted, 0),
    }
)


def read_record(value: bytes) -> MetadataRecord | None:
    """Returns the record in a value; None for a type that is not needed.

    Raises DecodeError, also for a newer version of a type that is needed.
    """
    frame, at = read_uvarint(value, 0)
    if frame != _FRAME:
        raise DecodeError(f"a frame of version {frame}: only {_FRAME} is known")
    number, at = read_uvarint(value, at)
    version, at = read_uvarint(value, at)
    if number not in _TYPES:
        return None
    cls, newest = _TYPES[number]
    if version > newest:
        raise DecodeError(f"{cls.__name__} of version {version}: up to {newest} is known")
    found: MetadataRecord = Codec(cls, version, flexible=True).decode(value, at)[0]
    return found
