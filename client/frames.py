"""The state of one connection without a socket: encodes requests and decodes answers.

A shell sends what `take_output` returns, and fills the buffer that `room` returns with what it
receives. It passes the number of bytes to `filled`, and takes answers with `next_answer` until there
is none: one read may bring several. A large answer is received where it stays, without a copy.
The connection begins with a handshake: it asks for the broker's API versions, and then runs an
`Authenticator` (for example SASL). Answers arrive in the order of the requests; anything else is
`ConnectionBroken`.

If the broker limits the session (KIP-368), the shell calls `renew` once `must_renew` is true. The
authentication then follows the requests in flight, and later requests wait for its end.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from tidelog.client.apis import API_VERSIONS, between_brokers, version_of
from tidelog.client.errors import (
    AuthenticationFailed,
    ConnectionBroken,
    HandshakeBroken,
    RequestError,
)
from tidelog.protocol.message import DecodeError, api_of, codec
from tidelog.protocol.sender import NO_TAGS
from tidelog.protocol.wire import skip_tags

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tidelog.client.apis import VersionRange
    from tidelog.protocol.message import Message
    from tidelog.protocol.wire import Buffer

MAX_ANSWER_BYTES: Final = 1 << 30
_READ_BYTES: Final = (
    16_384  # answers that fit are copied out of the buffer, so that one read takes them
)
_SIZE = Struct(">i")
_LEAST_BYTES: Final = 4  # of an answer: its correlation id
_HEAD = Struct(">hhih")
_UNSUPPORTED_VERSION: Final = 35
_TLS_RECORDS: Final = (b"\x15\x03", b"\x16\x03")  # how an alert and a handshake begin
RENEWED_AFTER: Final = 0.85  # of a session, and up to a tenth more, as Kafka's clients do
_RANDOM = random.Random()  # noqa: S311 - spreads renewals


class Request(NamedTuple):
    """A request of the handshake, and the version in which it is written."""

    key: int
    version: int
    message: Message


class Authenticator(Protocol):
    """Authenticates a connection after its API versions are known."""

    def prepare(self) -> None:
        """Obtains what the steps need, for example a token; a shell calls it before each run.

        It may block. Raises AuthenticationFailed or ConnectionBroken.
        """

    def steps(self, address: str, served: dict[int, VersionRange]) -> Generator[Request, Any, int]:
        """Yields requests and receives their answers; returns the session's lifetime in ms, or 0.

        Raises AuthenticationFailed if the broker refuses.
        """


class _Large(bytearray):
    """The frame of a large answer. `weakref.finalize` sees when nobody refers to any part of it any more."""


class _Sent(NamedTuple):
    correlation_id: int
    key: int
    version: int
    is_handshake: bool


class _Held(NamedTuple):
    """A request that waits for the end of an authentication."""

    key: int
    version: int
    message: Message
    has_answer: bool


class Frames:
    """The requests and answers of one connection. `served` is empty until the handshake is over.

    `clock` returns seconds; without one sessions are not renewed. `tags` are those of the headers of
    requests, where a version has tags.
    """

    def __init__(
        self,
        address: str,
        client_id: str,
        authenticator: Authenticator | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        tags: bytes = NO_TAGS,
    ) -> None:
        self.address = address
        self._tags = tags
        self.served: dict[int, VersionRange] = {}
        self.is_ready = False
        self._client_id = client_id.encode()
        self._authenticator = authenticator
        self._clock = clock
        self._renew_at_s = math.inf
        self._is_answered = False  # whether a request has been, other than those of the handshake
        self._ids = itertools.count(1)
        self._sent: deque[_Sent] = deque()
        self._held: list[_Held] = []
        self._output: list[bytes | bytearray | memoryview] = []
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._begin = self._end = 0  # of what was received in it, and not processed
        self.must_allot = False  # whether the shell asks for memory for each large answer
        self.wanted_bytes = 0  # of the large answer that waits for memory
        self._large: _Large | None = None  # the frame of an answer that does not fit
        self._large_end = 0  # of what was received of that frame
        self._handshake: Generator[Request, Any, int] | None = self._shake_hands()
        self._write(*next(self._handshake), is_handshake=True)

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return len(self._held) + sum(not one.is_handshake for one in self._sent)

    def send(
        self, message: Message, key: int, *, has_answer: bool = True, least_version: int = 0
    ) -> None:
        """Queues a request, in the highest version of both sides.

        `has_answer` is False for a produce with acks=0. From `least_version` on the broker's highest
        version is used, also where clients use a lower one: brokers speak so among themselves.
        Raises VersionMismatch.
        """
        assert self.is_ready, "the handshake is not over"
        if least_version:
            version = self.version_between(key, least_version)
        else:
            version = version_of(key, self.served, self.address)
        if self._handshake is not None:
            self._held.append(_Held(key, version, message, has_answer))
        else:
            self._write(key, version, message, has_answer=has_answer)

    def send_in(self, version: int, request: Message | bytes, key: int) -> None:
        """Queues a request, or its encoded body, in a version that `version_between` has returned."""
        assert self._handshake is None, "a broker's session with another one is not renewed"
        self._write(key, version, request)

    def version_between(self, key: int, least: int) -> int:
        """Returns the version of an API that brokers use with each other. Raises VersionMismatch."""
        return between_brokers(key, least, self.served, self.address)

    def take_output(self) -> bytes:
        """Returns the bytes to send; each byte is returned once."""
        output = b"".join(self._output)
        self._output.clear()
        return output

    # --- the session -----------------------------------------------------------------------------

    @property
    def must_renew(self) -> bool:
        """Whether the session ends soon, and no authentication is under way."""
        return self._handshake is None and self._clock() >= self._renew_at_s

    def renew(self) -> None:
        """Begins to authenticate again, if that is still necessary."""
        if self.must_renew and self._authenticator is not None:
            self._handshake = self._authenticator.steps(self.address, self.served)
            self._write(*next(self._handshake), is_handshake=True)

    def closed(self) -> ConnectionBroken:
        """Returns the error for a connection that the broker has closed."""
        sentence = f"{self.address} closed the connection"
        if not self.served:
            return HandshakeBroken(
                f"{sentence} before it answered: the client's security.protocol may not be that of"
                " the listener"
            )
        if self.is_ready and not self._is_answered and self._authenticator is None:
            return HandshakeBroken(
                f"{sentence} at the first request: the listener may demand SASL"
                " (security.protocol, sasl.mechanism)"
            )
        return ConnectionBroken(sentence)

    # --- answers ---------------------------------------------------------------------------------

    def allot(self) -> bytearray:
        """Takes memory for the large answer that has begun, and returns its frame.

        Shells call it that have set `must_allot`, when `wanted_bytes` is not 0; until then nothing more
        may be received.
        """
        self._large = large = _Large(self.wanted_bytes)
        begin = self._begin + _SIZE.size
        self._large_end = self._end - begin
        large[: self._large_end] = self._buffer[begin : self._end]
        self._begin = self._end = self.wanted_bytes = 0
        return large

    def room(self) -> memoryview:
        """Returns the buffer for the next bytes; it is never empty."""
        if self._large is not None:
            return memoryview(self._large)[self._large_end :]
        begin, end = self._begin, self._end
        if begin == end:
            self._begin = self._end = 0
            return self._buffer
        if begin:  # an incomplete frame goes to the front: all of it may need the room
            self._buffer[: end - begin] = bytes(self._buffer[begin:end])
            self._begin, self._end = 0, end - begin
        return self._buffer[self._end :]

    def drop_large(self) -> None:
        """Forgets a large answer of which not all has come: the connection has ended."""
        self._large, self.wanted_bytes = None, 0

    def filled(self, count: int) -> None:
        """Notes `count` received bytes; `next_answer` processes them."""
        if self._large is None:
            self._end += count
        else:
            self._large_end += count

    def next_answer(self) -> Any:
        """Returns the next answer, or None if some of its bytes have not come yet.

        It also processes the answers of the handshake; call `take_output` afterwards. Raises
        ConnectionBroken or AuthenticationFailed.
        """
        while (frame := self._next_frame()) is not None:
            if not self._sent:
                raise ConnectionBroken(f"{self.address} answers a request that was not sent")
            sent = self._sent.popleft()
            try:
                answer = _decode(frame, sent)
            except DecodeError as error:
                raise ConnectionBroken(f"{self.address}: {error}") from error
            if not sent.is_handshake:
                self._is_answered = True
                return answer
            self._go_on(answer)
        return None

    def _next_frame(self) -> Buffer | None:
        """Returns the next complete frame. Raises ConnectionBroken and AuthenticationFailed."""
        large = self._large
        if large is not None:
            if self._large_end < len(large):
                return None
            self._large = None
            return large
        begin, received = self._begin, self._end - self._begin
        if received < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._buffer, begin)
        begin += _SIZE.size
        if _SIZE.size + size <= received and size >= _LEAST_BYTES:
            self._begin = begin + size
            return bytes(self._buffer[begin : self._begin])
        self._check_size(size)
        if _SIZE.size + size > _READ_BYTES:
            self.wanted_bytes = size
            if not self.must_allot:
                self.allot()
        return None

    def _check_size(self, size: int) -> None:
        """Raises ConnectionBroken and AuthenticationFailed if no answer begins like this."""
        begin = self._begin
        if not self.served and bytes(self._buffer[begin : begin + 2]) in _TLS_RECORDS:
            raise AuthenticationFailed(
                f"{self.address} speaks TLS: set security.protocol to SSL or SASL_SSL"
            )
        if not _LEAST_BYTES <= size <= MAX_ANSWER_BYTES:
            raise ConnectionBroken(f"{self.address} announces an answer of {size} bytes")

    # --- internal --------------------------------------------------------------------------------

    def _go_on(self, answer: Any) -> None:
        """Continues the handshake; when it is over, sends the requests that waited for it."""
        assert self._handshake is not None
        try:
            request = self._handshake.send(answer)
        except StopIteration as end:
            self._handshake = None
            self.is_ready = True
            part = RENEWED_AFTER + _RANDOM.random() / 10
            lifetime_s = end.value / 1000 if end.value > 0 else math.inf
            self._renew_at_s = self._clock() + lifetime_s * part
            held, self._held = self._held, []
            for key, version, message, has_answer in held:
                self._write(key, version, message, has_answer=has_answer)
        else:
            self._write(*request, is_handshake=True)

    def _write(
        self,
        key: int,
        version: int,
        message: Message | bytes,
        *,
        has_answer: bool = True,
        is_handshake: bool = False,
    ) -> None:
        """Queues a request, which may be an encoded body."""
        api = api_of(key)
        assert api is not None
        correlation_id = next(self._ids) & 0x7FFFFFFF
        flexible = api.first_flexible is not None and version >= api.first_flexible
        head = _HEAD.pack(key, version, correlation_id, len(self._client_id)) + self._client_id
        if flexible:
            head += self._tags
        if isinstance(message, bytes):
            self._output += (_SIZE.pack(len(head) + len(message)), head, message)
        else:
            parts = [head, *codec(api.request, version).encode_parts(message)]
            self._output += (_SIZE.pack(sum(map(len, parts))), *parts)
        if has_answer:
            self._sent.append(_Sent(correlation_id, key, version, is_handshake))

    def _shake_hands(self) -> Generator[Request, Any, int]:
        """Asks for the broker's API versions, in v0 if it refuses v3, and then authenticates."""
        api = api_of(API_VERSIONS)
        assert api is not None
        for version in (3, 0):
            names = {"client_software_name": "tidelog", "client_software_version": "1"}
            answer = yield Request(API_VERSIONS, version, api.request(**names if version else {}))
            if answer.error_code != _UNSUPPORTED_VERSION:
                break
        if answer.error_code:
            refused = RequestError(answer.error_code, f"{self.address} does not say what it serves")
            raise ConnectionBroken(str(refused))
        self.served = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        if self._authenticator is None:
            return 0
        return (yield from self._authenticator.steps(self.address, self.served))


def _decode(frame: Buffer, sent: _Sent) -> Any:
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
