"""How transactional ids are stored in __transaction_state, and read from it after a restart."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.coordinators.internal_topic import Declared
from tidelog.broker.coordinators.reading import batches_of
from tidelog.protocol import transaction_log
from tidelog.protocol.transaction_log import Metadata, State
from tidelog.protocol.wire import DecodeError
from tidelog.storage.time.trusted_clock import corrected_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tidelog.broker.coordinators.internal_topic import Written
    from tidelog.config.broker.transactions import TransactionConfig
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.time.trusted_clock import Change

log = logging.getLogger("tidelog.transactions")

TOPIC = "__transaction_state"
_TIMEOUT_MS = 5_000  # how long a write waits for replicas


class Stored(NamedTuple):
    """What is stored of a transactional id, and the coordinator epoch in which that was written."""

    metadata: Metadata
    epoch: int


Known = dict[str, Stored]


def declared(config: TransactionConfig) -> Declared:
    """Returns how the topic is made in which the transactional ids are kept."""
    return Declared(
        TOPIC,
        config.transaction_state_log_num_partitions,
        config.transaction_state_log_replication_factor,
        config.transaction_state_log_segment_bytes,
        "uncompressed",
        _TIMEOUT_MS,
        config.transaction_state_log_min_isr,
    )


def record(transactional_id: str, metadata: Metadata) -> Written:
    """Returns the record of a transactional id; its tombstone if it is dead."""
    key = transaction_log.key(transactional_id)
    return key, None if metadata.state is State.DEAD else transaction_log.value(metadata)


def read(partition: Partition, end_offset: int, is_wanted: Callable[[], bool]) -> Known:
    """Returns the last record of each id below an offset, with its times as they count; for a thread.

    A record that cannot be read is logged and skipped. The result is useless once `is_wanted` returns
    False. Raises CorruptMessage for a batch that fails its checksum: it may hold a decision to commit.
    """
    known: Known = {}
    for batch, records in batches_of(partition, end_offset, is_wanted):
        if batch.is_control:
            continue
        changes = partition.append_clock.changes_at(batch.base_offset)
        epoch = partition.reader.leader_epoch_at(batch.base_offset)
        for each in records:
            try:
                transactional_id = transaction_log.read_key(each.key or b"")
                if transactional_id is None:
                    continue
                if each.value is None:
                    known.pop(transactional_id, None)
                else:
                    metadata = transaction_log.read_value(each.value)
                    known[transactional_id] = Stored(_corrected(metadata, changes), epoch)
            except DecodeError as error:
                where = {"log": f"{TOPIC}-{partition.index}", "offset": each.offset}
                log.warning(
                    "unreadable transaction record skipped", extra={**where, "reason": error}
                )
    return known


def _corrected(metadata: Metadata, changes: Iterable[Change]) -> Metadata:
    """Returns what is known of an id, with its times corrected by changes of the clock."""
    for change in changes:
        metadata = metadata._replace(
            start_ms=corrected_time(change, metadata.start_ms),
            updated_ms=corrected_time(change, metadata.updated_ms),
        )
    return metadata
