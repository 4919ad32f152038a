"""Quotas around one request: what it takes is counted when it is answered, and its connection waits.

A client that is over a quota gets its answer at once, with throttle_time_ms, and its connection is muted for
that time, as in Kafka: what it sends meanwhile is neither read nor served. So a client that ignores the
time is held as well. An answer to a fetch that is over the quota is empty
(`broker/partitions/fetch/client_fetch.py`).

The time of a request is that which it keeps the event loop; work in threads does not count. Requests of other
brokers, for replicas and transactions, are exempt.
"""

from __future__ import annotations

from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.network.answers import NO_RESPONSE, Encoded, Pending
from tidelog.broker.quotas.entity import FETCH, MUTATION, PRODUCE, REQUEST
from tidelog.config.setting import INT_MAX
from tidelog.protocol.errors import ThrottlingQuotaExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tidelog.broker.network.context import ClientConnection, Context
    from tidelog.broker.network.routes import Route
    from tidelog.broker.network.services import Services
    from tidelog.broker.quotas.clients import ClientLimits
    from tidelog.broker.quotas.entity import Limit
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.message import RequestHeader

_PRODUCE, _METADATA = 0, 3
_ADD_PARTITIONS, _WRITE_MARKERS = 24, 27
_FROM_BROKERS_SINCE: Final = 4  # AddPartitionsToTxn
_THROTTLE_FIRST_SINCE: Final = 3  # Metadata begins with throttle_time_ms
_PERCENT: Final = 100.0


def of_request(
    services: Services,
    connection: ClientConnection,
    header: RequestHeader,
    size_bytes: int,
    started_s: float,
) -> RequestQuota | None:
    """Returns what counts a request; None if its client has no quota, or another broker asks."""
    key = header.api_key
    if key == _WRITE_MARKERS or (
        key == _ADD_PARTITIONS and header.api_version >= _FROM_BROKERS_SINCE
    ):
        return None
    if services.replicas.senders.is_proven(header):
        return None
    limits = services.client_quotas.of(
        services.metadata.image.quotas, connection.session.principal.name, header.client_id or ""
    )
    if limits is None:
        return None
    return RequestQuota(services, connection, limits, header, size_bytes, started_s)


