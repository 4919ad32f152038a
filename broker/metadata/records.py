"""The keys of the metadata and their values. docs/formats.md lists them.

Values are JSON objects in UTF-8. `read` turns a key and its value into one of the records below, or
raises ValueError; `put_*` return the operations that write them. The records that brokers write about
themselves are in `brokers/records.py`. An unknown key was written by a newer tidelog, and is ignored: so
brokers of both can be members of one cluster.
"""

from __future__ import annotations

import json
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tidelog.broker.metadata.brokers.keys import CONTROLLER, MEMBER_KEYS, MEMBER_PREFIXES
from tidelog.broker.metadata.names import collision_key, read_id, written_id
from tidelog.broker.metadata.values import numbers, put, text
from tidelog.broker.quotas import entity as entities
from tidelog.config import BROKER_ALIASES, TOPIC_ALIASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from tidelog.broker.metadata.brokers.records import BrokerRecord
    from tidelog.broker.metadata.store import Put
    from tidelog.broker.quotas.entity import Entity

CLUSTER = "cluster"
BROKER_CONFIGS = "config/broker"
OWN_CONFIGS_PREFIX = "config/broker/"
PRODUCER_IDS = "producer_ids"
TOPIC_PREFIX = "topic/"
PARTITION_PREFIX = "partition/"
DELETION_PREFIX = "deletion/"
CREATION_PREFIX = "creation/"
QUOTA_PREFIX = "quota/"
_KEYS = frozenset({CLUSTER, BROKER_CONFIGS, PRODUCER_IDS, CONTROLLER})
_PREFIXES = (
    OWN_CONFIGS_PREFIX,
    TOPIC_PREFIX,
    PARTITION_PREFIX,
    DELETION_PREFIX,
    CREATION_PREFIX,
    QUOTA_PREFIX,
    *MEMBER_PREFIXES,
)

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
NO_LEADER = -1
UNKNOWN_EPOCH = -1

# Of the keys and values of partitions: thousands have few topics, and few states.
_topic_id = lru_cache(1024)(read_id)


class ClusterRecord(NamedTuple):
    """The cluster id."""

    cluster_id: str


class TopicRecord(NamedTuple):
    """A topic: its id, its number of partitions, and its own settings as given."""

    name: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str]


class PartitionRecord(NamedTuple):
    """The state of a partition. `replicas` are broker ids, the preferred leader first.

    `isr` are the in-sync replicas, `elr` the eligible leader replicas: they left the ISR while it
    was below `min.insync.replicas`, and have every committed record (KIP-966). `last_leader` is the
    last leader of a partition without one, or the last member of ISR and ELR, if it left after that
    leader. During a reassignment (KIP-455) `adding` and `removing` are the `replicas` that are added and
    removed. `is_recovering` is true if the leader was in neither ISR nor ELR when it was elected
    (KIP-704). `nonce` makes two proposals of the same state different values.

    The leader NO_LEADER and the leader epoch UNKNOWN_EPOCH belong to a partition that an older
    tidelog created: only its log knows the epoch, until a broker claims it.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int = 0
    elr: tuple[int, ...] = ()
    last_leader: int = NO_LEADER
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_recovering: bool = False
    nonce: str = ""

    @classmethod
    def led_by(cls, broker: int, leader_epoch: int = 0) -> PartitionRecord:
        """Returns the record of a partition whose only replica is on one broker."""
        return cls((broker,), (broker,), broker, leader_epoch)


_PARTITION_DEFAULTS = {
    name: value
    for name, value in PartitionRecord._field_defaults.items()
    if name != "partition_epoch"  # values of every version have it
}


class BrokerConfigsRecord(NamedTuple):
    """The dynamic settings of all brokers, or of one alone."""

    configs: Mapping[str, str]


class ProducerIdsRecord(NamedTuple):
    """The first producer id that has not been allocated."""

    next_id: int


class DeletionRecord(NamedTuple):
    """A deleted topic whose logs may still exist.

    `brokers` are those that have still to delete their logs; a broker that is alone is not named.
    """

    name: str
    brokers: tuple[int, ...] = ()


class CreationRecord(NamedTuple):
    """A topic whose creation needs several transactions, and is not finished.

    `broker` creates it, in the session with this broker epoch; 0 if it has none.
    """

    name: str
    broker: int
    epoch: int


class QuotasRecord(NamedTuple):
    """The quotas of one entity, by key."""

    quotas: Mapping[str, float]


Record: TypeAlias = (
    "ClusterRecord | TopicRecord | PartitionRecord | BrokerConfigsRecord | ProducerIdsRecord"
    " | DeletionRecord | CreationRecord | QuotasRecord | BrokerRecord"
)


def topic_key(name: str) -> str:
    """Returns the key of a topic. Names that may not coexist have the same key."""
    return TOPIC_PREFIX + collision_key(name)


def partition_key(topic_id: UUID, index: int) -> str:
    """Returns the key of a partition."""
    return f"{partition_keys(topic_id)}{index}"


def deletion_key(topic_id: UUID) -> str:
    """Returns the key of a pending deletion."""
    return DELETION_PREFIX + written_id(topic_id)


def creation_key(topic_id: UUID) -> str:
    """Returns the key of a creation that is not over."""
    return CREATION_PREFIX + written_id(topic_id)


def own_configs_key(broker: int) -> str:
    """Returns the key of the settings that a broker has alone."""
    return f"{OWN_CONFIGS_PREFIX}{broker}"


def own_configs_of(key: str) -> int:
    """Returns the broker in the key of the settings that it has alone. Raises ValueError."""
    return int(key.removeprefix(OWN_CONFIGS_PREFIX))


def partition_keys(topic_id: UUID) -> str:
    """Returns the prefix of the keys of a topic's partitions."""
    return f"{PARTITION_PREFIX}{written_id(topic_id)}/"


