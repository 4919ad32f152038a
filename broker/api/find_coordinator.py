"""FindCoordinator (key 10): the coordinator of a group or a transaction.

Behaviour: the leader of the group's partition of __consumer_offsets coordinates the group, and that
of the transactional id's partition of __transaction_state its transactions. The response has its
address for the listener that received the request. While no broker leads the partition, or the
leader has no such listener, the error is COORDINATOR_NOT_AVAILABLE. If there is no such topic yet,
this request creates it, as in Kafka.

Version notes: 0 groups only; 1 key type, error message, throttle time; 3 flexible; 4 several keys
in one request; 6 share groups, which are INVALID_REQUEST, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.per_partition import per_partition
from tidelog.broker.network.scheduler import listed
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.protocol.errors import InvalidRequest
from tidelog.protocol.group_errors import CoordinatorNotAvailable

if TYPE_CHECKING:
    from tidelog.broker.api.services import Services
    from tidelog.broker.coordinators.internal_topic import InternalTopic
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.find_coordinator import FindCoordinatorRequest
    from tidelog.protocol.errors import BrokerError

_GROUP, _TRANSACTION = 0, 1
_NOT_SERVED = "keys of this type are not served by this broker"
_SEVERAL_KEYS_SINCE = 4
_NO_ERROR = "NONE"  # Kafka's message if there is no error


async def handle(
    services: Services, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    """Returns the coordinators; later, if a topic has to be created."""
    if context.version > 0 and request.key_type != _GROUP:
        if request.key_type != _TRANSACTION:
            return await refuse(request, InvalidRequest(_NOT_SERVED))
        topic = services.transactions.runtime.topic
    else:
        topic = services.coordinator.runtime.topic
    if topic.is_missing:
        await topic.create()
    return await _found(services, topic, request, context)


async def _found(
    services: Services, topic: InternalTopic, request: FindCoordinatorRequest, context: Context
) -> FindCoordinatorResponse:
    is_group = context.version == 0 or request.key_type == _GROUP
    resource = ResourceType.GROUP if is_group else ResourceType.TRANSACTIONAL_ID

    def find(key: str) -> Coordinator:
        services.authorizer.require(context.session, Operation.DESCRIBE, resource, key)
        node_id, host, port = _coordinator_of(services, topic, key, context)
        return Coordinator(key=key, node_id=node_id, host=host, port=port)

    if context.version < _SEVERAL_KEYS_SINCE:
        found = find(request.key)
        text = _NO_ERROR if context.version > 0 else None
        return FindCoordinatorResponse(
            node_id=found.node_id, host=found.host, port=found.port, error_message=text
        )
    return FindCoordinatorResponse(
        coordinators=await per_partition(
            services, "find_coordinator", request.coordinator_keys, find, _none_for_key
        )
    )


def _coordinator_of(
    services: Services, topic: InternalTopic, key: str, context: Context
) -> tuple[int, str, int]:
    """Returns the broker that coordinates a key, and its address. Raises CoordinatorNotAvailable."""
    listener = context.connection.listener
    broker = topic.leader_of(key)
    live = services.metadata.image.brokers.get(broker)
    for endpoint in () if live is None else live.record.endpoints:
        if endpoint.listener == listener.name:
            return broker, endpoint.host, endpoint.port
    raise CoordinatorNotAvailable(f"broker {broker}, the coordinator of {key}, is not there")


def _none(error: BrokerError) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=error.code, error_message=error.message, node_id=-1, host="", port=-1
    )


def _none_for_key(key: str, error: BrokerError) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=-1,
        host="",
        port=-1,
        error_code=error.code,
        error_message=error.message,
    )


async def refuse(request: FindCoordinatorRequest, error: BrokerError) -> FindCoordinatorResponse:
    """Returns no coordinator, for the key or for every key."""
    if not request.coordinator_keys:
        return _none(error)
    return FindCoordinatorResponse(
        coordinators=await listed(_none_for_key(key, error) for key in request.coordinator_keys)
    )
