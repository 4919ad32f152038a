"""The partitions of all log directories: which exist, and which are open.

After a clean stop a partition is opened when it is first asked for, and its log is not read. After
any other stop all partitions are recovered at start, or each when it is first asked for.
`lifecycle.py` creates, opens and deletes partitions. Other files in the log directories, such as
`meta.properties`, are not touched.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage import files, reserves
from tidelog.storage.directory import parallel, room, unopened
from tidelog.storage.directory.leader_epochs import LeaderEpochs
from tidelog.storage.directory.lifecycle import PartitionLifecycle
from tidelog.storage.directory.log_directory import LogDirectory, LogDirectoryError
from tidelog.storage.directory.opening_clock import OpeningClock
from tidelog.storage.directory.partition_table import PartitionTable
from tidelog.storage.time.event_time import event_slack

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tidelog.config.topic import TopicConfig
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.retention.findings import Facts

    Offsets = dict[TopicPartition, int]

_log = logging.getLogger("tidelog.storage")


class LogStore:
    """All partitions of this broker, for use by several threads at once.

    Opening a partition may take seconds. Meanwhile only threads that want to open or delete the
    same partition wait. `close` waits for all of these, and for a checkpoint that is being written;
    a checkpoint that comes later does nothing.
    """

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        default_config: TopicConfig,
        producer_id_expiration_ms: int = 86_400_000,
        boot_id: str = "",
        reserve_bytes: int = 0,
    ) -> None:
        """Takes the directories; `open` is the first to touch them.

        `default_config` is for partitions of topics without settings. `boot_id` names this start of
        the machine, which tells a power loss from a killed process. `reserve_bytes` is the size of the
        reserve of each directory (`storage/reserves.py`).
        """
        self.log_dirs = tuple(log_dirs)
        self._reserve_bytes = reserve_bytes
        self._directories: list[LogDirectory] = []
        self._is_open = False  # the directories may be locked before
        self.clock = OpeningClock()  # as partitions see it when they are opened
        self._table = PartitionTable(default_config)
        self._leader_epochs = LeaderEpochs(self._table)
        self._lifecycle = PartitionLifecycle(
            self._table,
            self._leader_epochs,
            clock=self.clock,
            producer_id_expiration_ms=producer_id_expiration_ms,
            boot_id=boot_id,
        )
        self._checkpointing = threading.RLock()  # one at a time, and none after the last

    @property
    def default_config(self) -> TopicConfig:
        """The settings of topics without their own."""
        return self._table.default_config

    @default_config.setter
    def default_config(self, config: TopicConfig) -> None:
        self._table.default_config = config

    # --- start and stop --------------------------------------------------------------------------

    def lock(self) -> None:
        """Locks the directories for this process, and makes those that do not exist.

        Nothing else in them is read or written. Raises LogDirectoryError.
        """
        with self._checkpointing, self._table.changing:
            self._lock()

    def _lock(self) -> None:
        if self._directories:
            return
        with self._released_on_error():
            for path in self.log_dirs:
                files.make_directories(path)
                self._directories.append(LogDirectory(path))
                reserves.begin(path, self._reserve_bytes)

    def count_as_only_replicas(self) -> None:
        """Lets each log lead as soon as it is opened, because no other broker has a copy of it any more."""
        self._lifecycle.are_only_replicas = True

    def open(
        self,
        now_ms: int,
        configs: Mapping[str, TopicConfig] | None = None,
        *,
        recovers_later: bool = False,
    ) -> None:
        """Finds the partitions, and recovers them after an unclean stop.

        With `recovers_later` each is recovered when it is opened. Locks the directories, unless `lock` has
        done so. `configs` holds the settings of topics by name. Raises LogDirectoryError.
        """
        with self._checkpointing, self._table.changing:
            self._lock()
            self._find_everything(now_ms, configs, recovers_later=recovers_later)

    def _find_everything(
        self, now_ms: int, configs: Mapping[str, TopicConfig] | None, *, recovers_later: bool
    ) -> None:
        self.clock.begin(now_ms)
        self._table.configs = dict(configs or {})
        with self._released_on_error():
            for directory in self._directories:
                directory.begin()
                self._table.index.find(directory)
            if not recovers_later:
                for error in self._lifecycle.recover().values():
                    raise error
        self._is_open = True

    @contextlib.contextmanager
    def _released_on_error(self) -> Iterator[None]:
        """Unlocks the directories if the start fails. Raises LogDirectoryError for an OSError."""
        try:
            yield
        except OSError as error:
            self._release()
            where = error.filename or ", ".join(map(str, self.log_dirs))
            raise LogDirectoryError(
                f"log directory {where} cannot be used: {error.strerror}"
            ) from error
        except BaseException:
            self._release()
            raise

    def note_stopping(self) -> None:
        """Notes in the lock files that this process is about to end; for any thread."""
        for directory in list(self._directories):
            directory.note_stopping()

    def close(self, *, unlocks: bool = True) -> None:
        """Closes every partition, writes the checkpoints and the marks of a clean stop, and unlocks.

        Unless it `unlocks` the directories stay locked until it is called once more.

        A log that nobody has asked for since an unclean stop is not recovered for this: a stop has
        little time. Its directory is not marked clean, and the next start finds it as it was.

        Raises KafkaStorageError when a disk fails; the next start then recovers.
        """
        with self._checkpointing, self._table.changing:
            self._table.wait_for_exclusive()
            self._close(unlocks=unlocks)

    def _close(self, *, unlocks: bool) -> None:
        if not self._is_open:
            self._release()
            return
        for directory in self._directories:
            reserves.end(directory.path)  # the stop needs room
        try:
            unclean = self._unrecovered()
            partitions = [*self._table.opened.values(), *self._table.unserved.values()]
            failures = parallel.close(partitions, self._directories)
            unclean.update(self._table.index.get((p.topic, p.index)) for p in failures)
            self._write_checkpoints()
            for directory in self._directories:
                if directory not in unclean:
                    directory.mark_clean()
        except OSError as error:
            raise KafkaStorageError(f"the log directories were not closed: {error}") from error
        finally:
            self._is_open = False
            if unlocks:
                self._release()
        for failure in failures.values():
            raise failure

    def _unrecovered(self) -> set[LogDirectory | None]:
        """Returns the directories of which a log is still as the last stop has left it, unclean."""
        table, found = self._table, set[LogDirectory | None]()
        for key, directory in table.index.items():
            if not directory.was_clean and table.is_closed(key) and directory not in found:
                found.add(directory)
                _log.info("log recovery skipped", extra={"directory": directory.path})
        return found

    def restore_reserves(self, *, forgets_full: bool) -> None:
        """Makes reserves again that were given up, where there is room; for a thread.

        With `forgets_full` logs whose directory has room count as full no more.
        """
        for path in self.log_dirs:
            reserve = reserves.of(path)
            reserve.make_again()
            if forgets_full and not reserve.is_given_up:
                room.note(path, self.opened())

    def full_directories(self) -> list[Path]:
        """Returns the log directories in which writes fail for lack of space, as far as is known."""
        return [path for path in self.log_dirs if room.is_short(path, self.opened())]

    def checkpoint(self) -> None:
        """Makes every log durable and notes up to where, which bounds recovery after a crash.

        Meant for a thread, at intervals. Raises KafkaStorageError.
        """
        with self._checkpointing:
            if self._is_open:
                self._checkpoint()

    def _checkpoint(self) -> None:
        opened = list(self._table.opened.values())
        failures = parallel.each(
            lambda partition: partition.flush(),
            [p for p in opened if p.log_end_offset > p.recovery_point],
        )
        try:
            self._write_checkpoints()
        except OSError as error:
            raise KafkaStorageError(f"the checkpoints were not written: {error}") from error
        for partition, failure in failures.items():
            if partition.offline is None:  # an offline partition has been reported already
                raise failure

    def _release(self) -> None:
        for directory in self._directories:
            reserves.end(directory.path)
            directory.release()
        self._table.clear()
        self._directories, self._is_open = [], False

    # --- partitions ------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """Returns a partition, opened if necessary; None if it is not here, or not served yet.

        Raises KafkaStorageError when it cannot be opened.
        """
        key = (topic, index)
        partition = self._table.opened.get(key)
        if partition is not None or key not in self._table.index:
            return partition
        try:
            with self._table.exclusive_access(key):
                return self._lifecycle.open(key)
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} cannot be opened: {error}") from error

    def opened_partition(self, topic: str, index: int) -> Partition | None:
        """Returns a partition if it is open, else None."""
        return self._table.opened.get((topic, index))

    def is_closed(self, topic: str, index: int) -> bool:
        """Returns whether a partition exists here and is not open; opening it may be slow."""
        return self._table.is_closed((topic, index))

    def names(self) -> list[TopicPartition]:
        """Lists (topic, partition) of every partition here, open or not."""
        return self._table.index.names()

    def indexes(self, topic: str) -> frozenset[int]:
        """Returns the partition numbers of a topic that exist here, open or not."""
        return self._table.index.indexes(topic)

    def directory_of(self, topic: str, index: int) -> Path | None:
        """Returns the log directory in which a partition is; None if it is not here."""
        directory = self._table.index.get((topic, index))
        return None if directory is None else directory.path

    def topic_id(self, topic: str, index: int) -> uuid.UUID | None:
        """Returns the topic id written in a partition's directory, without opening the partition.

        None if there is no such partition, or no readable id. Raises KafkaStorageError if the disk
        does not give the file: the log may be anybody's then.
        """
        partition = self._table.opened.get((topic, index))
        if partition is not None:
            return partition.topic_id
        path = self._table.index.path_of((topic, index))
        return None if path is None else unopened.topic_id(path)

    def leader_epoch(self, topic: str, index: int) -> int | None:
        """Returns a partition's leader epoch; None if `read_leader_epochs` must read it first."""
        return self._leader_epochs.known((topic, index))

    def read_leader_epochs(self, keys: Iterable[TopicPartition]) -> None:
        """Reads leader epochs without opening the partitions; 0 where one cannot be read."""
        self._leader_epochs.read(keys)

    def begin_leader_epoch(self, topic: str, index: int, epoch: int) -> Partition | None:
        """Lets a partition's log begin a leader epoch; see LeaderEpochs.begin."""
        return self._leader_epochs.begin((topic, index), epoch)

    def partitions(self) -> list[Partition]:
        """Returns every partition, opening those that are closed; raises KafkaStorageError."""
        found = [self.partition(*key) for key in self.names()]
        return [partition for partition in found if partition is not None]

    def opened(self) -> list[Partition]:
        """Returns the partitions that are open."""
        return list(self._table.opened.values())

    def longest_delays_ms(self) -> Offsets:
        """Returns the longest delay of every partition that has one; see LogDirectory."""
        found: Offsets = {}
        for directory in self._directories:
            found |= directory.delays_ms(self._table.opened)
        return {key: delay_ms for key, delay_ms in found.items() if key in self._table.index}

    def durable_offset(self, topic: str, index: int) -> int:
        """Returns the offset before which the next start counts a log as durable."""
        directory = self._table.index.get((topic, index))
        return 0 if directory is None else directory.durable_offset((topic, index))

    def has_sealed_segments(self, topic: str, index: int) -> bool:
        """Returns whether a partition has more segments than its active one, without opening it."""
        partition = self._table.opened.get((topic, index))
        if partition is not None:
            return len(partition.segments) > 1
        path = self._table.index.path_of((topic, index))
        if path is None:
            return False
        return unopened.has_sealed_segments(path)

    def keeps_everything(
        self, topic: str, index: int, now_ms: int, config: TopicConfig | None = None
    ) -> bool:
        """Returns whether a partition is closed and retention has nothing to delete in it.

        Judges by `config` if it is given, else by the topic's settings. Raises KafkaStorageError.
        """
        facts, config = self.closed_facts(topic, index), config or self._table.config_of(topic)
        if facts is None:
            return False
        return unopened.keeps_everything(facts, config, now_ms, self.clock.now())

    def closed_facts(self, topic: str, index: int) -> Facts | None:
        """Reads the facts of a closed partition without opening it. Raises KafkaStorageError.

        Returns None if it is not here, if it is open, or if its directory was not stopped cleanly.
        """
        key = (topic, index)
        directory = self._table.index.get(key)
        if directory is None or key in self._table.opened or not directory.was_clean:
            return None
        start = directory.log_start_offsets.get(key, 0)
        try:
            slack_ms = event_slack(self._table.config_of(topic))
            return unopened.facts(directory.path_of(key), start, slack_ms, self.clock.now())
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} cannot be read: {error}") from error

    def create_partition(
        self,
        topic: str,
        topic_id: uuid.UUID,
        index: int,
        config: TopicConfig,
        now_ms: int,
        *,
        is_served: bool = True,
    ) -> Partition:
        """Creates a partition in the log directory that has the fewest.

        Unless it `is_served`, no lookup finds it before `serve_partitions`. Raises
        TopicAlreadyExists if it exists, and KafkaStorageError if it cannot be created.
        """
        key = (topic, index)
        if any(key in directory.noted for directory in self._directories):
            self._uncheckpoint(key)
        with self._table.changing:
            if not self._is_open:
                raise KafkaStorageError("the log directories are closed")
            return self._lifecycle.create(
                self._directories, key, topic_id, config, now_ms, is_served=is_served
            )

    def serve_partitions(self, topic: str) -> None:
        """Lets everybody use the partitions of a topic that were created to be served later."""
        self._lifecycle.serve(topic)

    def _uncheckpoint(self, key: TopicPartition) -> None:
        """Removes a deleted log from the checkpoints: a new log of the same name begins at 0."""
        with self._checkpointing, self._table.changing:
            if key in self._table.index or not self._is_open:
                return
            for directory in self._directories:
                directory.forget(key)
            try:
                self._write_checkpoints()
            except OSError as error:
                raise KafkaStorageError(f"the checkpoints were not written: {error}") from error

    def delete_partition(self, topic: str, index: int) -> None:
        """Deletes a partition, if it exists, and its files; raises KafkaStorageError."""
        self._lifecycle.delete(topic, index)

    def delete_topic(self, topic: str) -> None:
        """Deletes every partition of a topic; raises KafkaStorageError."""
        with self._table.changing:
            indexes = sorted(self._table.index.indexes(topic))
        for index in indexes:
            self.delete_partition(topic, index)
        with self._table.changing:
            self._table.configs.pop(topic, None)

    def set_aside(self, topic: str, index: int) -> Path:
        """Renames a partition's directory to `-stray`, as one that belongs to no topic.

        Returns its new path. Raises UnknownTopicOrPartition if it does not exist here, and KafkaStorageError.
        """
        return self._lifecycle.set_aside(topic, index)

    def assign_topic_id(self, topic: str, index: int, topic_id: uuid.UUID | None) -> None:
        """Writes a topic id into a partition's directory, durably; None removes the id.

        Raises UnknownTopicOrPartition if it does not exist here, and KafkaStorageError.
        """
        self._lifecycle.assign_topic_id(topic, index, topic_id)

    def config_of(self, topic: str) -> TopicConfig:
        """Returns a topic's settings, or the default ones if none were given."""
        return self._table.config_of(topic)

    def set_config(self, topic: str, config: TopicConfig) -> None:
        """Replaces a topic's settings, for its open partitions and for those opened later.

        For a thread if event.time.ahead.max.ms changes; see `LogState.reconfigure`.
        """
        opened: list[Partition] = []
        with self._table.changing:
            self._table.configs[topic] = config
            for index in self._table.index.indexes(topic):
                partition = self._table.opened.get((topic, index))
                if partition is not None:
                    opened.append(partition)
        for partition in opened:
            partition.config = config

    def _write_checkpoints(self) -> None:
        """Writes the checkpoints, with the offsets read at start for partitions that are closed."""
        for key, partition in dict(self._table.opened).items():
            with self._table.changing:
                place = self._table.index.get(key)
                # Meanwhile it may have been deleted and another one of its name created.
                if place is not None and self._table.opened.get(key) is partition:
                    place.note(key, partition)
        for directory in self._directories:
            here = [key for key, place in self._table.index.items() if place is directory]
            directory.write_checkpoints(here, self._table.opened)
