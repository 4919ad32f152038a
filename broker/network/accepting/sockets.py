"""The sockets of a broker's ports, and the addresses that are advertised for them.

A port of 0 becomes one that is free, so its address is known only when the socket is bound. Nobody can
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
_REMEDIES: Final = {
    errno.EADDRINUSE: (
        ", by another broker or some other program (ss -ltnp 'sport = :{port}' shows which); name another "
        "port, or 0 for a free one"
    ),
    errno.EACCES: "; ports below 1024 need the capability CAP_NET_BIND_SERVICE",
    errno.EADDRNOTAVAIL: "; name an address of this machine, or 0.0.0.0 for every interface",
}


class AddressError(OSError):
    """An address that cannot be listened on; its text is one sentence, and begins with the setting."""

    def __str__(self) -> str:
        return self.strerror or ""


def bound_listeners(config: BrokerConfig) -> list[tuple[socket.socket, Listener]]:
    """Binds every listener; returns the sockets, which do not listen yet, and what is advertised for them.

    Raises AddressError.
    """
    advertised = {name: (host, port) for name, host, port in config.advertised_listeners}
    result = []
    for name, host, port in config.listeners:
        waiting = _bind(host, port, "listeners")
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


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Returns a listening socket; an empty host means every interface. Raises AddressError."""
    listening = _bind(host, port, setting)
    listening.listen(BACKLOG)
    return listening


def _bind(host: str, port: int, setting: str) -> socket.socket:
    """Binds a socket that does not listen yet. Raises AddressError, which names the setting.

    A process that was killed may still be closing its port: a port in use is tried for a second.
    """
    tries = 0
    while True:
        try:
            return _bound(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or tries == _TRIES:
                shown = f"[{host}]" if ":" in host else host
                remedy = _REMEDIES.get(error.errno or 0, "").format(port=port)
                what = f"{setting}: {shown}:{port}: {error.strerror}{remedy}"
                raise AddressError(error.errno, what) from None
        tries += 1
        time.sleep(_PAUSE_S)


def _bound(host: str, port: int) -> socket.socket:
    is_ipv6 = ":" in host
    bound = socket.socket(socket.AF_INET6 if is_ipv6 else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_ipv6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound
