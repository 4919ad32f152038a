"""SaslAuthenticate (key 36): one message of a SASL exchange, and its answer (KIP-152).

v1: the answer says how long the session lasts (KIP-368). Flexible from v2. On a listener without
SASL the broker answers ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from tidelog.protocol.schema import Api, Bytes, Int16, Int64, Message, String, since


class SaslAuthenticateRequest(Message):
    """A message of the client, in the form of the mechanism; it is not shown: it may be secret."""

    auth_bytes: Bytes = since(0)

    def __repr__(self) -> str:
        return "SaslAuthenticateRequest(auth_bytes=hidden)"


class SaslAuthenticateResponse(Message):
    """The message of the broker; `session_lifetime_ms` is 0 if the session does not end."""

    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)
    auth_bytes: Bytes = since(0)
    session_lifetime_ms: Int64 = since(1, ignorable=True)


API = Api(
    key=36,
    name="SaslAuthenticate",
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
    min_version=0,
    max_version=2,
    first_flexible=2,
    served=(0, 2),
    needs=(),
    request_bytes=64 << 10,
)
