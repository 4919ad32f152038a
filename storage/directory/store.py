"""The partitions of all log directories: which there are, and which are open.

`log_directory` is about the files beside them. `meta.properties` and whatever else lies there is left alone.

After a clean stop a partition is opened when it is first asked for and nothing of its log is read;
after any other, all are recovered at start. A deleted partition is renamed, which takes effect
at once, then removed; what a crash left of it is removed at the next start. What belongs to nobody
is never removed: it is renamed to `-stray`, as Kafka does, and left alone from then on.
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
from storage.log.recovery import loading

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from config.topic import TopicConfig

    Key = tuple[str, int]
    Offsets = dict[Key, int]

_log = logging.getLogger("tidelog.storage")


class LogStore:
    """All partitions of this broker.

    May be used by several threads at once. Whoever opens a partition, which may take seconds, keeps
    waiting only those who want that one opened or gone. `close` waits for them, and for a checkpoint that
    is being written; one that comes after it does nothing.
    """

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        default_config: TopicConfig,
        producer_id_expiration_ms: int = 86_400_000,
        boot_id: str = "",
    ) -> None:
        """Name the directories; `open` touches them.

        `default_config` is for partitions of topics that nobody has described. `boot_id` names this
        start of the machine, so that a power loss can be told from a killed process.
        """
        self.log_dirs = tuple(log_dirs)
        self.default_config = default_config
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._boot_id = boot_id
        self._directories: list[LogDirectory] = []
        self._partition_index = PartitionIndex()
        self._open: dict[Key, Partition] = {}
        self._configs: dict[str, TopicConfig] = {}
        self._leader_epochs: dict[Key, int] = {}  # of partitions that were closed when asked for
        self._opened_ms = 0
        self._changing = threading.RLock()  # which partitions there are, and which are open
        self._alone: set[Key] = set()  # partitions that a thread opens, renames or deletes
        self._let_go = threading.Condition(self._changing)
        self._checkpointing = threading.RLock()  # one at a time, and none after the last

    # --- start and stop --------------------------------------------------------------------------

    def open(self, now_ms: int, configs: Mapping[str, TopicConfig] | None = None) -> None:
        """Lock the directories and find the partitions, recovering them after an unclean stop.

        `configs` are the settings of topics by name. Raises LogDirectoryError.
        """
        with self._checkpointing, self._changing:
            self._find_everything(now_ms, configs)

    def _find_everything(self, now_ms: int, configs: Mapping[str, TopicConfig] | None) -> None:
        self._opened_ms = now_ms
        self._configs = dict(configs or {})
        try:
            for path in self.log_dirs:
                files.make_directories(path)
                directory = LogDirectory(path)
                self._directories.append(directory)
                self._partition_index.find(directory)
            for key, directory in self._partition_index.items():
                if not directory.was_clean:
                    self._open_partition(key)
        except OSError as error:
            self._release()
            raise LogDirectoryError(
                f"log directory {error.filename or path} cannot be used: {error.strerror}"
            ) from error
        except BaseException:
            self._release()
            raise

    def close(self) -> None:
        """Close every partition, write the checkpoints and the mark of a clean stop, unlock.

        Raises KafkaStorageError when a disk fails; then the next start recovers.
        """
        with self._checkpointing, self._changing:
            self._let_go.wait_for(lambda: not self._alone)
            self._close()

    def _close(self) -> None:
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
        """Make every log durable and note up to where, which bounds the recovery after a crash.

        Meant for a thread, now and then. Raises KafkaStorageError.
        """
        with self._checkpointing:
            if self._directories:
                self._checkpoint()

    def _checkpoint(self) -> None:
        opened = list(self._open.values())  # of ten thousand most have nothing new
        failures = parallel.each(
            Partition.flush, [p for p in opened if p.log_end_offset > p.recovery_point]
        )
        try:
            self._write_checkpoints()
        except OSError as error:
            raise KafkaStorageError(f"the checkpoints were not written: {error}") from error
        for partition, failure in failures.items():
            if partition.offline is None:  # that has been said, once
                raise failure

    def _release(self) -> None:
        for directory in self._directories:
            directory.release()
        self._directories, self._partition_index, self._open = [], PartitionIndex(), {}

    # --- partitions ------------------------------------------------------------------------------

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return a partition, opened now if need be; None when there is none here.

        Raises KafkaStorageError when it cannot be opened.
        """
        key = (topic, index)
        partition = self._open.get(key)
        if partition is not None or key not in self._partition_index:
            return partition
        try:
            with self._alone_with(key):
                return self._open_partition(key)
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} cannot be opened: {error}") from error

    def opened_partition(self, topic: str, index: int) -> Partition | None:
        """Return a partition that is open; None when there is none here, or it is closed."""
        return self._open.get((topic, index))

    def is_closed(self, topic: str, index: int) -> bool:
        """Tell whether a partition is here and not open: opening it may take long."""
        key = (topic, index)
        return key not in self._open and key in self._partition_index

    @contextlib.contextmanager
    def _alone_with(self, key: Key) -> Iterator[None]:
        """Be the only one to open, rename or delete a partition; all others go on."""
        with self._changing:
            self._let_go.wait_for(lambda: key not in self._alone)
            self._alone.add(key)
        try:
            yield
        finally:
            with self._changing:
                self._alone.remove(key)
                self._let_go.notify_all()

    def names(self) -> list[tuple[str, int]]:
        """List (topic, partition) of everything here, opened or not."""
        return self._partition_index.names()

    def indexes(self, topic: str) -> frozenset[int]:
        """Return the partitions of a topic that are here, opened or not."""
        return self._partition_index.indexes(topic)

    def topic_id(self, topic: str, index: int) -> uuid.UUID | None:
        """Return the topic id a partition's directory names, without opening it.

        None when there is no such partition, or it does not say.
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

    def leader_epoch(self, topic: str, index: int) -> int | None:
        """Return a partition's leader epoch; None where `read_leader_epochs` has to read it first."""
        key = (topic, index)
        partition = self._open.get(key)
        if partition is not None:
            return partition.leader_epoch
        return self._leader_epochs.get(key) if key in self._partition_index else 0

    def read_leader_epochs(self, keys: Iterable[Key]) -> None:
        """Read the leader epochs of partitions, which stay closed; 0 where it cannot be read."""
        for key in keys:
            path = self._partition_index.path_of(key)
            if path is None:
                continue
            try:
                epoch = epochs.read_last_begun(path)
            except OSError:
                epoch = 0  # opening it will fail, too
            self._leader_epochs[key] = max(0, epoch)

    def partitions(self) -> list[Partition]:
        """Return every partition, opening those that are not; raises KafkaStorageError."""
        found = [self.partition(*key) for key in self.names()]
        return [partition for partition in found if partition is not None]

    def opened(self) -> list[Partition]:
        """Return the partitions that are open already."""
        return list(self._open.values())

    def durable_offset(self, topic: str, index: int) -> int:
        """Return up to where the next start will believe, after whatever end, that a log is durable."""
        directory = self._partition_index.get((topic, index))
        return 0 if directory is None else directory.durable_offset((topic, index))

    def has_sealed_segments(self, topic: str, index: int) -> bool:
        """Tell whether a partition has more than its active segment; it is not opened for that."""
        partition = self._open.get((topic, index))
        if partition is not None:
            return len(partition.segments) > 1
        path = self._partition_index.path_of((topic, index))
        if path is None:
            return False
        with contextlib.suppress(FileNotFoundError):  # it has just been deleted
            return len(loading.listed(path).base_offsets) > 1
        return False

    def keeps_everything(
        self, topic: str, index: int, now_ms: int, config: TopicConfig | None = None
    ) -> bool:
        """Tell whether a partition is closed and retention would find nothing to delete there.

        By other settings than the topic's where `config` is given. Raises KafkaStorageError.
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
        """Make a partition in the log directory that has the fewest.

        Raises TopicAlreadyExists when it is here already, KafkaStorageError when it cannot be made.
        """
        key = (topic, index)
        if any(key in directory.noted for directory in self._directories):
            self._uncheckpoint(key)
        with self._changing:
            return self._create_partition(topic, topic_id, index, config, now_ms)

    def _uncheckpoint(self, key: Key) -> None:
        """Have no checkpoint speak of a log that is gone: a new one of its name begins at 0."""
        with self._checkpointing, self._changing:
            if key in self._partition_index or not self._directories:
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
        if not self._directories:
            raise KafkaStorageError("the log directories are closed")
        directory = self._partition_index.get(key)
        if directory is not None:
            raise TopicAlreadyExists(f"{topic}-{index} exists in {directory.path}")
        for directory in self._directories:  # a log of this name that is gone may be known still
            directory.forget(key)
        directory = min(self._directories, key=attrgetter("partitions"))
        path = directory.path_of(key)
        try:
            files.make_directory(path)
        except OSError as error:  # what may be there already is not ours to remove
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
        """Take a partition away: no more appends, then its files. Nothing if it is not here.

        Raises KafkaStorageError.
        """
        name = filenames.deleted_directory(topic, index, uuid.uuid4().hex)
        try:
            gone = self._rename_away((topic, index), name)
            if gone is not None:
                files.remove_directory(gone)
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} cannot be deleted: {error}") from error

    def _stop(self, key: Key) -> None:
        """Wait for whoever writes files of a partition that is to go; for one alone with it."""
        partition = self._open.get(key)
        if partition is not None:
            partition.mark_deleted()

    def _rename_away(self, key: Key, name: str) -> Path | None:
        """Have a partition no more, and its directory named so, durably; None if it is not here.

        Raises OSError.
        """
        with self._alone_with(key):
            self._stop(key)
            with self._changing:
                directory = self._partition_index.get(key)
                if directory is None:
                    return None
                away = directory.path / name
                files.rename(directory.path_of(key), away)
                self._open.pop(key, None)
                self._leader_epochs.pop(key, None)
                self._partition_index.remove(key)
        files.sync(directory.path)
        return away

    def delete_topic(self, topic: str) -> None:
        """Take every partition of a topic away; raises KafkaStorageError."""
        with self._changing:
            indexes = sorted(self._partition_index.indexes(topic))
        for index in indexes:
            self.delete_partition(topic, index)
        with self._changing:
            self._configs.pop(topic, None)

    def set_aside(self, topic: str, index: int) -> Path:
        """Rename a partition's directory to one of nobody's (`-stray`); return its new path.

        Raises UnknownTopicOrPartition where it is not here, KafkaStorageError.
        """
        name = filenames.stray_directory(topic, index, uuid.uuid4().hex)
        try:
            away = self._rename_away((topic, index), name)
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} cannot be set aside: {error}") from error
        if away is None:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        return away

    def assign_topic_id(self, topic: str, index: int, topic_id: uuid.UUID) -> None:
        """Write down whose a partition is.

        Raises UnknownTopicOrPartition where it is not here, KafkaStorageError.
        """
        key = (topic, index)
        try:
            with self._alone_with(key), self._changing:
                directory = self._partition_index.get(key)
                if directory is None:
                    raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
                path = directory.path_of(key)
                checkpoints.write_topic_id(path, topic_id)
                partition = self._open.get(key)
                if partition is not None:
                    partition.topic_id = topic_id
            files.sync(path / filenames.PARTITION_METADATA_FILE)
            files.sync(path)
        except OSError as error:
            raise KafkaStorageError(f"{topic}-{index} got no topic id: {error}") from error

    def config_of(self, topic: str) -> TopicConfig:
        """Return a topic's settings; the default where nobody has described it."""
        return self._configs.get(topic, self.default_config)

    def set_config(self, topic: str, config: TopicConfig) -> None:
        """Replace a topic's settings, for its partitions open now and for those opened later."""
        with self._changing:
            self._configs[topic] = config
            for index in self._partition_index.indexes(topic):
                partition = self._open.get((topic, index))
                if partition is not None:
                    partition.config = config

    def _open_partition(self, key: Key) -> Partition | None:
        """Open a partition that nobody else opens meanwhile; None when it is not here. Raises OSError."""
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
            partition.config = self._configs.get(topic, self.default_config)  # may be new by now
            self._open[key] = partition
        return partition

    def _write_checkpoints(self) -> None:
        """Write what is known of open partitions; of the others, what was read at the start."""
        for key, partition in list(self._open.items()):
            with self._changing:
                place = self._partition_index.get(key)
                # Another of its name may have come since.
                if place is not None and self._open.get(key) is partition:
                    place.note(key, partition)
        for directory in self._directories:
            here = [key for key, place in self._partition_index.items() if place is directory]
            directory.write_checkpoints(here, self._open)
