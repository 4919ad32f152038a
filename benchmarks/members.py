"""Many clients in one process, with prepared frames as in raw.py: members, committers, consumers.

All run on one event loop. Every result has the client's own cost, so that a table can say whether
the client was the bottleneck. Responses are checked: error codes, generations, and the number of
records.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import uvloop
from prepared import frame_of, request_head
from raw import RawError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

_REBALANCE_IN_PROGRESS, _MEMBER_ID_REQUIRED = 27, 79
_METADATA = b"\0\0\0\0\0\1\0\5bench" + b"\0\0\0\x50" + b"m" * 80
_ASSIGNMENT = b"\0\0\0\0\0\1\0\5bench\0\0\0\1\0\0\0\0\xff\xff\xff\xff"
_TIMEOUT_S = 60


T = TypeVar("T")


class Took(NamedTuple):
    """The cost of a measurement: wall-clock time, the broker's CPU, and this process's CPU."""

    seconds: float
    broker_cpu_s: float
    client_cpu_s: float

    @property
    def client_share(self) -> float:
        """How much of its CPU the client used, in per cent; at 100 the client is the bottleneck."""
        return 100 * self.client_cpu_s / self.seconds


class Meter:
    """Measures the cost from its creation to `took`."""

    def __init__(self, broker_cpu_s: Callable[[], float]) -> None:
        self._broker_cpu_s = broker_cpu_s
        self._began = time.perf_counter(), broker_cpu_s(), time.process_time()

    def took(self) -> Took:
        """Returns the cost so far."""
        now = time.perf_counter(), self._broker_cpu_s(), time.process_time()
        return Took(*(after - before for after, before in zip(now, self._began, strict=True)))


def run(main: Coroutine[None, None, T]) -> T:
    """Runs clients to their end, for at most a minute."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(main, _TIMEOUT_S))


class Client(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._got = bytearray()
        self._size = 0
        self._answer: asyncio.Future[bytearray] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, port: int) -> Client:
        """Returns a client of the broker on this port."""
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(cls, "127.0.0.1", port)
        return client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self, frame: bytes) -> asyncio.Future[bytearray]:
        """Sends a frame; returns its response, with its length."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self._size and len(self._got) >= 4:
            self._size = 4 + int.from_bytes(self._got[:4], "big")
        if self._size and len(self._got) >= self._size:
            answer, self._got, self._size = self._got, bytearray(), 0
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(answer)

    def connection_lost(self, _exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RawError("the broker closed the connection"))

    def close(self) -> None:
        """Closes the connection."""
        if self._transport is not None:
            self._transport.abort()


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


# --- a group that rebalances ---------------------------------------------------------------------


class Member:
    """One member of a group: it joins, and asks for its assignment."""

    def __init__(self, client: Client, group: bytes) -> None:
        self.client, self.group = client, group
        self.member_id = b""
        self.generation = -1
        self.others: list[bytes] = []  # the ids of all members, if it leads

    async def join(self) -> None:
        """JoinGroup v5, twice if the member has no id yet. Raises RawError."""
        code = await self._join()
        if code == _MEMBER_ID_REQUIRED:
            code = await self._join()
        if code:
            raise RawError(f"JoinGroup answered error {code}")

    async def _join(self) -> int:
        body = _string(self.group) + struct.pack(">ii", 60_000, 60_000) + _string(self.member_id)
        body += struct.pack(">h", -1) + _string(b"consumer")
        body += struct.pack(">i", 1) + _string(b"range") + _bytes(_METADATA)
        answer = await self.client.ask(frame_of(request_head(11, 5) + body))
        code, self.generation = struct.unpack_from(">hi", answer, 12)
        at = 18
        texts = []
        for _ in range(3):  # protocol, leader, own id
            (size,) = struct.unpack_from(">h", answer, at)
            texts.append(bytes(answer[at + 2 : at + 2 + size]))
            at += 2 + size
        self.member_id = texts[2] or self.member_id
        (count,) = struct.unpack_from(">i", answer, at)
        at += 4
        self.others = []
        for _ in range(count):
            (size,) = struct.unpack_from(">h", answer, at)
            self.others.append(bytes(answer[at + 2 : at + 2 + size]))
            at += 2 + size + 2  # no instance id
            (size,) = struct.unpack_from(">i", answer, at)
            at += 4 + size
        return int(code)

    async def sync(self) -> int:
        """SyncGroup v3, with all assignments if it leads; returns 0, or that it must rejoin."""
        body = _string(self.group) + struct.pack(">i", self.generation) + _string(self.member_id)
        body += struct.pack(">hi", -1, len(self.others))
        body += b"".join(_string(member_id) + _bytes(_ASSIGNMENT) for member_id in self.others)
        answer = await self.client.ask(frame_of(request_head(14, 3) + body))
        (code,) = struct.unpack_from(">h", answer, 12)
        if code not in (0, _REBALANCE_IN_PROGRESS):
            raise RawError(f"SyncGroup answered error {code}")
        if not code and bytes(answer[18:]) != _ASSIGNMENT:
            raise RawError("SyncGroup brought no assignment")
        return int(code)

    async def heartbeat(self) -> int:
        """Heartbeat v1; returns 0, or the code to join again. Raises RawError."""
        body = _string(self.group) + struct.pack(">i", self.generation) + _string(self.member_id)
        answer = await self.client.ask(frame_of(request_head(12, 1) + body))
        (code,) = struct.unpack_from(">h", answer, 12)
        if code not in (0, _REBALANCE_IN_PROGRESS):
            raise RawError(f"Heartbeat answered error {code}")
        return int(code)

    async def leave(self) -> None:
        """LeaveGroup v1."""
        await self.client.ask(
            frame_of(request_head(13, 1) + _string(self.group) + _string(self.member_id))
        )


async def _settle_down(members: Sequence[Member]) -> None:
    """Forms a group: members join, again after heartbeats, until all have one generation."""
    here: set[Member] = set()

    async def live(member: Member) -> None:
        while True:
            here.discard(member)
            await member.join()
            if await member.sync() == _REBALANCE_IN_PROGRESS:
                continue
            here.add(member)
            while not await member.heartbeat():
                if len(here) == len(members) and len({one.generation for one in here}) == 1:
                    return
                await asyncio.sleep(0.02)

    await asyncio.gather(*(live(member) for member in members))


async def rebalances(
    port: int, group: str, count: int, rounds: int, broker_cpu_s: Callable[[], float]
) -> list[Took]:
    """Forms a group, then lets all its members join and sync again, `rounds` times.

    A round begins when the leader joins again and ends when the last member has its assignment. The
    others join as soon as the heartbeat of one of them says that they have to. The interval of
    heartbeats is the clients' choice and not measured.
    """
    clients = [await Client.connect(port) for _ in range(count)]
    members = [Member(client, group.encode()) for client in clients]
    await _settle_down(members)
    (leader,) = (member for member in members if member.others)
    others = [member for member in members if member is not leader]
    found = []
    for _ in range(rounds):
        before, meter = leader.generation, Meter(broker_cpu_s)
        leads = asyncio.ensure_future(leader.join())
        while await others[0].heartbeat() != _REBALANCE_IN_PROGRESS:
            pass
        await asyncio.gather(leads, *(member.join() for member in others))
        codes = await asyncio.gather(*(member.sync() for member in members))
        found.append(meter.took())
        if any(codes) or {member.generation for member in members} != {before + 1}:
            raise RawError(f"a rebalance of {count} members went wrong: {codes}")
    await asyncio.gather(*(member.leave() for member in members))
    for client in clients:
        client.close()
    return found


# --- commits -------------------------------------------------------------------------------------


def commit_v7(group: str, topic: str, partition: int) -> bytes:
    """Returns an OffsetCommit v7 frame: one offset of a consumer outside of the group."""
    body = _string(group.encode()) + struct.pack(">i", -1) + _string(b"") + struct.pack(">h", -1)
    body += struct.pack(">i", 1) + _string(topic.encode())
    body += struct.pack(">iiqi", 1, partition, 123_456, -1) + _string(b"")
    return frame_of(request_head(8, 7) + body)


def commit_v7_error_at(topic: str) -> int:
    """Returns the position of the only partition's error code."""
    return 4 + 4 + 4 + 4 + 2 + len(topic) + 4 + 4


