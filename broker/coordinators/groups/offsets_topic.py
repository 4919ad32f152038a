"""How groups are stored in __consumer_offsets, and read from it after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordinators.groups.group_metadata import Loading
from tidelog.broker.coordinators.internal_topic import Declared
from tidelog.broker.coordinators.reading import batches_of
from tidelog.protocol.records.layout import NO_PRODUCER_ID
from tidelog.protocol.records.markers import marker_of
from tidelog.storage.time.trusted_clock import StepBack, corrected_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.clock import Clock
    from tidelog.broker.coordinators.groups.group import Group
    from tidelog.config.broker.groups import GroupsConfig
    from tidelog.protocol.records.batch import Record
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.times.append_clock import AppendClock
    from tidelog.storage.time.trusted_clock import Change

TOPIC = "__consumer_offsets"


def declared(config: GroupsConfig) -> Declared:
    """Returns how __consumer_offsets is made, which keeps groups and their offsets."""
    return Declared(
        TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        config.offsets_topic_segment_bytes,
        "producer",
        config.offsets_commit_timeout_ms,
    )


def read(
    partition: Partition,
    end_offset: int,
    make: Callable[[str], Group],
    clock: Clock | None,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Loading:
    """Reads the groups of a partition below an offset, in a thread; `make` creates a group.

    Times in a record are corrected as its log's clock was, and none is later than `clock`; with None
    they count as they are, because they are by another clock than the one that is watched. If the clock is
    corrected meanwhile, everything is read again. The result is useless once `is_wanted` returns False.
    """
    while True:
        corrections = partition.append_clock.corrections
        loading = _read(partition, end_offset, make, clock, is_wanted)
        if partition.append_clock.corrections == corrections:
            return loading


def _read(
    partition: Partition,
    end_offset: int,
    make: Callable[[str], Group],
    clock: Clock | None,
    is_wanted: Callable[[], bool],
) -> Loading:
    loading = Loading(make, (partition.topic_id, partition.index))
    # Without a broken commit the group reads on from the one before: nothing is lost.
    for batch, records in batches_of(partition, end_offset, is_wanted, skips_broken=True):
        if batch.is_control:
            marker = marker_of(records)
            if marker is not None:
                loading.transaction_ended(
                    batch.producer_id, batch.base_offset, is_commit=marker.is_commit
                )
            continue
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
        for record in records:
            changes = () if clock is None else _changes_at(partition.append_clock, record, clock)
            loading.replay(record.offset, record.key, record.value, changes, producer_id)
    return loading


def _changes_at(append_clock: AppendClock, record: Record, clock: Clock) -> list[Change]:
    """Returns how the clock has changed since the times in a record."""
    changes: list[Change] = [*append_clock.changes_at(record.offset)]
    time_ms, now_ms = record.timestamp, clock.now_ms()
    for change in changes:
        time_ms = corrected_time(change, time_ms)
    if time_ms > now_ms:  # it was written by now
        changes.append(StepBack(time_ms, now_ms))
    return changes