class RequestQuota:
    """What one request of a client with quotas takes, and for how long its connection waits then."""

    def __init__(
        self,
        services: Services,
        connection: ClientConnection,
        limits: ClientLimits,
        header: RequestHeader,
        size_bytes: int,
        started_s: float,
    ) -> None:
        self._services, self._connection, self._limits = services, connection, limits
        self._header, self._size_bytes = header, size_bytes
        # Since when the request has held the loop this time, for how long it did before, and whether that
        # is counted already.
        self._from_s, self._held_s, self._has_worked = started_s, 0.0, False
        self._waits: list[tuple[int, str, Limit]] = []

    # -- for handlers ----------------------------------------------------------------------------

    def most_fetch_bytes(self, most_bytes: int) -> int:
        """Returns the most bytes that a fetch may get without being held back for ever."""
        limit = self._limits.fetch
        if limit is None:
            return most_bytes
        return min(most_bytes, self._services.client_quotas.max_burst_bytes(limit))

    def holds_back(self, size_bytes: int) -> bool:
        """Counts what a fetch has read; returns whether its answer has to be empty for now.

        A batch that is larger than what the quota ever allows at once is answered if nothing was before.
        """
        quotas, limit, now_ms = self._services.client_quotas, self._limits.fetch, self._now_ms()
        self._work(now_ms)
        if limit is None:
            return bool(self._waits)
        is_alone = size_bytes > quotas.max_burst_bytes(limit) and quotas.is_idle(
            FETCH, limit, now_ms
        )
        self._note(FETCH, limit, quotas.record(FETCH, limit, size_bytes, now_ms))
        if is_alone or not self._waits:
            return False
        quotas.unrecord(FETCH, limit, size_bytes, now_ms)
        return True

    def check_change(self) -> None:
        """Raises ThrottlingQuotaExceeded if the client has changed too many partitions."""
        limit = self._limits.mutation
        if limit is None:
            return
        wait_ms = self._services.client_quotas.mutation_wait_ms(limit, self._now_ms())
        if wait_ms:
            self._note(MUTATION, limit, wait_ms)
            raise ThrottlingQuotaExceeded

    def changed(self, partitions: int, *, is_strict: bool) -> None:
        """Counts partitions that were changed; a client that `is_strict` is refused the next time."""
        limit = self._limits.mutation
        if limit is not None:
            wait_ms = self._services.client_quotas.record_mutations(
                limit, partitions, self._now_ms()
            )
            self._note(MUTATION, limit, 0 if is_strict else wait_ms)

    # -- for dispatch ----------------------------------------------------------------------------

    def around(self, route: Route) -> Route:
        """Returns a route that serves this request alone, and counts it."""
        return route._replace(
            handle=partial(self._handle, route.handle), refuse=partial(self._refuse, route.refuse)
        )

    def _handle(
        self,
        handle: Callable[[Services, Any, Context], Any],
        services: Services,
        request: Any,
        context: Context,
    ) -> Any:
        if self._is_of_broker(request):
            return handle(services, request, context._replace(quota=None))
        if self._services.scheduler.held_s() is not None:
            self._from_s = 0.0  # the time of a request that is served in slices begins with it
        return self._answer(handle(services, request, context))

    def _refuse(
        self, refuse: Callable[[Any, BrokerError], Any], request: Any, error: BrokerError
    ) -> Any:
        response = refuse(request, error)
        return response if self._is_of_broker(request) else self._answer(response)

    def _is_of_broker(self, request: Any) -> bool:
        """Returns whether a broker of an older tidelog asks, which proves nothing, for its replicas."""
        claim = getattr(request, "replica_state", None)
        return claim is not None and self._services.replicas.senders.believes(claim)

    def _answer(self, response: Any) -> Any:
        """Returns what the handler has returned, with the throttle time as soon as it is a response."""
        if isinstance(response, CoroutineType):
            self._pause()
            return self._later(response)
        if isinstance(response, Pending):
            self._pause()
            later = response

            def finish() -> Any:
                self._from_s = self._reading_s()
                return self._answer(later.finish())

            return later._replace(finish=finish)
        return self._settled(response)

    async def _later(self, pending: Coroutine[Any, Any, Any]) -> Any:
        self._from_s = self._reading_s()
        return self._answer(await pending)

    def _settled(self, response: Any) -> Any:
        """Counts the request, mutes its connection if it has to wait, and returns the response."""
        limit, now_ms = self._limits.produce, self._now_ms()
        if limit is not None and self._header.api_key == _PRODUCE:
            wait_ms = self._services.client_quotas.record(PRODUCE, limit, self._size_bytes, now_ms)
            self._note(PRODUCE, limit, wait_ms)
        if response is not NO_RESPONSE:  # the time of acks=0 does not count
            self._work(now_ms)
        if not self._waits:
            return response
        wait_ms, key, limit = max(self._waits)
        self._services.client_quotas.throttled(key, limit, wait_ms)
        self._connection.mute(wait_ms / 1000)
        return self._with_throttle_time(response, min(wait_ms, INT_MAX))

    def _with_throttle_time(self, response: Any, wait_ms: int) -> Any:
        """Returns a response with throttle_time_ms, if it has that."""
        header = self._header
        if not isinstance(response, Encoded):
            if hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = wait_ms
        elif header.api_key == _METADATA and header.api_version >= _THROTTLE_FIRST_SINCE:
            return Encoded(wait_ms.to_bytes(4, "big") + memoryview(response.body)[4:])
        return response

    # -- time ------------------------------------------------------------------------------------

    def _work(self, now_ms: int) -> None:
        """Counts the time for which the request has held the loop until now, once."""
        limit = self._limits.request
        if limit is None or self._has_worked:
            return
        self._has_worked = True
        held = self._held_s + self._reading_s() - self._from_s
        self._note(
            REQUEST,
            limit,
            self._services.client_quotas.record(REQUEST, limit, _PERCENT * held, now_ms),
        )

    def _pause(self) -> None:
        """Stops the time while the request waits."""
        self._held_s += self._reading_s() - self._from_s

    def _reading_s(self) -> float:
        """Returns seconds whose differences are the time for which the request holds the loop."""
        held = self._services.scheduler.held_s()
        return self._services.clock.monotonic_s() if held is None else held

    def _note(self, key: str, limit: Limit, wait_ms: int) -> None:
        if wait_ms:
            self._waits.append((wait_ms, key, limit))

    def _now_ms(self) -> int:
        return int(self._services.clock.monotonic_s() * 1000)
