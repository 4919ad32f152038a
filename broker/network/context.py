"""What a handler knows of a request beside its body, and what it may do to the connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.broker.network.accepting.listener import Listener
    from tidelog.broker.network.stream.outgoing import Outgoing
    from tidelog.broker.security.session import Session
    from tidelog.protocol.message import RequestHeader


class ClientConnection(Protocol):
    """The connection by which a request has come, as handlers and dispatch know it."""

    client_id: str | None
    """Of the last request; None before the first, and of a client that has none."""
    software: str
    """The client's name and version, "" if it has not sent them."""
    proven: tuple[int, int] | None
    """The broker at the other end, which has proven that it is one, and the epoch of its session."""
    on_more: Callable[[], None] | None
    """Called when another request arrives behind the one that is served."""
    on_lost: Callable[[], None] | None
    """Called once, when the connection has ended."""

    @property
    def has_more(self) -> bool:
        """Returns whether a request waits for its turn."""

    @property
    def is_over_limit(self) -> bool:
        """Whether the connection is beyond the limits, and may ask only what brokers ask."""

    @property
    def listener(self) -> Listener:
        """The listener by which the client has come."""

    @property
    def outgoing(self) -> Outgoing:
        """The answers that have not been sent."""

    @property
    def peer(self) -> str:
        """Address and port."""

    @property
    def session(self) -> Session:
        """The client's principal and the listener of its connection."""

    def hang_up(self) -> None:
        """Serves nothing more, sends the responses already written, then closes."""

    def mute(self, delay_s: float) -> None:
        """Sends the answer under way, then neither reads nor serves: a quota is exceeded."""


class Quota(Protocol):
    """Counts what one request takes, for a client that has quotas."""

    def most_fetch_bytes(self, most_bytes: int) -> int:
        """Returns the most bytes that a fetch may get without being held back for ever."""

    def holds_back(self, size_bytes: int) -> bool:
        """Counts what a fetch has read; returns whether its answer has to be empty for now."""

    def check_change(self) -> None:
        """Raises ThrottlingQuotaExceeded if the client has changed too many partitions."""

    def changed(self, partitions: int, *, is_strict: bool) -> None:
        """Counts partitions that were changed; a client that `is_strict` is refused the next time."""


class Context(NamedTuple):
    """What a handler knows of a request beside its body."""

    header: RequestHeader
    connection: ClientConnection
    quota: Quota | None = None  # counts what the request takes, if its client has quotas

    @property
    def version(self) -> int:
        """The request's version."""
        return self.header.api_version

    @property
    def session(self) -> Session:
        """The client's principal and the listener of its connection."""
        return self.connection.session
