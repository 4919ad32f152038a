"""The TLS contexts of listeners, made of the broker's settings when it starts.

A context is a server's own (`PROTOCOL_TLS_SERVER`), which does not obey SSLKEYLOGFILE: that would write the
keys of connections into a file. Versions before TLS 1.2, renegotiation and compression are off.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from tidelog.client.errors import SecuritySettingsError
from tidelog.client.security.settings import tls_of
from tidelog.client.security.tls import VERSIONS, load_identity
from tidelog.config import ConfigError
from tidelog.config.broker.tls import tls_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.config import BrokerConfig


def contexts_of(config: BrokerConfig) -> dict[str, ssl.SSLContext]:
    """Returns the context of each listener that has TLS, by its name. Reads files; raises ConfigError."""
    return {
        name: _context(name, tls_settings(config.given, name)) for name in config.listeners_with_tls
    }


def _context(listener: str, settings: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    try:
        tls = tls_of(settings)
        if tls.identity is None:
            raise SecuritySettingsError("ssl.keystore.location has no key")
        load_identity(context, tls.identity)
    except SecuritySettingsError as error:
        raise ConfigError(f"listener {listener}: {error}") from None
    context.minimum_version = VERSIONS[min(tls.versions)]
    context.maximum_version = VERSIONS[max(tls.versions)]
    return context
