"""The ports for clients: each listener is bound, with TLS or without, before anybody can connect to it.

A start warns, once, of listeners that other machines reach. A broker without TLS loads nothing of it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.network.accepting.sockets import BACKLOG, bound_listeners, is_open
from tidelog.broker.network.connection import Connection

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from tidelog.broker.network.services import Services
    from tidelog.broker.network.tls.listeners import TlsListeners
    from tidelog.config import BrokerConfig

log = logging.getLogger("tidelog.server")


def tls_contexts(config: BrokerConfig) -> dict[str, ssl.SSLContext]:
    """Returns the TLS context of each listener that has TLS, by its name. Raises ConfigError."""
    if not config.listeners_with_tls:
        return {}
    from tidelog.broker.network.tls.contexts import contexts_of  # others load nothing of TLS

    return contexts_of(config)


def _tls_of(services: Services, contexts: Mapping[str, ssl.SSLContext]) -> TlsListeners | None:
    if not contexts:
        return None
    from tidelog.broker.network.tls.listeners import TlsListeners

    return TlsListeners(services, contexts)


async def bound_servers(
    services: Services, contexts: Mapping[str, ssl.SSLContext]
) -> list[asyncio.Server]:
    """Binds every listener for clients; nobody can connect before its server is started.

    What a broker knows before it is unfenced would mislead clients.
    """
    servers, tls = [], _tls_of(services, contexts)
    bound = await services.pools.topics.run(bound_listeners, services.config)
    _warn_of_open([listener.name for waiting, listener in bound if is_open(waiting)])
    for waiting, listener in bound:
        services.listeners.append(listener)
        connect = partial(Connection, services, listener)
        servers.append(
            await asyncio.get_running_loop().create_server(
                partial(tls.accept, connect) if tls and listener.name in contexts else connect,
                sock=waiting,
                backlog=BACKLOG,
                start_serving=False,
            )
        )
    return servers


def _warn_of_open(listeners: list[str]) -> None:
    """Warns, once for all listeners, that other machines may do whatever clients can do."""
    if listeners:
        log.warning(
            "listeners reachable from other machines without TLS and authentication",
            extra={
                "listeners": ",".join(listeners),
                "advice": "bind them to 127.0.0.1, or keep them in a network of trusted clients "
                "(docs/security.md)",
            },
        )
