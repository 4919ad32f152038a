"""The settings that limit the connections of clients: all, those of one address, new ones in a second."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import NamedTuple

from tidelog.config.setting import INT_MAX, Type, setting

_LEAST = 20  # other brokers and clients hold some, and Kafka's tools need a few more


class AddressLimit(NamedTuple):
    """How many connections one address may have."""

    address: str
    most: int

    def __str__(self) -> str:
        return f"{self.address}:{self.most}"


def parse_address_limits(text: str) -> tuple[AddressLimit, ...]:
    """Returns the limits of single addresses, ADDRESS:COUNT,ADDRESS:COUNT. Raises ValueError.

    Kafka looks names up once, at its start. Here they are refused: a name may get another address.
    """
    found: dict[str, AddressLimit] = {}
    for part in text.split(",") if text.strip() else ():
        address, _, most = (piece.strip() for piece in part.rpartition(":"))
        if not (most.isascii() and most.isdecimal() and int(most) <= INT_MAX):
            raise ValueError(f"{part.strip()!r} is not ADDRESS:COUNT")
        try:
            ip = ipaddress.ip_address(address.strip("[]"))
        except ValueError:
            raise ValueError(
                f"{address!r} is not an IP address, and names are not looked up"
            ) from None
        known = str(getattr(ip, "ipv4_mapped", None) or ip)
        if known in found:
            raise ValueError(f"address {known} is given twice")
        found[known] = AddressLimit(known, int(most))
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class ConnectionsConfig:
    """The limits of connections; all may be changed while the broker runs, of one broker too, as in Kafka."""

    max_connections: int = setting(
        "max.connections",
        Type.INT,
        INT_MAX,
        "How many connections may be open at once; more are closed. Never more than the limit of "
        "open files leaves for clients.",
        low=0,
        least_live=_LEAST,
        for_one_broker=True,
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        Type.INT,
        INT_MAX,
        "How many connections one address may have open at once; more are closed.",
        low=0,
        least_live=_LEAST,
        for_one_broker=True,
    )
    max_connections_per_ip_overrides: tuple[AddressLimit, ...] = setting(
        "max.connections.per.ip.overrides",
        Type.STRING,
        (),
        "The same for single addresses, as ADDRESS:COUNT,ADDRESS:COUNT. Names of hosts are not "
        "looked up, other than in Kafka.",
        convert=parse_address_limits,
        least_live=_LEAST,
        for_one_broker=True,
    )
    max_connection_creation_rate: int = setting(
        "max.connection.creation.rate",
        Type.INT,
        INT_MAX,
        "How many new connections are served in a second. A connection beyond waits for its turn "
        "without being read; one that would wait for more than 10 s is closed.",
        low=0,
        least_live=_LEAST,
        for_one_broker=True,
    )
