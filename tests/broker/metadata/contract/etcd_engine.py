"""etcd under the schedules: two stores with connections of their own, on one cluster's keys.

`Troubled` has a proxy before each member, and does harm to members and connections.

Time is the schedule's, and not the machine's: a lease lasts for an hour more, and the engine revokes
the leases that are over, in the order of their deadlines, as etcd's leader does.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import NamedTuple

from tests.broker.metadata.contract.calls import perform
from tests.broker.metadata.contract.engines import KEPT, InProcess
from tests.broker.metadata.etcd.proxy import Proxy
from tests.broker.metadata.etcd.shifted import Leases, Shifted
from tidelog.broker.metadata.etcd.store import EtcdStore
from tidelog.config.broker.etcd_address import parse_etcd

MOMENTS_S = (0, 0.001, 0.003, 0.01)  # from the beginning of the calls on
LOSING_S = 0.05
PAUSES_S = (0.2, 1.2)
_HOUR_MS = 3_600_000
_NEVER_S = 20  # a barrier is a revision that the model does not know
_numbers = itertools.count()


class _End(NamedTuple):
    at_ms: int
    span_ms: int


class InEtcd(InProcess):
    """Two stores in one etcd, which nobody else writes to meanwhile."""

    has_service = True

    def __init__(self, url):
        """`url` is that of an etcd, with or without proxies before its members."""
        self._leases = Leases()
        self.barriers = deque()
        self._ends = {}  # of each lease that has not ended: when it does, and its span
        address = parse_etcd(f"{url}/schedule-{next(_numbers)}")
        # Whose calls are no client's: it ends leases, and reads the newest revision.
        self._outside = EtcdStore(address)
        super().__init__(
            [
                Shifted(
                    address,
                    leases=self._leases,
                    kept_revisions=KEPT,
                    barrier_after_s=_NEVER_S,
                    more_ms=_HOUR_MS,
                )
                for _ in range(2)
            ]
        )

    async def open(self):
        await self._outside.open()
        await super().open()
        self.stores[1].base = self.stores[0].base
        for store in (self._outside, *self.stores):
            for member in store._members._members:
                member.kv = _Noted(member.kv, self.barriers, self.stores[0].base)

    async def close(self):
        await super().close()
        await self._outside.close()

    async def set_time(self, now_ms):
        self.now_ms = now_ms
        due = [(end.at_ms, lease) for lease, end in self._ends.items() if end.at_ms <= now_ms]
        for _, lease in sorted(due):
            del self._ends[lease]
            await self._outside.revoke(self._leases.of(lease))

    async def call(self, client, call):
        name, *arguments = call
        known = set(self._ends)  # a lease that is granted meanwhile is not named by this call
        answer = await perform(self.stores[client], call)
        if name == "grant":
            (span_ms,) = arguments
            self._ends[answer] = _End(self.now_ms + span_ms, span_ms)
        elif name == "keep_alive" and answer is True:
            (lease,) = arguments
            if lease in self._ends:  # else it was revoked meanwhile
                span_ms = self._ends[lease].span_ms
                self._ends[lease] = _End(self.now_ms + span_ms, span_ms)
        elif name == "revoke" and arguments[0] in known:
            self._ends.pop(arguments[0], None)
        return answer

    async def stored_revision(self):
        return (await self._outside.read("none")).revision - self.stores[0].base

    async def let_watches_run(self):
        await asyncio.sleep(0.001)


class _Noted:
    """The service of a member; each put, which is always a barrier, is noted with what became of it."""

    def __init__(self, stub, notes, base):
        self._stub, self._notes, self._base = stub, notes, base

    def __getattr__(self, name):
        return getattr(self._stub, name)

    async def Put(self, *arguments, **options):
        number = next(_numbers)
        self._notes.append((number, "begins"))
        try:
            answer = await self._stub.Put(*arguments, **options)
        except BaseException:
            self._notes.append((number, "has failed"))
            raise
        self._notes.append((number, answer.header.revision - self._base))
        return answer


class Troubled(InEtcd):
    """Two stores in one etcd whose members are killed, stand still, and lose answers."""

    has_troubles = True
    TROUBLES = ("answers lost", "connections lost", "kill", "stop", "pause", "compaction")

    def __init__(self, etcd):
        self._etcd = etcd
        self._proxies = [Proxy(each) for each in etcd.endpoints]
        self._down = None

    async def open(self):
        for proxy in self._proxies:
            await proxy.start()
        super().__init__(f"etcd://{','.join(proxy.endpoint for proxy in self._proxies)}")
        await super().open()

    async def close(self):
        await super().close()
        for proxy in self._proxies:
            await proxy.close()

    async def trouble(self, kind, chance):
        """Does harm a moment after calls have begun; `recover` ends it."""
        number = chance.choice(self._etcd.numbers)
        await asyncio.sleep(chance.choice(MOMENTS_S))
        if kind == "answers lost":
            for proxy in self._proxies:
                proxy.loses_answers = True
            await asyncio.sleep(LOSING_S)
            self._drop()
        elif kind == "connections lost":
            self._drop()
        elif kind == "pause":
            self._etcd.pause(number)
            await asyncio.sleep(chance.choice(PAUSES_S))
            self._etcd.resume(number)
        elif kind == "compaction":
            await self._compact(number)
        else:
            self._down = number
            await asyncio.to_thread(self._etcd.kill if kind == "kill" else self._etcd.stop, number)

    async def recover(self):
        """Everything runs again, and no call is under way."""
        if self._down is not None:
            await asyncio.to_thread(self._etcd.restart, self._down)
            self._down = None
        for number in self._etcd.numbers:
            await asyncio.to_thread(self._etcd.wait, number)

    def _drop(self):
        for proxy in self._proxies:
            proxy.drop()
            proxy.heal()

    async def _compact(self, number):
        """Compacts what the watches have not heard, because they are cut off."""
        for proxy in self._proxies:
            proxy.cut()
        writer = EtcdStore(parse_etcd(f"{self._etcd.url('compaction')}"))
        await writer.open()
        revision = (await writer.read()).revision
        await writer.close()
        await asyncio.to_thread(self._etcd.compact, revision, number)
        for proxy in self._proxies:
            proxy.heal()
