"""AlterUserScramCredentials (key 51): this broker stores no credentials (KIP-554).

Behaviour: each user has one result. A removal is RESOURCE_NOT_FOUND, because no user has credentials, also
if the request sets another one; a user whose credential is set twice is DUPLICATE_RESOURCE: both as in
Kafka. To set a credential is SECURITY_DISABLED, because there is no SASL that would use it.

Version notes: 0 flexible.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from tidelog.protocol.errors import DuplicateResource, ResourceNotFound, SecurityDisabled

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.alter_user_scram_credentials import AlterUserScramCredentialsRequest
    from tidelog.protocol.errors import BrokerError


def handle(
    _services: Services, request: AlterUserScramCredentialsRequest, _context: Context
) -> AlterUserScramCredentialsResponse:
    """Refuses every change."""
    removed = {each.name for each in request.deletions}
    times = Counter((each.name, each.mechanism) for each in request.upsertions)
    twice = {name for (name, _), count in times.items() if count > 1}

    def error(user: str) -> BrokerError:
        if user in removed:
            return ResourceNotFound(f"there are no credentials of a user {user!r}")
        if user in twice:
            return DuplicateResource(f"a credential of the user {user!r} is named more than once")
        return SecurityDisabled("this broker stores no credentials: it has no SASL")

    return AlterUserScramCredentialsResponse(
        results=[_failed(user, error(user)) for user in _users(request)]
    )


def _users(request: AlterUserScramCredentialsRequest) -> list[str]:
    """Returns every user once, in the order of the request."""
    named = [*(each.name for each in request.deletions), *(e.name for e in request.upsertions)]
    return list(dict.fromkeys(named))


def _failed(user: str, error: BrokerError) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=user, error_code=error.code, error_message=error.message
    )


def refuse(
    request: AlterUserScramCredentialsRequest, error: BrokerError
) -> AlterUserScramCredentialsResponse:
    """Returns the error for every user."""
    return AlterUserScramCredentialsResponse(
        results=[_failed(user, error) for user in _users(request)]
    )
