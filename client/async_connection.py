"""One TCP or TLS connection to one broker on an event loop: any number of requests in flight, in order.

It retries nothing. When an answer does not arrive in time, the connection closes or the data is
invalid, every request in flight fails with ConnectionBroken: answers arrive in order, so later ones
are lost too.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from tidelog.client.errors import AuthenticationFailed, ConnectionBroken
from tidelog.client.frames import Frames
from tidelog.client.security import PLAINTEXT
from tidelog.protocol.sender import NO_TAGS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.client.apis import VersionRange
    from tidelog.client.security import Access
    from tidelog.protocol.message import Message


class Receiver(Protocol):
    """Takes an answer when it arrives, in the read of the socket that brought it."""

    def answered(self, answer: Any) -> None:
        """Takes the answer. It raises nothing."""

    def broken(self, failure: Exception) -> None:
        """Takes that there will be no answer: the connection has ended."""


class Room(Protocol):
    """Memory for large answers, of which so many bytes may be held; what waits is served in its order."""

    limit_bytes: int

    def take(self, size_bytes: int) -> bool:
        """Reserves bytes now and returns True, unless there is no room."""

    def wait(self, size_bytes: int, granted: Callable[[], object]) -> Any:
        """Reserves bytes as soon as there is room, and calls `granted` then."""

    def leave(self, wait: Any) -> bool:
        """Waits no longer; returns False if the bytes were granted already."""

    def release(self, size_bytes: int) -> None:
        """Gives bytes back."""


class AsyncConnection(asyncio.BufferedProtocol):
    """A connection that `open_connection` has opened.

    With a `room` a large answer is read when there is room for it: until then the socket is not read. An
    answer that is larger than the room takes all of it. Its bytes are given back when nobody refers to
    the answer any more, or to records of it. `tags` are those of the headers of requests.
    """

    def __init__(
        self,
        address: str,
        client_id: str,
        access: Access = PLAINTEXT,
        room: Room | None = None,
        tags: bytes = NO_TAGS,
    ) -> None:
        self.address = address
        self.tags = tags
        self._access = access
        self._room = room
        self._waits_for_room: Any = None
        self._frames = Frames(address, client_id, access.authenticator, time.monotonic, tags)
        self._frames.must_allot = room is not None
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._answers: deque[asyncio.Future[Any] | Receiver] = deque()
        self._failure: ConnectionBroken | AuthenticationFailed | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self.ready: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_closed(self) -> bool:
        """Whether the connection can no longer be used."""
        return self._failure is not None

    @property
    def served(self) -> dict[int, VersionRange]:
        """The versions of each API that the broker supports."""
        return self._frames.served

    async def ask(
        self,
        message: Message,
        api_key: int,
        *,
        timeout_s: float,
        has_answer: bool = True,
        least_version: int = 0,
    ) -> Any:
        """Sends a request and waits for its answer; returns None at once if there is none (acks=0).

        `least_version` is for brokers, see `Frames.send`. Others may ask at the same time. A
        cancelled request does not disturb the connection: its answer is dropped when it arrives.
        Raises ConnectionBroken or VersionMismatch.
        """
        if self._frames.must_renew:
            await self._access.prepare_on(self._loop)
            self._frames.renew()
        answer = self.post(message, api_key, has_answer=has_answer, least_version=least_version)
        try:
            async with asyncio.timeout(timeout_s):
                await self._may_write.wait()
                return await answer if has_answer else None
        except TimeoutError:
            failure = ConnectionBroken(f"{self.address} did not answer in time")
            self._fail(failure)
            raise failure from None

    def post(
        self, message: Message, api_key: int, *, has_answer: bool = True, least_version: int = 0
    ) -> asyncio.Future[Any]:
        """Sends a request now, and returns a future of its answer, which has no time limit.

        The future raises ConnectionBroken. A session that has to be renewed is not. Raises
        ConnectionBroken or VersionMismatch.
        """
        if self._failure is not None:
            raise ConnectionBroken(str(self._failure))
        self._frames.send(message, api_key, has_answer=has_answer, least_version=least_version)
        self._flush()
        answer: asyncio.Future[Any] = self._loop.create_future()
        if has_answer:
            self._answers.append(answer)
        return answer

    def post_to(
        self, receiver: Receiver, request: Message | bytes, api_key: int, version: int
    ) -> None:
        """Sends a request of a broker to another one now; `receiver` gets the answer at once.

        The request may be an encoded body. `version` is one that `version_between` has returned.
        Raises ConnectionBroken.
        """
        if self._failure is not None:
            raise ConnectionBroken(str(self._failure))
        self._frames.send_in(version, request, api_key)
        self._answers.append(receiver)
        self._flush()

    def version_between(self, api_key: int, least: int) -> int:
        """Returns the version of an API that brokers use with each other. Raises VersionMismatch."""
        return self._frames.version_between(api_key, least)

    def close(self) -> None:
        """Closes the connection; requests in flight fail with ConnectionBroken."""
        self._fail(ConnectionBroken(f"{self.address}: the connection was closed"))

    async def wait_closed(self) -> None:
        """Waits until the socket is closed."""
        await self._closed

    # --- called by the event loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begins the handshake."""
        self._transport = cast("asyncio.Transport", transport)
        self._flush()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Returns the buffer for the next bytes."""
        return self._frames.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Processes received bytes; an answer goes to the oldest request."""
        if self._failure is not None:
            return
        frames, answers = self._frames, self._answers
        frames.filled(nbytes)
        try:
            while (answer := frames.next_answer()) is not None:
                waiting = answers.popleft()
                if not isinstance(waiting, asyncio.Future):
                    waiting.answered(answer)
                elif not waiting.done():
                    waiting.set_result(answer)
        except (ConnectionBroken, AuthenticationFailed) as error:
            self._fail(error)
            return
        if frames.wanted_bytes and self._room is not None and self._waits_for_room is None:
            self._reserve(self._room)
        self._flush()  # the next step of a handshake
        if frames.is_ready and not self.ready.done():
            self.ready.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fails all requests in flight."""
        if isinstance(exc, OSError):
            self._fail(self._access.failure(self.address, exc))
        else:
            self._fail(self._frames.closed())
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        """The socket's buffer is full: requests wait."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """The socket accepts bytes again."""
        self._may_write.set()

    # --- internal ---------------------------------------------------------------------------------

    def _reserve(self, room: Room) -> None:
        """Takes memory for the large answer that has begun, or reads no more of it before there is room."""
        size = min(self._frames.wanted_bytes, room.limit_bytes)
        if room.take(size):
            self._allot(room, size)
        elif self._transport is not None:
            self._transport.pause_reading()
            self._waits_for_room = room.wait(size, partial(self._granted, room, size))

    def _granted(self, room: Room, size: int) -> None:
        self._waits_for_room = None
        self._allot(room, size)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def _allot(self, room: Room, size: int) -> None:
        frame = self._frames.allot()
        weakref.finalize(frame, _give_back, self._loop, room, size).atexit = False

    def _flush(self) -> None:
        output = self._frames.take_output()
        if output and self._transport is not None:
            self._transport.write(output)

    def _fail(self, failure: ConnectionBroken | AuthenticationFailed) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        if self._waits_for_room is not None and self._room is not None:
            self._room.leave(self._waits_for_room)
            self._waits_for_room = None
        self._frames.drop_large()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._answers = self._answers, deque()
        self._may_write.set()
        for each in (self.ready, *waiting):
            if not isinstance(each, asyncio.Future):
                each.broken(failure)
            elif not each.done():
                each.set_exception(failure)
                each.exception()  # the request may have been cancelled


