"""A watch of the simulated etcd (`etcd.py`): both ends of its stream, and what is on its way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
from aetcd import rpc

from tests.simulation.replication.brokers.loop import arrive
from tests.simulation.replication.network.network import COORDINATOR
from tidelog.broker.metadata.etcd.wire import Keys
from tidelog.broker.metadata.store import CompactedError
from tidelog.config.broker.etcd_address import EtcdAddress

if TYPE_CHECKING:
    from tests.simulation.replication.metadata.etcd import Etcd
    from tidelog.broker.metadata.memory import MemoryState
    from tidelog.broker.metadata.store import Change

ADDRESS = EtcdAddress(("etcd-0:2379", "etcd-1:2379", "etcd-2:2379"), "simulated")
NOTICED_MS = (1_000, 3_000)  # until a broken connection is noticed
FIRST, _ = Keys(ADDRESS.name).range_of()


class Stream:
    """One watch: its two ends, and what is on its way in between, in order or not at all."""

    def __init__(self, etcd: Etcd, broker: int, member: int) -> None:
        self._etcd, self._world = etcd, etcd.world
        self._broker, self.member = broker, member
        self._loop = asyncio.get_running_loop()
        self._told: asyncio.Queue[Any] = asyncio.Queue()
        self._is_over = self._is_broken = False
        self._next = 0  # the revision that it tells next
        self._sent = self._heard = 0  # answers
        self._early: dict[int, Any] = {}  # answers before which others are missing

    # --- at the product ---------------------------------------------------------------------------

    async def write(self, request: Any) -> None:
        start = request.create_request.start_revision
        network = self._world.network
        network.send(self._broker, COORDINATOR, self._begin, start)
        self._world.timeline.after(NOTICED_MS[1], self._notice, 1)

    async def read(self) -> Any:
        told = await self._told.get()
        if isinstance(told, grpc.aio.AioRpcError):
            raise told
        return told

    @property
    def is_dead(self) -> bool:
        """Whether its process is."""
        return self._loop.process.is_dead

    def cancel(self) -> None:
        self._is_over = True
        self._forget()

    def _forget(self) -> None:
        """Lets the member forget the watch, unless it has: it forgets those of dead processes itself."""
        if self in self._etcd.streams:
            self._etcd.streams.remove(self)

    def _hear(self, number: int, answer: Any) -> None:
        if self._is_broken or self._is_over or number <= self._heard:
            return
        self._early[number] = answer
        while self._heard + 1 in self._early:
            self._heard += 1
            arrive(self._loop, self._told.put_nowait, self._early.pop(self._heard))

    def _notice(self, number: int) -> None:
        """The connection is broken if an answer has not come for so long."""
        if self._heard < number:
            self._fail("keepalive watchdog timeout")

    def _fail(self, why: str) -> None:
        if not self._is_broken and not self._is_over:
            self._is_broken = True
            error = failure(grpc.StatusCode.UNAVAILABLE, why)
            arrive(self._loop, self._told.put_nowait, error)

    def break_off(self) -> None:
        """Breaks the connection; the product hears of it soon."""
        self._forget()
        self._early.clear()
        self._heard = self._sent  # nothing more comes
        pick = self._world.timeline.random
        self._world.timeline.after(pick.randint(0, NOTICED_MS[0]), self._fail, "Connection reset")

    # --- at the member ----------------------------------------------------------------------------

    def _begin(self, start: int) -> None:
        etcd = self._etcd
        if self._is_over or self._sent:
            return
        if self._world.coordinator.quorum_lost_since is not None:
            self._fail("etcdserver: no leader")
            return
        self._next = start or etcd.behind.get(self.member, self._state.revision) + 1
        if etcd.tells_again and self.member in etcd.behind:
            self._next = max(1, min(self._next, etcd.behind[self.member] + 1) - 2)
        etcd.streams.append(self)
        self._send(rpc.WatchResponse(header=header(self._state.revision), created=True))
        self.tell()

    @property
    def _state(self) -> MemoryState:
        return self._world.coordinator.store

    def tell(self) -> None:
        """Tells what the member knows, and this watch has not heard."""
        etcd, coordinator = self._etcd, self._world.coordinator
        if self not in etcd.streams or self._is_broken:
            return
        if coordinator.quorum_lost_since is not None:
            self._fail("etcdserver: no leader")
            return
        end = etcd.behind.get(self.member, self._state.revision)
        if end < self._next:
            return
        try:
            found = self._state.changes(self._next - 1)
        except CompactedError:
            self._send(
                rpc.WatchResponse(
                    header=header(self._state.revision),
                    canceled=True,
                    compact_revision=self._state._compacted,
                    cancel_reason="etcdserver: mvcc: required revision has been compacted",
                )
            )
            self._forget()
            return
        self._next = end + 1
        if self._world.timeline.random.random() < etcd.loss:
            self._world.say("etcd loses events", self._broker, end)
            return
        answer = rpc.WatchResponse(header=header(end))
        answer.events.extend(_event(each) for each in found if each.revision <= end)
        self._send(answer)

    def _send(self, answer: Any) -> None:
        self._sent += 1
        network, timeline = self._world.network, self._world.timeline
        network.send(COORDINATOR, self._broker, self._hear, self._sent, answer)
        timeline.after(timeline.random.randint(*NOTICED_MS), self._notice, self._sent)


def failure(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    """Returns what gRPC raises for a status."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


def header(revision: int | None) -> Any:
    """Returns the header of an answer at a revision."""
    return rpc.ResponseHeader(revision=revision)


def _event(change: Change) -> Any:
    kind = rpc.Event.DELETE if change.value is None else rpc.Event.PUT
    kv = rpc.KeyValue(
        key=FIRST + change.key.encode(), value=change.value, mod_revision=change.revision
    )
    return rpc.Event(type=kind, kv=kv)
