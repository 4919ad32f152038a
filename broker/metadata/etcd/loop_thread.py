"""The event loop of gRPC, in a thread of its own.

grpc.aio shares one poller among the event loops of a process (grpc issues 25364, 42357), and does
not work on every kind of loop. So all its calls run in one loop, which is asyncio's own, beside that
of the broker. The thread is started by its first use, and ends with the process.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")


class _LoopThread:
    """Runs coroutines for callers in any loop."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine in the thread, and returns its result.

        Cancels the coroutine with the caller.
        """
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.SelectorEventLoop()
                threading.Thread(target=self._loop.run_forever, name="grpc", daemon=True).start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


grpc_loop = _LoopThread()
