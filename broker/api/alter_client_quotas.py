"""AlterClientQuotas (key 49): there are no quotas that could be changed (KIP-546).

Behaviour: an entity that no quota can have is INVALID_REQUEST, as in Kafka. To remove a quota, which
does not exist, succeeds, as in Kafka. To set one is UNSUPPORTED_VERSION with a sentence, which clients
take for "this broker cannot do that".

Version notes: 1 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.network.per_partition import per_partition
from protocol.api.alter_client_quotas import AlterClientQuotasResponse, EntryData
from protocol.errors import InvalidRequest, UnsupportedVersion

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterEntryData
    from protocol.errors import BrokerError

_KINDS = ("user", "client-id", "ip")


def handle(
    node: Node, request: AlterClientQuotasRequest, _context: Context
) -> AlterClientQuotasResponse:
    """Refuses each change that sets a quota."""
    return AlterClientQuotasResponse(
        entries=per_partition(node, "alter_client_quotas", request.entries, _removed, _failed)
    )


def _removed(entry: AlterEntryData) -> EntryData:
    """Returns the result of an entry that sets nothing. Raises the error of any other one."""
    if not entry.entity:
        raise InvalidRequest("an entity has no parts")
    for part in entry.entity:
        if part.entity_type not in _KINDS:
            raise InvalidRequest(
                f"there are no quotas for entities of the kind {part.entity_type!r}"
            )
        if part.entity_name == "":
            raise InvalidRequest(f"the name of a {part.entity_type} is empty")
    if not all(each.remove for each in entry.ops):
        raise UnsupportedVersion("this broker has no quotas")
    return EntryData(entity=entry.entity)


def _failed(entry: AlterEntryData, error: BrokerError) -> EntryData:
    return EntryData(error_code=error.code, error_message=error.message, entity=entry.entity)


def refuse(request: AlterClientQuotasRequest, error: BrokerError) -> AlterClientQuotasResponse:
    """Returns the error for every entity."""
    return AlterClientQuotasResponse(entries=[_failed(entry, error) for entry in request.entries])
