"""Addresses as Kafka writes them: `PLAINTEXT://host:9092,INTERNAL://[::1]:0`.

A listener may have any name as long as listener.security.protocol.map (or its own name) says PLAINTEXT or
SSL; anything else is refused with a sentence, instead of serving in the clear what was meant to be encrypted.
An empty host means every interface, port 0 lets the system choose.
"""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

_LISTENER = re.compile(r"([A-Za-z0-9_.\-]+)://(.*):([0-9]{1,5})", re.ASCII)
_ADDRESS = re.compile(r"(.*):([0-9]{1,5})", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9_.\-%:]*", re.ASCII)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
EVERY_INTERFACE = ("", "0.0.0.0", "::")  # noqa: S104 - recognised, not chosen


class Listener(NamedTuple):
    """One address: the listener's name in upper case, the host without brackets, the port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}://{joined(self.host, self.port)}"


def parse_listeners(text: str) -> tuple[Listener, ...]:
    """Returns the listeners of a comma-separated list; raises ValueError with the reason."""
    found = tuple(_listener(part.strip()) for part in text.split(",")) if text.strip() else ()
    names = [listener.name for listener in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"the listener name {name} is used twice")
    return found


def parse_bound_listeners(text: str) -> tuple[Listener, ...]:
    """Like parse_listeners, for addresses to listen on: at least one, and no address twice."""
    found = parse_listeners(text)
    if not found:
        raise ValueError("at least one listener is needed, such as PLAINTEXT://127.0.0.1:9092")
    addresses = [(listener.host, listener.port) for listener in found if listener.port]
    for host, port in addresses:
        if addresses.count((host, port)) > 1:
            raise ValueError(f"{host or 'every interface'}, port {port}, is used twice")
    return found


def parse_advertised_listeners(text: str) -> tuple[Listener, ...]:
    """Like parse_listeners, for addresses given to clients: each must be one they can connect to."""
    found = parse_listeners(text)
    for listener in found:
        if listener.host in EVERY_INTERFACE:
            raise ValueError(f"{listener} is not an address a client can connect to; name a host")
    return found


def parse_protocol_map(text: str) -> dict[str, str]:
    """Returns listener.security.protocol.map as listener name -> protocol; raises ValueError."""
    found: dict[str, str] = {}
    for part in text.split(",") if text.strip() else ():
        name, _, protocol = (piece.strip().upper() for piece in part.partition(":"))
        if not name or protocol not in _PROTOCOLS:
            raise ValueError(f"{part.strip()!r} is not NAME:PROTOCOL ({', '.join(_PROTOCOLS)})")
        if found.setdefault(name, protocol) != protocol:
            raise ValueError(f"listener {name} is given two protocols")
    return found


def check_protocol_map(text: str) -> str:
    """Returns the text unchanged if it is a protocol map; raises ValueError."""
    parse_protocol_map(text)
    return text


def protocol_of(listener: Listener, protocols: dict[str, str]) -> str | None:
    """Returns the security protocol of a listener; None if neither the map nor its name says it."""
    by_name = listener.name if listener.name in _PROTOCOLS else None
    return protocols.get(listener.name, by_name)


def parse_address(text: str) -> str:
    """Returns a `host:port` unchanged if it is valid or empty. Raises ValueError."""
    if text:
        split_address(text)
    return text


def split_address(text: str) -> tuple[str, int]:
    """Returns host (without brackets) and port of `host:port`; raises ValueError."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ValueError("expected host:port, such as 127.0.0.1:8080")
    return _host(found[1]), _port(found[2])


def is_loopback(host: str) -> bool:
    """Returns whether a host is one by which a machine reaches itself alone."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def are_same_port(one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Returns whether only one of two addresses can be listened on; never for port 0."""
    (host, port), (other_host, other_port) = one, other
    if port != other_port or not port or (":" in host) != (":" in other_host):
        return False
    return host == other_host or host in EVERY_INTERFACE or other_host in EVERY_INTERFACE


def joined(host: str, port: int) -> str:
    """Returns host and port as one text; an address of IPv6 goes in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _listener(text: str) -> Listener:
    found = _LISTENER.fullmatch(text)
    if found is None:
        hint = f": write PLAINTEXT://{text}" if _ADDRESS.fullmatch(text) and "/" not in text else ""
        raise ValueError(f"{text!r} is not NAME://host:port{hint}")
    return Listener(found[1].upper(), _host(found[2]), _port(found[3]))


def _host(text: str) -> str:
    host = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if not _HOST.fullmatch(host) or (":" in host and host == text):
        raise ValueError(f"{text!r} is not a host name or address (IPv6 goes in brackets)")
    return host


def _port(text: str) -> int:
    port = int(text)
    if port > 65_535:
        raise ValueError(f"port {port} is above 65535")
    return port
