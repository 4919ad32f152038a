"""ListGroups (key 16): the consumer groups of this broker.

Behaviour: there are none. Clients from before ApiVersions ask it to tell a 0.9 broker from older ones.

Version notes: 1 throttle time; 3 flexible; 4 states filter; 5 types filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.api.list_groups import ListGroupsResponse

if TYPE_CHECKING:
    from broker.context import Context
    from broker.node import Node
    from protocol.api.list_groups import ListGroupsRequest
    from protocol.errors import BrokerError


def handle(_node: Node, _request: ListGroupsRequest, _context: Context) -> ListGroupsResponse:
    """No groups."""
    return ListGroupsResponse(groups=[])


def refuse(_request: ListGroupsRequest, error: BrokerError) -> ListGroupsResponse:
    """The error."""
    return ListGroupsResponse(error_code=error.code, groups=[])
