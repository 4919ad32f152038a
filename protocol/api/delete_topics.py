"""DeleteTopics (key 20): delete topics with their records.

v1 throttle time; v3 an error of its own if deletion is disabled (KIP-322); v4 flexible; v5 error
messages; v6 topics by id (KIP-516).
"""

from __future__ import annotations

from tidelog.protocol.acl import Need, Operation, ResourceType
from tidelog.protocol.schema import Api, Int16, Int32, Message, String, Uuid, since


class DeleteTopicState(Message):
    """One topic to delete: by name or, if the name is null, by id."""

    name: String | None = since(6, default=None)
    topic_id: Uuid = since(6)


class DeleteTopicsRequest(Message):
    """Delete these topics: names until v5, states from v6."""

    topics: list[DeleteTopicState] = since(6)
    topic_names: list[String] = since(0, until=5, ignorable=True)
    timeout_ms: Int32 = since(0)


class DeletableTopicResult(Message):
    """The result for one topic; the name is null if the id is unknown."""

    name: String | None = since(0, nullable=6)
    topic_id: Uuid = since(6, ignorable=True)
    error_code: Int16 = since(0)
    error_message: String | None = since(5, default=None, ignorable=True)


class DeleteTopicsResponse(Message):
    """The result for every topic."""

    throttle_time_ms: Int32 = since(1, ignorable=True)
    responses: list[DeletableTopicResult] = since(0)


API = Api(
    key=20,
    name="DeleteTopics",
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    min_version=0,
    max_version=6,
    first_flexible=4,
    served=(0, 6),
    needs=(
        Need(Operation.DESCRIBE, ResourceType.TOPIC),
        Need(Operation.DELETE, ResourceType.TOPIC),
        Need(Operation.DELETE, ResourceType.CLUSTER, by_handler=True),
    ),
    request_bytes=4 << 20,
)
