"""What connections and the dispatch of requests need of the broker; `boot.py` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tidelog.broker.clock import Clock
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metrics.counters import Metrics
    from tidelog.broker.network.accepting.listener import Listener
    from tidelog.broker.network.answers import CloseConnection
    from tidelog.broker.network.encoded import EncodedOnce
    from tidelog.broker.network.impostors import Impostors
    from tidelog.broker.network.memory.memory import Memory
    from tidelog.broker.network.scheduler import Scheduler
    from tidelog.broker.pools import Pools
    from tidelog.broker.quotas.clients import ClientQuotas
    from tidelog.broker.security.authorizer import Authorizer
    from tidelog.broker.settings import Settings
    from tidelog.config import BrokerConfig
    from tidelog.protocol.message import RequestHeader


class Senders(Protocol):
    """Whether requests come from other brokers of the cluster."""

    def is_proven(self, header: RequestHeader) -> bool:
        """Returns whether a request proves that a broker sent it."""

    def believes(self, claim: Any) -> bool:
        """Returns whether a request of an older tidelog, which proves nothing, is a broker's."""


class Replication(Protocol):
    """The replicas of this broker's logs."""

    @property
    def senders(self) -> Senders: ...


class OpenConnections(Protocol):
    """The open connections of the broker, as each of them needs them: it passes itself."""

    @property
    def arriving(self) -> memoryview:
        """Where the bytes of all connections arrive."""

    def admit(self, connection: Any) -> bool:
        """Adds a new connection and returns True, unless a limit refuses it."""

    def discard(self, connection: Any) -> None:
        """Removes a closed connection; one that was refused is not there."""

    def is_shown(self, connection: Any, reason: str) -> bool:
        """Counts a log line that a client can cause at will; returns whether it is still to be logged."""

    def refused(self, connection: Any, reason: str | CloseConnection) -> None:
        """Counts and logs that a connection is closed because of invalid data, or for lack of room."""

    def refused_for_memory(self, connection: Any, reason: str) -> None:
        """Counts and logs that a connection is closed because of the memory that it takes."""


class Services(Protocol):
    """What connections and the dispatch of requests need."""

    @property
    def authorizer(self) -> Authorizer: ...

    @property
    def client_quotas(self) -> ClientQuotas: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def connections(self) -> OpenConnections: ...

    @property
    def encoded(self) -> EncodedOnce: ...

    @property
    def impostors(self) -> Impostors: ...

    @property
    def listeners(self) -> list[Listener]:
        """The listeners that are bound, in the order of the setting."""

    @property
    def memory(self) -> Memory: ...

    @property
    def metadata(self) -> ClusterMetadata: ...

    @property
    def metrics(self) -> Metrics: ...

    @property
    def pools(self) -> Pools: ...

    @property
    def replicas(self) -> Replication: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def scheduler(self) -> Scheduler: ...
