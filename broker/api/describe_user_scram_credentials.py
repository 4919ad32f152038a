"""DescribeUserScramCredentials (key 50): no user has credentials here (KIP-554).

Behaviour: a request for all users returns none. A named user is RESOURCE_NOT_FOUND; one that is
named twice is DUPLICATE_RESOURCE, in one result.

Version notes: 0 flexible.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from tidelog.protocol.errors import DuplicateResource, ResourceNotFound

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
    )
    from tidelog.protocol.errors import BrokerError


def handle(
    _services: Services, request: DescribeUserScramCredentialsRequest, _context: Context
) -> DescribeUserScramCredentialsResponse:
    """Returns no credentials, and an error for each named user."""
    asked = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message="",  # other APIs leave it null; this is as in Kafka
        results=[_not_found(user, times) for user, times in asked.items()],
    )


def _not_found(user: str, times: int) -> DescribeUserScramCredentialsResult:
    error: BrokerError = ResourceNotFound(f"there are no credentials of a user {user!r}")
    if times > 1:
        error = DuplicateResource(f"the user {user!r} is named more than once")
    return DescribeUserScramCredentialsResult(
        user=user, error_code=error.code, error_message=error.message, credential_infos=[]
    )


def refuse(
    _request: DescribeUserScramCredentialsRequest, error: BrokerError
) -> DescribeUserScramCredentialsResponse:
    """Returns the error at the top."""
    return DescribeUserScramCredentialsResponse(
        error_code=error.code, error_message=error.message, results=[]
    )
