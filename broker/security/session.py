"""Whose requests a connection brings."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """Who somebody is, as Kafka writes it: `User:ANONYMOUS`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of a connection that did not say who it is."""


class Session(NamedTuple):
    """What an authorizer may know of a connection."""

    principal: Principal
    host: str  # the peer's address
    listener: str  # the name of the listener it came in by
