"""The sockets of a broker's ports, and what others are told of them.

A port of 0 becomes one that is free, so what is told is known only when the socket is bound. Nobody can
connect to a socket that is bound and does not listen. A port in use is waited for, so a thread binds.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import time
from typing import TYPE_CHECKING, Final

from tidelog.broker.network.accepting.listener import HTTP, Listener
from tidelog.config.broker.listeners import EVERY_INTERFACE

if TYPE_CHECKING:
    from tidelog.config import BrokerConfig

BACKLOG: Final = 1024
"""How many connections of a listening socket may wait to be accepted."""

_TRIES, _PAUSE_S = 20, 0.05


def bound_listeners(config: BrokerConfig) -> list[tuple[socket.socket, Listener]]:
    """Binds every listener; returns the sockets, which do not listen yet, and what is told of them."""
    advertised = {name: (host, port) for name, host, port in config.advertised_listeners}
    result = []
    for name, host, port in config.listeners:
        waiting = _bind(host, port)
        actual = waiting.getsockname()[1]
        told_host, told_port = advertised.get(name, (host, 0))
        if told_host in EVERY_INTERFACE:
            told_host = socket.gethostname()
        listener = Listener(name, host, actual, (told_host, told_port or actual))
        result.append((waiting, listener))
    return result


def http_listener(bound: socket.socket) -> Listener:
    """Returns the HTTP port as the other brokers and `tidelog cluster status` find it."""
    host, port = bound.getsockname()[:2]
    told = socket.gethostname() if host in EVERY_INTERFACE else host
    return Listener(HTTP, host, port, (told, port))


def is_open(bound: socket.socket) -> bool:
    """Returns whether other machines can reach a bound socket."""
    host = str(bound.getsockname()[0])
    return not ipaddress.ip_address(host.partition("%")[0]).is_loopback


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket; an empty host means every interface."""
    listening = _bind(host, port)
    listening.listen(BACKLOG)
    return listening


def _bind(host: str, port: int) -> socket.socket:
    """Binds a socket that does not listen yet. Raises OSError that names the address.

    A process that was killed may still be closing its port: a port in use is tried for a second.
    """
    for _ in range(_TRIES):
        try:
            return _bound(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        time.sleep(_PAUSE_S)
    return _bound(host, port)


def _bound(host: str, port: int) -> socket.socket:
    is_ipv6 = ":" in host
    bound = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_ipv6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        what = f"{f'[{host}]' if is_ipv6 else host}:{port}: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            what += "; name another port, or 0 for a free one"
        raise OSError(error.errno, what) from None
    bound.setblocking(False)
    return bound
