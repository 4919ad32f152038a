"""The entities of quotas, and which quota holds for a client (KIP-55, KIP-546, KIP-612).

An entity is a user, a client id, both, or an address. A name of None is the default: it holds for every name
that has no quota of its own. Each quota is found separately, by the most specific entity that has it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
KINDS: Final = (CLIENT_ID, IP, USER)

PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"
CLIENT_QUOTAS: Final = (PRODUCE, FETCH, REQUEST, MUTATION)
"""The quotas of users and client ids; CONNECTION is that of addresses."""
LEAST: Final[Mapping[str, float]] = MappingProxyType(
    {PRODUCE: 1.0, FETCH: 1.0, REQUEST: 1e-6, MUTATION: 1e-6, CONNECTION: 1.0}
)
"""The least value of each quota: with less, throttle times are endless, and nobody could change it back.

Smaller values that an older tidelog has stored count as these.
"""

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""The parts of an entity, (kind, name), in the order of their kinds; a name of None is the default."""
Quotas: TypeAlias = "Mapping[Entity, Mapping[str, float]]"
NO_QUOTAS: Quotas = MappingProxyType({})


class Limit(NamedTuple):
    """A quota that holds for a client: its value, its entity, and the bucket that counts the usage.

    A bucket is a user and a client id; "" where the entity does not distinguish them.
    """

    value: float
    entity: Entity
    bucket: tuple[str, str]


def written(entity: Entity) -> str:
    """Returns an entity as text; a default is a kind without a name."""
    return "&".join(
        kind if name is None else f"{kind}={quote(name, safe='')}" for kind, name in entity
    )


def read(text: str) -> Entity:
    """Returns the entity that `written` wrote. Raises ValueError."""
    parts = []
    for part in text.split("&"):
        kind, has_name, name = part.partition("=")
        if kind not in KINDS or bool(has_name) != bool(name):
            raise ValueError(f"{text!r} is no entity that has quotas")
        parts.append((kind, unquote(name, errors="strict") if name else None))
    entity = tuple(sorted(parts, key=lambda each: each[0]))
    if written(entity) != text or len(dict(entity)) < len(entity):
        raise ValueError(f"{text!r} is no entity that has quotas")
    return entity


def limit_of(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """Returns the quota `key` of a client; None if it has none.

    The order is Kafka's: a user's quota comes before that of its client id.
    """
    for entity, bucket in _candidates(user, client_id):
        value = quotas.get(entity, {}).get(key)
        if value is not None:
            return Limit(max(value, LEAST[key]), entity, bucket)
    return None


def _candidates(user: str, client_id: str) -> Iterator[tuple[Entity, tuple[str, str]]]:
    """Yields the entities that may have a client's quota, the most specific first, and their buckets."""
    for name in (user, None):
        for client in (client_id, None):
            yield ((CLIENT_ID, client), (USER, name)), (user, client_id)
        yield ((USER, name),), (user, "")
    for client in (client_id, None):
        yield ((CLIENT_ID, client),), ("", client_id)


def connection_rate(quotas: Quotas, address: str) -> float | None:
    """Returns the connection_creation_rate of an address, per second; None if there is no limit."""
    for name in (address, None):
        value = quotas.get(((IP, name),), {}).get(CONNECTION)
        if value is not None:
            return max(value, LEAST[CONNECTION])
    return None
