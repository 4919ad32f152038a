"""Calls that describe and change the quotas of clients (KIP-546). Refusals raise RequestError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.client import apis
from tidelog.client.errors import raise_for_code
from tidelog.client.flow import AnyBroker, Call
from tidelog.protocol.api import alter_client_quotas, describe_client_quotas

if TYPE_CHECKING:
    from collections.abc import Mapping

Entity = tuple[tuple[str, str | None], ...]
"""The types of an entity ("user", "client-id", "ip") with its names; None is the default of a type."""

_EXACT, _DEFAULT = 0, 1


def describe(entity: Entity = ()) -> Call[dict[Entity, dict[str, float]]]:
    """The quotas of all entities that have these names among theirs, by entity."""
    components = [
        describe_client_quotas.ComponentData(
            entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name
        )
        for kind, name in entity
    ]
    request = describe_client_quotas.DescribeClientQuotasRequest(components=components)

    def read(answer: Any) -> dict[Entity, dict[str, float]]:
        raise_for_code(answer.error_code, "quotas", answer.error_message)
        return {
            tuple((part.entity_type, part.entity_name) for part in entry.entity): {
                one.key: one.value for one in entry.values
            }
            for entry in answer.entries or ()
        }

    return Call(apis.DESCRIBE_CLIENT_QUOTAS, request, AnyBroker(), read)


def alter(entity: Entity, changes: Mapping[str, float | None]) -> Call[None]:
    """Changes quotas of one entity, all or none; the value None removes a quota."""
    entry = alter_client_quotas.AlterEntryData(
        entity=[
            alter_client_quotas.EntityData(entity_type=kind, entity_name=name)
            for kind, name in entity
        ],
        ops=[
            alter_client_quotas.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry])

    def read(answer: Any) -> None:
        (result,) = answer.entries
        raise_for_code(result.error_code, "changing quotas", result.error_message)

    return Call(apis.ALTER_CLIENT_QUOTAS, request, AnyBroker(), read)
