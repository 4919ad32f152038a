"""SaslAuthenticate (key 36): there is no SASL exchange on a PLAINTEXT listener (KIP-152).

Behaviour: ILLEGAL_SASL_STATE with a sentence, as Kafka answers on such a listener. What the client
sent is neither read nor shown. The connection stays open.

Version notes: 1 the lifetime of the session, which is 0 here; 2 flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidelog.protocol.api.sasl_authenticate import SaslAuthenticateResponse
from tidelog.protocol.errors import IllegalSaslState

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.sasl_authenticate import SaslAuthenticateRequest
    from tidelog.protocol.errors import BrokerError


def handle(_services: Services, _request: SaslAuthenticateRequest, _context: Context) -> NoReturn:
    """Raises IllegalSaslState, because the listener has no SASL."""
    raise IllegalSaslState("this listener is PLAINTEXT: there is nothing to authenticate")


def refuse(_request: SaslAuthenticateRequest, error: BrokerError) -> SaslAuthenticateResponse:
    """Returns the error, its sentence and no message of a mechanism."""
    return SaslAuthenticateResponse(
        error_code=error.code, error_message=error.message, auth_bytes=b""
    )
