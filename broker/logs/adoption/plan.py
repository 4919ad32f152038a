"""Chooses the leaders and ISRs after an adoption, from the inventories of all brokers, or refuses it.

Topics, ids, replicas, ISR and settings are those of Kafka's newest metadata. A partition's first
leader has every committed record:

- Only a replica of Kafka's ISR can be it, or of its ELR (KIP-966) if the ISR is empty: every other
  one may lack records that were committed, or have some that were not.
- Of these it is one with the latest leader epoch in its log, and of those the longest log.
- No replica may know a high watermark beyond its end: then committed records have been lost.

The replicas with the same end of the same epoch are in sync with it, and the preferred leader leads
if it is among them. The others follow it and truncate by leader epochs, as after any election. The
next leader epoch begins, so what was only in other logs cannot come back.

Dynamic settings of all brokers are adopted. Other settings that a topic inherited from the defaults of its
brokers are not in Kafka's metadata. So a topic without retention settings of its own keeps everything
(`KEEP`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.logs.adoption.errors import AdoptionError
from tidelog.broker.logs.adoption.kafka_metadata import OF_ALL, newest_of
from tidelog.broker.metadata.image import Topic
from tidelog.broker.metadata.names import check_topic_name, collision_key
from tidelog.broker.metadata.records import PartitionRecord
from tidelog.broker.settings import KEEP, is_internal
from tidelog.config import (
    BROKER_ALIASES,
    ConfigError,
    broker_entries,
    reconfigured,
    topic_config,
    without_aliases,
)
from tidelog.config.ignored import is_ignored
from tidelog.protocol.errors import InvalidTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tidelog.broker.logs.adoption.inventory import FoundLog, Inventory
    from tidelog.broker.logs.adoption.kafka_metadata import (
        KafkaMetadata,
        KafkaPartition,
        KafkaTopic,
    )
    from tidelog.config import BrokerConfig

    Logs = Mapping[int, FoundLog]  # of one partition, by broker


class AdoptionPlan(NamedTuple):
    """The metadata of an adoption; `notes` are sentences about what is not adopted unchanged."""

    cluster_id: str
    next_producer_id: int
    topics: tuple[Topic, ...]
    broker_configs: Mapping[str, str]  # of all brokers
    notes: tuple[str, ...]


def make_plan(inventories: Sequence[Inventory], config: BrokerConfig) -> AdoptionPlan:
    """Returns the plan for the brokers with these inventories.

    The settings of topics are validated with `config`, the settings of the new brokers. Raises
    AdoptionError with the first reason why the directories cannot be adopted.
    """
    by_broker = _by_broker(inventories)
    metadata = _newest(inventories)
    notes: list[str] = []
    broker_configs = _broker_settings(metadata, config, notes)
    config = reconfigured(config, broker_configs)
    topics = tuple(_topic(topic, by_broker, config, notes) for topic in metadata.topics)
    _check_names(topics)
    notes += _strays(by_broker, metadata)
    return AdoptionPlan(
        inventories[0].cluster_id,
        metadata.next_producer_id,
        topics,
        broker_configs,
        tuple(notes),
    )


def _by_broker(inventories: Sequence[Inventory]) -> dict[int, Inventory]:
    clusters = {each.cluster_id for each in inventories}
    if len(clusters) > 1:
        told = ", ".join(f"broker {each.broker} of {each.cluster_id}" for each in inventories)
        raise AdoptionError(f"the directories belong to different clusters: {told}")
    by_broker = {each.broker: each for each in inventories}
    if len(by_broker) < len(inventories):
        raise AdoptionError(
            "two inventories are of the same broker: one of all its directories is needed"
        )
    return by_broker


def _newest(inventories: Sequence[Inventory]) -> KafkaMetadata:
    found = newest_of(each.metadata for each in inventories)
    if found is None:
        raise AdoptionError(
            "no directory has Kafka's metadata (__cluster_metadata-0), so nobody knows replicas and "
            "in-sync replicas: name the directory of metadata.log.dir with --log-dirs too; a cluster "
            "with ZooKeeper has none, and must be migrated to KRaft first"
        )
    return found


def _topic(
    topic: KafkaTopic,
    by_broker: Mapping[int, Inventory],
    config: BrokerConfig,
    notes: list[str],
) -> Topic:
    assignments = []
    has_append_times = []
    for index in range(len(topic.partitions)):
        name = f"{topic.name}-{index}"
        if index not in topic.partitions:
            raise AdoptionError(f"Kafka's metadata lack partition {name}")
        partition = topic.partitions[index]
        missing = sorted(set(partition.replicas) - by_broker.keys())
        if missing:
            raise AdoptionError(
                f"partition {name} has replicas on brokers {_ids(missing)}, whose directories are "
                f"not here: give their inventories too, or let Kafka move its replicas away first "
                f"(kafka-reassign-partitions.sh)"
            )
        logs = {
            broker: log
            for broker in partition.replicas
            if (log := by_broker[broker].logs.get((topic.name, index))) is not None
            and log.topic_id in (None, topic.topic_id)
        }
        assignments.append(_record(name, partition, logs, notes))
        has_append_times += [log.has_append_times for log in logs.values() if log.last_epoch >= 0]
    settings = _settings(topic, config, notes)
    if has_append_times and all(has_append_times) and not is_internal(topic.name):
        settings.setdefault("message.timestamp.type", "LogAppendTime")
    return Topic(topic.name, topic.topic_id, tuple(assignments), settings)


def _record(name: str, partition: KafkaPartition, logs: Logs, notes: list[str]) -> PartitionRecord:
    """Returns the first state of a partition. Raises AdoptionError."""
    if partition.is_moving:
        raise AdoptionError(
            f"the reassignment of partition {name} is not over: complete or cancel it in Kafka first "
            f"(kafka-reassign-partitions.sh)"
        )
    able = partition.isr or partition.elr
    lost = [broker for broker in able if broker not in logs]
    if lost or not able:
        whose = (
            f"its in-sync replicas {_ids(lost)} have no log" if lost else "no replica is in sync"
        )
        raise AdoptionError(
            f"partition {name} cannot be adopted: {whose}, so records may be missing"
        )
    best = max(_place(logs[broker]) for broker in able)
    _check_committed(name, best[1], logs)
    isr = tuple(
        broker for broker in partition.replicas if broker in able and _place(logs[broker]) == best
    )
    for broker, log in logs.items():
        if broker not in isr and log.end_offset > best[1]:
            notes.append(
                f"{name}: broker {broker} has offsets {best[1]} to {log.end_offset - 1}, which were "
                f"never committed: they are truncated"
            )
    epoch = max(partition.leader_epoch, *(log.begun_epoch for log in logs.values())) + 1
    return PartitionRecord(
        partition.replicas, isr, isr[0], epoch, max(partition.partition_epoch, 0) + 1
    )


def _place(log: FoundLog) -> tuple[int, int]:
    """Returns the end of a log; the larger one has more committed records."""
    return log.last_epoch, log.end_offset


def _check_committed(name: str, end_offset: int, logs: Logs) -> None:
    for broker, log in logs.items():
        if log.high_watermark > end_offset:
            raise AdoptionError(
                f"partition {name} cannot be adopted: offsets up to {log.high_watermark - 1} were "
                f"committed, as broker {broker} knows, and the in-sync replicas end at {end_offset}"
            )


def _settings(topic: KafkaTopic, config: BrokerConfig, notes: list[str]) -> dict[str, str]:
    settings = dict(KEEP)
    for name, value in topic.configs.items():
        try:
            topic_config(config, {name: value})
        except ConfigError as error:
            notes.append(f"{topic.name}: setting left out: {error}")
        else:
            settings[name] = value
    try:
        topic_config(config, settings)
    except ConfigError as error:
        raise AdoptionError(
            f"the settings of topic {topic.name} contradict each other: {error}"
        ) from None
    return settings


def _broker_settings(
    metadata: KafkaMetadata, config: BrokerConfig, notes: list[str]
) -> dict[str, str]:
    """Returns the dynamic settings of all brokers that can be kept; the others are noted."""
    of_all = metadata.broker_configs.get(OF_ALL, {})
    fixed = {entry.name for entry in broker_entries(config) if entry.read_only}
    settings: dict[str, str] = {}
    for said, value in sorted(of_all.items()):
        name = BROKER_ALIASES.get(said, said)
        try:
            if is_ignored(name):
                raise ConfigError(f"{said} has no effect here")
            if name in fixed:
                raise ConfigError(f"{said} can only be set when a broker starts")
            without_aliases({**settings, said: value}, BROKER_ALIASES)
            reconfigured(config, {**settings, name: value})
        except ConfigError as error:
            notes.append(f"all brokers: setting left out: {error}")
        else:
            settings[name] = value
    for broker, configs in sorted(metadata.broker_configs.items()):
        if broker != OF_ALL:
            names = ", ".join(sorted(configs))
            notes.append(f"broker {broker}: its own dynamic settings are left out: {names}")
    return settings


def _check_names(topics: Sequence[Topic]) -> None:
    seen: dict[str, str] = {}
    for topic in topics:
        try:
            check_topic_name(topic.name)
        except InvalidTopic as error:
            raise AdoptionError(error.message) from None
        other = seen.setdefault(collision_key(topic.name), topic.name)
        if other != topic.name:
            raise AdoptionError(
                f"topics {other} and {topic.name} collide: metrics cannot tell them apart"
            )


def _strays(by_broker: Mapping[int, Inventory], metadata: KafkaMetadata) -> Iterator[str]:
    """Yields a line for each log that is no replica of a topic."""
    known = {
        (topic.name, index, broker): topic.topic_id
        for topic in metadata.topics
        for index, partition in topic.partitions.items()
        for broker in partition.replicas
    }
    for broker, inventory in by_broker.items():
        for (name, index), log in inventory.logs.items():
            topic_id = known.get((name, index, broker))
            if topic_id is None or log.topic_id not in (None, topic_id):
                yield f"{name}-{index} of broker {broker} is no replica of a topic: it is not adopted"


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
