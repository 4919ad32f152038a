"""AlterUserScramCredentials (key 51): change the SCRAM credentials of users (KIP-554).

v0 flexible.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bytes, Int8, Int16, Int32, Message, String, since


class ScramCredentialDeletion(Message):
    """A credential to remove."""

    name: String = since(0)
    mechanism: Int8 = since(0)


class ScramCredentialUpsertion(Message):
    """A credential to set; its salt and password are not shown."""

    name: String = since(0)
    mechanism: Int8 = since(0)
    iterations: Int32 = since(0)
    salt: Bytes = since(0)
    salted_password: Bytes = since(0)

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism})"


class AlterUserScramCredentialsRequest(Message):
    """Change these credentials."""

    deletions: list[ScramCredentialDeletion] = since(0)
    upsertions: list[ScramCredentialUpsertion] = since(0)


class AlterUserScramCredentialsResult(Message):
    """The result for one user."""

    user: String = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)


class AlterUserScramCredentialsResponse(Message):
    """The result for every user."""

    throttle_time_ms: Int32 = since(0)
    results: list[AlterUserScramCredentialsResult] = since(0)


API = Api(
    key=51,
    name="AlterUserScramCredentials",
    request=AlterUserScramCredentialsRequest,
    response=AlterUserScramCredentialsResponse,
    min_version=0,
    max_version=0,
    first_flexible=0,
    served=(0, 0),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
)
