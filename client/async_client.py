"""An asyncio Kafka client: one connection for each broker, shared by all callers.

It runs the same steps as the synchronous client, so it retries, looks up leaders and gives up in
the same way. After a failed connection it waits before it tries the broker again, each time longer.
A client belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from tidelog.client import flow
from tidelog.client.async_connection import AsyncConnection, open_connection
from tidelog.client.cluster import ClusterState, addresses_of
from tidelog.client.errors import (
    AuthenticationFailed,
    ClusterUnreachable,
    ConnectionBroken,
    VersionMismatch,
    none_reached,
)
from tidelog.client.flow import Ask, Node
from tidelog.client.retry import Backoff, Retry
from tidelog.client.security import access_to

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence

    from tidelog.client.cluster import Address, TopicInfo
    from tidelog.client.flow import Call, Steps
    from tidelog.client.security import Security
    from tidelog.protocol.message import Message

Result = TypeVar("Result")

TIMEOUT_S: Final = 60.0
REQUEST_TIMEOUT_S: Final = 30.0


class _Broker:
    """The connection to one broker, and the time from which a new one may be tried."""

    def __init__(self) -> None:
        self.connection: AsyncConnection | None = None
        self.backoff = Backoff()
        self.connecting = asyncio.Lock()

    @property
    def usable(self) -> AsyncConnection | None:
        """Returns the connection if it is open."""
        known = self.connection
        return None if known is None or known.is_closed else known


class AsyncClient:
    """A client of the cluster of `brokers` (`host:port,host:port`).

    `timeout_s` limits an operation with all its retries, `request_timeout_s` the wait for one
    answer. `security` is None for plaintext, or if `brokers` carry it. Methods raise RequestError,
    ClusterUnreachable, UnsupportedByBroker or AuthenticationFailed.
    """

    def __init__(
        self,
        brokers: str | Sequence[str],
        *,
        client_id: str = "tidelog",
        timeout_s: float = TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        security: Security | None = None,
    ) -> None:
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.request_timeout_s = min(request_timeout_s, timeout_s)
        self._state = ClusterState(addresses_of(brokers))
        self._brokers: dict[Address, _Broker] = {}
        self._access = access_to(brokers, security)
        self._is_closed = False
        self._waits: set[asyncio.Timeout] = set()  # pauses and attempts to connect

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes every connection, for good.

        Operations in progress fail with ClusterUnreachable at once, also those that are connecting
        or that pause before a retry.
        """
        self._is_closed = True
        now_s = asyncio.get_running_loop().time()
        waits, self._waits = self._waits, set()
        for each in waits:
            each.reschedule(now_s)
        known = [one.connection for one in self._brokers.values() if one.connection is not None]
        self._brokers.clear()
        self._state.forget()
        for one in known:
            one.close()
        for one in known:
            await one.wait_closed()

    async def perform(self, call: Call[Result]) -> Result:
        """Performs a call of `client.calls`; many can be in progress at once."""
        return await self._run(flow.perform(self._state, call, self._retry()))

    async def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        """Returns the topics with these names, or all.

        Raises RequestError for one that does not exist.
        """
        wanted = None if names is None else sorted(set(names))
        steps = flow.retrying(self._state, lambda: flow.refresh(self._state, wanted), self._retry())
        return await self._run(steps)

    async def connection(self, node_id: int) -> AsyncConnection:
        """Returns the connection to a broker, for the caller's own requests.

        Raises ClusterUnreachable.
        """

        def once() -> Steps[tuple[Address, ...]]:
            return flow.resolve(self._state, Node(node_id))

        (address,) = await self._run(flow.retrying(self._state, once, self._retry()))
        return await self._connect(address)

    async def ask(
        self, address: Address, message: Message, key: int, *, wait_s: float = 0.0
    ) -> Any:
        """Sends one request to one address and waits for its answer, without a retry.

        Raises ConnectionBroken or VersionMismatch, ClusterUnreachable if the client is closed.
        """
        connection = await self._connect(address)
        return await connection.ask(message, key, timeout_s=self.request_timeout_s + wait_s)

    # --- internal --------------------------------------------------------------------------------

    def _retry(self) -> Retry:
        return Retry(time.monotonic, self.timeout_s)

    async def _run(self, steps: Steps[Result]) -> Result:
        """Runs the steps until they return. Raises ClusterUnreachable once the client is closed."""
        try:
            step = next(steps)
            while True:
                if isinstance(step, Ask):
                    try:
                        answer = await self._ask(step)
                    except (ConnectionBroken, VersionMismatch) as error:
                        self._check_open()  # a closed client retries nothing
                        step = steps.throw(error)
                    else:
                        step = steps.send(answer)
                else:
                    async with self._unless_closed():
                        await asyncio.sleep(step.seconds)
                    step = next(steps)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        finally:
            steps.close()

    async def _ask(self, step: Ask) -> Any:
        address, connection = await self._any_of(step.addresses)
        try:
            answer = await connection.ask(
                step.message,
                step.key,
                timeout_s=self.request_timeout_s + step.wait_s,
                has_answer=step.has_answer,
            )
        except ConnectionBroken:
            self._state.doubt(address)
            raise
        self._state.heard(address)  # nothing is awaited until the answer is read
        return answer

    async def _any_of(self, addresses: Sequence[Address]) -> tuple[Address, AsyncConnection]:
        """Returns the first of these, by their standing, that can be reached, and a connection."""
        failures = []
        for address in self._state.by_standing(addresses, self._is_open):
            try:
                return address, await self._connect(address)
            except ConnectionBroken as error:
                self._state.doubt(address)
                failures.append(error)
        raise none_reached(failures)

    def _is_open(self, address: Address) -> bool:
        known = self._brokers.get(address)
        return known is not None and known.usable is not None

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClusterUnreachable("the client was closed")

    @contextlib.asynccontextmanager
    async def _unless_closed(self) -> AsyncIterator[None]:
        """Ends what is awaited inside when the client is closed; raises ClusterUnreachable then."""
        self._check_open()
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._waits.add(limit)
                yield
        except TimeoutError:
            self._check_open()
            raise
        finally:
            self._waits.discard(limit)

    async def _connect(self, address: Address) -> AsyncConnection:
        """Returns the connection to a broker; opens one if necessary, after the broker's pause."""
        self._check_open()
        broker = self._brokers.setdefault(address, _Broker())
        async with self._unless_closed(), broker.connecting:
            if broker.usable is not None:
                return broker.usable
            await asyncio.sleep(broker.backoff.wait_s(time.monotonic()))
            try:
                made = await open_connection(
                    *address,
                    self.client_id,
                    timeout_s=self.request_timeout_s,
                    access=self._access,
                )
            except (ConnectionBroken, AuthenticationFailed):
                broker.backoff.failed(time.monotonic())
                raise
            broker.backoff.succeeded()
            if self._is_closed:  # in the meantime
                made.close()
                await made.wait_closed()
                self._check_open()
            broker.connection = made
            return made
