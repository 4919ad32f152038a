"""SASL on one connection, without I/O: SaslHandshake, then SaslAuthenticate (KIP-43, KIP-152).

`SaslAuthenticator.steps` yields requests and receives their answers, at the beginning of a
connection and again before its session ends (KIP-368).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.client.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE, version_of
from tidelog.client.errors import AuthenticationFailed, RequestError, VersionMismatch
from tidelog.client.frames import Request
from tidelog.protocol.api import sasl_authenticate, sasl_handshake
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Generator

    from tidelog.client.apis import VersionRange
    from tidelog.client.security.mechanisms import Mechanism


class SaslAuthenticator:
    """Authenticates connections by one mechanism; a `client.frames.Authenticator`."""

    def __init__(self, mechanism: Mechanism) -> None:
        self._mechanism = mechanism

    def prepare(self) -> None:
        """Obtains a token if the mechanism needs one; may block."""
        self._mechanism.prepare()

    def steps(self, address: str, served: dict[int, VersionRange]) -> Generator[Request, Any, int]:
        """Yields the requests; returns the lifetime of the session in ms, 0 if it has no end.

        Raises AuthenticationFailed.
        """
        try:
            handshake = version_of(SASL_HANDSHAKE, served, address)
            version = version_of(SASL_AUTHENTICATE, served, address)
        except VersionMismatch as error:
            raise AuthenticationFailed(f"{address} is too old for this client: {error}") from error
        mechanism = self._mechanism.name
        request = sasl_handshake.SaslHandshakeRequest(mechanism=mechanism)
        _check_mechanism(address, mechanism, (yield Request(SASL_HANDSHAKE, handshake, request)))
        exchange = self._mechanism.exchange()
        message = next(exchange)
        while True:
            answer = yield Request(
                SASL_AUTHENTICATE,
                version,
                sasl_authenticate.SaslAuthenticateRequest(auth_bytes=message),
            )
            if answer.error_code:
                raise AuthenticationFailed(
                    f"{address} refuses the login by {mechanism}: {_reason(answer)}"
                )
            try:
                message = exchange.send(bytes(answer.auth_bytes))
            except StopIteration:
                return int(answer.session_lifetime_ms)
            except AuthenticationFailed as error:
                raise AuthenticationFailed(f"{address}: {error}") from error


def _check_mechanism(address: str, mechanism: str, answer: Any) -> None:
    """Raises AuthenticationFailed if the listener does not have the mechanism."""
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(
            f"{address} does not support sasl.mechanism={mechanism}: it offers {offered}"
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(
            f"{address} has no SASL on this listener: set security.protocol to PLAINTEXT or SSL"
        )
    if answer.error_code:
        refused = RequestError(answer.error_code, f"{address} refuses {mechanism}")
        raise AuthenticationFailed(str(refused))


def _reason(answer: Any) -> str:
    """Returns the broker's sentence, or Kafka's for the code."""
    return str(answer.error_message or RequestError(answer.error_code, "").reason)
