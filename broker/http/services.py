"""The services that HTTP and the control listener use; `boot.py` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.api.services import Services as Below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.metrics.cluster_watch import ClusterWatch
    from tidelog.broker.network.accepting.descriptors import Descriptors
    from tidelog.broker.network.accepting.listener import Listener


class Services(Below, Protocol):
    """The services that HTTP and the control listener use."""

    @property
    def cluster_watch(self) -> ClusterWatch: ...

    @property
    def descriptors(self) -> Descriptors: ...

    @property
    def advertised_listeners(self) -> Sequence[Listener]: ...