def partition_of(key: str) -> tuple[UUID, int]:
    """Returns the topic's id and the partition's number in a partition's key. Raises ValueError."""
    written, _, index = key.removeprefix(PARTITION_PREFIX).partition("/")
    return _topic_id(written), int(index)


def deletion_of(key: str) -> UUID:
    """Returns the topic's id in the key of a deletion. Raises ValueError."""
    return read_id(key.removeprefix(DELETION_PREFIX))


def creation_of(key: str) -> UUID:
    """Returns the topic's id in the key of a creation. Raises ValueError."""
    return read_id(key.removeprefix(CREATION_PREFIX))


def quota_key(entity: Entity) -> str:
    """Returns the key of an entity's quotas."""
    return QUOTA_PREFIX + entities.written(entity)


def quota_of(key: str) -> Entity:
    """Returns the entity in the key of its quotas. Raises ValueError."""
    return entities.read(key.removeprefix(QUOTA_PREFIX))


def put_cluster(cluster_id: str) -> Put:
    """Returns the operation that writes the cluster id."""
    return put(CLUSTER, {"id": cluster_id})


def size_of(configs: Mapping[str, str]) -> int:
    """Returns the size of settings in bytes: the names and the values in UTF-8."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in configs.items())


def put_topic(topic: TopicRecord) -> Put:
    """Returns the operation that writes a topic."""
    return put(
        topic_key(topic.name),
        {
            "name": topic.name,
            "id": written_id(topic.topic_id),
            "partitions": topic.partitions,
            "configs": dict(topic.configs),
        },
    )


def put_partition(topic_id: UUID, index: int, partition: PartitionRecord) -> Put:
    """Returns the operation that writes a partition.

    Fields that have their default are left out, so the value of a partition with one replica is short.
    """
    fields = {
        name: value
        for name, value in partition._asdict().items()
        if name not in _PARTITION_DEFAULTS or value != _PARTITION_DEFAULTS[name]
    }
    return put(partition_key(topic_id, index), fields)


def put_broker_configs(configs: Mapping[str, str]) -> Put:
    """Returns the operation that writes the brokers' dynamic settings."""
    return put(BROKER_CONFIGS, dict(configs))


def put_beginning(
    cluster_id: str, next_producer_id: int = 0, broker_configs: Mapping[str, str] = _NO_CONFIGS
) -> tuple[Put, ...]:
    """Returns the operations that write the keys that every store has: the first ones of a cluster."""
    return (
        put_cluster(cluster_id),
        put_producer_ids(next_producer_id),
        put_broker_configs(broker_configs),
    )


