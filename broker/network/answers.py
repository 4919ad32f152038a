"""What a handler answers: a response, one that comes later, or the end of the connection.

A response is a message, or `Encoded`; one that comes later is a `Pending` of a response. Handlers may also be
coroutines of either: `dispatch.py` makes a `Pending` of them, and nothing else does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

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


class Encoded(NamedTuple):
    """A response as bytes."""

    body: bytes
    is_frame: bool = False  # with its length and its header, which the others still need


NO_RESPONSE: Final = Encoded(b"", is_frame=True)
"""The response to a request that has none: Produce with acks=0."""


def _nothing() -> None:
    """Frees nothing."""


class Pending(NamedTuple):
    """A response that waits for one event and is then made on the event loop, without a task.

    A task costs about as much as a small request. A handler that waits for a thread, or again and again, is a
    coroutine.
    """

    happened: asyncio.Future[Any]
    finish: Callable[
        [], Any
    ]  # makes the response then, or returns a `Pending` or a coroutine of it
    dropped: Callable[[], None] = _nothing  # called instead if `happened` is cancelled
    is_stored: bool = False  # all that the request asks for is done: the answer alone waits
