"""What requests on partitions need of the broker; `boot.py` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.maintenance.services import Services as Below
from tidelog.broker.network.services import Replication as BelowReplication

if TYPE_CHECKING:
    from uuid import UUID

    from tidelog.broker.metrics.time_watch import TimeWatch
    from tidelog.broker.network.accepting.connections import Connections
    from tidelog.broker.partitions.appends import Appends
    from tidelog.broker.partitions.lookup import Partitions
    from tidelog.broker.partitions.waiting import Waiting


class Replication(BelowReplication, Protocol):
    """The replicas of this broker's logs."""

    def is_suspended(self, topic_id: UUID, index: int) -> bool:
        """Returns whether this broker leads a partition, and does not know whether another one does."""


class Services(Below, Protocol):
    """What requests on partitions need."""

    @property
    def appends(self) -> Appends: ...

    @property
    def connections(self) -> Connections: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def replicas(self) -> Replication: ...

    @property
    def time_watch(self) -> TimeWatch: ...

    @property
    def waiting(self) -> Waiting: ...
