"""What a connection does next: its states, the events that change them, and nothing else.

As in h11, a connection is in one state of each of two tables. `READING` says what becomes of the bytes that
the peer sends, `SERVING` whether the next request may be served. Nothing here knows a socket, a clock or a
timer: `connection.py` and `stream/requests.py` report what has happened, and ask what they may do. An event
that neither state allows raises IllegalEvent, which is a bug in this program.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.network.answers import CloseConnection, Pending


class ReadState(StrEnum):
    """What becomes of the bytes that the peer sends."""

    OPEN = "open"
    """They are read, unless `ServeState` or the memory says otherwise."""
    ENDED = "ended"
    """No more are read. Requests that were complete before are served, then the connection closes."""
    LEAVING = "leaving"
    """They are read and dropped until the peer closes: the broker stops, and has sent its last answer."""
    LOST = "lost"
    """There is no socket any more. A request under way that writes goes on without it."""


class ServeState(StrEnum):
    """Whether the next request may be served."""

    READY = "ready"
    """The next request is served as it arrives."""
    QUEUED = "queued"
    """The connection waits for its turn, or for the time when the rate of connections allows it."""
    ANSWERING = "answering"
    """A request is under way, whose answer has to wait: for a thread, for time, for other brokers."""
    MUTED = "muted"
    """Its client is over a quota: nothing is read nor served for a time."""
    MUTED_AND_QUEUED = "muted and queued"
    MUTED_AND_ANSWERING = "muted and answering"


class Event(StrEnum):
    """What happens to a connection."""

    # What the peer does, and what becomes of the connection.
    PEER_CLOSED = "peer closed"
    INVALID_DATA = "invalid data"
    BROKER_STOPS = "broker stops"
    CONNECTION_LOST = "connection lost"
    # What becomes of its requests.
    TURN_OVER = "turn over"
    TURN_CAME = "turn came"
    ANSWER_WAITS = "answer waits"
    ANSWER_CAME = "answer came"
    THROTTLE_STARTED = "throttle started"
    THROTTLE_ENDED = "throttle ended"


READING: Final[Mapping[ReadState, Mapping[Event, ReadState]]] = {
    ReadState.OPEN: {
        Event.PEER_CLOSED: ReadState.ENDED,
        Event.INVALID_DATA: ReadState.ENDED,
        Event.BROKER_STOPS: ReadState.LEAVING,
        Event.CONNECTION_LOST: ReadState.LOST,
    },
    ReadState.ENDED: {
        Event.INVALID_DATA: ReadState.ENDED,  # of what has come before, and is cut into frames later
        Event.BROKER_STOPS: ReadState.LEAVING,
        Event.CONNECTION_LOST: ReadState.LOST,
    },
    ReadState.LEAVING: {Event.CONNECTION_LOST: ReadState.LOST},
    ReadState.LOST: {},
}
SERVING: Final[Mapping[ServeState, Mapping[Event, ServeState]]] = {
    ServeState.READY: {
        Event.TURN_OVER: ServeState.QUEUED,
        Event.ANSWER_WAITS: ServeState.ANSWERING,
        Event.THROTTLE_STARTED: ServeState.MUTED,
    },
    ServeState.QUEUED: {
        Event.TURN_CAME: ServeState.READY,
        Event.THROTTLE_STARTED: ServeState.MUTED_AND_QUEUED,
    },
    ServeState.ANSWERING: {
        Event.ANSWER_CAME: ServeState.READY,
        Event.THROTTLE_STARTED: ServeState.MUTED_AND_ANSWERING,
    },
    ServeState.MUTED: {
        # A request is over its quota when its answer is made, which may have to wait all the same.
        Event.TURN_OVER: ServeState.MUTED_AND_QUEUED,
        Event.ANSWER_WAITS: ServeState.MUTED_AND_ANSWERING,
        Event.THROTTLE_STARTED: ServeState.MUTED,
        Event.THROTTLE_ENDED: ServeState.READY,
    },
    ServeState.MUTED_AND_QUEUED: {
        Event.TURN_CAME: ServeState.MUTED,
        Event.THROTTLE_STARTED: ServeState.MUTED_AND_QUEUED,
        Event.THROTTLE_ENDED: ServeState.QUEUED,
    },
    ServeState.MUTED_AND_ANSWERING: {
        Event.ANSWER_CAME: ServeState.MUTED,
        Event.THROTTLE_STARTED: ServeState.MUTED_AND_ANSWERING,
        Event.THROTTLE_ENDED: ServeState.ANSWERING,
    },
}


class RequestKind(StrEnum):
    """What the peer can do to a request under way."""

    LOOKUP = "lookup"
    """Changes nothing and may take long, as the peer likes: it is cancelled when the peer closes."""
    PRODUCE = "produce"
    """Waits for replicas at most: its peer cannot make it last."""
    OTHER = "other"

    @classmethod
    def of(cls, frame: bytes | memoryview) -> RequestKind:
        """Returns the kind of a request, by its API key."""
        return _KINDS.get(bytes(frame[:2]), _OTHER)


# By the API keys of Produce, Fetch and ListOffsets, with which these requests begin.
_KINDS: Final = {
    b"\0\0": RequestKind.PRODUCE,
    b"\0\1": RequestKind.LOOKUP,
    b"\0\2": RequestKind.LOOKUP,
}


class UnderWay(NamedTuple):
    """A request whose answer has to wait."""

    kind: RequestKind
    pending: Pending


# Names of the module are found faster than those of a class: these are asked for with each request.
_OPEN, _READY, _ANSWERING = ReadState.OPEN, ServeState.READY, ServeState.ANSWERING
_ANSWER_WAITS, _ANSWER_CAME = Event.ANSWER_WAITS, Event.ANSWER_CAME
_PRODUCE, _OTHER = RequestKind.PRODUCE, RequestKind.OTHER
_MUTED = (ServeState.MUTED, ServeState.MUTED_AND_QUEUED, ServeState.MUTED_AND_ANSWERING)
_ENDED = (ReadState.ENDED, ReadState.LOST)
_READ = (_READY, _ANSWERING)


class IllegalEvent(Exception):
    """An event that the state of the connection does not allow."""


class ConnectionState:
    """The state of one connection."""

    __slots__ = ("reading", "refusal", "serving", "under_way")

    def __init__(self) -> None:
        self.reading = ReadState.OPEN
        self.serving = ServeState.READY
        self.refusal: CloseConnection | None = None
        """Why reading has ended; None if the peer has closed."""
        self.under_way: UnderWay | None = None
        """The request whose answer has to wait."""

    def on(self, event: Event) -> None:
        """Changes the state by an event. Raises IllegalEvent."""
        serving = SERVING[self.serving].get(event)
        if serving is not None:
            self.serving = serving
            return
        reading = READING[self.reading].get(event)
        if reading is None:
            raise IllegalEvent(f"{event}: the connection is {self.reading} and {self.serving}")
        self.reading = reading

    def refuse(self, reason: CloseConnection) -> None:
        """Ends reading, because what the peer sends is invalid."""
        self.on(Event.INVALID_DATA)
        self.refusal = reason

    def stop(self) -> None:
        """Drops what arrives from now on, because the broker stops."""
        self.on(Event.BROKER_STOPS)
        self.refusal = None

    def wait(self, under_way: UnderWay) -> None:
        """Notes that the answer to a request has to wait."""
        self.on(_ANSWER_WAITS)
        self.under_way = under_way

    def answered(self) -> None:
        """Notes that the wait of the request under way has ended."""
        self.on(_ANSWER_CAME)
        self.under_way = None

    @property
    def is_muted(self) -> bool:
        """Whether the client is over a quota."""
        return self.serving in _MUTED

    @property
    def is_behind(self) -> bool:
        """Whether what arrives next waits for something that may last as long as the peer likes."""
        if self.serving is _ANSWERING:
            return self.under_way is None or self.under_way.kind is not _PRODUCE
        return self.serving is not _READY

    @property
    def is_done(self) -> bool:
        """Whether nothing more arrives, and nothing is under way: the connection closes once it has sent."""
        return self.reading in _ENDED and self.serving is _READY

    @property
    def may_read(self) -> bool:
        """Whether the socket may be read."""
        if self.reading is _OPEN:
            return self.serving in _READ
        return self.reading is ReadState.LEAVING
