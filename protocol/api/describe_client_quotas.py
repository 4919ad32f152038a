"""DescribeClientQuotas (key 48): the quotas of users and clients (KIP-546).

v1 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Float64, Int8, Int16, Int32, Message, String, since


class ComponentData(Message):
    """A component of a filter: a type of entity, and which entities of it match."""

    entity_type: String = since(0)
    match_type: Int8 = since(0)
    match: String | None = since(0, default=None)


class DescribeClientQuotasRequest(Message):
    """Ask for the quotas that match every component."""

    components: list[ComponentData] = since(0)
    strict: Bool = since(0)


class EntityData(Message):
    """One part of an entity; a null name is the default."""

    entity_type: String = since(0)
    entity_name: String | None = since(0, default=None)


class ValueData(Message):
    """One quota."""

    key: String = since(0)
    value: Float64 = since(0)


class EntryData(Message):
    """The quotas of one entity."""

    entity: list[EntityData] = since(0)
    values: list[ValueData] = since(0)


class DescribeClientQuotasResponse(Message):
    """The matching quotas; with an error the entries are null."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    entries: list[EntryData] | None = since(0)


API = Api(
    key=48,
    name="DescribeClientQuotas",
    request=DescribeClientQuotasRequest,
    response=DescribeClientQuotasResponse,
    min_version=0,
    max_version=1,
    first_flexible=1,
    served=(0, 1),
    needs=(Need(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),),
)
