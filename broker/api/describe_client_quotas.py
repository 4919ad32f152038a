"""DescribeClientQuotas (key 48): no client has a quota (KIP-546).

Behaviour: an empty list for every valid filter. A filter is INVALID_REQUEST if it names a type of
entity twice, or none, or an address together with a user or a client, or if its match does not fit
its type. An unknown type of entity is UNSUPPORTED_VERSION.

Version notes: 1 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.api.describe_client_quotas import DescribeClientQuotasResponse
from protocol.errors import InvalidRequest, UnsupportedVersion

if TYPE_CHECKING:
    from broker.network.context import Context
    from broker.node import Node
    from protocol.api.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
    from protocol.errors import BrokerError

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_EXACT, _DEFAULT, _ANY = range(3)


def handle(
    _node: Node, request: DescribeClientQuotasRequest, _context: Context
) -> DescribeClientQuotasResponse:
    """Returns no quotas, if the filter is valid."""
    kinds = [component.entity_type for component in request.components]
    for component in request.components:
        _check(component)
    if len(set(kinds)) < len(kinds):
        raise InvalidRequest("a kind of entity is named more than once")
    if _IP in kinds and len(kinds) > 1:
        raise InvalidRequest("an address cannot be combined with a user or a client")
    return DescribeClientQuotasResponse(entries=[])


def _check(component: ComponentData) -> None:
    kind, match, how = component.entity_type, component.match, component.match_type
    if not kind:
        raise InvalidRequest("a kind of entity is empty")
    if kind not in (_USER, _CLIENT_ID, _IP):
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
