"""One client's connection: it serves the frames of the stream and sends responses in order.

One connection is one asyncio protocol. It promises:

- Requests are served one after the other, and responses leave in request order. So the appends of a
  pipelining producer keep their order. One to produce waits for no other whose records are stored
  (`stream/ahead.py`).
- A request that can be answered at once is answered inside `buffer_updated`, without a task.
- A peer that has many requests buffered takes turns with the others (scheduler.py): a peer that has one
  waits a few milliseconds.
- Memory is bounded: at most 1 MiB is buffered of the requests that follow the one that is served
  (`stream/incoming.py`). A large frame is read when its memory is reserved (`stream/held.py`); a peer that
  leaves a frame incomplete is cut off.
- A connection whose client is over a quota is muted for a time: its answers are sent, and nothing is read.
- A frame that is too large or cannot be parsed closes this connection alone, is logged and counted.
- Frames that were complete before that, or before the peer closed, are still served, as in Kafka: a
  producer with acks=0 may close right after its last request. Only a fetch or a lookup is cancelled
  with its connection.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tidelog.broker.garbage import forget
from tidelog.broker.network.answers import CloseConnection, Pending
from tidelog.broker.network.connection_state import (
    ConnectionState,
    Event,
    Kind,
    Reading,
    Serving,
    UnderWay,
)
from tidelog.broker.network.dispatch import dispatch
from tidelog.broker.network.stream.ahead import serve_ahead
from tidelog.broker.network.stream.frames import COPY_BYTES
from tidelog.broker.network.stream.incoming import Incoming
from tidelog.broker.network.stream.outgoing import Outgoing
from tidelog.broker.network.stream.served import Served
from tidelog.broker.security.session import ANONYMOUS, Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.network.accepting.listener import Listener
    from tidelog.broker.network.dispatch import Coming
    from tidelog.broker.network.services import Services

log = logging.getLogger("tidelog.connection")

# Names of the module are found faster than those of a class: these are asked for with each request.
_OPEN, _READY, _ANSWERING = Reading.OPEN, Serving.READY, Serving.ANSWERING
_TURN_S = 0.001  # the longest for which one peer is served before the others have their turn
_HELD_BYTES = 16_384  # of responses that are ready together, and are sent together
_MID_REQUEST = "client disconnected mid-request"


class Connection(asyncio.BufferedProtocol):
    """One client's connection, from accept to close."""

    def __init__(self, services: Services, listener: Listener) -> None:
        self.services = services
        self.listener = listener
        self.session = Session(ANONYMOUS, "", listener.name)
        self.peer = ""
        self.client_id: str | None = None
        self.software = ""  # name and version from ApiVersions v3
        self.last_active_s = 0.0
        # Whether it is beyond the limits, and for another broker (accepting/over_limit.py).
        self.is_over_limit = False
        self.proven: tuple[int, int] | None = None  # which broker it is, and its session's epoch
        self._transport: asyncio.Transport | None = None
        self._scheduler = services.scheduler
        self._incoming = Incoming(
            services.memory.requests, services.connections.arriving, self._regulate_soon
        )
        self._frames, self._held = self._incoming.frames, self._incoming.held
        self._waiting = self._frames.waiting  # whole frames not yet served
        self._state = ConnectionState()
        self._throttle: asyncio.TimerHandle | None = None  # ends the time for which it is muted
        self.outgoing = Outgoing(services.memory.answers)
        self.on_more: Callable[[], None] | None = None  # called when a request waits for its turn
        self.on_lost: Callable[[], None] | None = None  # called when the connection has ended

    @property
    def has_more(self) -> bool:
        """Returns whether a request waits for its turn."""
        return bool(self._waiting)

    @property
    def descriptor(self) -> int:
        """Returns the number of its socket; -1 if it has none any more."""
        transport = self._transport
        opened = None if transport is None else transport.get_extra_info("socket")
        return -1 if opened is None else int(opened.fileno())

    @property
    def is_busy(self) -> bool:
        """Returns whether a request is being served, or its answer waits.

        A fetch or lookup does not count while the socket is not read: nothing tells if its peer has left.
        """
        under_way = self._state.under_way
        if under_way is None or (under_way.kind is Kind.LOOKUP and not self._incoming.is_read):
            return self._frames.has_served
        return True

    @property
    def is_muted(self) -> bool:
        """Returns whether the connection waits because a quota is exceeded."""
        return self._state.is_muted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport; closes it if the broker has too many connections."""
        self._transport = transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        if peer:
            self.session = self.session._replace(host=peer[0])
        self.last_active_s = self.services.clock.monotonic_s()
        if not self.services.connections.admit(self):
            transport.abort()

    def _regulate_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._regulate)

    def delay(self, delay_s: float) -> None:
        """Reads nothing yet: too many connections are made in a second."""
        self._state.on(Event.TURN_OVER)
        loop = asyncio.get_running_loop()
        self._regulate_soon()  # uvloop reads after `connection_made`, whatever that does
        loop.call_later(delay_s, self._go_on, _TURN_S)

    def mute(self, delay_s: float) -> None:
        """Sends the answer under way, then neither reads nor serves: a quota is exceeded.

        It does so for connections.max.idle.ms at most; meanwhile the connection is not idle.
        """
        if self._transport is None:
            return
        delay_s = min(delay_s, self.services.config.connections_max_idle_ms / 1000)
        self._state.on(Event.THROTTLE_STARTED)
        if self._throttle is not None:
            self._throttle.cancel()
        self._throttle = asyncio.get_running_loop().call_later(delay_s, self._unmute)
        self._regulate_soon()

    def _unmute(self) -> None:
        self._throttle = None
        self._state.on(Event.THROTTLE_ENDED)
        self.last_active_s = self.services.clock.monotonic_s()
        if self._state.serving is _READY:
            self._serve_in_turn()

    def connection_lost(self, _exc: Exception | None) -> None:
        """Cleans up; cancels a fetch or lookup in progress, but finishes a request that writes."""
        self.outgoing.close()
        self._transport = None
        self._state.on(Event.CONNECTION_LOST)
        if self._throttle is not None:
            self._throttle.cancel()
        self.services.connections.discard(self)
        have = self._frames.have_bytes
        if not self._frames.is_empty:
            self.services.metrics.disconnects_mid_request += 1
            if self.services.connections.is_shown(self, _MID_REQUEST):
                log.info(_MID_REQUEST, extra={"peer": self.peer, "bytes": have})
        self._held.close()
        under_way = self._state.under_way
        if under_way is not None and under_way.kind is Kind.LOOKUP:
            under_way.later.happened.cancel()
        on_lost, self.on_lost, self.on_more = self.on_lost, None, None
        if on_lost is not None:
            on_lost()

    def eof_received(self) -> bool:
        """Serves what the peer has sent, then closes. A fetch or lookup in progress is cancelled."""
        state, under_way = self._state, self._state.under_way
        if state.reading is not _OPEN or (under_way is not None and under_way.kind is Kind.LOOKUP):
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
        self._stream()

    def _stream(self) -> None:
        """Sends more of what is streamed; serves again when nothing of it is left."""
        transport, outgoing = self._transport, self.outgoing
        if transport is None:
            return
        if outgoing.is_streaming:
            self.last_active_s = self.services.clock.monotonic_s()
            try:
                outgoing.stream(transport)
            except OSError as error:
                log.warning("response cut off", extra={"peer": self.peer, "reason": error})
                self.abort()
                return
        if outgoing.is_paused:
            outgoing.count(transport.get_write_buffer_size())
        elif outgoing.is_streaming:
            asyncio.get_running_loop().call_soon(self._stream)
        elif self._state.serving is _READY:
            self._serve_in_turn()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Returns where the next bytes go."""
        scheduler = self._scheduler
        is_crowded = scheduler.has_round and scheduler.is_crowded(self.services.clock.monotonic_s())
        return self._incoming.buffer(is_crowded=is_crowded)

    def buffer_updated(self, nbytes: int) -> None:
        """Cuts frames out of the stream and serves them."""
        state = self._state
        if state.reading is not _OPEN:
            return
        services, frames = self.services, self._frames
        now_s = self.last_active_s = services.clock.monotonic_s()
        is_crowded = self._scheduler.has_round and self._scheduler.is_crowded(now_s)
        is_ready = state.serving is _READY
        is_first = is_ready and frames.is_empty
        if is_first and self.outgoing.is_free and not is_crowded:
            limit_bytes = services.settings.broker.limits.socket_request_max_bytes
            frame = self._incoming.one_frame(nbytes, limit_bytes)
            if frame is not None:
                self._serve_one(frame)
                return
        data = self._incoming.arrived(nbytes)
        if data is not None:
            if is_first and is_crowded:
                frames.keep(data)
            else:
                refusal = frames.take(data, services.memory.most_frame_bytes)
                if refusal is not None:
                    state.refuse(refusal)
        if self.on_more is not None and self._waiting:
            self.on_more()
        if is_ready:
            if is_crowded:
                self._queue(is_new=True)
            elif self._waiting or state.reading is not _OPEN:
                self._serve_waiting()
                # The loop may deliver more of what this peer has sent before it polls the others.
                self._scheduler.note(now_s)
        elif not is_crowded:
            self._serve_ahead()
        self._regulate()

    def _refuse(self, reason: str | CloseConnection) -> None:
        """Closes the connection because of invalid data."""
        self.services.connections.refused(self, reason)
        self.hang_up()

    def _refuse_for_memory(self, reason: str) -> None:
        """Closes the connection at once, because it takes memory that others need."""
        self.services.connections.refused_for_memory(self, reason)
        self._frames.clear()
        self.abort()

    def hang_up(self) -> None:
        """Serves nothing more, sends the responses already written, then closes."""
        self._frames.clear()
        self._held.update()
        self.close()

    def close(self) -> None:
        """Sends the responses already written, then closes."""
        if self._transport is not None:
            self._transport.close()

    def leave(self) -> None:
        """Reads no more, sends the responses already written, and waits for the peer to close.

        If the broker closed at once while the peer still sends, the kernel would reset the
        connection, and the peer would lose responses on their way to it.
        """
        transport = self._transport
        if transport is None or self._state.reading is Reading.LEAVING or transport.is_closing():
            return
        self._state.stop()
        self._frames.clear()
        self._regulate()
        transport.write_eof()

    def expire(self) -> None:
        """Closes a connection that was idle for too long; aborts it if the peer does not read."""
        if self.outgoing.is_free:
            self.close()
        else:
            self.abort()

    def abort(self) -> None:
        """Closes now and drops what has not been sent."""
        if self._transport is not None:
            self._transport.abort()

    def cut_if_stalled(self, now_s: float) -> None:
        """Closes the connection if its peer leaves a request incomplete, or an answer unread."""
        if self._incoming.is_read and self._held.has_stalled(self.last_active_s, now_s):
            self._refuse_for_memory("its peer has left a request incomplete for too long")
        elif (transport := self._transport) and self.outgoing.has_stalled(
            transport.get_write_buffer_size(), now_s
        ):
            self._refuse_for_memory("its peer does not read an answer whose memory others need")
        elif self.outgoing.holds_deleted():
            self._refuse_for_memory("its peer does not read an answer whose file was deleted")

    def _regulate(self) -> None:
        """Pauses reading from the socket while there is no room for more data."""
        self._held.is_behind = self._state.is_behind or not self.outgoing.is_free
        if not self._held.update():
            self._refuse_for_memory("too many wait for memory: see memory.limit.bytes")
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        now_s, may_read = self.services.clock.monotonic_s(), self._state.may_read
        self._incoming.regulate(transport, now_s, may_read=may_read)

    def _serve_one(self, frame: bytes) -> None:
        """Does what `_serve_waiting` does for a single frame, without a queue."""
        try:
            answer = dispatch(self.services, self, frame)
        except CloseConnection as reason:
            self._refuse(reason)
            return
        if isinstance(answer, list):
            self._write(answer)
        elif answer is not None:
            self._finish_later(frame, answer)

    def _serve_waiting(self, turn_s: float = _TURN_S) -> None:
        """Serves queued frames until one has to wait, the peer does not read, or the turn is over.

        Small responses to frames that came together are sent together: sending is half of their cost.
        """
        services, state = self.services, self._state
        monotonic_s = services.clock.monotonic_s
        over_s = monotonic_s() + turn_s
        held: list[bytes | bytearray | memoryview] = []
        held_bytes = 0
        if not self._waiting:
            self._cut_more()
        while self._waiting and state.serving is _READY and self._may_send():
            frame = self._frames.pop()
            if not self._waiting:
                self._cut_more()
            try:
                answer = (
                    frame.take() if isinstance(frame, Served) else dispatch(services, self, frame)
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
                self._finish_later(frame, answer)
                break
            if self._waiting and monotonic_s() > over_s:
                # Reading stops until then too: else the loop would deliver the data that has
                # arrived meanwhile, many times, before it polls another socket.
                self._queue()
                break
        self._write(held)
        if state.is_done and not (self._waiting or self.outgoing.is_streaming):
            if state.refusal is not None:
                self._refuse(state.refusal)
            else:
                self.close()
            return
        self._regulate()

    def _cut_more(self) -> None:
        """Cuts more frames out of what has arrived."""
        refusal = self._frames.go_on(self.services.memory.most_frame_bytes)
        if refusal is not None:
            self._state.refuse(refusal)

    def _serve_in_turn(self) -> None:
        """Serves queued frames, or queues with them if others have to."""
        can_be_served = self._waiting and self._state.serving is _READY
        if can_be_served and self._scheduler.is_crowded(self.services.clock.monotonic_s()):
            self._queue()
            self._regulate()
        else:
            self._serve_waiting()

    def _may_send(self) -> bool:
        """Returns whether the peer reads its answers."""
        return self._transport is not None and self.outgoing.is_free

    def _queue(self, *, is_new: bool = False) -> None:
        """Waits for the next turn, which comes soon if the connection `is_new`."""
        self._state.on(Event.TURN_OVER)
        turn = self._go_on_as_new if is_new else partial(self._go_on, _TURN_S)
        self._scheduler.join(turn, is_new=is_new)

    def _go_on_as_new(self) -> None:
        self._go_on(min(_TURN_S, self._scheduler.new_turn_s()))

    def _go_on(self, turn_s: float) -> None:
        """Continues after the turn of the others."""
        self._state.on(Event.TURN_CAME)
        if self._state.serving is _READY:
            self._serve_waiting(turn_s)

    def _finish_later(self, frame: bytes | memoryview, answer: Coming) -> None:
        """Waits for a response; nothing else is served until it is done."""
        self._held.serving_bytes = len(frame) if len(frame) > COPY_BYTES else 0
        self._wait_for(Kind.of(frame), answer)
        if self._waiting:
            self._serve_ahead()

    def _serve_ahead(self) -> None:
        """Serves requests to produce that wait behind one whose records are stored."""
        state = self._state
        if state.under_way is not None and state.under_way.later.is_stored:
            now_s = self.services.clock.monotonic_s
            ends_s, serve = now_s() + _TURN_S, partial(dispatch, self.services, self)

            def may_go_on() -> bool:
                return state.serving is _ANSWERING and self._may_send() and now_s() < ends_s

            serve_ahead(self._frames, serve, may_go_on)

    def _wait_for(self, kind: Kind, answer: Coming) -> UnderWay:
        if not isinstance(answer, Pending):
            task = asyncio.get_running_loop().create_task(answer)
            answer = Pending(task, task.result)
        under_way = UnderWay(kind, answer)
        self._state.wait(under_way)
        answer.happened.add_done_callback(partial(self._finish, under_way))
        return under_way

    def _finish(
        self, under_way: UnderWay, happened: asyncio.Future[Any], *, is_queued: bool = False
    ) -> None:
        """Writes a response that had to wait, in its turn, and continues with the queue."""
        began_s = self.services.clock.monotonic_s()
        if not is_queued and self._scheduler.is_crowded(began_s):
            turn = partial(self._finish, under_way, happened, is_queued=True)
            self._scheduler.join(turn, is_new=True)
            return
        self._state.answered()
        kind, later = under_way
        if happened.cancelled():
            later.dropped()
            self._held.served()
            return
        try:
            answer = later.finish()
        except Exception as error:
            del under_way, later, happened  # which hold the error, whose traceback holds this frame
            reason: CloseConnection | str = "internal error while answering"
            if isinstance(error, CloseConnection):
                reason = error
            else:
                log.exception("request failed outside its handler", extra={"peer": self.peer})
            forget(error)
            self._held.served()
            self._refuse(reason)
            return
        self._scheduler.note(began_s)
        if isinstance(answer, list):
            self._write(answer)
        elif answer is not None:
            again = self._wait_for(kind, answer)
            if self._transport is None and kind is Kind.LOOKUP:
                # Not at once: a coroutine that has not begun would not end what it was given.
                asyncio.get_running_loop().call_soon(again.later.happened.cancel)
            return
        self._held.served()
        self._serve_in_turn()

    def _write(self, parts: list[bytes | bytearray | memoryview]) -> None:
        """Sends responses; each begins with its four-byte length."""
        if not parts:
            return
        self.last_active_s = self.services.clock.monotonic_s()
        transport = self._transport
        if transport is None:
            return
        if len(parts) == 1:
            transport.write(parts[0])
        else:
            self.outgoing.write(transport, parts)
            if self.outgoing.is_streaming:
                asyncio.get_running_loop().call_soon(self._stream)
        if not self.outgoing.is_free:
            self.outgoing.count(transport.get_write_buffer_size())
