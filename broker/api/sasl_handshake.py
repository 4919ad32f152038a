"""SaslHandshake (key 17): there is no SASL on a PLAINTEXT listener (KIP-43).

Behaviour: ILLEGAL_SASL_STATE and no mechanisms, as Kafka answers on such a listener. The connection
stays open. ApiVersions lists the API: clients such as kafka-python treat a broker without it as older
than 0.10.

Version notes: 1 is the same here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tidelog.protocol.api.sasl_handshake import SaslHandshakeResponse
from tidelog.protocol.errors import IllegalSaslState

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.sasl_handshake import SaslHandshakeRequest
    from tidelog.protocol.errors import BrokerError


def handle(_services: Services, _request: SaslHandshakeRequest, _context: Context) -> NoReturn:
    """Raises IllegalSaslState, because the listener has no SASL."""
    raise IllegalSaslState("this listener is PLAINTEXT: there is nothing to authenticate")


def refuse(_request: SaslHandshakeRequest, error: BrokerError) -> SaslHandshakeResponse:
    """Returns the error and no mechanisms."""
    return SaslHandshakeResponse(error_code=error.code, mechanisms=[])
