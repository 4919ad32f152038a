"""The open connections: their limit, the idle ones, responses not read yet, and what was refused.

When there are as many as there may be, one that has been silent for long is closed for the next one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from tidelog.broker.logging.repeats import Repeats
from tidelog.broker.network.accepting.admission import (
    TOO_FAST,
    TOO_FEW_DESCRIPTORS,
    TOO_MANY,
    Admission,
)
from tidelog.broker.network.accepting.descriptors import Descriptors
from tidelog.broker.network.accepting.over_limit import OverLimit
from tidelog.broker.network.accepting.silent import Silent, is_silent
from tidelog.broker.network.answers import Excessive, Folded, NoRoom
from tidelog.broker.network.stream.incoming import ARRIVING_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.clock import Clock
    from tidelog.broker.metadata.cluster import ClusterMetadata
    from tidelog.broker.metadata.image import Image
    from tidelog.broker.metrics.counters import Metrics
    from tidelog.broker.network.answers import CloseConnection
    from tidelog.broker.network.connection import Connection
    from tidelog.broker.network.memory.memory import Memory
    from tidelog.broker.settings import Settings

log = logging.getLogger("tidelog.connection")

# The size of fetches shrinks towards this where slow readers leave much in memory.
_LEAST_FETCH_BYTES = 64 << 10
_READERS = 8  # threads that read or convert
_WATCH_INTERVAL_S = 1.0


class Connections:
    """The connections of one broker."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        memory: Memory,
        clock: Clock,
        metadata: ClusterMetadata,
        descriptors: Descriptors | None = None,
    ) -> None:
        """`memory` counts the bytes of answers that peers have not read."""
        self._settings = settings
        self._clock, self._metadata = clock, metadata
        self._descriptors = descriptors or Descriptors()
        self._metrics = metrics
        self._open: set[Connection] = set()
        self._admission = Admission(settings)
        self._over_limit = OverLimit()  # some of the open connections
        self._silent = Silent()
        self.refusals = Repeats()  # by host, those of HTTP too
        self._memory = memory
        self.arriving = memoryview(bytearray(ARRIVING_BYTES))  # see `Incoming`

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Adds a new connection and returns True, unless a limit refuses it.

        While too many are made in a second, the connection is not read before its turn.
        """
        now_s = self._clock.monotonic_s()
        host, image = connection.session.host, self._metadata.image
        full = self._why_full(connection, image)
        if full and not self._admission.refusal(host) and self._close_silent(now_s):
            full = None if self._within < self.most(image) else full
        wait_s = full or self._admission.admit(host, now_s, image.quotas)
        if wait_s in (TOO_MANY, TOO_FEW_DESCRIPTORS, TOO_FAST):
            wait_s = self._admit_over_limit(connection, str(wait_s))
        if isinstance(wait_s, str):
            self._no_room(connection, wait_s)
            return False
        self._open.add(connection)
        self._metrics.connections_made += 1
        if wait_s:
            self._metrics.connections_delayed += 1
            connection.delay(wait_s)
        return True

    @property
    def _within(self) -> int:
        """How many are open within the limits."""
        return len(self._open) - len(self._over_limit)

    def most(self, image: Image) -> int:
        """Returns how many connections clients may have: max.connections, or what descriptors allow."""
        config, others = self._settings.broker, len(image.registrations) - 1
        http = config.http.http_max_connections if config.http.address else 0
        allowed = self._descriptors.clients(http=http, other_brokers=max(others, 0))
        return min(config.connections.max_connections, allowed)

    def _why_full(self, connection: Connection, image: Image) -> str | None:
        """Returns why there is no room for a new connection beside those of clients, None if there is."""
        most = self.most(image)
        if self._within >= most:
            is_set = most == self._settings.broker.connections.max_connections
            return TOO_MANY if is_set else TOO_FEW_DESCRIPTORS
        are_short = self._descriptors.are_short(connection.descriptor)
        return TOO_FEW_DESCRIPTORS if are_short else None

    def _close_silent(self, now_s: float) -> bool:
        """Closes the connection that has been silent for longest; returns whether there was one."""
        silent = self._silent.longest(self._open, now_s)
        if silent is None:
            return False
        self._metrics.connections_silent += 1
        self.discard(silent)
        silent.expire()
        return True

    def _admit_over_limit(self, connection: Connection, refusal: str) -> float | str:
        """Admits a connection beyond the limits, which may be of another broker; see `OverLimit`.

        One that was here before may have to leave. Returns 0.0, or why the new one is refused.
        """
        has_room, leaves = self._over_limit.make_room(
            self._metadata.image, self._settings.broker.cluster.node_id
        )
        if not has_room:
            return refusal
        admitted = self._admission.admit_over_limit(connection.session.host)
        if isinstance(admitted, str):
            return admitted
        if leaves is not None:
            self._no_room(leaves, TOO_MANY)
            self.discard(leaves)
            leaves.abort()
        self._over_limit.add(connection)
        return admitted

    def _no_room(self, connection: Connection, reason: str) -> None:
        """Counts and logs that a connection is closed because there are too many."""
        self._metrics.connections_refused += 1
        if self.is_shown(connection, reason):
            log.warning("connection refused", extra={"peer": connection.peer, "reason": reason})

    def is_shown(self, connection: Connection, reason: str) -> bool:
        """Counts a log line that a client can cause at will; returns whether it is still to be logged."""
        now_s = self._clock.monotonic_s()
        return self.refusals.is_shown(connection.session.host, reason, now_s)

    def refused(self, connection: Connection, reason: str | CloseConnection) -> None:
        """Counts and logs that a connection is closed because of invalid data, or for lack of room."""
        if isinstance(reason, NoRoom):
            self._no_room(connection, reason.kind)
            return
        self._metrics.bad_requests += 1
        if isinstance(reason, Excessive):
            self._metrics.excessive_requests += 1
        if not isinstance(reason, Folded) or self.is_shown(connection, reason.kind):
            log.warning("connection closed", extra={"peer": connection.peer, "reason": reason})

    def refused_for_memory(self, connection: Connection, reason: str) -> None:
        """Counts and logs that a connection is closed because of the memory that it takes."""
        self._memory.requests.refused += 1
        if self.is_shown(connection, reason):
            log.warning("connection closed", extra={"peer": connection.peer, "reason": reason})

    def log_repeated(self) -> None:
        """Logs how often requests were refused that were not logged each time."""
        for host, reason, times in self.refusals.take_repeated(self._clock.monotonic_s()):
            log.warning("connections closed", extra={"host": host, "reason": reason, "more": times})

    def discard(self, connection: Connection) -> None:
        """Removes a closed connection; one that was refused is not there."""
        if connection in self._open:
            self._open.remove(connection)
            self._over_limit.discard(connection)
            self._admission.discard(connection.session.host)

    def close_idle(self) -> int:
        """Closes the connections that were idle for connections.max.idle.ms.

        Returns their number.
        """
        oldest_s = self._clock.monotonic_s() - self._settings.broker.connections_max_idle_ms / 1000
        idle = [each for each in self._open if is_silent(each, oldest_s)]
        for connection in idle:
            connection.expire()
        return len(idle)

    async def watch(self) -> None:
        """Closes connections whose peers leave a request incomplete, for as long as the broker runs."""
        while True:
            await asyncio.sleep(_WATCH_INTERVAL_S)
            now_s = self._clock.monotonic_s()
            for connection in list(self._open):
                connection.cut_if_stalled(now_s)

    def fetch_room(self, *, in_thread: bool = False) -> int:
        """Returns the most bytes of records for one response: fewer if peers do not read theirs.

        What is read in threads is counted only when it is sent, so each of them gets a part.
        """
        free_bytes = self._memory.answers.free_bytes
        return min(
            self._settings.broker.fetches.fetch_max_bytes,
            max(_LEAST_FETCH_BYTES, free_bytes // _READERS if in_thread else free_bytes),
        )

    def replica_fetch_room(self) -> int:
        """Returns the most bytes of records for one answer to a follower."""
        return max(_LEAST_FETCH_BYTES, self._memory.replication.free_bytes)
