"""The settings of the HTTP port."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.config.broker.listeners import parse_address, split_address
from tidelog.config.setting import Type, setting


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """A broker's settings of HTTP."""

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
        "How many HTTP connections may be open at once, half of them of one address. For more, those are "
        "closed that have been quiet for longest, and some are kept for health. Not a Kafka setting.",
        low=1,
        dynamic=False,
    )
    http_allowed_hosts: tuple[str, ...] = setting(
        "http.allowed.hosts",
        Type.LIST,
        (),
        "The names, separated by commas, under which HTTP is asked (the Host header), beside plain "
        "addresses, localhost, the name of the machine and advertised.listeners. Not a Kafka setting.",
        dynamic=False,
    )

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the HTTP listener; None if there is none."""
        return split_address(self.http_listener) if self.http_listener else None
