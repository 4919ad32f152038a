"""DescribeAcls (key 29): there is no authorizer whose rules could be shown (KIP-140).

Behaviour: SECURITY_DISABLED, which clients such as MirrorMaker handle as "no authorizer configured".

Version notes: 1 pattern types (KIP-290); 2 flexible; 3 is the same as 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidelog.protocol.api.describe_acls import DescribeAclsResponse
from tidelog.protocol.errors import SecurityDisabled

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.describe_acls import DescribeAclsRequest
    from tidelog.protocol.errors import BrokerError


def handle(_services: Services, _request: DescribeAclsRequest, _context: Context) -> NoReturn:
    """Raises SecurityDisabled, because there are no rules."""
    raise SecurityDisabled("no authorizer is configured: everybody may do everything")


def refuse(_request: DescribeAclsRequest, error: BrokerError) -> DescribeAclsResponse:
    """Returns the error."""
    return DescribeAclsResponse(error_code=error.code, error_message=error.message, resources=[])
