"""The listeners that have TLS: what puts it below each of their connections.

A handshake that fails is counted, and logged once a minute for each address.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from tidelog.broker.network.tls.handshakes import Handshakes
from tidelog.broker.network.tls.stream import ARRIVING_BYTES, TlsStream

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from tidelog.broker.network.connection import Connection
    from tidelog.broker.network.services import Services

_log = logging.getLogger("tidelog.connection")

_FAILED: Final = "TLS handshake failed"
_NO_TLS: Final = (
    "HTTP_REQUEST",
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
)
_ALERT: Final = "ALERT_"


class TlsListeners:
    """What all listeners with TLS share: the part of the loop for handshakes, and where bytes arrive."""

    def __init__(self, services: Services, contexts: Mapping[str, ssl.SSLContext]) -> None:
        """`contexts` has a context for each listener that has TLS, by its name."""
        self._services, self._contexts = services, contexts
        self._handshakes = Handshakes(services.clock)
        self._arriving = memoryview(bytearray(ARRIVING_BYTES))

    def accept(self, connect: Callable[[], Connection]) -> TlsStream:
        """Returns the TLS of a new socket, with the connection that `connect` makes above it."""
        connection = connect()
        context = self._contexts[connection.listener.name]
        failed = partial(_failed, self._services, connection)
        return TlsStream(connection, context, self._handshakes, self._arriving, failed)


def _failed(services: Services, connection: Connection, error: Exception) -> None:
    """Counts and logs a handshake that has failed."""
    services.metrics.tls_handshakes_failed += 1
    if services.connections.is_shown(connection, _FAILED):
        extra = {"peer": connection.peer, "listener": connection.listener.name}
        _log.warning(_FAILED, extra={**extra, "reason": _reason(error)})


def _reason(error: Exception) -> str:
    """Returns why a handshake has failed, in words, and what to do."""
    reason = getattr(error, "reason", None) or ""
    if any(each in reason for each in _NO_TLS):
        return "the client does not speak TLS: set its security.protocol to SSL"
    words = reason.replace("_", " ").lower() or str(error)
    if _ALERT in reason:
        return f"the client refuses: {words} (it may not trust the certificate, or its host name)"
    return words
