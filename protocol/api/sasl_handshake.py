"""SaslHandshake (key 17): a client chooses the SASL mechanism of a connection (KIP-43, KIP-152).

v1: the exchange follows in SaslAuthenticate requests; in v0 it follows as bare tokens. Never
flexible. On a listener without SASL the broker answers ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from tidelog.protocol.schema import Api, Int16, Message, String, since


class SaslHandshakeRequest(Message):
    """The mechanism that the client wants, for example SCRAM-SHA-256."""

    mechanism: String = since(0)


class SaslHandshakeResponse(Message):
    """UNSUPPORTED_SASL_MECHANISM or no error, and the mechanisms of this listener."""

    error_code: Int16 = since(0)
    mechanisms: list[String] = since(0)


API = Api(
    key=17,
    name="SaslHandshake",
    request=SaslHandshakeRequest,
    response=SaslHandshakeResponse,
    min_version=0,
    max_version=1,
    first_flexible=None,
    served=(0, 1),
    needs=(),
    request_bytes=64 << 10,
)
