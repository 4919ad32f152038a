"""AlterClientQuotas (key 49): set and remove quotas of users, client ids and addresses (KIP-546).

Behaviour: each entity succeeds or fails on its own, and nothing of one that fails is changed. An entity
that can have no quota, one that is named twice, a key that it cannot have, a key that is named twice and a
value that is not above 0 are INVALID_REQUEST; so is, other than in Kafka, one below 0.000001, or below 1 of
producer_byte_rate, consumer_byte_rate and connection_creation_rate, which are whole numbers. A new entity
beyond max.quota.entities is POLICY_VIOLATION. To remove a quota that does not exist succeeds. With
validate_only nothing is changed. Before the response is sent, the quotas hold on this broker; on others as
soon as they have seen the change.

Version notes: 1 flexible.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.broker.metadata import client_quotas, own_configs
from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import listed
from tidelog.broker.quotas.checks import checked_changes, checked_entity
from tidelog.protocol.api.alter_client_quotas import AlterClientQuotasResponse, EntryData
from tidelog.protocol.errors import InvalidRequest, PolicyViolation

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.quotas.entity import Entity
    from tidelog.protocol.api.alter_client_quotas import AlterClientQuotasRequest, AlterEntryData
    from tidelog.protocol.errors import BrokerError


async def handle(
    services: Services, request: AlterClientQuotasRequest, _context: Context
) -> AlterClientQuotasResponse:
    """Changes the quotas of each entity that is valid."""
    changes: dict[Entity, dict[str, float | None]] = {}
    added: set[Entity] = set()
    if not request.validate_only:
        await services.catch_up()
    known, most = services.metadata.image.quotas, services.config.limits.max_quota_entities
    times = Counter(await listed(_named(entry) for entry in request.entries))

    def check(entry: AlterEntryData) -> EntryData:
        if times[_named(entry)] > 1:
            raise InvalidRequest("the entity is named more than once")
        entity = checked_entity((part.entity_type, part.entity_name) for part in entry.entity)
        ops = ((op.key, None if op.remove else op.value) for op in entry.ops)
        checked = checked_changes(entity, ops)
        if entity not in known and any(value is not None for value in checked.values()):
            if len(known) + len(added) >= most:
                raise PolicyViolation(f"the cluster has quotas of max.quota.entities={most}")
            added.add(entity)
        changes[entity] = checked
        return EntryData(entity=entry.entity)

    once = dict(await listed((_named(entry), entry) for entry in request.entries)).values()
    entries = await per_partition(services, "alter_client_quotas", once, check, _failed)
    if changes and not request.validate_only:
        own_configs.check_readable(services.metadata.image, "quotas")
        await client_quotas.alter(services.metadata, changes)
    return AlterClientQuotasResponse(entries=entries)


def _named(entry: AlterEntryData) -> tuple[tuple[str, bool, str], ...]:
    """Returns a key of an entity that does not depend on the order of its parts."""
    return tuple(
        sorted(
            (part.entity_type, part.entity_name is None, part.entity_name or "")
            for part in entry.entity
        )
    )


def _failed(entry: AlterEntryData, error: BrokerError) -> EntryData:
    return EntryData(error_code=error.code, error_message=error.message, entity=entry.entity)


async def refuse(
    request: AlterClientQuotasRequest, error: BrokerError
) -> AlterClientQuotasResponse:
    """Returns the error for every entity."""
    return AlterClientQuotasResponse(
        entries=await listed(_failed(entry, error) for entry in request.entries)
    )
