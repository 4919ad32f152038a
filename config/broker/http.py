"""The settings of the HTTP port."""

from __future__ import annotations

from dataclasses import dataclass

from config.broker.fetches import FetchConfig
from config.broker.listeners import parse_address
from config.setting import Type, setting


@dataclass(frozen=True, slots=True)
class HttpConfig(FetchConfig):
    """A broker's settings of HTTP; the other settings of a broker are beside them."""

    http_listener: str = setting(
        "http.listener",
        Type.STRING,
        "",
        "The host:port for metrics and health over HTTP; if empty, there is none. Not a Kafka "
        "setting.",
        convert=parse_address,
        dynamic=False,
    )
    http_max_connections: int = setting(
        "http.max.connections",
        Type.INT,
        100,
        "How many HTTP connections may be open at once; more are closed. Not a Kafka setting.",
        low=1,
    )
    http_allowed_hosts: tuple[str, ...] = setting(
        "http.allowed.hosts",
        Type.LIST,
        (),
        "The names, separated by commas, under which HTTP is asked (the Host header), beside plain "
        "addresses, localhost, the name of the machine and advertised.listeners. Not a Kafka setting.",
    )
