"""Leader epochs of partitions that need not be open: read from their files, or begun meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.log import epochs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.directory.partition_table import PartitionTable
    from tidelog.storage.log.partition import Partition


class LeaderEpochs:
    """The leader epochs of one store's partitions."""

    def __init__(self, table: PartitionTable) -> None:
        self._table = table
        self._read: dict[TopicPartition, int] = {}  # of partitions that were not open when read
        self._begun: dict[TopicPartition, int] = {}  # by this process; see `begin`

    def known(self, key: TopicPartition) -> int | None:
        """Returns a partition's leader epoch; None if `read` must read it first."""
        partition = self._table.opened.get(key)
        if partition is not None:
            return partition.leader_epoch
        if key not in self._table.index:
            return 0
        epoch = self._read.get(key)
        return None if epoch is None else max(epoch, self._begun.get(key, 0))

    def read(self, keys: Iterable[TopicPartition]) -> None:
        """Reads the leader epochs of partitions without opening them.

        0 where one cannot be read.
        """
        for key in keys:
            path = self._table.index.path_of(key)
            if path is None:
                continue
            try:
                epoch = epochs.read_last_begun(path)
            except OSError:
                epoch = 0  # opening the partition will report the error
            self._read[key] = max(0, epoch)

    def begin(self, key: TopicPartition, epoch: int) -> Partition | None:
        """Lets a partition's log begin a leader epoch: now, or when it is opened.

        Returns the partition if it begins the epoch now; None if it is closed, is not here, or has
        reached the epoch. The first append writes the epoch to disk.
        """
        with self._table.changing:
            if key not in self._table.index:
                return None
            self._begun[key] = epoch
            partition = self._table.opened.get(key)
        if partition is None or partition.leader_epoch >= epoch:
            return None
        partition.leader_epoch = epoch
        return partition

    def begun(self, key: TopicPartition) -> int:
        """Returns the leader epoch that a partition begins when it is opened; 0 if none."""
        return self._begun.get(key, 0)

    def forget(self, key: TopicPartition) -> None:
        """Forgets a partition that is no longer here."""
        self._read.pop(key, None)
        self._begun.pop(key, None)