def put_own_configs(broker: int, configs: Mapping[str, str]) -> Put:
    """Returns the operation that writes the dynamic settings that a broker has alone."""
    return put(own_configs_key(broker), dict(configs))


def put_producer_ids(next_id: int) -> Put:
    """Returns the operation that writes the first producer id that is free."""
    return put(PRODUCER_IDS, {"next": next_id})


def put_deletion(topic_id: UUID, name: str, brokers: Iterable[int] = ()) -> Put:
    """Returns the operation that records that a topic's logs must be deleted, by these brokers."""
    fields: dict[str, object] = {"name": name}
    if named := sorted(brokers):
        fields["brokers"] = named
    return put(deletion_key(topic_id), fields)


def put_creation(topic_id: UUID, creation: CreationRecord) -> Put:
    """Returns the operation that records that a topic is being created."""
    return put(creation_key(topic_id), creation._asdict())


def put_quotas(entity: Entity, quotas: Mapping[str, float]) -> Put:
    """Returns the operation that writes the quotas of an entity."""
    return put(quota_key(entity), dict(quotas))


def is_known(key: str) -> bool:
    """Returns whether this tidelog writes such keys, and `read` can parse them."""
    return key in _KEYS or key.startswith(_PREFIXES)


def read(key: str, value: bytes) -> Record:
    """Returns the record of a key and its value. Raises ValueError for an unknown key or value."""
    try:
        if key.startswith(PARTITION_PREFIX):
            partition_of(key)
            return _partition(value)
        record = _read(key, json.loads(value))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"key {key!r} cannot be read: {error!r}") from None
    if isinstance(record, TopicRecord) and topic_key(record.name) != key:
        raise ValueError(f"key {key!r} holds topic {record.name!r}")
    return record


def _read(key: str, fields: dict[str, Any]) -> Record:
    if key == CLUSTER:
        return ClusterRecord(text(fields["id"]))
    if key == BROKER_CONFIGS:
        return BrokerConfigsRecord(_configs(fields, BROKER_ALIASES))
    if key.startswith(OWN_CONFIGS_PREFIX):
        own_configs_of(key)
        return BrokerConfigsRecord(_configs(fields, BROKER_ALIASES))
    if key == PRODUCER_IDS:
        return ProducerIdsRecord(int(fields["next"]))
    if key.startswith(TOPIC_PREFIX):
        topic_id, configs = read_id(fields["id"]), _configs(fields["configs"], TOPIC_ALIASES)
        return TopicRecord(text(fields["name"]), topic_id, int(fields["partitions"]), configs)
    if key.startswith(DELETION_PREFIX):
        deletion_of(key)
        return DeletionRecord(text(fields["name"]), numbers(fields.get("brokers", ())))
    if key.startswith(CREATION_PREFIX):
        creation_of(key)
        return CreationRecord(text(fields["name"]), int(fields["broker"]), int(fields["epoch"]))
    if key.startswith(QUOTA_PREFIX):
        quota_of(key)
        return QuotasRecord(MappingProxyType({text(k): float(v) for k, v in fields.items()}))
    if key.startswith(MEMBER_KEYS):
        from tidelog.broker.metadata.brokers import records as of_brokers  # which imports this

        return of_brokers.read(key, fields)
    raise ValueError("nobody here writes such a key")


@lru_cache(1024)
def _partition(value: bytes) -> PartitionRecord:
    # Older values lack what replication needs.
    fields: Mapping[str, Any] = {**_PARTITION_DEFAULTS, **json.loads(value)}
    return PartitionRecord(
        numbers(fields["replicas"]),
        numbers(fields["isr"]),
        int(fields["leader"]),
        int(fields["leader_epoch"]),
        int(fields["partition_epoch"]),
        numbers(fields["elr"]),
        int(fields["last_leader"]),
        numbers(fields["adding"]),
        numbers(fields["removing"]),
        bool(fields["is_recovering"]),
        text(fields["nonce"]),
    )


def _configs(fields: Mapping[str, object], aliases: Mapping[str, str]) -> Mapping[str, str]:
    """Returns settings under their own names: older versions stored second names as well."""
    configs = {text(name): text(value) for name, value in fields.items()}
    named = {aliases.get(name, name): value for name, value in configs.items()}
    own = {name: value for name, value in configs.items() if name not in aliases}
    return MappingProxyType({**named, **own})
