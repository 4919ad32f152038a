"""A client of prepared frames, the same for both brokers, that only counts responses.

Such a client costs little and is independent of the broker's own codecs. Responses are checked for error
codes and otherwise dropped. The frames are made in `prepared.py`.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple

import uvloop
from prepared import fetch_v2, fetch_v11

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TIMEOUT_S = 60


class RawError(RuntimeError):
    """A broker returned an error, or no response."""


class Pipelined(NamedTuple):
    """The result of a pipelined run."""

    requests: int
    seconds: float
    broker_cpu_s: float


class _Sender(asyncio.Protocol):
    """Keeps `depth` copies of one request in flight on a connection."""

    def __init__(self, request: bytes, depth: int, error_at: int) -> None:
        self.request = request
        self.depth = depth
        self.error_at = error_at
        self.answers = 0
        self.failed = ""
        self.going = True
        self._size = 0
        self._rest = b""
        self._block = request * depth
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def begin(self) -> None:
        """Sends the first requests."""
        assert self._transport is not None
        self._transport.write(self._block)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        if not self._size:
            if len(data) < 4:
                self._rest = data
                return
            self._size = 4 + int.from_bytes(data[:4], "big")
        size = self._size
        count = len(data) // size
        end = count * size
        if any(data[self.error_at : end : size]) or any(data[self.error_at + 1 : end : size]):
            self.failed = f"error code in an answer: {data[:size].hex()}"
            self.going = False
        self._rest = data[end:]
        self.answers += count
        if count and self.going:
            assert self._transport is not None
            self._transport.write(self._block[: count * len(self.request)])

    def connection_lost(self, exc: Exception | None) -> None:
        if self.going:
            self.failed = f"connection lost: {exc}"


def pipelined(
    port: int | Sequence[int],
    requests: Sequence[bytes],
    depth: int,
    error_at: int,
    seconds: float,
    broker_cpu_s: Callable[[], float],
) -> Pipelined:
    """Sends each request again and again on a connection of its own, `depth` in flight on each.

    `port` is that of all of them, or one for each. Every response must have the same size (same topic,
    no errors). Raises RawError.
    """
    ports = [port] * len(requests) if isinstance(port, int) else port

    async def run() -> Pipelined:
        loop = asyncio.get_running_loop()
        senders = []
        transports = []
        for request, at in zip(requests, ports, strict=True):
            sender = _Sender(request, depth, error_at)
            transport, _ = await loop.create_connection(lambda one=sender: one, "127.0.0.1", at)
            senders.append(sender)
            transports.append(transport)
        for sender in senders:
            sender.begin()
        await asyncio.sleep(seconds / 10)  # until every connection runs at full speed
        before = sum(sender.answers for sender in senders)
        began, used = time.perf_counter(), broker_cpu_s()
        await asyncio.sleep(seconds)
        took, used = time.perf_counter() - began, broker_cpu_s() - used
        done = sum(sender.answers for sender in senders) - before
        failed = [sender.failed for sender in senders if sender.failed]
        for sender in senders:
            sender.going = False
        for transport in transports:
            transport.abort()
        if failed or not done:
            raise RawError(failed[0] if failed else "no answers")
        return Pipelined(done, took, used)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def connect(port: int) -> socket.socket:
    """Returns a blocking connection with TCP_NODELAY."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def exchange(connection: socket.socket, request: bytes) -> bytes:
    """Sends one frame, returns the response's frame with its length. Raises RawError."""
    connection.sendall(request)
    answer = connection.recv(1 << 20)
    if len(answer) < 4:
        answer += connection.recv(1 << 20)
    if not answer:
        raise RawError("the broker closed the connection")
    size = 4 + int.from_bytes(answer[:4], "big")
    if len(answer) == size:
        return answer
    parts = [answer]
    have = len(answer)
    while have < size:
        part = connection.recv(1 << 20)
        if not part:
            raise RawError("the broker closed the connection")
        parts.append(part)
        have += len(part)
    return b"".join(parts)


