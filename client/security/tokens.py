"""Tokens for OAUTHBEARER: one that is given, one in a file, or one from a token endpoint.

The endpoint gives tokens for client credentials (RFC 6749, 4.4), over https alone. A token is used
again until four fifths of its time have passed. These functions block.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

from tidelog.client.errors import AuthenticationFailed, ConnectionBroken
from tidelog.client.security import tls as tls_contexts
from tidelog.client.security.secret import HIDDEN, HiddenValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.client.security.stores import Tls

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750
_MAX_BYTES: Final = 1 << 20
_USED_FOR: Final = 0.8  # of the time that a token is valid
_SHOWN: Final = 200
_SERVER_ERROR: Final = 500


@dataclass(frozen=True)
class TokenFile:
    """A file that holds a token; it is read for each authentication, for others may renew it."""

    path: str

    def source(self) -> Callable[[], HiddenValue]:
        """Returns the function that obtains a token."""
        return self._read

    def _read(self) -> HiddenValue:
        try:
            return checked(Path(self.path).read_text(encoding="utf-8").strip(), self.path)
        except OSError as error:
            raise AuthenticationFailed(
                f"the token file {self.path} cannot be read: {error.strerror}"
            ) from None
        except UnicodeDecodeError:
            raise AuthenticationFailed(f"the token file {self.path} is not text") from None


@dataclass(frozen=True)
class GivenToken:
    """A token in the settings."""

    token: HiddenValue

    def source(self) -> Callable[[], HiddenValue]:
        """Returns the function that obtains a token."""
        return lambda: self.token


@dataclass(frozen=True)
class TokenEndpoint:
    """An https endpoint that gives tokens for an id and a secret."""

    url: str
    client_id: str
    client_secret: HiddenValue
    scope: str | None
    tls: Tls
    is_urlencoded: bool
    connect_timeout_s: float
    read_timeout_s: float

    def source(self) -> Callable[[], HiddenValue]:
        """Returns the function that obtains a token; it remembers the last one."""
        return _Remembered(self).get

    def ask(self) -> tuple[HiddenValue, float]:
        """Returns a new token, and for how many seconds it is valid (0: unknown).

        Raises AuthenticationFailed for a refusal, ConnectionBroken if the endpoint does not answer.
        """
        status, body = self._post()
        answer = _parsed(body)
        if status >= _SERVER_ERROR:
            raise ConnectionBroken(f"the token endpoint {self.url} failed: HTTP status {status}")
        if status != http.HTTPStatus.OK:
            said = " ".join(
                str(answer[key]) for key in ("error", "error_description") if key in answer
            )
            said = said.replace(self.client_secret.reveal(), HIDDEN)[:_SHOWN]
            raise AuthenticationFailed(
                f"the token endpoint {self.url} refuses the client: HTTP status {status} {said}".rstrip()
            )
        token = checked(answer.get("access_token"), f"the token endpoint {self.url}")
        try:
            return token, float(answer.get("expires_in", 0))
        except (TypeError, ValueError):
            return token, 0.0

    def _post(self) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        pair = (self.client_id, self.client_secret.reveal())
        if self.is_urlencoded:
            pair = (quote_plus(pair[0]), quote_plus(pair[1]))
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        headers = {
            "Authorization": f"Basic {base64.b64encode(':'.join(pair).encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        connection = http.client.HTTPSConnection(
            parts.hostname or "",
            parts.port,
            timeout=self.connect_timeout_s,
            context=tls_contexts.context_of(self.tls),
        )
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.connect()
            connection.sock.settimeout(self.read_timeout_s)
            connection.request("POST", path, urlencode(form), headers)
            answer = connection.getresponse()  # a redirection is not followed: it is a refusal
            return answer.status, answer.read(_MAX_BYTES)
        except OSError as error:
            raise tls_contexts.failure(
                f"the token endpoint {self.url}", error, is_handshake=False
            ) from error
        except http.client.HTTPException as error:
            raise ConnectionBroken(
                f"the token endpoint {self.url} sends no HTTP answer ({type(error).__name__})"
            ) from error
        finally:
            connection.close()


class _Remembered:
    """The last token of an endpoint, for all connections of a client."""

    def __init__(self, endpoint: TokenEndpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._token: HiddenValue | None = None
        self._until_s = 0.0

    def get(self) -> HiddenValue:
        """Returns a token that is valid for some time."""
        with self._lock:
            if self._token is None or time.monotonic() >= self._until_s:
                self._token, valid_s = self._endpoint.ask()
                self._until_s = time.monotonic() + valid_s * _USED_FOR
            return self._token


def is_token(text: object) -> bool:
    """Returns whether this has the form of a token (RFC 6750)."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def checked(text: Any, origin: str) -> HiddenValue:
    """Returns a token after a check of its characters. Raises AuthenticationFailed."""
    if not is_token(text):
        raise AuthenticationFailed(f"{origin} has no token")
    return HiddenValue(text)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
