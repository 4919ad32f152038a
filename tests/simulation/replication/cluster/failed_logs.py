"""The logs of one process that have failed: offline until it ends, and noted twice (decision 33).

The note at the coordinator moves leaderships, and makes the next start unclean. The registration
file says the same, but the disk that failed may not take it. A process that dies before either note
is not simulated: it would start clean, and nobody could know better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.membership import registration

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from tests.simulation.replication.cluster.broker import Broker
    from tidelog.broker.metadata.brokers.records import OfflineRecord
    from tidelog.storage.directory.registration_file import DirectoryState


class FailedLogs:
    """What has failed in one life of a broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.keys: dict[str, None] = {}

    def add(self, keys: Collection[str], *, takes_file: bool) -> None:
        """Lets syncs of some logs fail: they neither lead nor follow any more."""
        broker = self._broker
        broker.world.say("failed", broker, *(key[-6:] for key in keys))
        for key in keys:
            self.keys[key] = None
            replica = broker.replicas[key]
            replica.log.has_failed = True
            replica.stop("its log has failed")
        broker.world.checker.fails(broker, keys)
        if takes_file:
            self._note_in_file()
        broker.report_disk()

    def marked(self, state: DirectoryState | None) -> DirectoryState | None:
        """Returns what a registration file says, as a process knows it that has failed logs."""
        return state._replace(has_failed=True) if state is not None and self.keys else state

    def partitions(self) -> dict[UUID, tuple[int, ...]]:
        """Returns the failed partitions, by their topics."""
        return self._broker.by_topic(self.keys)

    def end(self, offline: OfflineRecord) -> None:
        """The process ends, and would still have to say what is offline: the file says it."""
        if not self.keys:
            return
        broker = self._broker
        image, epoch = broker.image, broker.epoch
        if (
            image is None
            or epoch < 0
            or registration.report_offline(image, broker.id, epoch, offline) is not None
        ):
            self._note_in_file()
        broker.world.checker.loses(broker, all_of_it=True, failed=self.keys)

    def _note_in_file(self) -> None:
        disk = self._broker.disk
        disk.registration = self.marked(disk.registration)
