"""EndTxn (key 26): commit or abort a transaction (KIP-98).

v3 flexible; v4 same bytes, new error codes; v5 the epoch of the next transaction in the response
(KIP-890).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Bool, Int16, Int32, Int64, Message, String, since


class EndTxnRequest(Message):
    """End the open transaction."""

    transactional_id: String = since(0)
    producer_id: Int64 = since(0)
    producer_epoch: Int16 = since(0)
    committed: Bool = since(0)


class EndTxnResponse(Message):
    """The result; from v5 on also the producer id and epoch to continue with."""

    throttle_time_ms: Int32 = since(0)
    error_code: Int16 = since(0)
    producer_id: Int64 = since(5, default=-1, ignorable=True)
    producer_epoch: Int16 = since(5, default=-1, ignorable=True)


API = Api(
    key=26,
    name="EndTxn",
    request=EndTxnRequest,
    response=EndTxnResponse,
    min_version=0,
    max_version=5,
    first_flexible=3,
    served=(0, 5),
    needs=(Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID),),
)
