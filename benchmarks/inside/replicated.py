"""The CPU of one acks=all request of one record, with three brokers and a client on one event loop.

Nothing else disturbs it much: there are no other processes to wake, and the least of many rounds is
taken. Three processes cost more than twice as much (`benchmarks/cluster/`), for their caches are cold.
Other trees of this repository are compared by running this file in each of them, in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

import uvloop

sys.path[:0] = [str(Path(__file__).resolve().parents[up]) for up in (1, 2)]

import prepared
import raw

from tests.broker.partitions.inside import brokers

_ROUNDS, _REQUESTS = 40, 100


class Client(asyncio.Protocol):
    """Sends the same request again and again, the next one when the last is answered."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Counts an answer, which fits into one packet."""
        self._left -= 1
        if self._left:
            self._transport.write(self._request)
        else:
            self._done.set_result(data)

    async def ask(self, count: int) -> bytes:
        """Returns the last of so many answers."""
        self._left = count
        self._done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._transport.write(self._request)
        return await self._done


async def _main(directory: Path, *, profiles: bool) -> None:
    async with brokers(directory) as three:
        await three.create("bench")
        records = prepared.batch_v2([b"x" * 100], int(time.time() * 1000))
        request = prepared.produce_v9("bench", 0, records, acks=-1)
        _, client = await asyncio.get_running_loop().create_connection(
            lambda: Client(request), "127.0.0.1", three[1].port
        )
        error_at = prepared.produce_v9_error_at("bench")
        answer = await client.ask(2 * _REQUESTS)
        if answer[error_at : error_at + 2] != b"\0\0":
            raise raw.RawError(f"error code in an answer: {answer.hex()}")
        gc.collect()
        gc.freeze()
        if profiles:
            profile = cProfile.Profile(time.thread_time)
            profile.enable()
            await client.ask(20 * _REQUESTS)
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(60)
            return
        took = []
        for _ in range(_ROUNDS):
            began = time.thread_time()
            await client.ask(_REQUESTS)
            took.append((time.thread_time() - began) / _REQUESTS * 1e6)
        print(
            f"acks=all, one record of 100 B: least {min(took):.0f} us, median {statistics.median(took):.0f}"
        )


def main() -> None:
    """Runs in a directory that is removed afterwards."""
    parser = argparse.ArgumentParser(description="CPU of an acks=all request, in one process")
    parser.add_argument("--cprofile", action="store_true", help="profile instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        with runner:
            runner.run(_main(Path(work), profiles=options.cprofile))


if __name__ == "__main__":
    main()
