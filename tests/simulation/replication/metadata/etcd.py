"""An etcd of three members, simulated: what the product's `EtcdStore` calls, and etcd's oddities.

It speaks etcd's messages over the network and the store of the coordinator, so an outcome may be
unknown, and what was sent may be applied late. What etcd does besides:

- a watch is late, and it ends when its connection does: it has to go on at a revision, which may
  be compacted by then
- a member lags behind: it tells its watches nothing new, and holds its answers back; a watch that
  begins there may hear once more what it was told before (etcd issue 20221)
- a starved watch loses events, and says nothing (etcd issue 17529)
- a member without quorum ends the watches that ask for a leader

No read is stale: the product asks for none that may be (`serializable`).
"""

# ruff: noqa: ASYNC109 - the calls have the signatures of gRPC's stubs

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest import mock

import grpc
from aetcd import rpc

from tests.simulation.replication.brokers.loop import arrive
from tests.simulation.replication.metadata.coordinator import LEASE_ENDED, UNKNOWN
from tests.simulation.replication.metadata.etcd_watch import (
    ADDRESS,
    FIRST,
    Stream,
    failure,
    header,
)
from tidelog.broker.metadata.etcd import etcd_watch, store
from tidelog.broker.metadata.etcd.members import EtcdMembers
from tidelog.broker.metadata.etcd.store import EtcdStore
from tidelog.broker.metadata.store import Compare, Delete, Put

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine

    from tests.simulation.replication.life import Life
    from tidelog.broker.metadata.memory import MemoryState
    from tidelog.broker.metadata.store import KeyValue, Operation

COMPARE_S = 3.0  # how often the product compares all keys, in runs in which events are lost
_RELATIONS = {rpc.Compare.LESS: "<", rpc.Compare.EQUAL: "=", rpc.Compare.GREATER: ">"}


