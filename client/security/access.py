"""How a client gets at brokers: a TLS context and an authenticator, made of a `Security`.

`Brokers` are addresses together with the security settings to use there. They are a string of the
addresses alone, so what prints, logs or stores them shows no secret; what passes them on, also to a
worker of Spark, passes the settings on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.client.errors import AuthenticationFailed, ConnectionBroken

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Sequence
    from concurrent.futures import ThreadPoolExecutor

    from tidelog.client.frames import Authenticator
    from tidelog.client.security.settings import Security


class Access:
    """What a connection needs: a TLS context or None, and an authenticator or None."""

    def __init__(
        self, tls: ssl.SSLContext | None = None, authenticator: Authenticator | None = None
    ) -> None:
        self.tls = tls
        self.authenticator = authenticator
        self._pool: ThreadPoolExecutor | None = None

    def prepare(self) -> None:
        """Prepares an authentication; may block. Raises AuthenticationFailed, ConnectionBroken."""
        if self.authenticator is not None:
            self.authenticator.prepare()

    async def prepare_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Prepares an authentication in a thread, so that the event loop goes on."""
        if self.authenticator is not None:
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(1, thread_name_prefix="tidelog-authentication")
            await loop.run_in_executor(self._pool, self.prepare)

    def failure(
        self, address: str, error: OSError, *, is_handshake: bool = False
    ) -> ConnectionBroken | AuthenticationFailed:
        """Returns the error of the client for one of a socket."""
        if self.tls is not None:
            from tidelog.client.security import tls

            return tls.failure(address, error, is_handshake=is_handshake)
        reached = " cannot be reached" if is_handshake else ""
        return ConnectionBroken(f"{address}{reached}: {error}")


PLAINTEXT: Final = Access()


class Brokers(str):  # noqa: SLOT000 - a str cannot have slots of its own that hold something
    """Addresses (`host:port,host:port`), and the security settings for them; see `secured`.

    Only this object carries the settings: a string that is made of it is plain text.
    `has_answered`: a client has reached one of the brokers, so they exist, and may be restarting
    where none can be reached. `client_id`: the name to give to the brokers; None: the client's own.
    """

    security: Security | None = None
    has_answered: bool = False
    client_id: str | None = None


def secured(addresses: str, security: Security | None) -> Brokers:
    """Returns addresses that carry security settings."""
    made = Brokers(addresses)
    made.security = security
    return made


def access_to(brokers: str | Sequence[str], security: Security | None = None) -> Access:
    """Returns the access by these settings, or by those that `brokers` carry.

    Raises SecuritySettingsError if a key or certificate cannot be used.
    """
    if security is None and isinstance(brokers, Brokers):
        security = brokers.security
    if security is None:
        return PLAINTEXT
    context = None
    if security.tls is not None:
        from tidelog.client.security.tls import context_of

        context = context_of(security.tls)
    if security.sasl is None:
        return Access(context)
    from tidelog.client.security.sasl import SaslAuthenticator

    return Access(context, SaslAuthenticator(security.sasl.mechanism()))
