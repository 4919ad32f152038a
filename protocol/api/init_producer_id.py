"""InitProducerId (key 22): a producer id and epoch for an idempotent producer (KIP-98).

v2 flexible; v3 a producer may ask for a new epoch of its id (KIP-360); v4 PRODUCER_FENCED may be
the error (KIP-588); v5 same bytes, new transaction rules (KIP-890).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, String, since


class InitProducerIdRequest(Message):
    """Ask for a producer id; the transactional id is null for idempotence alone."""

    transactional_id: String | None = since(0, default=None)
    transaction_timeout_ms: Int32 = since(0)
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)


class InitProducerIdResponse(Message):
    """The producer id and epoch for every batch."""

    throttle_time_ms: Int32 = since(0, ignorable=True)
    error_code: Int16 = since(0)
    producer_id: Int64 = since(0, default=-1)
    producer_epoch: Int16 = since(0)


API = Api(
    key=22,
    name="InitProducerId",
    request=InitProducerIdRequest,
    response=InitProducerIdResponse,
    min_version=0,
    max_version=5,
    first_flexible=2,
    served=(0, 5),
    needs=(
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(Operation.WRITE, ResourceType.TOPIC),
        Need(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, by_handler=True),
    ),
)
