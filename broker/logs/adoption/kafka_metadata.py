"""Reads the topics from the metadata log of a KRaft cluster: the log `__cluster_metadata-0`.

Reads the newest snapshot (`<end offset>-<epoch>.checkpoint`), and the records of the log from there on, up
to the first torn batch. A snapshot without its footer, and records that are missing in between, are refused.
Kafka stores the log on every broker, so each directory has its own state of it; the one with the largest
(epoch, end offset) is the newest. The state may have records that only a part of the quorum had; Kafka could
elect that part, too.

Source: KIP-630 (snapshots), KIP-868 (transactions), Kafka's PartitionRegistration.merge.
"""

from __future__ import annotations

import re
from struct import Struct
from struct import error as StructError  # noqa: N812
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.logs.adoption.errors import AdoptionError
from tidelog.protocol.cluster_metadata import (
    NO_CHANGE,
    OF_BROKER,
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
from tidelog.protocol.errors import CorruptMessage
from tidelog.protocol.records import batch
from tidelog.protocol.wire import DecodeError
from tidelog.storage import filenames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from uuid import UUID

_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_FOOTER = 4  # the type of the control record that ends a snapshot
_CONTROL_KEY = Struct(">hh")  # its version and its type
OF_ALL = ""
"""The key in `KafkaMetadata.broker_configs` of the settings of all brokers."""


class KafkaPartition(NamedTuple):
    """The state of a partition in Kafka's metadata."""

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
    """All topics as of one offset of the metadata log, and the epoch of the last record."""

    epoch: int
    end_offset: int
    next_producer_id: int
    topics: tuple[KafkaTopic, ...]
    broker_configs: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    """The dynamic settings of brokers, by broker id, and of `OF_ALL`."""


def newest_of(found: Iterable[KafkaMetadata | None]) -> KafkaMetadata | None:
    """Returns the newest of several states; None if there is none."""
    there = (each for each in found if each is not None)
    return max(there, key=lambda each: (each.epoch, each.end_offset), default=None)


def read_metadata(directory: Path) -> KafkaMetadata | None:
    """Returns the topics in the metadata log of a log directory; None if it has no such log.

    Raises OSError, and AdoptionError if the metadata log cannot be read.
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
        _check_snapshot(path)
        yield from _records_of(path, state, 0)
        first = int(found[1])
        state.epoch, state.end_offset = int(found[2]), first
    for path in sorted(log.glob(f"*{filenames.LOG_SUFFIX}")):
        yield from _records_of(path, state, first)


def _check_snapshot(path: Path) -> None:
    """Checks that a snapshot is complete and undamaged, up to its footer.

    Raises AdoptionError.
    """
    data, why = path.read_bytes(), "its footer is missing"
    try:
        batches = batch.scan(data)
        for each in batches:
            batch.verify(data, each)
        last = batches[-1] if batches and batches[-1].is_control else None
        keys = [] if last is None else [each.key for each in batch.records(data, last)]
        if keys and keys[-1] is not None and _CONTROL_KEY.unpack(keys[-1])[1] == _FOOTER:
            return
    except (CorruptMessage, StructError) as error:
        why = str(error)
    raise AdoptionError(
        f"the snapshot {path} of Kafka's metadata is damaged: {why}. Replace "
        f"{path.parent.name} by that of another broker or controller of the cluster"
    )


def _records_of(path: Path, state: _State, first: int) -> Iterator[MetadataRecord]:
    data = path.read_bytes()
    for each in batch.scan(data):
        try:
            batch.verify(data, each)
        except CorruptMessage:
            return  # the end of a log that was not closed
        if each.last_offset < first:
            continue
        if each.base_offset > state.end_offset and path.suffix == filenames.LOG_SUFFIX:
            raise CorruptMessage(
                f"offsets {state.end_offset} to {each.base_offset - 1} are missing before {path.name}"
            )
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
        self._configs: dict[tuple[int, str], dict[str, str]] = {}  # by resource
        self._pending: list[MetadataRecord] | None = None  # of a transaction that is not over

    def take(self, record: MetadataRecord) -> None:
        """Applies a record, or holds it until its transaction has ended."""
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
            topic._replace(configs=self._configs.get((OF_TOPIC, topic.name), {}))
            for topic in self._topics.values()
        ]
        in_order = tuple(sorted(topics, key=lambda each: each.name))
        of_brokers = {
            name: configs
            for (kind, name), configs in self._configs.items()
            if kind == OF_BROKER and configs
        }
        return KafkaMetadata(
            self.epoch, self.end_offset, self._next_producer_id, in_order, of_brokers
        )

    def _apply(self, record: MetadataRecord) -> None:
        if isinstance(record, TopicCreated):
            self._topics[record.topic_id] = KafkaTopic(record.name, record.topic_id, {}, {})
        elif isinstance(record, TopicRemoved):
            self._configs.pop((OF_TOPIC, self._topics.pop(record.topic_id).name), None)
        elif isinstance(record, PartitionCreated):
            partitions = self._topics[record.topic_id].partitions
            partitions[record.partition_id] = _created(record)
        elif isinstance(record, PartitionChange):
            partitions = self._topics[record.topic_id].partitions
            partitions[record.partition_id] = _changed(partitions[record.partition_id], record)
        elif isinstance(record, ConfigChange):
            resource = record.resource_type, record.resource_name
            configs = self._configs.setdefault(resource, {})
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
    def or_before(now: list[int] | None, then: tuple[int, ...]) -> tuple[int, ...]:
        return then if now is None else tuple(now)

    moving = before.is_moving
    if change.adding_replicas is not None or change.removing_replicas is not None:
        moving = bool(change.adding_replicas or change.removing_replicas)
    return KafkaPartition(
        or_before(change.replicas, before.replicas),
        or_before(change.isr, before.isr),
        or_before(change.eligible_leader_replicas, before.elr),
        before.leader_epoch + (change.leader != NO_CHANGE),
        before.partition_epoch + 1,
        moving,
    )
