"""The declared APIs, their codecs, and the headers of requests and responses.

    api = api_of(0)
    request, end = codec(api.request, 9).decode(frame, header.body_offset)
    parts = codec(api.response, 9).encode_parts(response)

Other packages reach the schemas only through this module. An API is declared in one file of
protocol/api, which is imported on first use. Codecs are generated on first use too: a broker that
has just started has compiled none, and a client makes it compile a dozen, each in a millisecond.
"""

from __future__ import annotations

import sys
from functools import cached_property
from importlib import import_module
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidelog.protocol.api import FILES
from tidelog.protocol.schema import MIB, Api, Message, since
from tidelog.protocol.sender import Sender, read_tags
from tidelog.protocol.wire import (
    ELEMENTS_MAX,
    ZERO_UUID,
    Buffer,
    DecodeError,
    EncodeError,
    TooMuch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

__all__ = [
    "MIB",
    "ZERO_UUID",
    "Api",
    "Buffer",
    "Codec",
    "DecodeError",
    "EncodeError",
    "Message",
    "RequestHeader",
    "TooMuch",
    "api_of",
    "codec",
    "known_apis",
    "read_request_header",
    "response_header",
    "served_apis",
    "since",
]

API_VERSIONS: Final = 18


_loaded: dict[int, Api] = {}


def known_apis() -> tuple[Api, ...]:
    """Returns every declared API, by ascending key; imports every declaration."""
    return tuple(_api(key) for key in FILES)


def served_apis() -> tuple[Api, ...]:
    """Returns the APIs that the broker serves, by ascending key; imports every declaration."""
    return tuple(api for api in known_apis() if api.served is not None)


def api_of(key: int) -> Api | None:
    """Returns the API of a key, importing its declaration on first use; None for an unknown key."""
    return _api(key) if key in FILES else None


def _api(key: int) -> Api:
    api = _loaded.get(key)
    if api is None:
        api = _loaded[key] = import_module(f".api.{FILES[key]}", __package__).API
        assert isinstance(api, Api)
        assert (api.key, api.module) == (key, FILES[key])
    return api


# --- codecs --------------------------------------------------------------------------------------


_UNFIT = (struct_error, AttributeError, TypeError, ValueError)


class _Short(NamedTuple):
    """What reads and writes the most frequent shape of a message; each returns None for other shapes."""

    module: str
    read: str
    encode: str | None = None


_SHORT_FORMS = {
    ("FetchRequest", 18): _Short("fetch_single", "read"),
    ("FetchResponse", 18): _Short("fetch_single", "read_answer", "encode_answer"),
}


class Codec:
    """Reads and writes one message in one version; each direction is generated on first use."""

    def __init__(
        self,
        cls: type[Message],
        version: int,
        *,
        flexible: bool,
        elements: int = ELEMENTS_MAX,
    ) -> None:
        self._cls = cls
        self._version = version
        self._flexible = flexible
        self._elements = elements

    @cached_property
    def decode(self) -> Callable[..., tuple[Any, int]]:
        """`decode(buffer, offset=0) -> (message, end)`; raises DecodeError.

        Records are views into `buffer`: they keep it alive and see it change.
        """
        from tidelog.protocol.decoder import make_decoder

        decode = make_decoder(
            self._cls, self._version, flexible=self._flexible, elements=self._elements
        )
        short = _SHORT_FORMS.get((self._cls.__name__, self._version))
        if short is None:
            return decode
        read = getattr(import_module(f".api.{short.module}", __package__), short.read)

        def decode_short(buffer: Buffer, position: int = 0) -> tuple[Any, int]:
            message = read(buffer, position)
            return decode(buffer, position) if message is None else (message, len(buffer))

        return decode_short

    @cached_property
    def decode_in_steps(self) -> Callable[..., Generator[None, None, tuple[Any, int]]]:
        """What `decode` does, as a generator that yields every few elements."""
        from tidelog.protocol.decoder import make_stepper

        return make_stepper(
            self._cls, self._version, flexible=self._flexible, elements=self._elements
        )

    @cached_property
    def encode_parts(self) -> Callable[[Any], list[Buffer]]:
        """`encode_parts(message) -> list of buffers`, in which records are not copied.

        The list is new and not empty, and its first element is bytes (not records). Raises
        EncodeError.
        """
        from tidelog.protocol.encoder import make_encoder

        encode = make_encoder(self._cls, self._version, flexible=self._flexible)
        short = _SHORT_FORMS.get((self._cls.__name__, self._version))
        if short is None or short.encode is None:
            return encode
        encode_one = getattr(import_module(f".api.{short.module}", __package__), short.encode)

        def encode_short(message: Any) -> list[Buffer]:
            try:
                return encode_one(message) or encode(message)
            except _UNFIT:  # the general encoder says what is wrong
                return encode(message)

        return encode_short

    @cached_property
    def encode_in_steps(self) -> Callable[[Any], Generator[int, None, list[Buffer]]]:
        """What `encode_parts` does, as a generator that yields how many bytes are written so far."""
        from tidelog.protocol.encoder import make_stepper

        return make_stepper(self._cls, self._version, flexible=self._flexible)

    def encode(self, message: Message) -> bytes:
        """Returns the message as bytes; raises EncodeError."""
        return b"".join(self.encode_parts(message))


_codecs: dict[tuple[type[Message], int], Codec] = {}


def codec(cls: type[Message], version: int) -> Codec:
    """Returns the codec of a request or response class in a version.

    Raises ValueError for a version outside the API's range.
    """
    known = _codecs.get((cls, version))
    if known is not None:
        return known
    api = sys.modules[cls.__module__].API
    if not api.min_version <= version <= api.max_version:
        raise ValueError(
            f"{api.name} has the versions {api.min_version} to {api.max_version}, not {version}"
        )
    flexible = api.first_flexible is not None and version >= api.first_flexible
    elements = api.request_elements if cls is api.request else ELEMENTS_MAX
    made = _codecs[cls, version] = Codec(cls, version, flexible=flexible, elements=elements)
    return made


# --- headers -------------------------------------------------------------------------------------

_REQUEST_HEAD = Struct(">hhih").unpack_from
_RESPONSE_HEAD = Struct(">i").pack
_FLEXIBLE_RESPONSE_HEAD = Struct(">ix").pack


class RequestHeader(NamedTuple):
    """The header of a request; the body begins at `body_offset` of the frame.

    `sender` is the broker that the request claims to come from; None for those of clients.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int
    sender: Sender | None = None


def read_request_header(frame: Buffer) -> RequestHeader:
    """Reads the header of a frame (without its length).

    Header version 2, with a tag section, belongs to the flexible versions of an API, and to every
    version of ApiVersions above the known ones (KIP-511, KIP-482). The header of an unknown API is
    read as version 1. Raises DecodeError.
    """
    try:
        key, version, correlation_id, length = _REQUEST_HEAD(frame)
        end = 10
        client_id = None
        if length >= 0:
            end += length
            if end > len(frame):
                raise DecodeError(f"the client id claims {length} bytes")
            client_id = str(frame[10:end], "utf-8")
        elif length != -1:
            raise DecodeError(f"the client id has the length {length}")
        api = _loaded.get(key) or api_of(key)
        if api is not None and api.first_flexible is not None and version >= api.first_flexible:
            if frame[end] == 0:
                end += 1
            else:
                sender, end = read_tags(frame, end)
                return RequestHeader(key, version, correlation_id, client_id, end, sender)
    except (struct_error, IndexError):
        raise DecodeError(f"request header: the {len(frame)} bytes end too early") from None
    except TooMuch as error:
        raise TooMuch(f"request header: {error}") from None
    except DecodeError as error:
        raise DecodeError(f"request header: {error}") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"request header: the client id is not UTF-8: {error.reason}") from None
    return RequestHeader(key, version, correlation_id, client_id, end)


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """Returns the header of a response.

    Flexible versions add a tag section, which is always empty here. ApiVersions does not add it,
    because its client may not know yet which versions the broker serves (KIP-511).
    """
    api = _loaded.get(api_key) or api_of(api_key)
    if (
        api is None
        or api.first_flexible is None
        or api_version < api.first_flexible
        or api_key == API_VERSIONS
    ):
        return _RESPONSE_HEAD(correlation_id)
    return _FLEXIBLE_RESPONSE_HEAD(correlation_id)
