"""Transactional producers of prepared frames, the same for both brokers.

Each has a connection, a transactional id and a partition of its own, and one request under way, as
Java's producers of 3.9 do it: AddPartitionsToTxn, one batch, EndTxn. The batches are made before
the clock runs. Apache Kafka answers EndTxn before its markers are written, so the next transaction may
have to ask again: after a millisecond, where Java's producer waits 20.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import TYPE_CHECKING

from members import Client, Meter, Took
from prepared import Producer, batch_v2, frame_of, produce_v9, produce_v9_error_at, request_head
from raw import RawError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_UNREADY = (14, 15, 16, 51)  # loading, no coordinator, another one, concurrent transactions
_PATIENCE_S = 60.0
_ASK_AGAIN_S = 0.001


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


class Transactor:
    """One transactional producer, and the batches that it is going to send."""

    def __init__(self, client: Client, name: str, topic: str, partition: int) -> None:
        self.client, self.name, self.topic, self.partition = client, name, topic, partition
        self.seconds: list[
            float
        ] = []  # each transaction's, from its first request to EndTxn's answer
        self._frames: list[bytes] = []
        self._add = b""
        self._ends: tuple[bytes, bytes] = (b"", b"")  # abort, commit

    async def prepare(self, values: Sequence[bytes], count: int) -> None:
        """Gets a producer id, and makes the batches of `count` transactions. Raises RawError."""
        find = frame_of(request_head(10, 1) + _string(self.name) + b"\1")
        await self._until_ready(find, 4 + 4 + 4, "FindCoordinator")
        init = frame_of(request_head(22, 0) + _string(self.name) + struct.pack(">i", 60_000))
        answer = await self._until_ready(init, 4 + 4 + 4, "InitProducerId")
        pid, epoch = struct.unpack_from(">qh", answer, 14)
        now_ms = int(time.time() * 1000)
        self._frames = [
            produce_v9(
                self.topic,
                self.partition,
                batch_v2(values, now_ms, producer=Producer(pid, epoch, number * len(values))),
                -1,
                self.name,
            )
            for number in range(count)
        ]
        who = _string(self.name) + struct.pack(">qh", pid, epoch)
        one = struct.pack(">i", 1) + _string(self.topic) + struct.pack(">ii", 1, self.partition)
        self._add = frame_of(request_head(24, 0) + who + one)
        self._ends = (
            frame_of(request_head(26, 0) + who + b"\0"),
            frame_of(request_head(26, 0) + who + b"\1"),
        )

    async def _until_ready(self, frame: bytes, error_at: int, what: str) -> bytes:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            answer = bytes(await self.client.ask(frame))
            (error,) = struct.unpack_from(">h", answer, error_at)
            if not error:
                return answer
            if error not in _UNREADY or time.monotonic() > deadline:
                raise RawError(f"{what} answered error {error}")
            await asyncio.sleep(_ASK_AGAIN_S)

    async def go(self, abort_every: int = 0) -> None:
        """Does the transactions, one after the other; each n-th one is aborted. Raises RawError."""
        ask = self.client.ask
        added_at = 4 + 4 + 4 + 4 + 2 + len(self.topic) + 4 + 4
        produced_at = produce_v9_error_at(self.topic)
        for number, frame in enumerate(self._frames, 1):
            began = time.perf_counter()
            while error := struct.unpack_from(">h", await ask(self._add), added_at)[0]:
                if error not in _UNREADY:
                    raise RawError(f"AddPartitionsToTxn answered error {error}")
                await asyncio.sleep(_ASK_AGAIN_S)
            (error,) = struct.unpack_from(">h", await ask(frame), produced_at)
            if error:
                raise RawError(f"Produce answered error {error}")
            is_commit = not abort_every or bool(number % abort_every)
            (error,) = struct.unpack_from(">h", await ask(self._ends[is_commit]), 12)
            if error:
                raise RawError(f"EndTxn answered error {error}")
            self.seconds.append(time.perf_counter() - began)


async def transactions(
    port: int,
    topic: str,
    names: Sequence[str],
    values: Sequence[bytes],
    each: int,
    broker_cpu_s: Callable[[], float],
    abort_every: int = 0,
) -> tuple[Took, list[float]]:
    """Does `each` transactions of one batch by a producer of each name, all at the same time.

    Returns what they took together, and the seconds of each.
    """
    found = []
    for partition, name in enumerate(names):
        transactor = Transactor(await Client.connect(port), name, topic, partition)
        await transactor.prepare(values, each)
        found.append(transactor)
    meter = Meter(broker_cpu_s)
    await asyncio.gather(*(one.go(abort_every) for one in found))
    took = meter.took()
    for one in found:
        one.client.close()
    return took, [seconds for one in found for seconds in one.seconds]
