"""AlterConfigs (key 33): replace all of a topic's, or the broker's, own settings (KIP-133).

Behaviour: settings that are named are set, the others return to their defaults, all together or not
at all. Each resource succeeds or fails on its own. Clients that know IncrementalAlterConfigs use
that instead, because here a client that forgets a setting removes it. The settings that can be
changed, and the errors, are the same as there; a null value is INVALID_REQUEST. One setting is not
removed when it is not named: retention.time.basis=append, which event-time retention sets
permanently. A client that never set it cannot name it, and without it old data would be deleted.

Version notes: 1 is the same as 0; 2 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.api.describe_configs import (
    BROKER,
    TOPIC,
    changes_of_one,
    check_broker,
    is_one_of_several,
    no_such_resource,
)
from tidelog.broker.api.incremental_alter_configs import altered, check_changeable, topic_to_alter
from tidelog.broker.network.scheduler import listed
from tidelog.broker.settings import (
    BASIS,
    BROKER_BASIS,
    IMPLIED_BASIS,
    IMPLIED_BROKER_BASIS,
    broker_changes,
    topic_changes,
)
from tidelog.protocol.api.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse
from tidelog.protocol.errors import InvalidRequest
from tidelog.storage.time.retention import APPEND_BASIS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.alter_configs import AlterConfigsRequest, AlterConfigsResource
    from tidelog.protocol.errors import BrokerError

_BASES = (BASIS, IMPLIED_BASIS, BROKER_BASIS, IMPLIED_BROKER_BASIS)


async def handle(
    services: Services, request: AlterConfigsRequest, context: Context
) -> AlterConfigsResponse:
    """Replaces the settings of each resource separately."""
    replace = partial(_replace, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=await altered(
            services, context.session, request.resources, replace, _response, "alter_configs"
        )
    )


async def _replace(
    services: Services, resource: AlterConfigsResource, *, validate_only: bool
) -> None:
    name, image = resource.resource_name, services.metadata.image
    if resource.resource_type == TOPIC:
        current = topic_to_alter(services, name).configs
        changes = _complete(topic_changes(_named(resource)), current)
        await services.topics.alter(name, changes, validate_only=validate_only)
    elif resource.resource_type == BROKER:
        check_broker(services, name)
        of_one = is_one_of_several(services, name)
        own = image.own_configs.get(services.metadata.node_id, {})
        changes = _complete(
            broker_changes(_named(resource)), own if of_one else image.broker_configs
        )
        check_changeable(services, changes)
        if of_one:
            changes = changes_of_one(services, name, changes)
        await services.topics.alter_broker(changes, of_one=of_one, validate_only=validate_only)
    else:
        raise no_such_resource(resource.resource_type)


def _named(resource: AlterConfigsResource) -> dict[str, str]:
    """Returns the settings that a request names. Raises InvalidRequest."""
    changes: dict[str, str] = {}
    for config in resource.configs:
        if config.name in changes:
            raise InvalidRequest(f"{config.name} is named more than once")
        if config.value is None:
            raise InvalidRequest(f"{config.name} needs a value")
        changes[config.name] = config.value
    return changes


def _complete(changes: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the new value of each setting; None restores the default of one that is not named."""
    forgotten = {name for name in current if name not in changes} - _permanent_settings(current)
    return {**dict.fromkeys(forgotten), **changes}


def _permanent_settings(current: Mapping[str, str]) -> set[str]:
    """Returns the settings that are removed only if a request names them."""
    return {name for name in _BASES if current.get(name) == APPEND_BASIS}


def _response(
    resource: AlterConfigsResource, error: BrokerError | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error else 0,
        error_message=error.message if error else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


async def refuse(request: AlterConfigsRequest, error: BrokerError) -> AlterConfigsResponse:
    """Returns the error for every resource."""
    return AlterConfigsResponse(
        responses=await listed(_response(resource, error) for resource in request.resources)
    )
