"""The slots of HTTP connections: a limit for all, half of it for each address, and a few reserved slots.

A connection over which no request is served is idle. When the limit is reached, the connection that has been
idle for longest is closed for a new one. When none is idle, a few more are accepted for one request each:
`RESERVED_SLOTS` from this machine, and `RESERVED_SLOTS` that may request health alone. So health is answered,
however many connections clients hold.

Pure: `now_s` is an argument, and a connection is anything that can be a key.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

RESERVED_SLOTS: Final = 8
HEALTH_PATHS: Final = frozenset(("/healthz", "/readyz"))
_LEAST_IDLE_S = 1.0  # a new connection is not closed before it can send a request

Connection = TypeVar("Connection")


class SlotKind(Enum):
    """The requests that a connection may send."""

    USUAL = "any request, any number of them"
    LOCAL = "one request of this machine"
    HEALTH = "one request for health"


@dataclass(slots=True)
class Slot:
    """The slot of one connection; `idle_since_s` is None while a request is served."""

    host: str
    kind: SlotKind
    idle_since_s: float | None
    has_sent_request: bool = False


class AcquiredSlot(NamedTuple, Generic[Connection]):
    """The kind of slot for a new connection, and the connection that has to be closed for it, if any."""

    kind: SlotKind
    evicted: Connection | None


class Slots(Generic[Connection]):
    """The slots of the connections of one port."""

    def __init__(self) -> None:
        self._slots: dict[Connection, Slot] = {}

    def retain(self, connections: Container[Connection]) -> None:
        """Frees the slots of connections that are not among the open ones."""
        for gone in [each for each in self._slots if each not in connections]:
            del self._slots[gone]

    def acquire(self, host: str, most: int, now_s: float) -> AcquiredSlot[Connection] | None:
        """Returns a slot for a new connection of an address; None if there is none.

        There are `most` usual slots, and an address may have half of them.
        """
        usual = self._of(SlotKind.USUAL)
        own = [each for each in usual if self._slots[each].host == host]
        has_many = len(own) >= (most + 1) // 2
        if not has_many and len(usual) < most:
            return AcquiredSlot(SlotKind.USUAL, None)
        evicted = self._longest_idle(own if has_many else usual, now_s - _LEAST_IDLE_S)
        if evicted is not None:
            return AcquiredSlot(SlotKind.USUAL, evicted)
        address = ipaddress.ip_address(host.partition("%")[0])
        is_local = (getattr(address, "ipv4_mapped", None) or address).is_loopback
        for kind in (SlotKind.LOCAL, SlotKind.HEALTH) if is_local else (SlotKind.HEALTH,):
            kept = self._of(kind)
            if len(kept) < RESERVED_SLOTS:
                return AcquiredSlot(kind, None)
            evicted = self._longest_idle(kept, now_s)
            if evicted is not None:
                return AcquiredSlot(kind, evicted)
        return None

    def put(self, connection: Connection, host: str, kind: SlotKind, now_s: float) -> None:
        """Stores the slot that was acquired for a new connection."""
        self._slots[connection] = Slot(host, kind, now_s)

    def remove(self, connection: Connection) -> None:
        """Frees the slot of a connection."""
        self._slots.pop(connection, None)

    def begin(self, connection: Connection) -> SlotKind:
        """Notes that a request is being served; returns the kind of its connection's slot."""
        slot = self._slots.get(connection)
        if slot is None:
            return SlotKind.HEALTH
        slot.idle_since_s, slot.has_sent_request = None, True
        return slot.kind

    def end(self, connection: Connection, now_s: float) -> None:
        """Notes that a request has been served."""
        slot = self._slots.get(connection)
        if slot is not None:
            slot.idle_since_s = now_s

    def without_request(self, since_s: float) -> list[Connection]:
        """Returns the connections that are older than a time, and have sent no request so far."""
        return [
            each
            for each, slot in self._slots.items()
            if not slot.has_sent_request
            and slot.idle_since_s is not None
            and slot.idle_since_s < since_s
        ]

    @property
    def has_unused(self) -> bool:
        """Whether any connection has sent no request so far."""
        return any(not slot.has_sent_request for slot in self._slots.values())

    def _of(self, kind: SlotKind) -> list[Connection]:
        return [each for each, slot in self._slots.items() if slot.kind is kind]

    def _longest_idle(self, among: Iterable[Connection], since_s: float) -> Connection | None:
        quiet = [
            (slot.idle_since_s, number, each)
            for number, each in enumerate(among)
            if (slot := self._slots[each]).idle_since_s is not None and slot.idle_since_s <= since_s
        ]
        return min(quiet, default=(0.0, 0, None), key=lambda each: each[:2])[2]
