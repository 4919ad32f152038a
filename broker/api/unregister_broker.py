"""UnregisterBroker (key 64): the metadata forget a broker that has left for good (KIP-631).

Behaviour: its registration goes, what it said of its disks, its place in `cordoned.brokers`, and
what it still had to delete. A broker that is not registered is BROKER_ID_NOT_REGISTERED. Kafka
forgets also a broker that runs, or still has replicas; here that is INVALID_REQUEST: the one has to
be stopped, and the replicas have to be moved (`tidelog broker remove`, kafka-reassign-partitions).
If the broker starts again, it registers again.
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
