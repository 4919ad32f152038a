"""The principal and the address of a connection, by which its requests are authorized."""

from __future__ import annotations

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """A Kafka principal, written as `User:ANONYMOUS`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of a connection without authentication."""


class Session(NamedTuple):
    """The facts about a connection by which an authorizer decides."""

    principal: Principal
    host: str  # the peer's address
    listener: str  # the name of the listener it came in by
