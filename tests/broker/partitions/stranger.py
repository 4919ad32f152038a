"""A stranger on the network: a socket, and requests that are forged by hand (`tests/forged.py`)."""

from __future__ import annotations

import asyncio
import struct
from typing import Self

from tests import forged
from tests.forged import NO_TAGS, Forged


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

    async def ask(self, request: bytes) -> bytes:
        """Sends a frame; returns the answer without its length and id."""
        self._writer.write(request)
        async with asyncio.timeout(60):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return (await self._reader.readexactly(size))[4:]

    async def code_of(self, request: Forged) -> int:
        """Sends a request; returns the error that it gets."""
        return request.code_in(await self.ask(request.frame))

    async def fetch_as(
        self, replica: int, epoch: int, topic_id: bytes, offset: int, *, tags: bytes = NO_TAGS
    ) -> int:
        """Fetches partition 0 for a broker in a session; returns the error of the request."""
        return await self.code_of(forged.fetch(replica, epoch, topic_id, (0, offset), tags))

    async def old_fetch_as(self, replica: int, topic: str, offset: int) -> int:
        """Fetches partition 0 for a broker, in a version without broker epochs."""
        return await self.code_of(forged.old_fetch(replica, topic, (0, offset)))

    async def write_marker(
        self,
        producer: tuple[int, int],
        topic: str,
        coordinator_epoch: int,
        *,
        is_commit: bool,
        tags: bytes = NO_TAGS,
    ) -> int:
        """Writes a transaction marker into partition 0; returns the error of the partition."""
        return await self.code_of(
            forged.marker(producer, (topic, 0), coordinator_epoch, is_commit=is_commit, tags=tags)
        )
