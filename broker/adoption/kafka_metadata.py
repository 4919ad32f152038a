"""What the metadata log of a KRaft cluster says of its topics: the log `__cluster_metadata-0`.

It is read as it lies on disk: the newest snapshot (`<end offset>-<epoch>.checkpoint`), and the
records of the log from there on, up to the first batch that is not whole. Kafka stores them on every
broker, so each directory has its own state of them; the one with the largest (epoch, end offset) is
the newest. What only a part of the quorum had may be in it, as it may be elected in Kafka.

Source: KIP-630 (snapshots), KIP-868 (transactions), Kafka's PartitionRegistration.merge.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from broker.adoption.errors import AdoptionError
from protocol.cluster_metadata import (
    NO_CHANGE,
    OF_TOPIC,
    ConfigChange,
    MetadataRecord,
    PartitionChange,
    PartitionCreated,
    ProducerIds,
    TopicCreated,
    TopicRemoved,
    TransactionAborted,
    TransactionBegun,
    TransactionEnded,
    read_record,
)
from protocol.errors import CorruptMessage
from protocol.records import batch
from protocol.wire import DecodeError
from storage import filenames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from uuid import UUID

_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class KafkaPartition(NamedTuple):
    """The state of a partition, as Kafka's controller knew it."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    is_moving: bool
    """Whether a reassignment of its replicas was not over."""


class KafkaTopic(NamedTuple):
    """A topic, its own settings, and its partitions by their numbers."""

    name: str
    topic_id: UUID
    configs: dict[str, str]
    partitions: dict[int, KafkaPartition]


class KafkaMetadata(NamedTuple):
    """All topics at one place of the metadata log: that of the last record, and its epoch."""

    epoch: int
    end_offset: int
    next_producer_id: int
    topics: tuple[KafkaTopic, ...]


def newest_of(found: Iterable[KafkaMetadata | None]) -> KafkaMetadata | None:
    """Returns the newest of several states; None if there is none."""
    there = (each for each in found if each is not None)
    return max(there, key=lambda each: (each.epoch, each.end_offset), default=None)


def read_metadata(directory: Path) -> KafkaMetadata | None:
    """Returns what a log directory knows; None if it has no metadata log.

    Raises OSError, and AdoptionError if the metadata log cannot be understood.
    """
    log = directory / filenames.partition_directory(filenames.METADATA_LOG, 0)
    if not log.is_dir():
        return None
    state = _State()
    try:
        for record in _records(log, state):
            state.take(record)
    except (CorruptMessage, DecodeError, KeyError) as error:
        raise AdoptionError(f"Kafka's metadata in {log} cannot be read: {error}") from None
    return state.result()


def _records(log: Path, state: _State) -> Iterator[MetadataRecord]:
    snapshots = [
        (found, path) for path in log.iterdir() if (found := _SNAPSHOT.fullmatch(path.name))
    ]
    first = 0
    if snapshots:
        found, path = max(snapshots, key=lambda each: each[1].name)
        yield from _records_of(path, state, 0)
        first = int(found[1])
        state.epoch, state.end_offset = int(found[2]), first
    for path in sorted(log.glob(f"*{filenames.LOG_SUFFIX}")):
        yield from _records_of(path, state, first)


def _records_of(path: Path, state: _State, first: int) -> Iterator[MetadataRecord]:
    data = path.read_bytes()
    for each in batch.scan(data):
        try:
            batch.verify(data, each)
        except CorruptMessage:
            return  # the end of a log that was not closed
        if each.last_offset < first:
            continue
        if not each.is_control:
            for record in batch.records(data, each):
                found = None if record.value is None else read_record(bytes(record.value))
                if found is not None and record.offset >= first:
                    yield found
        state.epoch, state.end_offset = each.leader_epoch, each.last_offset + 1


class _State:
    """The topics while the log is read."""

    def __init__(self) -> None:
        self.epoch = -1
        self.end_offset = self._next_producer_id = 0
        self._topics: dict[UUID, KafkaTopic] = {}
        self._configs: dict[str, dict[str, str]] = {}
        self._pending: list[MetadataRecord] | None = None  # of a transaction that is not over

    def take(self, record: MetadataRecord) -> None:
        """Applies a record, or keeps it until its transaction has ended."""
        if isinstance(record, TransactionBegun):
            self._pending = []
        elif isinstance(record, TransactionAborted):
            self._pending = None
        elif isinstance(record, TransactionEnded):
            pending, self._pending = self._pending or [], None
            for each in pending:
                self._apply(each)
        elif self._pending is not None:
            self._pending.append(record)
        else:
            self._apply(record)

    def result(self) -> KafkaMetadata:
        """Returns all topics; a transaction that has not ended does not count."""
        topics = [
            topic._replace(configs=self._configs.get(topic.name, {}))
            for topic in self._topics.values()
        ]
        in_order = tuple(sorted(topics, key=lambda each: each.name))
        return KafkaMetadata(self.epoch, self.end_offset, self._next_producer_id, in_order)

    def _apply(self, record: MetadataRecord) -> None:
        if isinstance(record, TopicCreated):
            self._topics[record.topic_id] = KafkaTopic(record.name, record.topic_id, {}, {})
        elif isinstance(record, TopicRemoved):
            self._configs.pop(self._topics.pop(record.topic_id).name, None)
        elif isinstance(record, PartitionCreated):
            partitions = self._topics[record.topic_id].partitions
            partitions[record.partition_id] = _created(record)
        elif isinstance(record, PartitionChange):
            partitions = self._topics[record.topic_id].partitions
            partitions[record.partition_id] = _changed(partitions[record.partition_id], record)
        elif isinstance(record, ConfigChange) and record.resource_type == OF_TOPIC:
            configs = self._configs.setdefault(record.resource_name, {})
            configs.pop(record.name, None)
            if record.value is not None:
                configs[record.name] = record.value
        elif isinstance(record, ProducerIds):
            self._next_producer_id = max(self._next_producer_id, record.next_producer_id)


def _created(record: PartitionCreated) -> KafkaPartition:
    return KafkaPartition(
        tuple(record.replicas),
        tuple(record.isr),
        tuple(record.eligible_leader_replicas or ()),
        record.leader_epoch,
        record.partition_epoch,
        bool(record.adding_replicas or record.removing_replicas),
    )


def _changed(before: KafkaPartition, change: PartitionChange) -> KafkaPartition:
    def lists(now: list[int] | None, then: tuple[int, ...]) -> tuple[int, ...]:
        return then if now is None else tuple(now)

    moving = before.is_moving
    if change.adding_replicas is not None or change.removing_replicas is not None:
        moving = bool(change.adding_replicas or change.removing_replicas)
    return KafkaPartition(
        lists(change.replicas, before.replicas),
        lists(change.isr, before.isr),
        lists(change.eligible_leader_replicas, before.elr),
        before.leader_epoch + (change.leader != NO_CHANGE),
        before.partition_epoch + 1,
        moving,
    )
