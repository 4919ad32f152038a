"""IncrementalAlterConfigs (key 44): change settings of topics and of the broker, live (KIP-339).

Behaviour: SET, DELETE, and for lists APPEND and SUBTRACT. All changes of a resource take effect
together or not at all; each resource succeeds or fails on its own. A setting that can only be set
at start is INVALID_REQUEST; a wrong value is INVALID_CONFIG with the reason as a sentence.

Version notes: 1 flexible.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tidelog.broker.api.describe_configs import (
    BROKER,
    TOPIC,
    changes_of_one,
    check_broker,
    is_one_of_several,
    no_such_resource,
    require_on,
)
from tidelog.broker.metadata import own_configs
from tidelog.broker.metadata.names import check_topic_name
from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import listed
from tidelog.broker.settings import broker_changes, check_size, topic_changes
from tidelog.config import (
    BROKER_ALIASES,
    ONLY_AT_START,
    TOPIC_ALIASES,
    Type,
    broker_entries,
    topic_entries,
)
from tidelog.protocol.acl import Operation
from tidelog.protocol.api.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tidelog.protocol.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from tidelog.broker.api.services import Services
    from tidelog.broker.metadata.image import Topic
    from tidelog.broker.network.context import Context
    from tidelog.broker.security.session import Session
    from tidelog.config import ConfigEntry
    from tidelog.protocol.api import alter_configs
    from tidelog.protocol.api.incremental_alter_configs import (
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )
    from tidelog.protocol.errors import BrokerError

_Resource = TypeVar("_Resource", "AlterConfigsResource", "alter_configs.AlterConfigsResource")
_Response = TypeVar("_Response")

SET, DELETE, APPEND, SUBTRACT = range(4)


async def handle(
    services: Services, request: IncrementalAlterConfigsRequest, context: Context
) -> IncrementalAlterConfigsResponse:
    """Changes the settings of each resource separately."""
    alter = partial(_alter, validate_only=request.validate_only)
    api = "incremental_alter_configs"
    return IncrementalAlterConfigsResponse(
        responses=await altered(services, context.session, request.resources, alter, _response, api)
    )


async def altered(
    services: Services,
    session: Session,
    resources: Sequence[_Resource],
    alter: Callable[[Services, _Resource], Awaitable[None]],
    respond: Callable[[_Resource, BrokerError | None], _Response],
    api: str,
) -> list[_Response]:
    """Alters resources one after another, each on its own; returns the response to each."""
    times = Counter(await listed((each.resource_type, each.resource_name) for each in resources))

    async def alter_one(resource: _Resource) -> _Response:
        if times[resource.resource_type, resource.resource_name] > 1:
            raise InvalidRequest("the resource is named more than once")
        require_on(services, session, Operation.ALTER_CONFIGS, resource)
        check_size(resource.configs)
        await services.catch_up()
        await alter(services, resource)
        return respond(resource, None)

    return await per_partition_async(services, api, resources, alter_one, respond)


async def _alter(
    services: Services, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        topic = topic_to_alter(services, name)
        entries = topic_entries(
            services.config, services.settings.of_topic(topic.name, topic.configs), topic.configs
        )
        by_name = {entry.name: entry for entry in entries}
        changes = topic_changes(_changes(resource, by_name, TOPIC_ALIASES))
        await services.topics.alter(name, changes, validate_only=validate_only)
    elif resource.resource_type == BROKER:
        check_broker(services, name)
        by_name = {entry.name: entry for entry in broker_entries(services.config)}
        changes = broker_changes(_changes(resource, by_name, BROKER_ALIASES))
        check_changeable(services, changes)
        of_one = is_one_of_several(services, name)
        if of_one:
            changes = changes_of_one(services, name, changes)
        await services.topics.alter_broker(changes, of_one=of_one, validate_only=validate_only)
    else:
        raise no_such_resource(resource.resource_type)


def topic_to_alter(services: Services, name: str) -> Topic:
    """Returns a topic by its name. Raises InvalidRequest, InvalidTopic, UnknownTopicOrPartition."""
    if not name:
        raise InvalidRequest("topics have no defaults of their own: the broker's are of type 4")
    topic = services.metadata.image.topics.get(name)
    if topic is None:
        check_topic_name(name)
        raise UnknownTopicOrPartition(f"there is no topic {name}")
    return topic


def check_changeable(services: Services, changes: Mapping[str, str | None]) -> None:
    """Raises InvalidRequest for a broker setting that only holds from the start on.

    One that was changed all the same, by an earlier release, can be removed.
    """
    image = services.metadata.image
    now = image.broker_configs.keys() | own_configs.of(image, services.metadata.node_id).keys()
    for name, value in changes.items():
        if name in ONLY_AT_START and (value is not None or name not in now):
            raise InvalidRequest(f"{name} can only be set when the broker starts")


def _changes(
    resource: AlterConfigsResource, entries: Mapping[str, ConfigEntry], aliases: Mapping[str, str]
) -> dict[str, str | None]:
    """Returns the new value of each named setting; None restores its default."""
    changes: dict[str, str | None] = {}
    for config in resource.configs:
        name, operation, value = config.name, config.config_operation, config.value
        if name in changes:
            raise InvalidRequest(f"{name} is named more than once")
        if operation == DELETE:
            changes[name] = None
        elif value is None:
            raise InvalidRequest(f"{name} needs a value")
        elif operation == SET:
            changes[name] = value
        elif operation in (APPEND, SUBTRACT):
            entry = entries.get(aliases.get(name, name))
            if entry is None or entry.type is not Type.LIST:
                raise InvalidConfig(f"{name} is not a list: it can be set, not added to")
            changes[name] = _edited(entry.value, value, add=operation == APPEND)
        else:
            raise InvalidRequest(f"operation {operation} is not known")
    return changes


def _edited(current: str | None, given: str, *, add: bool) -> str:
    """Returns a list with members added or removed, in order."""
    members = [each for each in (current or "").split(",") if each]
    asked = [each.strip() for each in given.split(",")]
    if add:
        present = set(members)
        members += [each for each in asked if each not in present]
    else:
        gone = set(asked)
        members = [each for each in members if each not in gone]
    return ",".join(members)


def _response(
    resource: AlterConfigsResource, error: BrokerError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error else 0,
        error_message=error.message if error else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


async def refuse(
    request: IncrementalAlterConfigsRequest, error: BrokerError
) -> IncrementalAlterConfigsResponse:
    """Returns the error for every resource."""
    return IncrementalAlterConfigsResponse(
        responses=await listed(_response(resource, error) for resource in request.resources)
    )
