"""The requests of one connection: they are served one after the other, and responses leave in request order.

So the appends of a pipelining producer keep their order. One to produce waits for no other whose records are
stored (`ahead.py`). It promises:

- A request that can be answered at once is answered as it arrives, without a task.
- A peer that has many requests buffered takes turns with the others (scheduler.py): a peer that has one
  waits a few milliseconds.
- A connection whose client is over a quota is muted for a time: its answers are sent, and nothing is read.
- Frames that were complete before a bad one, or before the peer closed, are still served, as in Kafka: a
  producer with acks=0 may close right after its last request.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tidelog.broker.network.answers import CloseConnection
from tidelog.broker.network.connection_state import (
    ConnectionState,
    Event,
    RequestKind,
    ServeState,
    UnderWay,
)
from tidelog.broker.network.context import ClientConnection
from tidelog.broker.network.dispatch import dispatch
from tidelog.broker.network.memory.garbage import forget
from tidelog.broker.network.stream.ahead import serve_ahead
from tidelog.broker.network.stream.frames import COPY_BYTES
from tidelog.broker.network.stream.incoming import Incoming
from tidelog.broker.network.stream.served import Served

if TYPE_CHECKING:
    from tidelog.broker.network.answers import Pending
    from tidelog.broker.network.services import Services
    from tidelog.broker.network.stream.outgoing import Outgoing

log = logging.getLogger("tidelog.connection")

# Names of the module are found faster than those of a class: these are asked for with each request.
_READY, _ANSWERING = ServeState.READY, ServeState.ANSWERING
_TURN_S = 0.001  # the longest for which one peer is served before the others have their turn
_HELD_BYTES = 16_384  # of responses that are ready together, and are sent together


class ServedConnection(ClientConnection, Protocol):
    """A connection, as what serves its requests knows it."""

    last_active_s: float
    """When the client has sent, or was sent, something for the last time."""


class Requests:
    """The requests of one connection."""

    __slots__ = (
        "_client",
        "_frames",
        "_held",
        "_outgoing",
        "_scheduler",
        "_services",
        "_throttle",
        "_waiting",
        "incoming",
        "state",
    )

    def __init__(self, services: Services, client: ServedConnection, outgoing: Outgoing) -> None:
        self.state = ConnectionState()
        self.incoming = Incoming(
            services.memory.requests, services.connections.arriving, self.regulate_soon
        )
        self._services, self._client, self._outgoing = services, client, outgoing
        self._scheduler = services.scheduler
        self._frames, self._held = self.incoming.frames, self.incoming.held
        self._waiting = self._frames.waiting  # whole frames not yet served
        self._throttle: asyncio.TimerHandle | None = None  # ends the time for which it is muted

    # -- what arrives ----------------------------------------------------------------------------

    def arrived(self, nbytes: int) -> None:
        """Cuts frames out of what has arrived in the buffer, and serves them."""
        state, services, frames = self.state, self._services, self._frames
        now_s = self._client.last_active_s = services.clock.monotonic_s()
        is_crowded = self._scheduler.has_round and self._scheduler.is_crowded(now_s)
        is_ready = state.serving is _READY
        is_first = is_ready and frames.is_empty
        if is_first and self._outgoing.is_free and not is_crowded:
            limit_bytes = services.settings.broker.limits.socket_request_max_bytes
            frame = self.incoming.one_frame(nbytes, limit_bytes)
            if frame is not None:
                self._serve_one(frame)
                return
        data = self.incoming.arrived(nbytes)
        if data is not None:
            if is_first and is_crowded:
                frames.keep(data)
            else:
                refusal = frames.take(data, services.memory.most_frame_bytes)
                if refusal is not None:
                    state.refuse(refusal)
        if self._client.on_more is not None and self._waiting:
            self._client.on_more()
        if is_ready:
            if is_crowded:
                self._queue(is_new=True)
            elif self._waiting or state.is_done:
                self._serve_waiting()
                # The loop may deliver more of what this peer has sent before it polls the others.
                self._scheduler.note(now_s)
        elif not is_crowded:
            self._serve_ahead()
        self.regulate()

    def regulate(self) -> None:
        """Pauses reading from the socket while there is no room for more data."""
        self._held.is_behind = self.state.is_behind or not self._outgoing.is_free
        if not self._held.update():
            self.refuse_for_memory("too many wait for memory: see memory.limit.bytes")
            return
        transport = self._outgoing.transport
        if transport is None or transport.is_closing():
            return
        now_s, may_read = self._services.clock.monotonic_s(), self.state.may_read
        self.incoming.regulate(transport, now_s, may_read=may_read)

    def regulate_soon(self) -> None:
        """Does what `regulate` does, when the loop has done what it does now."""
        asyncio.get_running_loop().call_soon(self.regulate)

    # -- the end ---------------------------------------------------------------------------------

    def lost(self) -> None:
        """Ends: the socket is gone. Cancels a fetch or lookup, but finishes a request that writes."""
        self.state.on(Event.CONNECTION_LOST)
        if self._throttle is not None:
            self._throttle.cancel()
        self._held.close()
        under_way = self.state.under_way
        if under_way is not None and under_way.kind is RequestKind.LOOKUP:
            _cancel(under_way.pending)

    def hang_up(self) -> None:
        """Serves nothing more, sends the responses already written, then closes."""
        self._frames.clear()
        self._held.update()
        self._outgoing.close()

    def _refuse(self, reason: str | CloseConnection) -> None:
        """Closes the connection because of invalid data."""
        self._services.connections.refused(self._client, reason)
        self.hang_up()

    def refuse_for_memory(self, reason: str) -> None:
        """Closes the connection at once, because it takes memory that others need."""
        self._services.connections.refused_for_memory(self._client, reason)
        self._frames.clear()
        self._outgoing.abort()

    # -- turns -----------------------------------------------------------------------------------

    def delay(self, delay_s: float) -> None:
        """Reads nothing yet: too many connections are made in a second."""
        self.state.on(Event.TURN_OVER)
        loop = asyncio.get_running_loop()
        self.regulate_soon()  # uvloop reads after `connection_made`, whatever that does
        loop.call_later(delay_s, self._go_on, _TURN_S)

    def mute(self, delay_s: float) -> None:
        """Sends the answer under way, then neither reads nor serves: a quota is exceeded."""
        self.state.on(Event.THROTTLE_STARTED)
        if self._throttle is not None:
            self._throttle.cancel()
        self._throttle = asyncio.get_running_loop().call_later(delay_s, self._unmute)
        self.regulate_soon()

    def _unmute(self) -> None:
        self._throttle = None
        self.state.on(Event.THROTTLE_ENDED)
        self._client.last_active_s = self._services.clock.monotonic_s()
        self.serve_in_turn()

    def serve_in_turn(self) -> None:
        """Serves queued frames if they may be served now, or queues with them if others have to."""
        if self.state.serving is not _READY:
            return
        if self._waiting and self._scheduler.is_crowded(self._services.clock.monotonic_s()):
            self._queue()
            self.regulate()
        else:
            self._serve_waiting()

    def _queue(self, *, is_new: bool = False) -> None:
        """Waits for the next turn, which comes soon if the connection `is_new`."""
        self.state.on(Event.TURN_OVER)
        turn = self._go_on_as_new if is_new else partial(self._go_on, _TURN_S)
        self._scheduler.join(turn, is_new=is_new)

    def _go_on_as_new(self) -> None:
        self._go_on(min(_TURN_S, self._scheduler.new_turn_s()))

    def _go_on(self, turn_s: float) -> None:
        """Continues after the turn of the others."""
        self.state.on(Event.TURN_CAME)
        if self.state.serving is _READY:
            self._serve_waiting(turn_s)

    # -- serving ---------------------------------------------------------------------------------

    def _serve_one(self, frame: bytes) -> None:
        """Does what `_serve_waiting` does for a single frame, without a queue."""
        try:
            answer = dispatch(self._services, self._client, frame)
        except CloseConnection as reason:
            self._refuse(reason)
            return
        if isinstance(answer, list):
            self._write(answer)
        elif answer is not None:
            self.finish_later(frame, answer)

    def _serve_waiting(self, turn_s: float = _TURN_S) -> None:
        """Serves queued frames until one has to wait, the peer does not read, or the turn is over.

        Small responses to frames that came together are sent together: sending is half of their cost.
        """
        services, client, state = self._services, self._client, self.state
        monotonic_s = services.clock.monotonic_s
        over_s = monotonic_s() + turn_s
        held: list[bytes | bytearray | memoryview] = []
        held_bytes = 0
        if not self._waiting:
            self._cut_more()
        while self._waiting and state.serving is _READY and self._outgoing.may_send:
            frame = self._frames.pop()
            if not self._waiting:
                self._cut_more()
            try:
                answer = (
                    frame.take() if isinstance(frame, Served) else dispatch(services, client, frame)
                )
            except CloseConnection as reason:
                self._write(held)
                self._refuse(reason)
                return
            if isinstance(answer, list):
                held += answer
                held_bytes += len(answer[0])
                if len(answer) > 1 or held_bytes >= _HELD_BYTES or not self._waiting:
                    self._write(held)
                    held, held_bytes = [], 0
            elif answer is not None:
                self.finish_later(frame, answer)
                break
            if self._waiting and monotonic_s() > over_s:
                # Reading stops until then too: else the loop would deliver the data that has
                # arrived meanwhile, many times, before it polls another socket.
                self._queue()
                break
        self._write(held)
        if state.is_done and not (self._waiting or self._outgoing.is_streaming):
            if state.refusal is not None:
                self._refuse(state.refusal)
            else:
                self._outgoing.close()
            return
        self.regulate()

    def _cut_more(self) -> None:
        """Cuts more frames out of what has arrived."""
        refusal = self._frames.go_on(self._services.memory.most_frame_bytes)
        if refusal is not None:
            self.state.refuse(refusal)

    def _serve_ahead(self) -> None:
        """Serves requests to produce that wait behind one whose records are stored."""
        state = self.state
        if state.under_way is not None and state.under_way.pending.is_stored:
            now_s = self._services.clock.monotonic_s
            ends_s, serve = now_s() + _TURN_S, partial(dispatch, self._services, self._client)

            def may_go_on() -> bool:
                return state.serving is _ANSWERING and self._outgoing.may_send and now_s() < ends_s

            serve_ahead(self._frames, serve, may_go_on)

    # -- answers ---------------------------------------------------------------------------------

    def finish_later(self, frame: bytes | memoryview, answer: Pending) -> None:
        """Waits for a response; nothing else is served until it is done."""
        self._held.serving_bytes = len(frame) if len(frame) > COPY_BYTES else 0
        self._wait_for(RequestKind.of(frame), answer)
        if self._waiting:
            self._serve_ahead()

    def _wait_for(self, kind: RequestKind, answer: Pending) -> UnderWay:
        under_way = UnderWay(kind, answer)
        self.state.wait(under_way)
        answer.happened.add_done_callback(partial(self._finish, under_way))
        return under_way

    def _finish(
        self, under_way: UnderWay, happened: asyncio.Future[Any], *, is_queued: bool = False
    ) -> None:
        """Writes a response that had to wait, in its turn, and continues with the queue."""
        began_s = self._services.clock.monotonic_s()
        if not is_queued and self._scheduler.is_crowded(began_s):
            turn = partial(self._finish, under_way, happened, is_queued=True)
            self._scheduler.join(turn, is_new=True)
            return
        self.state.answered()
        kind, pending = under_way
        if happened.cancelled():
            pending.dropped()
            self._held.served()
            return
        try:
            answer = pending.finish()
        except Exception as error:
            # These hold the error, whose traceback holds this frame.
            del under_way, pending, happened
            reason: CloseConnection | str = "internal error while answering"
            if isinstance(error, CloseConnection):
                reason = error
            else:
                peer = self._client.peer
                log.exception("request failed outside its handler", extra={"peer": peer})
            forget(error)
            self._held.served()
            self._refuse(reason)
            return
        self._scheduler.note(began_s)
        if isinstance(answer, list):
            self._write(answer)
        elif answer is not None:
            again = self._wait_for(kind, answer)
            if self._outgoing.transport is None and kind is RequestKind.LOOKUP:
                _cancel(again.pending)
            return
        self._held.served()
        if self.state.is_muted:
            self.regulate()
        self.serve_in_turn()

    def _write(self, parts: list[bytes | bytearray | memoryview]) -> None:
        """Sends responses; each begins with its four-byte length."""
        if not parts:
            return
        self._client.last_active_s = self._services.clock.monotonic_s()
        outgoing = self._outgoing
        transport = outgoing.transport
        if transport is None:
            return
        if len(parts) == 1:
            transport.write(parts[0])
        else:
            outgoing.write(transport, parts)
            if outgoing.is_streaming:
                asyncio.get_running_loop().call_soon(self.stream)
        if not outgoing.is_free:
            outgoing.count(transport.get_write_buffer_size())

    def stream(self) -> None:
        """Sends more of what is streamed; serves again when nothing of it is left."""
        outgoing = self._outgoing
        transport = outgoing.transport
        if transport is None:
            return
        if outgoing.is_streaming:
            self._client.last_active_s = self._services.clock.monotonic_s()
            try:
                outgoing.stream(transport)
            except OSError as error:
                extra = {"peer": self._client.peer, "reason": error}
                log.warning("response cut off", extra=extra)
                outgoing.abort()
                return
        if outgoing.is_paused:
            outgoing.count(transport.get_write_buffer_size())
        elif outgoing.is_streaming:
            asyncio.get_running_loop().call_soon(self.stream)
        else:
            self.serve_in_turn()


def _cancel(pending: Pending) -> None:
    """Cancels what an answer waits for, after the step of the loop in which a task may still have to begin.

    A coroutine that has not begun would not end the coroutine that it was given.
    """
    asyncio.get_running_loop().call_soon(pending.happened.cancel)
