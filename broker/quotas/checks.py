"""Validates changes of quotas as Kafka's controller does (KIP-546)."""

from __future__ import annotations

import math
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from tidelog.broker.quotas.entity import (
    CLIENT_ID,
    CLIENT_QUOTAS,
    CONNECTION,
    FETCH,
    IP,
    KINDS,
    LEAST,
    PRODUCE,
    USER,
)
from tidelog.config.setting import INT_MAX, LONG_MAX, closest
from tidelog.protocol.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.broker.quotas.entity import Entity

_WHOLE: Final[Mapping[str, int]] = {PRODUCE: LONG_MAX, FETCH: LONG_MAX, CONNECTION: INT_MAX}
_LONGEST_NAMES: Final = 1_024  # each is held in memory, and in the metadata of every broker
_NEARLY: Final = 1e-6  # the tolerance for values that must be whole numbers, as in Kafka


def checked_entity(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Returns the entity with these parts. Raises InvalidRequest if it cannot have quotas."""
    named: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in KINDS:
            raise InvalidRequest(f"there are no quotas for entities of the kind {kind!r}")
        if kind in named:
            raise InvalidRequest(f"an entity has more than one {kind}")
        if name == "":
            raise InvalidRequest(f"the name of a {kind} is empty")
        named[kind] = _address(name) if kind == IP and name is not None else name
    if not named:
        raise InvalidRequest("an entity has no parts")
    if sum(len(name or "") for name in named.values()) > _LONGEST_NAMES:
        raise InvalidRequest(f"the names of an entity have up to {_LONGEST_NAMES} characters")
    if IP in named and len(named) > 1:
        raise InvalidRequest("an address cannot be combined with a user or a client")
    return tuple(sorted(named.items()))


def _address(name: str) -> str:
    """Returns an address in the form in which this broker writes the addresses of peers."""
    try:
        return str(ip_address(name))
    except ValueError:
        raise InvalidRequest(
            f"{name!r} is no address: names of hosts are not looked up here"
        ) from None


def checked_changes(
    entity: Entity, ops: Iterable[tuple[str, float | None]]
) -> dict[str, float | None]:
    """Returns the changes of an entity's quotas by key; None removes one. Raises InvalidRequest."""
    allowed = (CONNECTION,) if entity[0][0] == IP else CLIENT_QUOTAS
    changes: dict[str, float | None] = {}
    for key, value in ops:
        if key in changes:
            raise InvalidRequest(f"quota {key} is named more than once")
        if value is not None and key not in allowed:
            near = closest(key, allowed)
            hint = f"; did you mean {near}?" if near else ""
            raise InvalidRequest(f"{_kind(entity)} has no quota {key!r}{hint}")
        changes[key] = None if value is None else _checked(key, value)
    return changes


def _kind(entity: Entity) -> str:
    return {IP: "an address", USER: "a user", CLIENT_ID: "a client"}[entity[-1][0]]


def _checked(key: str, value: float) -> float:
    """Returns the value of a quota if it is valid. Raises InvalidRequest."""
    if not math.isfinite(value) or value <= 0:
        raise InvalidRequest(f"{key} must be greater than 0, and finite: it is {value}")
    if value < LEAST[key]:
        raise InvalidRequest(
            f"{key} must be at least {LEAST[key]}, so that whoever is held can undo it: it is {value}"
        )
    largest = _WHOLE.get(key)
    if largest is None:
        return value
    if value > largest:
        raise InvalidRequest(f"{key} must be at most {largest}: it is {value}")
    if abs(math.floor(value + _NEARLY) - value) > _NEARLY:
        raise InvalidRequest(f"{key} must be a whole number: it is {value}")
    return value
