"""The life of a partition: it is created, opened, renamed away, and its files are removed.

A deleted partition is renamed first, which takes effect at once, then removed; the next start
removes what a crash left of it. A directory that belongs to no topic is never removed: it is
renamed to `-stray`, as Kafka does. The methods are for several threads at once.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from operator import attrgetter
from typing import TYPE_CHECKING

from tidelog.protocol.errors import KafkaStorageError, TopicAlreadyExists, UnknownTopicOrPartition
from tidelog.storage import checkpoints, filenames, files
from tidelog.storage.log.epochs import begin_first_epoch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidelog.config.topic import TopicConfig
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.directory.leader_epochs import LeaderEpochs
    from tidelog.storage.directory.log_directory import LogDirectory
    from tidelog.storage.directory.opening_clock import OpeningClock
    from tidelog.storage.directory.partition_table import PartitionTable
    from tidelog.storage.log.partition import Partition

_log = logging.getLogger("tidelog.storage")


class PartitionLifecycle:
    """Changes which partitions exist and which are open, on disk and in the table."""

    def __init__(
        self,
        table: PartitionTable,
        leader_epochs: LeaderEpochs,
        *,
        clock: OpeningClock,
        producer_id_expiration_ms: int,
        boot_id: str,
    ) -> None:
        self._table, self._clock = table, clock
        self._leader_epochs = leader_epochs
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._boot_id = boot_id
        self.are_only_replicas = False  # no other broker has copies of these logs

    def create(
        self,
        directories: Sequence[LogDirectory],
        key: TopicPartition,
        topic_id: uuid.UUID,
        config: TopicConfig,
        now_ms: int,
        *,
        is_served: bool,
    ) -> Partition:
        """Creates a partition in the one of the directories that has the fewest.

        Unless it `is_served`, nobody finds it before `serve`. The caller has the table's
        `changing`. Raises TopicAlreadyExists, KafkaStorageError.
        """
        from tidelog.storage.log.partition import Partition

        topic, index = key
        directory = self._table.index.get(key)
        if directory is not None:
            raise TopicAlreadyExists(f"{topic}-{index} exists in {directory.path}")
        for directory in directories:  # they may still know a deleted log of this name
            directory.forget(key)
        directory = min(directories, key=attrgetter("partitions"))
        path = directory.path_of(key)
        try:
            files.make_directory(path)
        except OSError as error:  # not removed: something else may be there
            raise KafkaStorageError(f"{topic}-{index} cannot be created: {error}") from error
        try:
            checkpoints.write_topic_id(path, topic_id)
            partition = Partition(
                path,
                topic,
                index,
                topic_id,
                config,
                now_ms=now_ms,
                history=self._clock.now().history,
                producer_id_expiration_ms=self._producer_id_expiration_ms,
                boot_id=self._boot_id,
            )
            begin_first_epoch(partition.state)
        except OSError as error:
            with contextlib.suppress(OSError):
                files.remove_directory(path)
            raise KafkaStorageError(f"{topic}-{index} cannot be created: {error}") from error
        self._table.configs[topic] = config
        (self._table.opened if is_served else self._table.unserved)[key] = partition
        self._table.index.put(key, directory)
        return partition

    def serve(self, topic: str) -> None:
        """Lets everybody use the partitions of a topic that were created for later."""
        table = self._table
        with table.changing:
            for key in [key for key in table.unserved if key[0] == topic]:
                self._use_newest(key, table.unserved[key])
                table.opened[key] = table.unserved.pop(key)

    def _use_newest(self, key: TopicPartition, partition: Partition) -> None:
        """Gives a partition the settings and the leader epoch that changed before it was open."""
        partition.config = self._table.config_of(partition.topic)
        partition.leader_epoch = max(partition.leader_epoch, self._leader_epochs.begun(key))

    def open(self, key: TopicPartition) -> Partition | None:
        """Opens a partition, with exclusive access; None if it is not here, or not served yet.

        Raises OSError.
        """
        with self._table.changing:
            partition = self._table.opened.get(key)
            directory = self._table.index.get(key)
            if partition is not None or directory is None or key in self._table.unserved:
                return partition
        from tidelog.storage.log.partition import Partition

        topic, index = key
        path = directory.path_of(key)
        try:
            topic_id = checkpoints.read_topic_id(path)
        except checkpoints.CheckpointError as error:
            _log.warning("partition metadata not read", extra={"reason": str(error)})
            topic_id = None
        clock = self._clock.now()
        partition = Partition(
            path,
            topic,
            index,
            topic_id,
            self._table.config_of(topic),
            now_ms=clock.now_ms,
            deletion_ms=clock.deletion_ms,
            history=clock.history,
            recovery_point=directory.recovery_points.get(key, 0),
            high_watermark=directory.high_watermarks.get(key),
            was_clean=directory.was_clean,
            log_start_offset=directory.log_start_offsets.get(key, 0),
            cleaned_offset=directory.cleaned_offsets.get(key),
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            boot_id=self._boot_id,
        )
        partition.arrivals.longest_delay_ms = directory.longest_delays_ms.get(key)
        if self.are_only_replicas:
            with contextlib.suppress(KafkaStorageError):  # logged; the next start does it again
                if partition.state.awaits_role:  # others had copies
                    partition.roles.become_only_replica()
                partition.append_clock.note_leaders_behind(clock.deletion_ms)
        with self._table.changing:
            self._use_newest(key, partition)
            self._table.opened[key] = partition
        # The clock may have changed before others could tell the partition of it.
        clock = self._clock.now()
        with contextlib.suppress(KafkaStorageError):  # logged; the next start does it again
            partition.append_clock.catch_up(clock.history, clock.now_ms)
        return partition

    def recover(self) -> dict[LogDirectory, OSError]:
        """Opens all partitions in directories without a clean stop, which recovers their logs.

        Returns what kept it from opening all of a directory. The caller has the table's `changing`.
        """
        failures: dict[LogDirectory, OSError] = {}
        for key, directory in list(self._table.index.items()):
            if directory.was_clean or directory in failures:
                continue
            try:
                self.open(key)
            except OSError as error:
                failures[directory] = error
        return failures

    def delete(self, topic: str, index: int) -> None:
        """Deletes a partition, so that appends fail, then removes its files.

        Nothing if it does not exist.

        Raises KafkaStorageError.
        """
        name = filenames.deleted_directory(topic, index, uuid.uuid4().hex)
        try:
            gone = self._rename_away((topic, index), name)
            if gone is not None:
                files.remove_directory(gone)
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} cannot be deleted: {error}") from error

    def _stop(self, key: TopicPartition) -> None:
        """Waits until no thread writes files of a partition to be deleted.

        Needs exclusive access.
        """
        partition = self._table.opened.get(key) or self._table.unserved.get(key)
        if partition is not None:
            partition.mark_deleted()

    def _rename_away(self, key: TopicPartition, name: str) -> Path | None:
        """Removes a partition from the index and renames its directory, durably.

        None if it does not exist.

        Raises OSError.
        """
        with self._table.exclusive_access(key):
            self._stop(key)
            with self._table.changing:
                directory = self._table.index.get(key)
                if directory is None:
                    return None
                away = directory.path / name
                files.rename(directory.path_of(key), away)
                self._table.opened.pop(key, None)
                self._table.unserved.pop(key, None)
                self._leader_epochs.forget(key)
                self._table.index.remove(key)
        files.sync(directory.path)
        return away

    def set_aside(self, topic: str, index: int) -> Path:
        """Renames a partition's directory to `-stray`, as one that belongs to no topic.

        Returns its new path.

        Raises UnknownTopicOrPartition if it does not exist here, and KafkaStorageError.
        """
        name = filenames.stray_directory(topic, index, uuid.uuid4().hex)
        try:
            away = self._rename_away((topic, index), name)
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} cannot be set aside: {error}") from error
        if away is None:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        return away

    def assign_topic_id(self, topic: str, index: int, topic_id: uuid.UUID | None) -> None:
        """Writes a topic id into a partition's directory, durably; None removes the id.

        Raises UnknownTopicOrPartition if it does not exist here, and KafkaStorageError.
        """
        key = (topic, index)
        try:
            with self._table.exclusive_access(key), self._table.changing:
                directory = self._table.index.get(key)
                if directory is None:
                    raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
                path = directory.path_of(key)
                if topic_id is None:
                    checkpoints.remove_topic_id(path)
                else:
                    checkpoints.write_topic_id(path, topic_id)
                partition = self._table.opened.get(key)
                if partition is not None:
                    partition.topic_id = topic_id
            if topic_id is not None:
                files.sync(path / filenames.PARTITION_METADATA_FILE)
            files.sync(path)
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} got no topic id: {error}") from error
