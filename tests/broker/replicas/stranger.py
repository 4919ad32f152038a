"""A stranger on the network: a socket, and frames that are packed by hand from Kafka's protocol guide."""

from __future__ import annotations

import asyncio
import struct
from typing import Self

ALL = 1 << 20


class Stranger:
    """One connection of somebody who knows ids and offsets, and nothing that is secret."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(
        self, key: int, version: int, body: bytes, *, tags: bytes | None = b"\0"
    ) -> bytes:
        """Sends a request, with a header of version 1 if `tags` is None; returns what follows its id."""
        head = struct.pack(">hhih", key, version, 7, 4) + b"evil" + (tags or b"")
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        async with asyncio.timeout(60):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return (await self._reader.readexactly(size))[4:]

    async def fetch_as(
        self, replica: int, epoch: int, topic_id: bytes, offset: int, *, tags: bytes = b"\0"
    ) -> int:
        """Fetches partition 0 for a broker in a session (v17); returns the error of the request."""
        limits = struct.pack(">iiibii", 0, 1, ALL, 0, 0, -1)
        partition = struct.pack(">iiqiqi", 0, 0, offset, -1, 0, ALL) + b"\0"
        claim = b"\1\1\x0d" + struct.pack(">iq", replica, epoch) + b"\0"
        body = limits + b"\2" + topic_id + b"\2" + partition + b"\0" + b"\1\1" + claim
        answer = await self.ask(1, 17, body, tags=tags)
        return int(struct.unpack_from(">h", answer, 5)[0])  # behind the tags and the throttle time

    async def fetch_as_in_v11(self, replica: int, topic: str, offset: int) -> int:
        """Fetches partition 0 for a broker, in a version without broker epochs."""
        limits = struct.pack(">iiiibii", replica, 0, 1, ALL, 0, 0, -1)
        named = struct.pack(">ih", 1, len(topic)) + topic.encode()
        partition = struct.pack(">iiiqqi", 1, 0, 0, offset, 0, ALL)
        body = limits + named + partition + struct.pack(">ih", 0, 0)
        answer = await self.ask(1, 11, body, tags=None)
        return int(struct.unpack_from(">h", answer, 4)[0])

    async def write_marker(
        self,
        producer: tuple[int, int],
        topic: str,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        tags: bytes = b"\0",
    ) -> int:
        """Writes a transaction marker into partition 0 (v1); returns the error of the partition."""
        named = struct.pack("B", len(topic) + 1) + topic.encode() + b"\2" + struct.pack(">i", 0)
        marker = struct.pack(">qh?", *producer, is_commit) + b"\2" + named + b"\0"
        body = b"\2" + marker + struct.pack(">i", coordinator_epoch) + b"\0" + b"\0"
        answer = await self.ask(27, 1, body, tags=tags)
        at = 1 + 1 + 8 + 1 + 1 + len(topic) + 1 + 4
        return int(struct.unpack_from(">h", answer, at)[0])
