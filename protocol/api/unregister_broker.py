"""UnregisterBroker (key 64): forget a broker that is gone for good (KIP-631).

Flexible in its only version.
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Message, String, since


class UnregisterBrokerRequest(Message):
    """Forget this broker."""

    broker_id: Int32 = since(0)


class UnregisterBrokerResponse(Message):
    """Whether it is forgotten."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)
    error_message: String | None = since(0, default=None)


API = Api(
    key=64,
    name="UnregisterBroker",
    request=UnregisterBrokerRequest,
    response=UnregisterBrokerResponse,
    min_version=0,
    max_version=0,
    first_flexible=0,
    served=(0, 0),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
)
