"""The partitions of all log directories: which exist, and which are open.

After a clean stop a partition is opened when it is first asked for, and its log is not read. After
any other stop all partitions are recovered at start. A deleted partition is renamed first, which
takes effect at once, then removed; the next start removes what a crash left of it. A directory that
belongs to no topic is never removed: it is renamed to `-stray`, as Kafka does. Other files, such as
`meta.properties`, are not touched.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from operator import attrgetter
from typing import TYPE_CHECKING

from protocol.errors import KafkaStorageError, TopicAlreadyExists, UnknownTopicOrPartition
from storage import checkpoints, filenames, files
from storage.directory import parallel, unopened
from storage.directory.log_directory import LogDirectory, LogDirectoryError
from storage.directory.partition_index import PartitionIndex
from storage.log import epochs
from storage.log.partition import Partition
from storage.log.recovery import listing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from config.topic import TopicConfig
    from protocol.topic_partition import TopicPartition

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
    ) -> None:
        """Take the directories; `open` is the first to touch them.

        `default_config` is for partitions of topics without settings. `boot_id` names this start of
        the machine, which tells a power loss from a killed process.
        """
        self.log_dirs = tuple(log_dirs)
        self.default_config = default_config
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._boot_id = boot_id
        self._directories: list[LogDirectory] = []
        self._partition_index = PartitionIndex()
        self._open: dict[TopicPartition, Partition] = {}
        self._configs: dict[str, TopicConfig] = {}
        # Of partitions that were not open when read.
        self._leader_epochs: dict[TopicPartition, int] = {}
        # Begun by this process; see `begin_leader_epoch`.
        self._begun_epochs: dict[TopicPartition, int] = {}
        self._opened_ms = 0
        self._is_open = False  # the directories may be locked before
        self._changing = threading.RLock()  # which partitions there are, and which are open
        # Partitions that a thread opens, renames or deletes.
        self._exclusive: set[TopicPartition] = set()
        self._released = threading.Condition(self._changing)
        self._checkpointing = threading.RLock()  # one at a time, and none after the last

    # --- start and stop --------------------------------------------------------------------------

    def lock(self) -> None:
        """Lock the directories for this process, and make those that do not exist.

        Nothing else in them is read or written. Raises LogDirectoryError.
        """
        with self._checkpointing, self._changing:
            self._lock()

    def _lock(self) -> None:
        if self._directories:
            return
        with self._released_on_error():
            for path in self.log_dirs:
                files.make_directories(path)
                self._directories.append(LogDirectory(path))

    def open(self, now_ms: int, configs: Mapping[str, TopicConfig] | None = None) -> None:
        """Find the partitions, and recover them after an unclean stop.

        Locks the directories, unless `lock` has done so. `configs` holds the settings of topics by
        name. Raises LogDirectoryError.
        """
        with self._checkpointing, self._changing:
            self._lock()
            self._find_everything(now_ms, configs)

    def _find_everything(self, now_ms: int, configs: Mapping[str, TopicConfig] | None) -> None:
        self._opened_ms = now_ms
        self._configs = dict(configs or {})
        with self._released_on_error():
            for directory in self._directories:
                directory.begin()
                self._partition_index.find(directory)
            for key, directory in self._partition_index.items():
                if not directory.was_clean:
                    self._open_partition(key)
        self._is_open = True

    @contextlib.contextmanager
    def _released_on_error(self) -> Iterator[None]:
        """Unlock the directories if the start fails. Raises LogDirectoryError for an OSError."""
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

    def close(self) -> None:
        """Close every partition, write the checkpoints and the marks of a clean stop, and unlock.

        Raises KafkaStorageError when a disk fails; the next start then recovers.
        """
        with self._checkpointing, self._changing:
            self._released.wait_for(lambda: not self._exclusive)
            self._close()

    def _close(self) -> None:
        if not self._is_open:
            self._release()
            return
        try:
            failures = parallel.each(Partition.close, list(self._open.values()))
            unclean = {self._partition_index.get((p.topic, p.index)) for p in failures}
            self._write_checkpoints()
            for directory in self._directories:
                if directory not in unclean:
                    directory.mark_clean()
        except OSError as error:
            raise KafkaStorageError(f"the log directories were not closed: {error}") from error
        finally:
            self._release()
        for failure in failures.values():
            raise failure

    def checkpoint(self) -> None:
        """Make every log durable and write down up to where, which bounds the recovery after a crash.

        Meant for a thread, at intervals. Raises KafkaStorageError.
        """
        with self._checkpointing:
            if self._is_open:
                self._checkpoint()

    def _checkpoint(self) -> None:
        opened = list(self._open.values())
        failures = parallel.each(
            Partition.flush, [p for p in opened if p.log_end_offset > p.recovery_point]
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
            directory.release()
        self._directories, self._partition_index, self._open = [], PartitionIndex(), {}
        self._is_open = False

    # --- partitions ------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return a partition, which is opened if necessary; None if it does not exist here.

        Raises KafkaStorageError when it cannot be opened.
        """
        key = (topic, index)
        partition = self._open.get(key)
        if partition is not None or key not in self._partition_index:
            return partition
        try:
            with self._exclusive_access(key):
                return self._open_partition(key)
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} cannot be opened: {error}") from error

    def opened_partition(self, topic: str, index: int) -> Partition | None:
        """Return a partition if it is open, else None."""
        return self._open.get((topic, index))

    def is_closed(self, topic: str, index: int) -> bool:
        """Tell whether a partition exists here and is not open; opening it may take long."""
        key = (topic, index)
        return key not in self._open and key in self._partition_index

    @contextlib.contextmanager
    def _exclusive_access(self, key: TopicPartition) -> Iterator[None]:
        """Let only this thread open, rename or delete a partition; other partitions are unaffected."""
        with self._changing:
            self._released.wait_for(lambda: key not in self._exclusive)
            self._exclusive.add(key)
        try:
            yield
        finally:
            with self._changing:
                self._exclusive.remove(key)
                self._released.notify_all()

    def names(self) -> list[TopicPartition]:
        """List (topic, partition) of every partition here, open or not."""
        return self._partition_index.names()

    def indexes(self, topic: str) -> frozenset[int]:
        """Return the partition numbers of a topic that exist here, open or not."""
        return self._partition_index.indexes(topic)

    def topic_id(self, topic: str, index: int) -> uuid.UUID | None:
        """Return the topic id written in a partition's directory, without opening the partition.

        None if there is no such partition, or no readable id. Raises KafkaStorageError if the disk
        does not give the file: the log may be anybody's then.
        """
        partition = self._open.get((topic, index))
        if partition is not None:
            return partition.topic_id
        path = self._partition_index.path_of((topic, index))
        if path is None:
            return None
        try:
            return checkpoints.read_topic_id(path)
        except checkpoints.CheckpointError:
            return None
        except OSError as error:
            raise KafkaStorageError(
                f"{topic}-{index}: the topic id cannot be read: {error.strerror or error}"
            ) from error

    def leader_epoch(self, topic: str, index: int) -> int | None:
        """Return a partition's leader epoch; None if `read_leader_epochs` must read it first."""
        key = (topic, index)
        partition = self._open.get(key)
        if partition is not None:
            return partition.leader_epoch
        if key not in self._partition_index:
            return 0
        epoch = self._leader_epochs.get(key)
        return None if epoch is None else max(epoch, self._begun_epochs.get(key, 0))

    def read_leader_epochs(self, keys: Iterable[TopicPartition]) -> None:
        """Read the leader epochs of partitions without opening them; 0 where one cannot be read."""
        for key in keys:
            path = self._partition_index.path_of(key)
            if path is None:
                continue
            try:
                epoch = epochs.read_last_begun(path)
            except OSError:
                epoch = 0  # opening the partition will report the error
            self._leader_epochs[key] = max(0, epoch)

    def begin_leader_epoch(self, topic: str, index: int, epoch: int) -> Partition | None:
        """Let a partition's log begin a leader epoch: now, or when it is opened.

        Returns the partition if it begins the epoch now; None if it is closed, is not here, or has
        reached the epoch. The first append writes the epoch to disk.
        """
        key = (topic, index)
        with self._changing:
            if key not in self._partition_index:
                return None
            self._begun_epochs[key] = epoch
            partition = self._open.get(key)
        if partition is None or partition.leader_epoch >= epoch:
            return None
        partition.leader_epoch = epoch
        return partition

    def partitions(self) -> list[Partition]:
        """Return every partition, opening those that are closed; raises KafkaStorageError."""
        found = [self.partition(*key) for key in self.names()]
        return [partition for partition in found if partition is not None]

    def opened(self) -> list[Partition]:
        """Return the partitions that are open."""
        return list(self._open.values())

    def durable_offset(self, topic: str, index: int) -> int:
        """Return the offset before which the next start takes a log to be durable, even after a crash."""
        directory = self._partition_index.get((topic, index))
        return 0 if directory is None else directory.durable_offset((topic, index))

    def has_sealed_segments(self, topic: str, index: int) -> bool:
        """Tell whether a partition has more segments than its active one, without opening it."""
        partition = self._open.get((topic, index))
        if partition is not None:
            return len(partition.segments) > 1
        path = self._partition_index.path_of((topic, index))
        if path is None:
            return False
        with contextlib.suppress(FileNotFoundError):  # it has just been deleted
            return len(listing.listed(path).base_offsets) > 1
        return False

    def keeps_everything(
        self, topic: str, index: int, now_ms: int, config: TopicConfig | None = None
    ) -> bool:
        """Tell whether a partition is closed and retention has nothing to delete in it.

        Judges by `config` if it is given, else by the topic's settings. Raises KafkaStorageError.
        """
        key = (topic, index)
        directory = self._partition_index.get(key)
        if directory is None or key in self._open or not directory.was_clean:
            return False
        path = directory.path_of(key)
        if config is None:
            config = self._configs.get(topic, self.default_config)
        start = directory.log_start_offsets.get(key, 0)
        try:
            return unopened.keeps_everything(path, config, now_ms, start)
        except FileNotFoundError:
            return False  # it has just been deleted
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} cannot be read: {error}") from error

    def create_partition(
        self, topic: str, topic_id: uuid.UUID, index: int, config: TopicConfig, now_ms: int
    ) -> Partition:
        """Create a partition in the log directory that has the fewest.

        Raises TopicAlreadyExists if it exists, and KafkaStorageError if it cannot be created.
        """
        key = (topic, index)
        if any(key in directory.noted for directory in self._directories):
            self._uncheckpoint(key)
        with self._changing:
            return self._create_partition(topic, topic_id, index, config, now_ms)

    def _uncheckpoint(self, key: TopicPartition) -> None:
        """Remove a deleted log from the checkpoints: a new log of the same name begins at 0."""
        with self._checkpointing, self._changing:
            if key in self._partition_index or not self._is_open:
                return
            for directory in self._directories:
                directory.forget(key)
            try:
                self._write_checkpoints()
            except OSError as error:
                raise KafkaStorageError(f"the checkpoints were not written: {error}") from error

    def _create_partition(
        self, topic: str, topic_id: uuid.UUID, index: int, config: TopicConfig, now_ms: int
    ) -> Partition:
        key = (topic, index)
        if not self._is_open:
            raise KafkaStorageError("the log directories are closed")
        directory = self._partition_index.get(key)
        if directory is not None:
            raise TopicAlreadyExists(f"{topic}-{index} exists in {directory.path}")
        for directory in self._directories:  # they may still know a deleted log of this name
            directory.forget(key)
        directory = min(self._directories, key=attrgetter("partitions"))
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
                producer_id_expiration_ms=self._producer_id_expiration_ms,
                boot_id=self._boot_id,
            )
        except OSError as error:
            with contextlib.suppress(OSError):
                files.remove_directory(path)
            raise KafkaStorageError(f"{topic}-{index} cannot be created: {error}") from error
        self._configs[topic] = config
        self._open[key] = partition
        self._partition_index.put(key, directory)
        return partition

    def delete_partition(self, topic: str, index: int) -> None:
        """Delete a partition, so that appends fail, then remove its files. Nothing if it does not exist.

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
        """Wait until no thread writes files of a partition to be deleted; needs exclusive access."""
        partition = self._open.get(key)
        if partition is not None:
            partition.mark_deleted()

    def _rename_away(self, key: TopicPartition, name: str) -> Path | None:
        """Remove a partition from the index and rename its directory, durably; None if it does not exist.

        Raises OSError.
        """
        with self._exclusive_access(key):
            self._stop(key)
            with self._changing:
                directory = self._partition_index.get(key)
                if directory is None:
                    return None
                away = directory.path / name
                files.rename(directory.path_of(key), away)
                self._open.pop(key, None)
                self._leader_epochs.pop(key, None)
                self._begun_epochs.pop(key, None)
                self._partition_index.remove(key)
        files.sync(directory.path)
        return away

    def delete_topic(self, topic: str) -> None:
        """Delete every partition of a topic; raises KafkaStorageError."""
        with self._changing:
            indexes = sorted(self._partition_index.indexes(topic))
        for index in indexes:
            self.delete_partition(topic, index)
        with self._changing:
            self._configs.pop(topic, None)

    def set_aside(self, topic: str, index: int) -> Path:
        """Rename a partition's directory to `-stray`, as one that belongs to no topic; return its new path.

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
        """Write a topic id into a partition's directory, durably; None removes the id.

        Raises UnknownTopicOrPartition if it does not exist here, and KafkaStorageError.
        """
        key = (topic, index)
        try:
            with self._exclusive_access(key), self._changing:
                directory = self._partition_index.get(key)
                if directory is None:
                    raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
                path = directory.path_of(key)
                if topic_id is None:
                    checkpoints.remove_topic_id(path)
                else:
                    checkpoints.write_topic_id(path, topic_id)
                partition = self._open.get(key)
                if partition is not None:
                    partition.topic_id = topic_id
            if topic_id is not None:
                files.sync(path / filenames.PARTITION_METADATA_FILE)
            files.sync(path)
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} got no topic id: {error}") from error

    def config_of(self, topic: str) -> TopicConfig:
        """Return a topic's settings, or the default ones if none were given."""
        return self._configs.get(topic, self.default_config)

    def set_config(self, topic: str, config: TopicConfig) -> None:
        """Replace a topic's settings, for its open partitions and for those opened later."""
        with self._changing:
            self._configs[topic] = config
            for index in self._partition_index.indexes(topic):
                partition = self._open.get((topic, index))
                if partition is not None:
                    partition.config = config

    def _open_partition(self, key: TopicPartition) -> Partition | None:
        """Open a partition, with exclusive access; None if it does not exist here. Raises OSError."""
        partition = self._open.get(key)
        directory = self._partition_index.get(key)
        if partition is not None or directory is None:
            return partition
        topic, index = key
        path = directory.path_of(key)
        try:
            topic_id = checkpoints.read_topic_id(path)
        except checkpoints.CheckpointError as error:
            _log.warning("topic id unknown", extra={"reason": str(error)})
            topic_id = None
        partition = Partition(
            path,
            topic,
            index,
            topic_id,
            self._configs.get(topic, self.default_config),
            now_ms=self._opened_ms,
            recovery_point=directory.recovery_points.get(key, 0),
            was_clean=directory.was_clean,
            log_start_offset=directory.log_start_offsets.get(key, 0),
            cleaned_offset=directory.cleaned_offsets.get(key),
            producer_id_expiration_ms=self._producer_id_expiration_ms,
            boot_id=self._boot_id,
        )
        with self._changing:
            partition.config = self._configs.get(
                topic, self.default_config
            )  # may have changed meanwhile
            partition.leader_epoch = max(partition.leader_epoch, self._begun_epochs.get(key, 0))
            self._open[key] = partition
        return partition

    def _write_checkpoints(self) -> None:
        """Write the checkpoints, with the offsets read at start for partitions that are closed."""
        for key, partition in list(self._open.items()):
            with self._changing:
                place = self._partition_index.get(key)
                # Meanwhile it may have been deleted and another one of its name created.
                if place is not None and self._open.get(key) is partition:
                    place.note(key, partition)
        for directory in self._directories:
            here = [key for key, place in self._partition_index.items() if place is directory]
            directory.write_checkpoints(here, self._open)
