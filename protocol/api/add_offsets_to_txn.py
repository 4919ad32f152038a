"""AddOffsetsToTxn (key 25): add a group's offsets to a transaction before they are committed (KIP-98).

v2 PRODUCER_FENCED may be the error (KIP-588); v3 flexible; v4 same bytes, new error codes (KIP-890).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Int64, Message, String, since


class AddOffsetsToTxnRequest(Message):
    """Add the partition of __consumer_offsets that keeps a group to the transaction."""

    transactional_id: String = since(0)
    producer_id: Int64 = since(0)
    producer_epoch: Int16 = since(0)
    group_id: String = since(0)


class AddOffsetsToTxnResponse(Message):
    """The result."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)


API = Api(
    key=25,
    name="AddOffsetsToTxn",
    request=AddOffsetsToTxnRequest,
    response=AddOffsetsToTxnResponse,
    min_version=0,
    max_version=4,
    first_flexible=3,
    served=(0, 4),
    needs=(
        Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),
        Need(Operation.READ, ResourceType.GROUP),
    ),
)
