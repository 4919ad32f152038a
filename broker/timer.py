"""Timeouts of requests, and a timer of the event loop that has its time as an attribute.

The handles of uvloop do not always have it: uvloop calls functions that are due within half a millisecond
in the next iteration of the loop, without a timer.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_Arguments = TypeVarTuple("_Arguments")


@contextlib.asynccontextmanager
async def timeout(seconds: float) -> AsyncIterator[None]:
    """Does what `asyncio.timeout` does, also in a request, which has no task until it waits."""
    loop = asyncio.get_running_loop()
    if asyncio.current_task() is None:
        moment = loop.create_future()
        loop.call_soon(moment.set_result, None)
        await moment
    async with asyncio.timeout(seconds):
        yield


class Timer:
    """Calls a function with arguments at a time of the running loop's clock, in s."""

    __slots__ = ("_handle", "at_s")

    def __init__(
        self, at_s: float, function: Callable[[*_Arguments], object], *arguments: *_Arguments
    ) -> None:
        self.at_s = at_s
        """When the function is called; it may be in the past."""
        self._handle = asyncio.get_running_loop().call_at(at_s, function, *arguments)

    def cancel(self) -> None:
        """Cancels the call."""
        self._handle.cancel()