def _give_back(loop: asyncio.AbstractEventLoop, room: Room, size: int) -> None:
    """Gives back the bytes of an answer; the last to refer to it may have been a thread."""
    with contextlib.suppress(RuntimeError):  # the loop has ended, and the room with it
        loop.call_soon_threadsafe(room.release, size)


async def _connected(make: Callable[[], Any], host: str, port: int, **options: Any) -> Any:
    """Opens a connection; returns its protocol, which `make` makes."""
    loop = asyncio.get_running_loop()
    return (await loop.create_connection(make, host, port, **options))[1]


current_dial: Callable[..., Awaitable[Any]] = _connected


def dial_by(dial: Callable[..., Awaitable[Any]] | None) -> None:
    """Opens connections by another function from now on, for tests that cut them; None: as usual.

    It has the arguments and the result of `loop.create_connection`, without the transport.
    """
    global current_dial  # noqa: PLW0603 - one hook in the process, as there is one network
    current_dial = dial or _connected


async def open_connection(
    host: str,
    port: int,
    client_id: str,
    *,
    timeout_s: float,
    access: Access = PLAINTEXT,
    room: Room | None = None,
    tags: bytes = NO_TAGS,
) -> AsyncConnection:
    """Connects and performs the handshake. Raises ConnectionBroken or AuthenticationFailed.

    `room` is the memory that large answers are counted in. `tags` are those of the headers of requests,
    by which a broker proves who it is (`protocol/sender.py`).
    """
    address = f"{host}:{port}"
    loop = asyncio.get_running_loop()
    made: AsyncConnection | None = None
    failure: ConnectionBroken | AuthenticationFailed
    try:
        async with asyncio.timeout(timeout_s):
            await access.prepare_on(loop)
            made = await current_dial(
                lambda: AsyncConnection(address, client_id, access, room, tags),
                host,
                port,
                ssl=access.tls,
                server_hostname=None if access.tls is None else host,
            )
            await made.ready
            return made
    except TimeoutError:
        failure = ConnectionBroken(f"{address} cannot be reached: timed out")
    except (ConnectionBroken, AuthenticationFailed) as error:
        failure = error
    except OSError as error:
        failure = access.failure(address, error, is_handshake=True)
    except asyncio.CancelledError:
        if made is not None:
            made.close()
        raise
    if made is not None:
        made.close()
    raise failure
