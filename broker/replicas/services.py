"""What replication needs of the broker; `boot.py` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.cluster.services import Services as Below

if TYPE_CHECKING:
    from tidelog.broker.cluster.cluster import Cluster
    from tidelog.broker.replicas.replicas import Replicas


class Services(Below, Protocol):
    """What replication needs."""

    @property
    def cluster(self) -> Cluster | None: ...

    @property
    def replicas(self) -> Replicas | None: ...
