"""How groups are stored in __consumer_offsets, and read from it after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.coordination.internal_topic import Declared
from tidelog.broker.coordination.reading import batches_of, end_of
from tidelog.broker.groups.group_metadata import Loading
from tidelog.protocol.records.layout import NO_PRODUCER_ID
from tidelog.protocol.records.markers import marker_of
from tidelog.storage.time.trusted_clock import StepBack, corrected_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.clock import Clock
    from tidelog.broker.coordination.services import Services
    from tidelog.broker.groups.group import Group
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


class GroupReader:
    """Reads the groups of a partition, in a thread."""

    def __init__(self, services: Services, clock: Clock, *, is_apart: bool = False) -> None:
        """Takes the clock that stamps the records.

        If it `is_apart`, it is not the one that is watched, and nothing corrects its times.
        """
        self._services = services
        self._clock = clock
        self._is_apart = is_apart

    def read(
        self,
        index: int,
        make: Callable[[str], Group],
        *,
        goes_on: Callable[[], bool] = lambda: True,
        to_log_end: bool = False,
    ) -> Loading:
        """Takes in every record of one partition; `make` creates a group.

        Times in a record count as the corrections of its log say. If the clock is corrected
        meanwhile, everything is read again. The result is useless once `goes_on` returns False.
        """
        partition = self._services.partitions.get(TOPIC, index)
        while True:
            corrections = partition.append_clock.corrections
            end_offset = end_of(partition, to_log_end=to_log_end)
            loading = self._read(partition, end_offset, make, goes_on)
            if partition.append_clock.corrections == corrections:
                return loading

    def _read(
        self,
        partition: Partition,
        end_offset: int,
        make: Callable[[str], Group],
        goes_on: Callable[[], bool],
    ) -> Loading:
        clock = partition.append_clock
        loading = Loading(make, (partition.topic_id, partition.index))
        # Without a broken commit the group reads on from the one before: nothing is lost.
        for batch, records in batches_of(partition, end_offset, goes_on, skips_broken=True):
            if batch.is_control:
                marker = marker_of(records)
                if marker is not None:
                    loading.transaction_ended(
                        batch.producer_id, batch.base_offset, is_commit=marker.is_commit
                    )
                continue
            producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER_ID
            for record in records:
                changes = self._changes_at(clock, record)
                loading.record(record.offset, record.key, record.value, changes, producer_id)
        return loading

    def _changes_at(self, clock: AppendClock, record: Record) -> list[Change]:
        """Returns how the clock has changed since it gave the times in a record."""
        if self._is_apart:
            return []
        changes: list[Change] = [*clock.changes_at(record.offset)]
        time_ms, now_ms = record.timestamp, self._clock.now_ms()
        for change in changes:
            time_ms = corrected_time(change, time_ms)
        if time_ms > now_ms:  # it was written by now
            changes.append(StepBack(time_ms, now_ms))
        return changes
