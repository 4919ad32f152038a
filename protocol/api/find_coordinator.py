"""FindCoordinator (key 10): the broker that coordinates a group or a transaction.

v1 key types (group 0, transaction 1) and error messages; v2 throttle quota rules; v3 flexible; v4
many keys in one request (KIP-699); v5, v6 same bytes, new error codes and share groups (KIP-890,
KIP-932).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int8, Int16, Int32, Message, String, since


class FindCoordinatorRequest(Message):
    """Ask who coordinates one key (to v3) or several (from v4)."""

    key: String = since(0, until=3)
    key_type: Int8 = since(1)
    coordinator_keys: list[String] = since(4)


class Coordinator(Message):
    """The coordinator of one key, or the error."""

    key: String = since(4)
    node_id: Int32 = since(4)
    host: String = since(4)
    port: Int32 = since(4)
    error_code: Int16 = since(4)
    error_message: String | None = since(4, default=None, ignorable=True)


class FindCoordinatorResponse(Message):
    """One coordinator (to v3), or one for each key (from v4).

    A handler may fill the fields of old versions beside the list: new versions drop them.
    """

    throttle_time_ms: Int32 = since(1, ignorable=True)
    error_code: Int16 = since(0, until=3, ignorable=True)
    error_message: String | None = since(1, until=3, default=None, ignorable=True)
    node_id: Int32 = since(0, until=3, ignorable=True)
    host: String = since(0, until=3, ignorable=True)
    port: Int32 = since(0, until=3, ignorable=True)
    coordinators: list[Coordinator] = since(4)


API = Api(
    key=10,
    name="FindCoordinator",
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
    min_version=0,
    max_version=6,
    first_flexible=3,
    served=(0, 6),
    needs=(
        Need(Operation.DESCRIBE, ResourceType.GROUP),
        Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    ),
)
