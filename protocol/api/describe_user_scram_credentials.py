"""DescribeUserScramCredentials (key 50): how users' SCRAM credentials were derived (KIP-554).

v0 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int8, Int16, Int32, Message, String, since


class UserName(Message):
    """One requested user."""

    name: String = since(0)


class DescribeUserScramCredentialsRequest(Message):
    """Ask for the credentials of these users; a null or empty list means all."""

    users: list[UserName] | None = since(0)


class CredentialInfo(Message):
    """The mechanism and the iterations of one credential."""

    mechanism: Int8 = since(0)
    iterations: Int32 = since(0)


class DescribeUserScramCredentialsResult(Message):
    """The credentials of one user."""

    user: String = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    credential_infos: list[CredentialInfo] = since(0)


class DescribeUserScramCredentialsResponse(Message):
    """The credentials by user, and the error of the whole request."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    results: list[DescribeUserScramCredentialsResult] = since(0)


API = Api(
    key=50,
    name="DescribeUserScramCredentials",
    request=DescribeUserScramCredentialsRequest,
    response=DescribeUserScramCredentialsResponse,
    min_version=0,
    max_version=0,
    first_flexible=0,
    served=(0, 0),
    needs=(Need(Operation.DESCRIBE, ResourceType.CLUSTER),),
)
