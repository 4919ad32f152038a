"""The SASL mechanisms of the client: what each sends, and what it expects, without I/O.

A mechanism's `exchange` is a generator: it yields the client's messages and receives the broker's.
The broker ends a failed exchange with an error code and a sentence, which `sasl.py` reads.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Protocol

from tidelog.client.errors import AuthenticationFailed
from tidelog.client.security import scram

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from tidelog.client.security.secret import HiddenValue

_NONCE_BYTES: Final = 24


class Mechanism(Protocol):
    """One way to authenticate."""

    name: str

    def prepare(self) -> None:
        """Obtains what the next exchange needs; may block. Raises AuthenticationFailed."""

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Returns the messages of one authentication. They raise AuthenticationFailed."""


class Plain:
    """PLAIN: the name and the password as they are (RFC 4616)."""

    name = "PLAIN"

    def __init__(self, user: str, password: HiddenValue) -> None:
        self._user = user
        self._password = password

    def prepare(self) -> None:
        """Needs nothing."""

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Yields the one message."""
        yield f"\0{self._user}\0{self._password.reveal()}".encode()


class Scram:
    """SCRAM-SHA-256 or SCRAM-SHA-512: proof of the password, of both sides (RFC 5802)."""

    def __init__(self, name: str, user: str, password: HiddenValue) -> None:
        self.name = name
        self._user = user
        self._password = password

    def prepare(self) -> None:
        """Needs nothing."""

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Yields the two messages, with a new nonce."""
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        return scram.exchange(self.name, self._user, self._password, nonce)


class OAuthBearer:
    """OAUTHBEARER: a token that a third party has signed (RFC 7628, KIP-255)."""

    name = "OAUTHBEARER"

    def __init__(self, token: Callable[[], HiddenValue], extensions: Mapping[str, str]) -> None:
        self._get = token
        self._token: HiddenValue | None = None
        self._extensions = dict(extensions)

    def prepare(self) -> None:
        """Obtains a token that is valid now."""
        self._token = self._get()

    def exchange(self) -> Generator[bytes, bytes, None]:
        """Yields the token; a broker that refuses it says why, and is answered once more."""
        assert self._token is not None, "prepare() was not called"
        pairs = [f"auth=Bearer {self._token.reveal()}"]
        pairs += [f"{key}={value}" for key, value in self._extensions.items()]
        told = yield ("n,,\x01" + "".join(f"{one}\x01" for one in pairs) + "\x01").encode()
        if told:
            yield b"\x01"
            why = told[:200].decode(errors="replace")
            raise AuthenticationFailed(f"the broker refuses the token: {why}")
