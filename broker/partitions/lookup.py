"""The logs of this broker by topic and index, open or opened when they are needed.

Raises the errors that a client should get: handlers only make responses of them. The metadata decides who
leads; a log that is still that of a deleted topic of the same name is not served.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.partitions.log_opener import LogOpener
from tidelog.protocol.errors import (
    BrokerError,
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from tidelog.storage.would_block import WouldBlock

if TYPE_CHECKING:
    from tidelog.broker.controller.topics.topics import Topics
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.pools import Pool
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.partition import Partition

log = logging.getLogger("tidelog.node")

ANY_EPOCH = -1  # of a client that does not know the leader epoch


class Leading(Protocol):
    """Whether the logs of this broker lead."""

    def check_leading(self, partition: Partition) -> None:
        """Raises NotLeaderOrFollower unless this broker leads a log, with a session."""


class Partitions:
    """Finds the log of a topic and index, and opens it if that is needed."""

    def __init__(
        self,
        store: LogStore,
        metadata: ClusterMetadata,
        topics: Topics,
        reads: Pool,
        leading: Leading,
    ) -> None:
        self._store, self._metadata, self._topics = store, metadata, topics
        self.opener = LogOpener(store, self.open_log, reads)
        self.leading = leading

    def get(self, topic: str, index: int) -> Partition:
        """Returns a log, opened now if need be: for threads; see `opened`.

        Raises UnknownTopicOrPartition, and KafkaStorageError if it is offline or cannot be opened.
        """
        found = self.open_log(topic, index)
        if found is None:
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        found.check_online()
        return found

    def open_log(self, topic: str, index: int) -> Partition | None:
        """Returns a log, offline or not, opened now if need be; None if there is none.

        One whose partition.metadata has been damaged gets it back, once its topic is whole: before,
        the creation may be withdrawn, and the log be somebody else's. Raises KafkaStorageError.
        """
        found = self._store.partition(topic, index)
        known = self._metadata.image.topics.get(topic)
        if (
            found is not None
            and found.topic_id is None
            and known is not None
            and self._topics.is_whole(known)
        ):
            try:
                self._store.assign_topic_id(topic, index, known.topic_id)
            except BrokerError as error:  # it is served all the same
                extra = {"log": f"{topic}-{index}", "reason": error.message}
                log.warning("topic id not written into log directory", extra=extra)
        return found

    def opened(self, topic: str, index: int) -> Partition:
        """Returns a log if it is open.

        Raises WouldBlock if it is not, UnknownTopicOrPartition, and KafkaStorageError if offline.
        """
        found = self._store.opened_partition(topic, index)
        if found is None:
            if self._store.is_closed(topic, index):
                raise WouldBlock(f"{topic}-{index} has to be opened")
            raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        if found.state.stopped.offline is not None:
            found.check_online()
        return found

    def leader(
        self, topic: str, index: int, epoch: int = ANY_EPOCH, may_block: bool = False
    ) -> Partition:
        """Returns the log of a partition that this broker leads, by the metadata.

        The log must be open, unless the caller `may_block`. `epoch` is the leader epoch that the client
        knows. Raises NotLeaderOrFollower, FencedLeaderEpoch, UnknownLeaderEpoch, what `opened`
        raises, or `get` with `may_block`, and UnknownTopicOrPartition while the log is still that of a
        deleted topic of the same name.
        """
        metadata = self._metadata  # read here, because every produce and fetch asks
        known = metadata.image.topics.get(topic)
        if (
            known is None
            or not 0 <= index < len(known.assignments)
            or known.assignments[index].leader != metadata.node_id
        ):
            check_leader(metadata, topic, index, epoch)  # raises
        found = self._store.opened_partition(topic, index)
        if found is None or found.state.offline is not None:
            found = (self.get if may_block else self.opened)(topic, index)
        log_id = found.state.topic_id
        if known is not None and (
            not self._topics.is_whole(known) if log_id is None else log_id.int != known.topic_id.int
        ):
            # The log of a deleted topic of this name, which is about to be deleted; or one that names
            # no topic, and that a creation in progress will take over if it succeeds.
            raise UnknownTopicOrPartition(f"the log of {topic}-{index} is not created yet")
        self.leading.check_leading(found)
        if epoch != ANY_EPOCH:
            check_leader_epoch(found, epoch)
        return found

    async def open_leader(self, topic: str, index: int) -> Partition:
        """Returns the log of a partition that this broker leads; a thread opens it if it is closed.

        Raises NotLeaderOrFollower, and what `get` raises.
        """
        check_leader(self._metadata, topic, index)
        await self.open(topic, index)
        return self.leader(topic, index)

    async def open(self, topic: str, index: int) -> Partition:
        """Returns a log, opened in a thread if need be; raises what `get` raises."""
        for error in (await self.opener.open([(topic, index)])).values():
            raise error
        return self.opened(topic, index)

    def offline(self) -> list[Partition]:
        """Returns the logs that a failed disk has put offline."""
        return [each for each in self._store.opened() if each.offline is not None]


def check_leader(metadata: ClusterMetadata, topic: str, index: int, epoch: int = ANY_EPOCH) -> None:
    """Checks that this broker leads a partition.

    Raises UnknownTopicOrPartition, and NotLeaderOrFollower if another broker leads it or none does.
    A broker that has a replica first compares the leader epoch of the client with its own, and
    raises FencedLeaderEpoch or UnknownLeaderEpoch (`Partition.getLocalLog` of Kafka).
    """
    known = metadata.image.topics.get(topic)
    if known is None or not 0 <= index < len(known.assignments):
        raise UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
    record = known.assignments[index]
    if record.leader != metadata.node_id:
        if metadata.node_id in record.replicas:
            check_epoch(record.leader_epoch, epoch)
        raise NotLeaderOrFollower(f"broker {record.leader} leads {topic}-{index}")


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Compares the leader epoch that a client knows with that of the leader's log (KIP-320).

    Raises FencedLeaderEpoch for an older one, UnknownLeaderEpoch for one from the future.
    """
    check_epoch(partition.leader_epoch, epoch)


def check_epoch(current: int, epoch: int) -> None:
    """Compares the leader epoch that a client knows with that of a partition (KIP-320).

    Raises FencedLeaderEpoch for an older one, UnknownLeaderEpoch for one from the future.
    """
    if epoch in (ANY_EPOCH, current):
        return
    if epoch < current:
        raise FencedLeaderEpoch(f"epoch {epoch} ended; it is {current} now")
    raise UnknownLeaderEpoch(f"epoch {epoch} is not known yet; it is {current}")
