"""The metadata store as a process of a broker has it: over a network, and with unknown outcomes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from tests.simulation.replication.brokers.loop import VirtualLoop, arrive
from tests.simulation.replication.metadata.coordinator import LEASE_ENDED, UNKNOWN
from tidelog.broker.metadata.store import CompactedError, LeaseEndedError
from tidelog.protocol.errors import KafkaStorageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from tests.simulation.replication.life import Life
    from tests.simulation.replication.metadata.coordinator import Pushed
    from tidelog.broker.metadata.memory import MemoryState
    from tidelog.broker.metadata.store import Change, Compare, Operation, Snapshot

_RESYNC_S = 5.0
_COMPACTED = "compacted"


class RemoteStore:
    """A `KeyValueStore` at the coordinator of the world."""

    def __init__(self, world: Life, broker: int) -> None:
        self._world, self._broker = world, broker
        self._is_closed = False

    async def _ask(self, call: Callable[[MemoryState], Any]) -> Any:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        answer = loop.create_future()

        def reply(result: Any) -> None:
            arrive(loop, _answered, answer, result)

        self._world.coordinator.ask(self._broker, call, reply, self._world.transact_ms)
        result = await answer
        if result is UNKNOWN:
            raise KafkaStorageError("the coordinator has not answered")
        if result is LEASE_ENDED:
            raise LeaseEndedError("the lease has ended")
        return result

    async def open(self) -> None:
        """There is nothing to open."""

    async def close(self) -> None:
        self._is_closed = True

    async def read(self, prefix: str = "") -> Snapshot:
        return await self._ask(lambda state: state.read(prefix))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> int | None:
        return await self._ask(lambda state: state.transact(compares, operations))

    async def check_complete(self) -> None:
        """Watches lose nothing."""

    async def grant(self, ttl_ms: int) -> int:
        return await self._ask(lambda state: state.grant(ttl_ms))

    async def keep_alive(self, lease: int) -> bool:
        return await self._ask(lambda state: state.keep_alive(lease))

    async def why_no_writes(self) -> str | None:
        return None

    async def revoke(self, lease: int) -> None:
        await self._ask(lambda state: state.revoke(lease))

    async def changes(self, after: int) -> list[Change]:
        def changes(state: MemoryState) -> Any:
            try:
                return state.changes(after)
            except CompactedError:
                return _COMPACTED

        found = await self._ask(changes)
        if found is _COMPACTED:
            raise CompactedError("the changes are compacted")
        return found

    async def watch(self, after: int) -> AsyncIterator[list[Change]]:
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        assert isinstance(loop, VirtualLoop)
        pushed: list[Pushed] = []

        def take(what: Pushed) -> None:
            pushed.append(what)
            news.set()

        self._world.coordinator.watch(self._broker, lambda what: arrive(loop, take, what))
        while not self._is_closed:
            found = await self.changes(after)
            while found:
                after = found[-1].revision
                yield found
                found = _next(pushed, after)
            news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RESYNC_S):
                    await news.wait()
            found = _next(pushed, after)
            if found:
                after = found[-1].revision
                yield found


def _next(pushed: list[Pushed], after: int) -> list[Change]:
    """Takes what was pushed, as far as nothing is missing before it."""
    found: list[Change] = []
    for each in pushed:
        if each.after <= after:
            found += [change for change in each.changes if change.revision > after]
            after = max(after, found[-1].revision if found else after)
    pushed.clear()
    return found


def _answered(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)
