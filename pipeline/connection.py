"""One TCP connection to one Kafka-protocol broker: requests out, answers in, in order, several under way.

A connection asks for the broker's API versions first and speaks the highest both sides know, bounded by
what the pipeline has use for (`SPOKEN`). It retries nothing: what goes wrong with the connection or its
bytes is `ConnectionBroken`, after which it is closed.
"""

from __future__ import annotations

import itertools
import socket
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from protocol.message import DecodeError, api_of, codec
from protocol.wire import skip_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.message import Message

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
FIND_COORDINATOR: Final = 10
API_VERSIONS: Final = 18
CREATE_TOPICS: Final = 19
INIT_PRODUCER_ID: Final = 22
ADD_PARTITIONS_TO_TXN: Final = 24
END_TXN: Final = 26
DESCRIBE_CONFIGS: Final = 32
DESCRIBE_PRODUCERS: Final = 61

SPOKEN: Final[Mapping[int, tuple[int, int]]] = {
    PRODUCE: (3, 11),  # from 12 on a transaction adds its partitions by itself (KIP-890)
    FETCH: (4, 12),  # from 13 on topics go by id
    LIST_OFFSETS: (1, 9),
    METADATA: (1, 12),
    OFFSET_COMMIT: (2, 8),
    OFFSET_FETCH: (2, 7),  # from 8 on several groups at once
    FIND_COORDINATOR: (1, 3),  # from 4 on several keys at once
    CREATE_TOPICS: (2, 7),
    INIT_PRODUCER_ID: (0, 4),
    ADD_PARTITIONS_TO_TXN: (0, 3),  # from 4 on for brokers
    END_TXN: (0, 4),  # from 5 on every transaction has an epoch of its own (KIP-890)
    DESCRIBE_CONFIGS: (1, 4),
    DESCRIBE_PRODUCERS: (0, 0),
}

MAX_ANSWER_BYTES: Final = 1 << 30
_SIZE = Struct(">i")
_HEAD = Struct(">hhih")
_UNSUPPORTED_VERSION: Final = 35


class ConnectionBroken(ConnectionError):  # noqa: N818 - named for what has happened
    """The connection could not be made, ended, timed out or carried nonsense; whoever asks may try again."""


class VersionMismatch(Exception):  # noqa: N818 - as above
    """The broker does not speak an API, or no version of it that is spoken here."""


class _Sent(NamedTuple):
    correlation_id: int
    key: int
    version: int


class Connection:
    """A connection; `ask` sends and waits, `send` and `receive` let several requests be under way.

    Not for several threads at once. `timeout_s` bounds the making of the connection and every wait for bytes.
    """

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        self.address = f"{host}:{port}"
        self._client_id = client_id.encode()
        self._timeout_s = timeout_s
        self._ids = itertools.count(1)
        self._sent: deque[_Sent] = deque()
        try:
            self._socket = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            raise ConnectionBroken(f"{self.address} cannot be reached: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.served = self._ask_versions()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it; what is under way is lost."""
        self._socket.close()
        self._sent.clear()

    @property
    def under_way(self) -> int:
        """How many requests have no answer yet."""
        return len(self._sent)

    def speaks(self, key: int) -> bool:
        """Whether the broker serves a version of this API that is spoken here."""
        return self._common(key) is not None

    def version(self, key: int) -> int:
        """The version an API is spoken in. Raises VersionMismatch."""
        common = self._common(key)
        if common is None:
            api = api_of(key)
            name = api.name if api is not None else f"API {key}"
            low, high = SPOKEN[key]
            served = self.served.get(key)
            theirs = f"serves v{served[0]} to v{served[1]}" if served else "does not serve it"
            raise VersionMismatch(
                f"{name} v{low} to v{high} is needed, but {self.address} {theirs}"
            )
        return common

    def _common(self, key: int) -> int | None:
        served = self.served.get(key)
        if served is None:
            return None
        low, high = SPOKEN[key]
        version = min(high, served[1])
        return version if version >= max(low, served[0]) else None

    def ask(self, message: Message, key: int, *, wait_s: float = 0.0) -> Any:
        """Send a request and wait for its answer; `wait_s` is what the broker may wait on top.

        Raises ConnectionBroken or VersionMismatch.
        """
        assert not self._sent, "ask() with requests under way would take their answers"
        self.send(message, key)
        return self.receive(wait_s=wait_s)

    def send(self, message: Message, key: int) -> None:
        """Send a request; `receive` has its answer. Raises ConnectionBroken or VersionMismatch."""
        self._send(message, key, self.version(key))

    def receive(self, *, wait_s: float = 0.0) -> Any:
        """Wait for the answer to the oldest request under way. Raises ConnectionBroken."""
        sent = self._sent.popleft()
        try:
            self._socket.settimeout(self._timeout_s + wait_s)
            (size,) = _SIZE.unpack(self._read(4))
            if not 4 <= size <= MAX_ANSWER_BYTES:
                raise ConnectionBroken(f"{self.address} announces an answer of {size} bytes")
            return _decode(self._read(size), sent)
        except TimeoutError as error:
            self.close()
            raise ConnectionBroken(f"{self.address} did not answer in time") from error
        except (OSError, DecodeError) as error:
            self.close()
            if isinstance(error, ConnectionBroken):
                raise
            raise ConnectionBroken(f"{self.address}: {error}") from error

    def _send(self, message: Message, key: int, version: int) -> None:
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
        size = sum(map(len, parts))
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(b"".join((_SIZE.pack(size), *parts)))
        except OSError as error:
            self.close()
            raise ConnectionBroken(f"{self.address}: {error}") from error
        self._sent.append(_Sent(correlation_id, key, version))

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        position = 0
        while position < size:
            count = self._socket.recv_into(view[position:])
            if not count:
                raise ConnectionBroken(f"{self.address} closed the connection")
            position += count
        return data

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        """What the broker serves; one that does not know v3 says so in v0."""
        api = api_of(API_VERSIONS)
        assert api is not None
        for version in (3, 0):
            names = {"client_software_name": "tidelog-pipeline", "client_software_version": "1"}
            self._send(api.request(**names if version else {}), API_VERSIONS, version)
            answer = self.receive()
            if answer.error_code == 0:
                return {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
            if answer.error_code != _UNSUPPORTED_VERSION:
                break
        raise ConnectionBroken(
            f"{self.address} refuses to say what it serves: error {answer.error_code}"
        )


def _decode(frame: bytearray, sent: _Sent) -> Any:
    """The message in a frame; records are views into it. Raises ConnectionBroken or DecodeError."""
    (correlation_id,) = _SIZE.unpack_from(frame)
    if correlation_id != sent.correlation_id:
        raise ConnectionBroken(f"an answer to request {correlation_id}, not {sent.correlation_id}")
    api = api_of(sent.key)
    assert api is not None
    version, begin = sent.version, 4
    if sent.key == API_VERSIONS:
        if frame[4:6] == b"\0\x23":
            version = 0  # a version that is not served is refused in the first
    elif api.first_flexible is not None and version >= api.first_flexible:
        try:
            begin = skip_tags(frame, begin, len(frame))
        except IndexError as error:
            raise ConnectionBroken(f"{api.name} v{version}: the answer is cut short") from error
    message, end = codec(api.response, version).decode(frame, begin)
    if end != len(frame):
        raise ConnectionBroken(f"{api.name} v{version}: {len(frame) - end} bytes follow the answer")
    return message
