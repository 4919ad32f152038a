"""What requests over HTTP, and the control listener, need of the broker; `boot.py` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.api.services import Services as Below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.metrics.cluster_watch import ClusterWatch
    from tidelog.broker.network.accepting.descriptors import Descriptors
    from tidelog.broker.network.accepting.listener import Listener


class Services(Below, Protocol):
    """What requests over HTTP, and the control listener, need."""

    @property
    def cluster_watch(self) -> ClusterWatch | None: ...

    @property
    def descriptors(self) -> Descriptors: ...

    @property
    def told(self) -> Sequence[Listener]: ...
