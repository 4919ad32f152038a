"""DeleteTopics (key 20): topics go, with their records.

v1 throttle time; v3 its own error where deletion is switched off (KIP-322); v4 flexible; v5
error messages; v6 topics by id (KIP-516).
"""

from __future__ import annotations

from protocol.acl import Need, Operation, ResourceType
from protocol.schema import Api, Int16, Int32, Message, String, Uuid, since


class DeleteTopicState(Message):
    """One topic to delete, by name or, where the name is null, by id."""

    name: String | None = since(6, default=None)
    topic_id: Uuid = since(6)


class DeleteTopicsRequest(Message):
    """Delete these topics: names until v5, states from v6."""

    topics: list[DeleteTopicState] = since(6)
    topic_names: list[String] = since(0, until=5, ignorable=True)
    timeout_ms: Int32 = since(0)


class DeletableTopicResult(Message):
    """The outcome for one topic; the name stays null if the id is unknown."""

    name: String | None = since(0, nullable=6)
    topic_id: Uuid = since(6, ignorable=True)
    error_code: Int16 = since(0)
    error_message: String | None = since(5, default=None, ignorable=True)


class DeleteTopicsResponse(Message):
    """The outcome for every topic."""

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
)
