"""One client's connection: the socket from accept to close, and what handlers know of the client.

One connection is one asyncio protocol. Its state is in `connection_state.py`, its requests are served by
`stream/requests.py`. It promises:

- Memory is bounded: at most 1 MiB is buffered of the requests that follow the one that is served
  (`stream/incoming.py`). A large frame is read when its memory is reserved (`stream/held.py`); a peer that
  leaves a frame incomplete is cut off.
- A frame that is too large or cannot be parsed closes this connection alone, is logged and counted.
- Only a fetch or a lookup is cancelled with its connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from tidelog.broker.network.connection_state import Event, ReadState, RequestKind
from tidelog.broker.network.stream.outgoing import Outgoing
from tidelog.broker.network.stream.requests import Requests
from tidelog.broker.security.session import ANONYMOUS, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.network.accepting.listener import Listener
    from tidelog.broker.network.services import Services

log = logging.getLogger("tidelog.connection")

_OPEN = (
    ReadState.OPEN
)  # found faster than by the name of its class, and asked for with each request
_MID_REQUEST = "client disconnected mid-request"


class Connection(asyncio.BufferedProtocol):
    """One client's connection, from accept to close."""

    def __init__(self, services: Services, listener: Listener) -> None:
        self._services = services
        self.listener = listener
        self.session = Session(ANONYMOUS, "", listener.name)
        self.peer = ""
        self.client_id: str | None = None
        self.software = ""  # name and version from ApiVersions v3
        self.last_active_s = 0.0
        # Whether it is beyond the limits, and for another broker (accepting/over_limit.py).
        self.is_over_limit = False
        self.proven: tuple[int, int] | None = None  # which broker it is, and its session's epoch
        self.outgoing = Outgoing(services.memory.answers)
        self._requests = Requests(services, self, self.outgoing)
        self._state, self._incoming = self._requests.state, self._requests.incoming
        self._frames = self._incoming.frames
        self._scheduler = services.scheduler
        self.on_more: Callable[[], None] | None = None  # called when a request waits for its turn
        self.on_lost: Callable[[], None] | None = None  # called when the connection has ended

    @property
    def has_more(self) -> bool:
        """Returns whether a request waits for its turn."""
        return bool(self._frames.waiting)

    @property
    def descriptor(self) -> int:
        """Returns the number of its socket; -1 if it has none any more."""
        transport = self.outgoing.transport
        opened = None if transport is None else transport.get_extra_info("socket")
        return -1 if opened is None else int(opened.fileno())

    @property
    def is_busy(self) -> bool:
        """Returns whether a request is being served, or its answer waits.

        A fetch or lookup does not count while the socket is not read: nobody knows whether its peer has left.
        """
        under_way = self._state.under_way
        if under_way is None or (
            under_way.kind is RequestKind.LOOKUP and not self._incoming.is_read
        ):
            return self._frames.has_served
        return True

    @property
    def is_muted(self) -> bool:
        """Returns whether the connection waits because a quota is exceeded."""
        return self._state.is_muted

    # -- what the event loop calls ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport; closes it if the broker has too many connections."""
        self.outgoing.transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        if peer:
            self.session = self.session._replace(host=peer[0])
        self.last_active_s = self._services.clock.monotonic_s()
        if not self._services.connections.admit(self):
            transport.abort()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Cleans up; cancels a fetch or lookup in progress, but finishes a request that writes."""
        self.outgoing.lost()
        self._services.connections.discard(self)
        have = self._frames.have_bytes
        if not self._frames.is_empty:
            self._services.metrics.disconnects_mid_request += 1
            if self._services.connections.is_shown(self, _MID_REQUEST):
                log.info(_MID_REQUEST, extra={"peer": self.peer, "bytes": have})
        self._requests.lost()
        del self._requests  # which has this connection: else they would keep each other in memory
        on_lost, self.on_lost, self.on_more = self.on_lost, None, None
        if on_lost is not None:
            on_lost()

    def eof_received(self) -> bool:
        """Serves what the peer has sent, then closes. A fetch or lookup in progress is cancelled."""
        state, under_way = self._state, self._state.under_way
        if state.reading is not _OPEN or (
            under_way is not None and under_way.kind is RequestKind.LOOKUP
        ):
            return False
        if not (self._frames.has_waiting or under_way or self.outgoing.is_streaming):
            return False
        state.on(Event.PEER_CLOSED)
        return True

    def pause_writing(self) -> None:
        """Stops serving while the peer reads slowly."""
        self.outgoing.is_paused = True

    def resume_writing(self) -> None:
        """Continues, because the peer has caught up."""
        self.outgoing.is_paused = False
        self.outgoing.count(0)
        self._requests.stream()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Returns where the next bytes go."""
        scheduler = self._scheduler
        is_crowded = scheduler.has_round and scheduler.is_crowded(
            self._services.clock.monotonic_s()
        )
        return self._incoming.buffer(is_crowded=is_crowded)

    def buffer_updated(self, nbytes: int) -> None:
        """Cuts frames out of the stream and serves them."""
        if self._state.reading is _OPEN:
            self._requests.arrived(nbytes)

    # -- what others do to it --------------------------------------------------------------------

    def delay(self, delay_s: float) -> None:
        """Reads nothing yet: too many connections are made in a second."""
        self._requests.delay(delay_s)

    def mute(self, delay_s: float) -> None:
        """Sends the answer under way, then neither reads nor serves: a quota is exceeded.

        It does so for connections.max.idle.ms at most; meanwhile the connection is not idle.
        """
        if self._state.reading is not ReadState.LOST:
            most_s = self._services.config.connections_max_idle_ms / 1000
            self._requests.mute(min(delay_s, most_s))

    def hang_up(self) -> None:
        """Serves nothing more, sends the responses already written, then closes."""
        if self._state.reading is not ReadState.LOST:
            self._requests.hang_up()

    def close(self) -> None:
        """Sends the responses already written, then closes."""
        self.outgoing.close()

    def abort(self) -> None:
        """Closes now and drops what has not been sent."""
        self.outgoing.abort()

    def leave(self) -> None:
        """Reads no more, sends the responses already written, and waits for the peer to close.

        If the broker closed at once while the peer still sends, the kernel would reset the
        connection, and the peer would lose responses on their way to it.
        """
        transport = self.outgoing.transport
        if transport is None or self._state.reading is ReadState.LEAVING or transport.is_closing():
            return
        self._state.stop()
        self._frames.clear()
        self._requests.regulate()
        transport.write_eof()

    def expire(self) -> None:
        """Closes a connection that was idle for too long; aborts it if the peer does not read."""
        if self.outgoing.is_free:
            self.close()
        else:
            self.abort()

    def cut_if_stalled(self, now_s: float) -> None:
        """Closes the connection if its peer leaves a request incomplete, or an answer unread."""
        if self._incoming.is_read and self._incoming.held.has_stalled(self.last_active_s, now_s):
            self._requests.refuse_for_memory("its peer has left a request incomplete for too long")
        elif (transport := self.outgoing.transport) and self.outgoing.has_stalled(
            transport.get_write_buffer_size(), now_s
        ):
            self._requests.refuse_for_memory(
                "its peer does not read an answer whose memory others need"
            )
        elif self.outgoing.holds_deleted():
            self._requests.refuse_for_memory(
                "its peer does not read an answer whose file was deleted"
            )
