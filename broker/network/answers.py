"""What a handler answers beside a response: one that comes later, or the end of the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class CloseConnection(Exception):
    """The request has no response and the connection must be closed. The text says why."""


class Folded(CloseConnection):
    """A reason that a client may repeat for ever: it is logged a few times and then counted.

    Those of one `kind` are counted together.
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class NotServed(Folded):
    """The API, or its version, is not served: a client that asks blindly may repeat this for ever."""


class NoRoom(Folded):
    """There are too many connections, and this one is kept for another broker, which asks otherwise."""


class Excessive(Folded):
    """The request, or its response, is larger than it may be."""


def _nothing() -> None:
    """Frees nothing."""


class Pending(NamedTuple):
    """An answer that waits for one event and is then made on the event loop, without a task.

    A task costs about as much as a small request. What waits for a thread, or again and again, is a
    coroutine.
    """

    happened: asyncio.Future[Any]
    finish: Callable[[], Any]  # makes the answer then, or returns a coroutine of it
    dropped: Callable[[], None] = _nothing  # called instead if `happened` is cancelled
    is_stored: bool = False  # all that the request asks for is done: the answer alone waits