def latencies_us(port: int, request: bytes, error_at: int, count: int) -> list[float]:
    """Returns the times of `count` requests, one at a time, in microseconds. Raises RawError."""
    times = []
    with connect(port) as connection:
        for _ in range(count):
            began = time.perf_counter_ns()
            answer = exchange(connection, request)
            times.append((time.perf_counter_ns() - began) / 1000)
            if answer[error_at : error_at + 2] != b"\0\0":
                raise RawError(f"error code in an answer: {answer.hex()}")
    return times


def read_v2(port: int, topic: str, until_offset: int, max_bytes: int = 1 << 20) -> int:
    """Reads partition 0 from offset 0 with Fetch v2, as a client of 0.10; returns the count."""
    at = messages = 0
    with connect(port) as connection:
        while at < until_offset:
            answer = exchange(connection, fetch_v2(topic, at, max_bytes))
            head = 4 + 4 + 4 + 4 + 2 + len(topic) + 4
            _, error, _, size = struct.unpack_from(">ihqi", answer, head)
            if error:
                raise RawError(f"Fetch v2 answered error {error}")
            position = head + 18
            end = position + size
            before = at
            while end - position >= 17:
                offset, length = struct.unpack_from(">qi", answer, position)
                if length > end - position - 12:
                    break  # a truncated message, or the filler for one that did not fit
                if answer[position + 16] != 1:
                    raise RawError(f"format {answer[position + 16]} in an answer to Fetch v2")
                position += 12 + length
                if offset >= at:
                    at = offset + 1
                    messages += 1
            if at == before:
                raise RawError(f"Fetch v2 stands still at offset {at}")
    return messages


def fetch_all(port: int, request: bytes, count: int) -> None:
    """Sends one Fetch v11 `count` times, one at a time. Raises RawError."""
    with connect(port) as connection:
        for _ in range(count):
            answer = exchange(connection, request)
            if answer[12:14] != b"\0\0":
                raise RawError(f"Fetch answered error {int.from_bytes(answer[12:14], 'big')}")


def fetch_session(port: int, topic: str, partitions: int, count: int) -> Callable[[], None]:
    """Begins a session of many empty partitions; what it returns sends `count` fetches of it.

    Nothing is new in any of them, and they are sent one at a time. Raises RawError.
    """
    connection = connect(port)
    answer = exchange(connection, fetch_v11(topic, partitions, 0, (0, 0)))
    error, session = struct.unpack_from(">hi", answer, 12)
    if error or not session:
        raise RawError(f"Fetch answered error {error} and session {session}")
    first = _quiet_epoch(connection, topic, session)
    frames = [fetch_v11(topic, 0, 0, (session, epoch)) for epoch in range(first, first + count)]

    def fetches() -> None:
        with connection:
            for frame in frames:
                if not _is_quiet(exchange(connection, frame), session):
                    raise RawError("a fetch of the session answered for a partition")

    return fetches


def _quiet_epoch(connection: socket.socket, topic: str, session: int) -> int:
    """Waits until all partitions of a new topic are led; returns the session's next epoch."""
    for epoch in range(1, 200):
        if _is_quiet(exchange(connection, fetch_v11(topic, 0, 0, (session, epoch))), session):
            return epoch + 1
        time.sleep(0.05)
    raise RawError("a partition of the session has something to say after 10 s")


def _is_quiet(answer: bytes, session: int) -> bool:
    return struct.unpack_from(">hii", answer, 12) == (0, session, 0)


def look_up(connection: socket.socket, request: bytes) -> tuple[int, int]:
    """Sends a lookup; returns the offset and its time. Raises RawError."""
    answer = exchange(connection, request)
    error, timestamp, offset = struct.unpack_from(">hqq", answer, len(answer) - 25)
    if error:
        raise RawError(f"ListOffsets answered error {error}")
    return offset, timestamp
