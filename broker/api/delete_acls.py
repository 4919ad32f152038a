"""DeleteAcls (key 31): there is no authorizer whose rules could be removed (KIP-140).

Behaviour: SECURITY_DISABLED, which clients such as MirrorMaker handle as "no authorizer configured".

Version notes: 1 pattern types (KIP-290); 2 flexible; 3 is the same as 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidelog.broker.network.scheduler import listed
from tidelog.protocol.api.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from tidelog.protocol.errors import SecurityDisabled

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.delete_acls import DeleteAclsRequest
    from tidelog.protocol.errors import BrokerError


def handle(_services: Services, _request: DeleteAclsRequest, _context: Context) -> NoReturn:
    """Raises SecurityDisabled, because there are no rules."""
    raise SecurityDisabled("no authorizer is configured: everybody may do everything")


async def refuse(request: DeleteAclsRequest, error: BrokerError) -> DeleteAclsResponse:
    """Returns the error for every filter."""
    return DeleteAclsResponse(
        filter_results=await listed(
            DeleteAclsFilterResult(
                error_code=error.code, error_message=error.message, matching_acls=[]
            )
            for _ in request.filters
        )
    )
