"""The state of one connection without a socket: encodes requests and decodes answers.

A shell sends what `take_output` returns, and fills the buffer that `room` returns with what it
receives. It passes the number of bytes to `filled`, which returns an answer when one is complete.
The connection begins with a handshake: it asks for the broker's API versions, and then runs an
`Authenticator` (for example SASL). Answers arrive in the order of the requests; anything else is
`ConnectionBroken`.
"""

from __future__ import annotations

import itertools
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from client.apis import API_VERSIONS, version_of
from client.errors import ConnectionBroken
from protocol.message import DecodeError, api_of, codec
from protocol.wire import skip_tags

if TYPE_CHECKING:
    from collections.abc import Generator

    from client.apis import VersionRange
    from protocol.message import Message

MAX_ANSWER_BYTES: Final = 1 << 30
_SIZE = Struct(">i")
_HEAD = Struct(">hhih")
_UNSUPPORTED_VERSION: Final = 35


class Request(NamedTuple):
    """A request of the handshake, and the version in which it is written."""

    key: int
    version: int
    message: Message


class Authenticator(Protocol):
    """Authenticates a connection after its API versions are known."""

    def steps(self, served: dict[int, VersionRange]) -> Generator[Request, Any, None]:
        """Yields requests and receives their answers. Raises ConnectionBroken if it is refused."""


class _Sent(NamedTuple):
    correlation_id: int
    key: int
    version: int


class Frames:
    """The requests and answers of one connection. `served` is empty until the handshake is over."""

    def __init__(
        self, address: str, client_id: str, authenticator: Authenticator | None = None
    ) -> None:
        self.address = address
        self.served: dict[int, VersionRange] = {}
        self.is_ready = False
        self._client_id = client_id.encode()
        self._ids = itertools.count(1)
        self._sent: deque[_Sent] = deque()
        self._output: list[bytes | bytearray | memoryview] = []
        self._buffer = bytearray(_SIZE.size)
        self._position = 0
        self._is_size = True  # whether the buffer is for the size of a frame
        self._handshake = self._shake_hands(authenticator)
        self._write(*next(self._handshake))

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return len(self._sent)

    def send(self, message: Message, key: int, *, has_answer: bool = True) -> int:
        """Queues a request, in the highest version of both sides; returns its correlation id.

        `has_answer` is False for a produce with acks=0. Raises VersionMismatch.
        """
        assert self.is_ready, "the handshake is not over"
        version = version_of(key, self.served, self.address)
        return self._write(key, version, message, has_answer=has_answer)

    def take_output(self) -> bytes:
        """Returns the bytes to send; each byte is returned once."""
        output = b"".join(self._output)
        self._output.clear()
        return output

    # --- answers ---------------------------------------------------------------------------------

    def room(self) -> memoryview:
        """Returns the buffer for the next bytes; it is never empty."""
        return memoryview(self._buffer)[self._position :]

    def filled(self, count: int) -> Any:
        """Processes `count` received bytes; returns the answer that they complete, else None.

        It also processes the answers of the handshake; call `take_output` afterwards. Raises
        ConnectionBroken.
        """
        self._position += count
        if self._position < len(self._buffer):
            return None
        frame, self._position = self._buffer, 0
        if self._is_size:
            (size,) = _SIZE.unpack(frame)
            if not 4 <= size <= MAX_ANSWER_BYTES:
                raise ConnectionBroken(f"{self.address} announces an answer of {size} bytes")
            self._buffer, self._is_size = bytearray(size), False
            return None
        self._buffer, self._is_size = bytearray(_SIZE.size), True
        if not self._sent:
            raise ConnectionBroken(f"{self.address} answers a request that was not sent")
        try:
            answer = _decode(frame, self._sent.popleft())
        except DecodeError as error:
            raise ConnectionBroken(f"{self.address}: {error}") from error
        if self.is_ready:
            return answer
        try:
            self._write(*self._handshake.send(answer))
        except StopIteration:
            self.is_ready = True
        return None

    # --- internal --------------------------------------------------------------------------------

    def _write(self, key: int, version: int, message: Message, *, has_answer: bool = True) -> int:
        api = api_of(key)
        assert api is not None
        correlation_id = next(self._ids) & 0x7FFFFFFF
        flexible = api.first_flexible is not None and version >= api.first_flexible
        head = _HEAD.pack(key, version, correlation_id, len(self._client_id)) + self._client_id
        parts = [
            head,
            b"\0" if flexible else b"",
            *codec(api.request, version).encode_parts(message),
        ]
        self._output += (_SIZE.pack(sum(map(len, parts))), *parts)
        if has_answer:
            self._sent.append(_Sent(correlation_id, key, version))
        return correlation_id

    def _shake_hands(self, authenticator: Authenticator | None) -> Generator[Request, Any, None]:
        """Asks for the broker's API versions, in v0 if it refuses v3, and then authenticates."""
        api = api_of(API_VERSIONS)
        assert api is not None
        for version in (3, 0):
            names = {"client_software_name": "tidelog", "client_software_version": "1"}
            answer = yield Request(API_VERSIONS, version, api.request(**names if version else {}))
            if answer.error_code != _UNSUPPORTED_VERSION:
                break
        if answer.error_code:
            raise ConnectionBroken(
                f"{self.address} refuses to say what it serves: error {answer.error_code}"
            )
        self.served = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        if authenticator is not None:
            yield from authenticator.steps(self.served)


def _decode(frame: bytearray, sent: _Sent) -> Any:
    """Returns the message in a frame; records are views of it.

    Raises ConnectionBroken or DecodeError.
    """
    (correlation_id,) = _SIZE.unpack_from(frame)
    if correlation_id != sent.correlation_id:
        raise ConnectionBroken(f"an answer to request {correlation_id}, not {sent.correlation_id}")
    api = api_of(sent.key)
    assert api is not None
    version, begin = sent.version, 4
    if sent.key == API_VERSIONS:
        if frame[4:6] == b"\0\x23":
            version = 0  # an unsupported version is refused in version 0
    elif api.first_flexible is not None and version >= api.first_flexible:
        try:
            begin = skip_tags(frame, begin, len(frame))
        except IndexError as error:
            raise ConnectionBroken(f"{api.name} v{version}: the answer is cut short") from error
    message, end = codec(api.response, version).decode(frame, begin)
    if end != len(frame):
        raise ConnectionBroken(f"{api.name} v{version}: {len(frame) - end} bytes follow the answer")
    return message
