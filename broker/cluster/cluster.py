"""What the other parts of a broker ask about its cluster: who is there, and whether it serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.replication.lease import Lease
from broker.replication.messages import BrokerStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.node import Node
    from broker.replication.messages import BrokerView

NO_SESSION = -1


class Cluster:
    """The cluster as one of its brokers takes part in it; all methods run on the event loop."""

    def __init__(self, node: Node) -> None:
        """Begins without a session."""
        config = node.config
        self.me = config.node_id
        self.rack = config.broker_rack
        self.lease_ms = config.broker_session_timeout_ms
        self.epoch = NO_SESSION
        """The broker epoch of the session (KIP-903), -1 while there is none."""
        self._node = node
        self.lease = Lease(self.lease_ms, self.now_ms() - self.lease_ms)
        """The lease of the session; it is over while there is no session."""
        self._begun: list[Callable[[int], None]] = []
        self._lost: list[Callable[[str], None]] = []

    def now_ms(self) -> int:
        """Returns milliseconds of the monotonic clock by which the lease is measured."""
        return int(self._node.clock.monotonic_s() * 1000)

    @property
    def revision(self) -> int:
        """The revision of the image."""
        return self._node.metadata.image.revision

    @property
    def is_serving(self) -> bool:
        """Whether this broker is registered, and not fenced in its own image."""
        live = self._node.metadata.image.brokers.get(self.me)
        return live is not None and live.epoch == self.epoch and not live.record.is_fenced

    def view(self) -> BrokerView:
        """Returns the brokers that have a session in the image."""
        return {
            broker: BrokerStatus(live.epoch, live.record.is_fenced, live.record.is_stopping)
            for broker, live in self._node.metadata.image.brokers.items()
        }

    def on_session(self, begun: Callable[[int], None], lost: Callable[[str], None]) -> None:
        """Calls `begun` with the broker epoch of each session, and `lost` with why it has ended.

        At `begun` the image shows the session. At `lost` nothing may be served any more.
        """
        self._begun.append(begun)
        self._lost.append(lost)
