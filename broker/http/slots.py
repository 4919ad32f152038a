"""Who may have an HTTP connection: a number for all, a part of it for each address, and slots that are kept.

A connection over which no request is served is quiet. When the number is reached, the one that has been
quiet for longest is closed for a new one. When none is quiet, a few are still served for one request: `KEPT`
of this machine, and `KEPT` that may ask for health alone. So whoever holds connections, health is answered.

Pure: `now_s` is an argument, and a connection is anything that can be a key.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

KEPT: Final = 8
HEALTH_PATHS: Final = frozenset(("/healthz", "/readyz"))
_YOUNG_S = 1.0  # nobody has to leave before he could ask

Connection = TypeVar("Connection")


class Kind(Enum):
    """What a connection may do."""

    USUAL = "any request, any number of them"
    LOCAL = "one request of this machine"
    HEALTH = "one request for health"


@dataclass(slots=True)
class Slot:
    """The slot of one connection; `quiet_since_s` is None while a request is served."""

    host: str
    kind: Kind
    quiet_since_s: float | None
    has_asked: bool = False


class Taken(NamedTuple, Generic[Connection]):
    """The kind of slot for a new connection, and which connection has to be closed for it."""

    kind: Kind
    leaves: Connection | None


class Slots(Generic[Connection]):
    """The slots of the connections of one port."""

    def __init__(self) -> None:
        self._slots: dict[Connection, Slot] = {}

    def retain(self, connections: Container[Connection]) -> None:
        """Forgets connections that are not among those that are open."""
        for gone in [each for each in self._slots if each not in connections]:
            del self._slots[gone]

    def take(self, host: str, most: int, now_s: float) -> Taken[Connection] | None:
        """Returns a slot for a new connection of an address; None if there is none.

        There are `most` usual slots, and an address may have half of them.
        """
        usual = self._of(Kind.USUAL)
        own = [each for each in usual if self._slots[each].host == host]
        has_many = len(own) >= (most + 1) // 2
        if not has_many and len(usual) < most:
            return Taken(Kind.USUAL, None)
        leaves = self._longest_quiet(own if has_many else usual, now_s - _YOUNG_S)
        if leaves is not None:
            return Taken(Kind.USUAL, leaves)
        address = ipaddress.ip_address(host.partition("%")[0])
        is_local = (getattr(address, "ipv4_mapped", None) or address).is_loopback
        for kind in (Kind.LOCAL, Kind.HEALTH) if is_local else (Kind.HEALTH,):
            kept = self._of(kind)
            if len(kept) < KEPT:
                return Taken(kind, None)
            leaves = self._longest_quiet(kept, now_s)
            if leaves is not None:
                return Taken(kind, leaves)
        return None

    def put(self, connection: Connection, host: str, kind: Kind, now_s: float) -> None:
        """Gives a new connection a slot that was taken for it."""
        self._slots[connection] = Slot(host, kind, now_s)

    def remove(self, connection: Connection) -> None:
        """Frees the slot of a connection."""
        self._slots.pop(connection, None)

    def begin(self, connection: Connection) -> Kind:
        """Notes that a request is served; returns what its connection may do."""
        slot = self._slots.get(connection)
        if slot is None:
            return Kind.HEALTH
        slot.quiet_since_s, slot.has_asked = None, True
        return slot.kind

    def end(self, connection: Connection, now_s: float) -> None:
        """Notes that a request has been served."""
        slot = self._slots.get(connection)
        if slot is not None:
            slot.quiet_since_s = now_s

    def without_request(self, since_s: float) -> list[Connection]:
        """Returns the connections that are older than a time, and have sent no request so far."""
        return [
            each
            for each, slot in self._slots.items()
            if not slot.has_asked
            and slot.quiet_since_s is not None
            and slot.quiet_since_s < since_s
        ]

    @property
    def has_silent(self) -> bool:
        """Whether any connection has sent no request so far."""
        return any(not slot.has_asked for slot in self._slots.values())

    def _of(self, kind: Kind) -> list[Connection]:
        return [each for each, slot in self._slots.items() if slot.kind is kind]

    def _longest_quiet(self, among: Iterable[Connection], since_s: float) -> Connection | None:
        quiet = [
            (slot.quiet_since_s, number, each)
            for number, each in enumerate(among)
            if (slot := self._slots[each]).quiet_since_s is not None
            and slot.quiet_since_s <= since_s
        ]
        return min(quiet, default=(0.0, 0, None), key=lambda each: each[:2])[2]
