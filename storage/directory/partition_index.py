"""The partitions that exist, open or not, and the log directory of each.

One thread at a time may change it, which the store ensures; any thread may read it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog.storage import filenames, files
from tidelog.storage.directory.log_directory import LogDirectoryError

if TYPE_CHECKING:
    from pathlib import Path

    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.directory.log_directory import LogDirectory


_log = logging.getLogger("tidelog.storage")


class PartitionIndex:
    """A map from (topic, partition) to its log directory."""

    def __init__(self) -> None:
        """Begins with no partitions."""
        self._directories: dict[TopicPartition, LogDirectory] = {}
        self._indexes: dict[str, set[int]] = {}  # the partitions of each topic

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._directories

    def get(self, key: TopicPartition) -> LogDirectory | None:
        """Returns the log directory of a partition, None if the partition does not exist here."""
        return self._directories.get(key)

    def path_of(self, key: TopicPartition) -> Path | None:
        """Returns a partition's own directory, None if the partition does not exist here."""
        directory = self._directories.get(key)
        return None if directory is None else directory.path_of(key)

    def items(self) -> list[tuple[TopicPartition, LogDirectory]]:
        """Lists the partitions with their log directories, as of now."""
        return list(dict(self._directories).items())

    def names(self) -> list[TopicPartition]:
        """Lists the partitions in order."""
        return sorted(self._directories)

    def indexes(self, topic: str) -> frozenset[int]:
        """Returns the partition numbers of a topic."""
        return frozenset(self._indexes.get(topic, ()))

    def put(self, key: TopicPartition, directory: LogDirectory) -> None:
        """Adds a partition to a log directory."""
        self._directories[key] = directory
        self._indexes.setdefault(key[0], set()).add(key[1])
        directory.partitions += 1

    def remove(self, key: TopicPartition) -> None:
        """Removes a partition, also from the next checkpoints of its log directory."""
        directory = self._directories.pop(key)
        indexes = self._indexes[key[0]]
        indexes.discard(key[1])
        if not indexes:
            del self._indexes[key[0]]
        directory.partitions -= 1
        directory.forget(key)

    def find(self, directory: LogDirectory) -> None:
        """Adds the partitions found in a log directory, and removes what deletions have left there.

        Raises OSError, and LogDirectoryError if a partition is also in another log directory.
        """
        for path in directory.path.iterdir():
            if not path.is_dir() or path.name == filenames.BROKERS_DIRECTORY:
                continue
            if filenames.is_deleted_directory(path.name):
                files.remove_directory(path)
                continue
            key = filenames.parse_partition_directory(path.name)
            if key is None or key[0] == filenames.METADATA_LOG:
                _log.info("directory in log directory ignored", extra={"directory": path})
                continue
            other = self._directories.get(key)
            if other is not None:
                raise LogDirectoryError(
                    f"{path.name} is in {directory.path} and in {other.path}: one of them has to go"
                )
            self.put(key, directory)