def settle(port: int, frames: Sequence[bytes], error_at: int) -> None:
    """Sends each commit once; retries until the broker has its coordinator. Raises RawError."""

    async def main() -> None:
        client = await Client.connect(port)
        deadline = time.monotonic() + _TIMEOUT_S / 2
        for frame in frames:
            while True:
                answer = await client.ask(frame)
                code = int.from_bytes(answer[error_at : error_at + 2], "big")
                if not code:
                    break
                if time.monotonic() > deadline:
                    raise RawError(f"OffsetCommit answered error {code} again and again")
                find = (
                    _string(b"bench") + b"\0"
                )  # Apache Kafka creates the topic at the first request for a coordinator
                await client.ask(frame_of(request_head(10, 1) + find))
                await asyncio.sleep(0.05)
        client.close()

    run(main())


# --- consumers -----------------------------------------------------------------------------------


def _fetch_v11(topic: bytes, partition: int, offset: int, isolation_level: int) -> bytes:
    body = struct.pack(">iiiibii", -1, 500, 1, 50 << 20, isolation_level, 0, -1)
    body += struct.pack(">i", 1) + _string(topic) + struct.pack(">i", 1)
    body += struct.pack(">iiqqi", partition, -1, offset, -1, 1 << 20)
    return frame_of(request_head(1, 11) + body + struct.pack(">ih", 0, 0))


async def _consume(
    client: Client, topic: bytes, partition: int, until: int, isolation_level: int
) -> None:
    """Reads a partition from its start to an offset, by batch headers. Raises RawError."""
    offset = 0
    while offset < until:
        answer = await client.ask(_fetch_v11(topic, partition, offset, isolation_level))
        at = 4 + 4 + 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
        (code,) = struct.unpack_from(">h", answer, at)
        at += 2 + 8 + 8 + 8
        (aborted,) = struct.unpack_from(">i", answer, at)
        at += 4 + 16 * max(0, aborted) + 4
        (size,) = struct.unpack_from(">i", answer, at)
        at += 4
        end, before = at + size, offset
        while end - at >= 61:
            base, length = struct.unpack_from(">qi", answer, at)
            if at + 12 + length > end:
                break
            if base > offset:
                raise RawError(f"offset {base} came where {offset} was due")
            offset = base + int(struct.unpack_from(">i", answer, at + 23)[0]) + 1
            at += 12 + length
        if code or offset == before:
            raise RawError(
                f"Fetch at {before} of {partition} answered error {code} and nothing more"
            )


async def consumers(
    port: int,
    topic: str,
    each: int,
    count: int,
    passes: int,
    broker_cpu_s: Callable[[], float],
    isolation_level: int = 0,
) -> Took:
    """Reads `each` records of `count` partitions with one consumer for each, `passes` times."""
    clients = [await Client.connect(port) for _ in range(count)]
    meter = Meter(broker_cpu_s)
    for _ in range(passes):
        readers = zip(clients, itertools.count())
        await asyncio.gather(
            *(_consume(one, topic.encode(), at, each, isolation_level) for one, at in readers)
        )
    took = meter.took()
    for client in clients:
        client.close()
    return took
