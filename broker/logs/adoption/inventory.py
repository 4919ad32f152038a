"""The inventory of one broker: the logs in its directories, and the end offset of each.

The logs are opened as at any start: after an unclean stop they are verified beyond the recovery point,
and truncated at the first torn batch, as Kafka does. Nothing else is changed, and Kafka can still start
with the directories. A directory that a running Kafka has locked is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.logs.adoption.errors import AdoptionError
from tidelog.broker.logs.adoption.kafka_metadata import KafkaMetadata, newest_of, read_metadata
from tidelog.config.properties import parse_properties
from tidelog.storage import checkpoints, filenames
from tidelog.storage.directory.registration_file import RegistrationFileError, read_state
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.slices import last_batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from uuid import UUID

    from tidelog.config import TopicConfig
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.log.partition import Partition


class FoundLog(NamedTuple):
    """One log: its end offset, and the leader epoch of its last batch; -1 if it never had one.

    `begun_epoch` is the last leader epoch that has started, maybe without a record; it replaces
    `last_epoch` if all batches are deleted. `high_watermark` is that of Kafka's checkpoint: all records
    below it were committed.
    """

    topic_id: UUID | None
    start_offset: int
    end_offset: int
    last_epoch: int
    begun_epoch: int
    high_watermark: int
    has_append_times: bool
    """Whether the last batch has the append time as its time (LogAppendTime)."""


class Inventory(NamedTuple):
    """The directories and logs of one Kafka broker; `metadata` is None if it has no metadata log."""

    cluster_id: str
    broker: int
    directories: tuple[str, ...]
    logs: dict[TopicPartition, FoundLog]
    metadata: KafkaMetadata | None


def take_inventory(
    directories: Sequence[Path], *, now_ms: int, boot_id: str, defaults: TopicConfig
) -> Inventory:
    """Returns the inventory of one broker's log directories.

    `defaults` are the settings with which logs are opened. Raises AdoptionError, LogDirectoryError,
    KafkaStorageError and OSError.
    """
    cluster_id, broker = _owner(directories)
    metadata = newest_of(map(read_metadata, directories))
    marks: dict[TopicPartition, int] = {}
    for path in directories:  # first: Kafka's
        marks |= checkpoints.read_offsets(path / filenames.HIGH_WATERMARK_CHECKPOINT)
    store = LogStore(directories, default_config=defaults, boot_id=boot_id)
    try:
        store.open(now_ms)
        partitions = store.partitions()
        for each in partitions:  # without a leader only offsets below Kafka's checkpoint count
            each.state.await_role()
        logs = {
            (each.topic, each.index): _found(each, marks.get((each.topic, each.index), 0))
            for each in partitions
        }
    finally:
        store.close()
    return Inventory(cluster_id, broker, tuple(map(str, directories)), logs, metadata)


def _found(partition: Partition, mark: int) -> FoundLog:
    end, epochs = partition.log_end_offset, partition.state.epochs
    last = last_batch(partition.segments)
    # Retention may have deleted all batches; then only the started epochs are known.
    epoch = epochs.last_begun if last is None and end > 0 else epochs.latest
    return FoundLog(
        partition.topic_id,
        partition.log_start_offset,
        end,
        epoch,
        epochs.last_begun,
        min(mark, end),
        last is not None and last.is_log_append_time,
    )


def _owner(directories: Sequence[Path]) -> tuple[str, int]:
    """Returns the cluster id and the broker id from meta.properties. Raises AdoptionError."""
    owners = {}
    for path in directories:
        try:
            state = read_state(path)
        except RegistrationFileError:
            state = None
        if state is not None:
            raise AdoptionError(
                f"log directory {path} belongs to broker {state.broker} of tidelog's cluster "
                f"{state.cluster} already: 'tidelog serve' starts it"
            )
        owners[path] = _read_owner(path)
    if len(set(owners.values())) > 1:
        told = ", ".join(f"{path}: broker {one[1]} of {one[0]}" for path, one in owners.items())
        raise AdoptionError(f"the log directories belong to different brokers: {told}")
    return next(iter(owners.values()))


def _read_owner(path: Path) -> tuple[str, int]:
    meta = path / filenames.META_PROPERTIES_FILE
    if not meta.is_file():
        raise AdoptionError(
            f"{meta} is missing: {path} is not a log directory of Kafka, or nothing says of which broker"
        )
    said = parse_properties(meta.read_text(encoding="utf-8", errors="replace"))
    broker = said.get("node.id", said.get("broker.id", ""))
    if not said.get("cluster.id") or not broker.isdecimal():
        raise AdoptionError(f"{meta} does not name a cluster and a broker")
    return said["cluster.id"], int(broker)
