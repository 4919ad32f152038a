"""AlterClientQuotas (key 49): change the quotas of users and clients (KIP-546).

v1 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Float64, Int16, Int32, Message, String, since


class EntityData(Message):
    """One part of an entity; a null name is the default."""

    entity_type: String = since(0)
    entity_name: String | None = since(0, default=None)


class OpData(Message):
    """A quota that is set, or removed."""

    key: String = since(0)
    value: Float64 = since(0)
    remove: Bool = since(0)


class AlterEntryData(Message):
    """The changes of one entity."""

    entity: list[EntityData] = since(0)
    ops: list[OpData] = since(0)


class AlterClientQuotasRequest(Message):
    """Change the quotas of these entities."""

    entries: list[AlterEntryData] = since(0)
    validate_only: Bool = since(0)


class EntryData(Message):
    """The result for one entity."""

    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    entity: list[EntityData] = since(0)


class AlterClientQuotasResponse(Message):
    """The result for every entity."""

    throttle_time_ms: Int32 = since(0)
    entries: list[EntryData] = since(0)


API = Api(
    key=49,
    name="AlterClientQuotas",
    request=AlterClientQuotasRequest,
    response=AlterClientQuotasResponse,
    min_version=0,
    max_version=1,
    first_flexible=1,
    served=(0, 1),
    needs=(Need(Operation.ALTER_CONFIGS, ResourceType.CLUSTER),),
)
