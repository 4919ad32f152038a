"""The addresses that clients connect to, and those that are advertised to them (KIP-103).

A response that names this broker has the advertised address of the listener that received the
request.
"""

from __future__ import annotations

from typing import NamedTuple

HTTP = "HTTP"  # in a broker's session: the port for metrics, which is no listener of the protocol


class Listener(NamedTuple):
    """One address that clients connect to, and the address that is advertised for it."""

    name: str
    host: str
    port: int
    advertised: tuple[str, int]
