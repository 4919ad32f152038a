"""UnregisterBroker (key 64): remove a broker that is gone for good from the metadata (KIP-631).

Behaviour: removes the registration, the record of its offline logs, its entry in `cordoned.brokers`, and
its pending deletions of logs. A broker that is not registered is BROKER_ID_NOT_REGISTERED. Kafka also
unregisters a broker that runs, or still has replicas; here that is INVALID_REQUEST: stop the broker, and
move its replicas first (`tidelog broker remove`, kafka-reassign-partitions). If the broker starts again, it
registers again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.protocol.api.unregister_broker import UnregisterBrokerResponse

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.unregister_broker import UnregisterBrokerRequest
    from tidelog.protocol.errors import BrokerError


async def handle(
    services: Services, request: UnregisterBrokerRequest, _context: Context
) -> UnregisterBrokerResponse:
    """Unregisters the broker."""
    await services.topics.unregister_broker(request.broker_id)
    return UnregisterBrokerResponse()


def refuse(_request: UnregisterBrokerRequest, error: BrokerError) -> UnregisterBrokerResponse:
    """Returns the error, and its reason."""
    return UnregisterBrokerResponse(error_code=error.code, error_message=error.message)
