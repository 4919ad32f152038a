"""Which partitions exist here, which of them are open, and who may change that.

The store reads the table; `lifecycle.py` changes it. Reading needs no lock. A change of an entry
needs `changing`, and a thread that opens, renames or deletes a partition, which may take long, has
exclusive access to it meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from tidelog.storage.directory.partition_index import PartitionIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.config.topic import TopicConfig
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.log.partition import Partition


class PartitionTable:
    """The partitions of one store, and the settings of their topics."""

    def __init__(self, default_config: TopicConfig) -> None:
        """Begins with no partitions. `default_config` is for topics without settings."""
        self.default_config = default_config
        self.configs: dict[str, TopicConfig] = {}
        self.index = PartitionIndex()
        self.opened: dict[TopicPartition, Partition] = {}
        self.unserved: dict[TopicPartition, Partition] = {}
        """Partitions that were created and that nobody may use yet."""
        self.changing = threading.RLock()
        self._exclusive: set[TopicPartition] = set()
        self._released = threading.Condition(self.changing)

    def config_of(self, topic: str) -> TopicConfig:
        """Returns a topic's settings, or the default ones if none were given."""
        return self.configs.get(topic, self.default_config)

    @contextlib.contextmanager
    def exclusive_access(self, key: TopicPartition) -> Iterator[None]:
        """Lets only this thread open, rename or delete a partition.

        Other partitions are unaffected.
        """
        with self.changing:
            self._released.wait_for(lambda: key not in self._exclusive)
            self._exclusive.add(key)
        try:
            yield
        finally:
            with self.changing:
                self._exclusive.remove(key)
                self._released.notify_all()

    def wait_for_exclusive(self) -> None:
        """Waits until no thread has exclusive access to a partition; the caller has `changing`."""
        self._released.wait_for(lambda: not self._exclusive)

    def is_closed(self, key: TopicPartition) -> bool:
        """Returns whether a partition exists here and has to be opened before anybody can use it."""
        return key not in self.opened and key in self.index and key not in self.unserved

    def clear(self) -> None:
        """Forgets every partition."""
        self.index, self.opened, self.unserved = PartitionIndex(), {}, {}
