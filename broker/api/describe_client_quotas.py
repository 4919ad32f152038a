"""DescribeClientQuotas (key 48): the quotas of users, client ids and addresses (KIP-546).

Behaviour: the entities that have a part for each component of the filter: with that name, the default,
or either of them. A strict filter leaves out those that have other parts too. A filter is INVALID_REQUEST
if it names a type of entity twice, or none, or an address together with a user or a client, or if its
match does not fit its type. An unknown type of entity is UNSUPPORTED_VERSION.

Version notes: 1 flexible.
"""

from __future__ import annotations

import contextlib
from ipaddress import ip_address
from typing import TYPE_CHECKING

from tidelog.broker.network.scheduler import listed
from tidelog.broker.quotas.entity import IP, KINDS
from tidelog.protocol.api.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from tidelog.protocol.errors import InvalidRequest, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.describe_client_quotas import (
        ComponentData,
        DescribeClientQuotasRequest,
    )
    from tidelog.protocol.errors import BrokerError

_EXACT, _DEFAULT, _ANY = range(3)


async def handle(
    services: Services, request: DescribeClientQuotasRequest, _context: Context
) -> DescribeClientQuotasResponse:
    """Returns the quotas that match every component, if the filter is valid."""
    kinds = [component.entity_type for component in request.components]
    for component in request.components:
        _check(component)
    if len(set(kinds)) < len(kinds):
        raise InvalidRequest("a kind of entity is named more than once")
    if IP in kinds and len(kinds) > 1:
        raise InvalidRequest("an address cannot be combined with a user or a client")
    return DescribeClientQuotasResponse(
        entries=await listed(
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in await listed(
                services.metadata.image.quotas.items(),
                lambda each: _matches(request, dict(each[0])),
            )
        )
    )


def _matches(request: DescribeClientQuotasRequest, entity: Mapping[str, str | None]) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    return all(
        component.entity_type in entity
        and (component.match_type == _ANY or entity[component.entity_type] == _name(component))
        for component in request.components
    )


def _name(component: ComponentData) -> str | None:
    """Returns the name of an entity that a component matches, addresses as they are stored."""
    if component.entity_type == IP and component.match is not None:
        with contextlib.suppress(ValueError):
            return str(ip_address(component.match))
    return component.match


def _check(component: ComponentData) -> None:
    kind, match, how = component.entity_type, component.match, component.match_type
    if not kind:
        raise InvalidRequest("a kind of entity is empty")
    if kind not in KINDS:
        raise UnsupportedVersion(f"there are no quotas for entities of the kind {kind!r}")
    if how not in (_EXACT, _DEFAULT, _ANY):
        raise InvalidRequest(f"there is no match of type {how}")
    if (match is not None) != (how == _EXACT):
        raise InvalidRequest("a name belongs to an exact match, and only there")


def refuse(
    _request: DescribeClientQuotasRequest, error: BrokerError
) -> DescribeClientQuotasResponse:
    """Returns the error at the top."""
    return DescribeClientQuotasResponse(
        error_code=error.code, error_message=error.message, entries=None
    )
