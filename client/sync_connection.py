"""One TCP or TLS connection to one broker: several requests in flight, answers in order.

It retries nothing: any failure of the connection, or invalid data, is `ConnectionBroken`, and
closes it. `AuthenticationFailed` closes it too. A broker that is slow to answer is logged once. It
must not be used by several threads at once.
"""

from __future__ import annotations

import logging
import socket
import time
from typing import TYPE_CHECKING, Any, Final, Self

from tidelog.client.apis import common_version, version_of
from tidelog.client.errors import AuthenticationFailed, ConnectionBroken, NoListener
from tidelog.client.frames import Frames
from tidelog.client.security import PLAINTEXT

if TYPE_CHECKING:
    from tidelog.client.apis import VersionRange
    from tidelog.client.security import Access
    from tidelog.protocol.message import Message


NOTICE_S: Final = 3.0
"""What takes longer is logged: a program that waits for a broker should not look as if it hung."""
_log: Final = logging.getLogger("tidelog.client")


class Connection:
    """A connection; `ask` sends and waits, `send` and `receive` allow several requests in flight.

    `timeout_s` limits the time to connect and every wait for an answer. Raises ConnectionBroken, and
    AuthenticationFailed if TLS or SASL fails for good.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float,
        access: Access = PLAINTEXT,
    ) -> None:
        self.address = f"{host}:{port}"
        self.is_closed = False
        self._timeout_s = timeout_s
        self._access = access
        self._has_told = False
        access.prepare()
        self._frames = Frames(self.address, client_id, access.authenticator, time.monotonic)
        try:
            self._socket = self._reach(host, port)
        except OSError as error:
            kind = NoListener if _says_nobody_listens(error) else ConnectionBroken
            raise kind(f"{self.address} cannot be reached: {error.strerror or error}") from error
        self._limit_s = -1.0
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._begin_tls(host)
            self._flush()
            while not self._frames.is_ready:
                self._read_some(0.0)
                self._next_answer()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the answers to requests in flight are lost."""
        self.is_closed = True
        self._socket.close()

    @property
    def served(self) -> dict[int, VersionRange]:
        """The versions of each API that the broker supports."""
        return self._frames.served

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return self._frames.in_flight

    def speaks(self, key: int) -> bool:
        """Returns whether the broker supports a version of this API that the client supports."""
        return common_version(key, self.served) is not None

    def version(self, key: int) -> int:
        """Returns the version of an API to use. Raises VersionMismatch."""
        return version_of(key, self.served, self.address)

    def ask(self, message: Message, key: int, *, wait_s: float = 0.0) -> Any:
        """Sends a request and waits for its answer; the broker may wait `wait_s` in addition.

        Raises ConnectionBroken or VersionMismatch.
        """
        assert not self.in_flight, "ask() with requests in flight would take their answers"
        self.send(message, key)
        return self.receive(wait_s=wait_s)

    def send(self, message: Message, key: int, *, has_answer: bool = True) -> None:
        """Sends a request; `receive` returns its answer.

        Raises ConnectionBroken or VersionMismatch.
        """
        if self._frames.must_renew:
            self._access.prepare()
            self._frames.renew()
        self._frames.send(message, key, has_answer=has_answer)
        self._flush()

    def receive(self, *, wait_s: float = 0.0) -> Any:
        """Waits for the answer to the oldest request in flight. Raises ConnectionBroken."""
        while (answer := self._next_answer()) is None:
            self._read_some(wait_s)
        return answer

    def _reach(self, host: str, port: int) -> socket.socket:
        """Returns a socket that is connected. Raises OSError."""
        patience_s = min(NOTICE_S, self._timeout_s)
        try:
            return socket.create_connection((host, port), timeout=patience_s)
        except TimeoutError:
            if patience_s == self._timeout_s:
                raise
        self._tell(patience_s, self._timeout_s)
        return socket.create_connection((host, port), timeout=self._timeout_s - patience_s)

    def _tell(self, waited_s: float, longest_s: float) -> None:
        """Logs that the broker does not answer, once for each connection."""
        self._has_told = True
        _log.warning(
            "%s has not answered for %g s; waiting for up to %g s",
            self.address,
            waited_s,
            longest_s,
        )

    def _limit(self, limit_s: float) -> None:
        """Limits how long the socket waits; setting a limit costs a system call."""
        if limit_s != self._limit_s:
            self._limit_s = limit_s
            self._socket.settimeout(limit_s)

    def _begin_tls(self, host: str) -> None:
        self._limit(self._timeout_s)
        if self._access.tls is None:
            return
        try:
            self._socket = self._access.tls.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise self._access.failure(self.address, error, is_handshake=True) from error

    def _flush(self) -> None:
        output = self._frames.take_output()
        if not output:
            return
        try:
            self._limit(self._timeout_s)
            self._socket.sendall(output)
        except OSError as error:
            self.close()
            raise self._access.failure(self.address, error) from error

    def _received(self, wait_s: float) -> int:
        """Receives bytes; the broker may take `wait_s` longer than usual. Returns their number."""
        longest_s = self._timeout_s + wait_s
        patience_s = longest_s if self._has_told else min(NOTICE_S + wait_s, longest_s)
        self._limit(patience_s)
        try:
            return self._socket.recv_into(self._frames.room())
        except TimeoutError:
            if patience_s == longest_s:
                raise
        self._tell(patience_s, longest_s)
        self._limit(longest_s - patience_s)
        return self._socket.recv_into(self._frames.room())

    def _read_some(self, wait_s: float) -> None:
        """Receives bytes, waiting for them if necessary."""
        try:
            count = self._received(wait_s)
            if not count:
                raise self._frames.closed()
        except TimeoutError as error:
            self.close()
            raise ConnectionBroken(f"{self.address} did not answer in time") from error
        except (ConnectionBroken, AuthenticationFailed):
            self.close()
            raise
        except OSError as error:
            self.close()
            raise self._access.failure(self.address, error) from error
        self._frames.filled(count)

    def _next_answer(self) -> Any:
        """Returns an answer if one is complete, and takes a handshake further."""
        try:
            answer = self._frames.next_answer()
        except (ConnectionBroken, AuthenticationFailed):
            self.close()
            raise
        if answer is None:
            self._flush()  # the next step of a handshake
        return answer


def _says_nobody_listens(error: OSError) -> bool:
    """Returns whether a retry is useless: the host name is unknown, or its machine refuses."""
    is_unknown = isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME
    return is_unknown or isinstance(error, ConnectionRefusedError)