class Etcd:
    """The members, and what is wrong with them."""

    def __init__(self, world: Life, pick: random.Random) -> None:
        """`pick` chooses the oddities of this run; the product's stores use it from now on."""
        self.world = world
        self.loss = pick.choice([0.0, 0.0, 0.15])  # of what a watch tells
        self.tells_again = pick.random() < 0.3  # a member that lags
        self.behind: dict[int, int] = {}  # the members that lag, and the revision where they are
        self.tells_all = (
            not self.loss
        )  # each change, to a watch that resumes where it was, and soon
        self._withheld: dict[int, list[Callable[[], None]]] = {}
        self.streams: list[Stream] = []
        self._ids = pick
        self._patches = [
            mock.patch.object(store, "grpc_loop", _SameLoop()),
            mock.patch.object(store, "secrets", self),
            mock.patch.object(store, "EtcdMembers", self._members),
        ]
        if self.loss:
            self._patches.append(mock.patch.object(etcd_watch, "_COMPARE_S", COMPARE_S))
        for patch in self._patches:
            patch.start()

    def close(self) -> None:
        """Lets the product's stores use gRPC again."""
        for patch in reversed(self._patches):
            patch.stop()

    def randbelow(self, end: int) -> int:
        """Returns the number of a lease, by the seed."""
        return self._ids.randrange(end)

    def new_store(self) -> EtcdStore:
        """Returns the store of a process that starts."""
        return EtcdStore(ADDRESS)

    def _members(self, endpoints: Any, _tls: Any, _user: Any) -> VirtualMembers:
        return VirtualMembers(self, asyncio.get_running_loop().process.node, endpoints)

    # --- calls ------------------------------------------------------------------------------------

    async def call(
        self, broker: int, member: int, call: Callable[[MemoryState], Any], timeout_s: float
    ) -> Any:
        """Makes a call at a member, and returns its answer. Raises AioRpcError."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()

        def reply(result: Any) -> None:
            arrive(loop, _answered, answer, result)

        def served(state: MemoryState) -> Any:
            try:
                return call(state)
            except _RefusedError as refused:
                return refused

        def came(result: Any) -> None:
            if result is not UNKNOWN and member in self.behind:
                self._withheld.setdefault(member, []).append(lambda: reply(result))
            else:
                reply(result)

        timeout_ms = round(timeout_s * 1000)
        self.world.coordinator.ask(broker, served, came, timeout_ms)
        self.world.timeline.after(timeout_ms, reply, UNKNOWN)
        result = await answer
        if result is UNKNOWN:
            raise failure(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        if result is LEASE_ENDED:
            raise failure(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
        if isinstance(result, _RefusedError):
            raise failure(*result.args)
        return result

    # --- faults -----------------------------------------------------------------------------------

    def lag(self, member: int) -> None:
        """Lets a member stay where it is."""
        self.tells_all = False
        self.behind.setdefault(member, self.world.coordinator.store.revision)

    def catch_up(self, member: int) -> None:
        """Lets a member go on; it gives the answers that it has held back."""
        self.behind.pop(member, None)
        for give in self._withheld.pop(member, []):
            give()
        self.tell_all()

    def break_watches(self, member: int | None = None) -> None:
        """Breaks the watches at a member, or all: what is on its way is lost."""
        for stream in list(self.streams):
            if member in (None, stream.member):
                stream.break_off()

    def end(self) -> None:
        """Puts everything right."""
        self.loss = 0.0
        for member in list(self.behind):
            self.catch_up(member)

    # --- watches ----------------------------------------------------------------------------------

    def changed(self) -> None:
        """Something was changed: the watches hear of it, sooner or later."""
        pick, coordinator = self.world.timeline.random, self.world.coordinator
        self.streams = [each for each in self.streams if not each.is_dead]
        for stream in self.streams:
            self.world.timeline.after(pick.randint(0, coordinator.lag_ms), stream.tell)

    def tell_all(self) -> None:
        """Tells all watches what they have not heard."""
        for stream in self.streams:
            self.world.timeline.after(self.world.coordinator.lag_ms, stream.tell)


class _RefusedError(Exception):
    """What etcd refuses: a status, and why."""


class _SameLoop:
    """Stands for the thread of gRPC: its work is done in the loop that asks."""

    async def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await work


class VirtualMembers(EtcdMembers):
    """The members as one process is connected to them."""

    def __init__(self, etcd: Etcd, broker: int, endpoints: Any) -> None:
        super().__init__(endpoints, None)
        self._etcd, self._broker = etcd, broker

    async def open(self) -> None:
        self._members = [
            VirtualMember(self._etcd, self._broker, number, endpoint)
            for number, endpoint in enumerate(self._endpoints)
        ]
        self._first = self._broker % len(self._members)

    async def close(self) -> None:
        self._members = []

    async def connected(self, deadline_s: float) -> Any:
        return self._members[self._first]


class VirtualMember:
    """What one process may call at one member: the services that the product uses."""

    def __init__(self, etcd: Etcd, broker: int, number: int, endpoint: str) -> None:
        self._etcd, self._broker, self._number = etcd, broker, number
        self.endpoint = endpoint
        self.kv = self.lease = self.watch = self

    async def _call(self, call: Callable[[MemoryState], Any], timeout_s: float) -> Any:
        return await self._etcd.call(self._broker, self._number, call, timeout_s)

    async def Range(self, request: Any, *, timeout: float, metadata: Any) -> Any:
        def call(state: MemoryState) -> Any:
            assert not request.serializable
            revision, pairs = state.read()
            kvs = [] if request.count_only else [_written(pair) for pair in pairs]
            answer = rpc.RangeResponse(header=header(revision))
            answer.kvs.extend(kv for kv in kvs if request.key <= kv.key < request.range_end)
            return answer

        return await self._call(call, timeout)

    async def Txn(self, request: Any, *, timeout: float, metadata: Any) -> Any:
        compares = [_compare(each) for each in request.compare]
        operations = [made for each in request.success if (made := _operation(each)) is not None]

        def call(state: MemoryState) -> Any:
            revision = state.transact(compares, operations)
            at = header(state.revision if revision is None else revision)
            return rpc.TxnResponse(header=at, succeeded=revision is not None)

        return await self._call(call, timeout)

    async def Put(self, request: Any, *, timeout: float, metadata: Any) -> Any:
        put = Put(_key(request.key), request.value, request.lease)
        return await self._call(
            lambda state: rpc.PutResponse(header=header(state.transact((), [put]))), timeout
        )

    async def LeaseGrant(self, request: Any, *, timeout: float, metadata: Any) -> Any:
        def call(state: MemoryState) -> Any:
            if request.ID in state._leases:
                code = grpc.StatusCode.FAILED_PRECONDITION
                raise _RefusedError(code, "etcdserver: lease already exists")
            state._last_lease = request.ID - 1  # who asks has chosen the number
            return rpc.LeaseGrantResponse(ID=state.grant(request.TTL * 1000), TTL=request.TTL)

        return await self._call(call, timeout)

    async def LeaseRevoke(self, request: Any, *, timeout: float, metadata: Any) -> Any:
        def call(state: MemoryState) -> Any:
            state.revoke(request.ID)
            return rpc.LeaseRevokeResponse()

        return await self._call(call, timeout)

    def LeaseKeepAlive(self, *, timeout: float, metadata: Any) -> _KeepAlive:
        return _KeepAlive(self, timeout)

    def Watch(self, *, metadata: Any) -> Stream:
        return Stream(self._etcd, self._broker, self._number)


class _KeepAlive:
    """A stream of renewals, of which the product asks one."""

    def __init__(self, member: VirtualMember, timeout_s: float) -> None:
        self._member, self._timeout_s = member, timeout_s
        self._lease = 0

    async def write(self, request: Any) -> None:
        self._lease = request.ID

    async def read(self) -> Any:
        def call(state: MemoryState) -> Any:
            return rpc.LeaseKeepAliveResponse(TTL=int(state.keep_alive(self._lease)))

        return await self._member._call(call, self._timeout_s)

    def cancel(self) -> None:
        """There is nothing to end."""


def _answered(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _key(written: bytes) -> str:
    return written[len(FIRST) :].decode()


def _written(pair: KeyValue) -> Any:
    return rpc.KeyValue(
        key=FIRST + pair.key.encode(),
        value=pair.value,
        create_revision=pair.create_revision,
        mod_revision=pair.mod_revision,
        lease=pair.lease,
    )


def _compare(each: Any) -> Compare:
    is_create = each.target == rpc.Compare.CREATE
    revision = each.create_revision if is_create else each.mod_revision
    return Compare(
        _key(each.key), "create" if is_create else "mod", _RELATIONS[each.result], revision
    )


def _operation(each: Any) -> Operation | None:
    if each.HasField("request_put"):
        put = each.request_put
        return Put(_key(put.key), put.value, put.lease)
    if each.HasField("request_delete_range"):
        return Delete(_key(each.request_delete_range.key))
    return None
