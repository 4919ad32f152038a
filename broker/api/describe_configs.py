"""DescribeConfigs (key 32): settings of topics and brokers, and the source of each value.

Behaviour: resources are topics (type 2) and brokers (type 4: this one by its id, or "" for the cluster's
defaults). Subscriptions to clients' metrics (type 16, KIP-714) have no settings, as in a Kafka in which
nobody has made any; others are INVALID_REQUEST. A request without keys asks for all settings, each under
its own name, and for broker.id; one with keys gets the entry of a second name too, under that name.
advertised.listeners are the effective addresses, also if the setting is not set, and http.listener has the
bound port, by which commands find it. A stored name that is no setting here has no value and is sensitive,
as in Kafka: it may be a secret. Each resource succeeds or fails on its own; one that is named more than once
has one result. Dynamic settings hold for all brokers: in a cluster their source is the default of all
brokers, and changes made at another broker are visible at once. Only the rates of throttled replication
(KIP-73) and the limits of connections can be changed for a single broker of a cluster.

Version notes: 1 source and synonyms instead of a default flag (KIP-226); 3 type and documentation
(KIP-569); 4 flexible.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidelog.broker.metadata import own_configs
from tidelog.broker.metadata.names import check_topic_name
from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import checkpoint, listed
from tidelog.broker.security.authorizer import CLUSTER_NAME
from tidelog.config import (
    BROKER_ALIASES,
    FOR_ONE_BROKER,
    TOPIC_ALIASES,
    ConfigSource,
    Listener,
    broker_entries,
    live_source,
    topic_entries,
    unused_entries,
)
from tidelog.config.broker.listeners import joined
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tidelog.protocol.errors import InvalidRequest, KafkaStorageError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tidelog.broker.api.services import Services
    from tidelog.broker.network.context import Context
    from tidelog.broker.security.session import Session
    from tidelog.config import ConfigEntry
    from tidelog.protocol.api import alter_configs, incremental_alter_configs
    from tidelog.protocol.api.describe_configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
    )
    from tidelog.protocol.errors import BrokerError

TOPIC = 2
BROKER = 4
_NODE_ID, _BROKER_ID = "node.id", "broker.id"
_ADVERTISED, _HTTP = "advertised.listeners", "http.listener"
_BROKER_LOGGER = 8
_CLIENT_METRICS = 16
_MOST_ENTRIES = 250_000  # of one answer: all settings of five thousand topics


async def handle(
    services: Services, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse:
    """Describes each resource separately, by the newest metadata."""
    # A broker that cannot reach the metadata store describes its last image.
    with contextlib.suppress(KafkaStorageError):
        await services.catch_up()
    return await _describe_all(services, request, context)


async def _describe_all(
    services: Services, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse:
    left = _MOST_ENTRIES

    async def describe(resource: DescribeConfigsResource) -> DescribeConfigsResult:
        nonlocal left
        if left <= 0:
            raise InvalidRequest(
                f"the answer has {_MOST_ENTRIES} settings already: ask for fewer resources at a time"
            )
        result = await _describe(services, context.session, request, resource)
        left -= len(result.configs)
        return result

    once: dict[tuple[int, str], DescribeConfigsResource] = {}
    for each in request.resources:
        once.setdefault((each.resource_type, each.resource_name), each)
        await checkpoint()
    return DescribeConfigsResponse(
        results=await per_partition_async(
            services, "describe_configs", once.values(), describe, _failed
        )
    )


async def _describe(
    services: Services,
    session: Session,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    require_on(services, session, Operation.DESCRIBE_CONFIGS, resource)
    entries = _entries(services, resource)
    if resource.configuration_keys:
        aliases = TOPIC_ALIASES if resource.resource_type == TOPIC else BROKER_ALIASES
        entries = await _asked(entries, resource.configuration_keys, aliases)
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_shown(entry, request) for entry in entries],
    )


async def _asked(
    entries: Iterable[ConfigEntry], keys: Iterable[str], aliases: Mapping[str, str]
) -> list[ConfigEntry]:
    """Returns the entries that a request names, each under the name in the request."""
    names: dict[str, list[str]] = {}
    for key in dict.fromkeys(keys):
        names.setdefault(aliases.get(key, key), []).append(key)
        await checkpoint()
    return [entry._replace(name=name) for entry in entries for name in names.get(entry.name, ())]


def _entries(services: Services, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    """Returns every setting of the resource. Raises the error of an invalid or missing resource."""
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        topic = services.metadata.image.topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return topic_entries(
            services.config, services.settings.of_topic(topic.name, topic.configs), topic.configs
        )
    if resource.resource_type == BROKER:
        check_broker(services, name)
        return _of_brokers(services, name)
    if resource.resource_type == _CLIENT_METRICS:
        if not name:
            raise InvalidRequest("Client metrics subscription name must not be empty")
        return []
    raise no_such_resource(resource.resource_type)


def _of_brokers(services: Services, name: str) -> list[ConfigEntry]:
    """Returns the settings of this broker by its name, or of all brokers, and unknown stored names."""
    image, entries = services.metadata.image, broker_entries(services.config)
    live = live_source(services.config)
    stored = image.broker_configs
    if name:
        own = own_configs.of(image, services.metadata.node_id)
        own_unused = unused_entries(own, entries, ConfigSource.DYNAMIC_BROKER)
        return [
            *_of_this_broker(services, entries),
            *own_unused,
            *unused_entries(stored.keys() - own.keys(), entries, live),
        ]
    of_all = (_of_all(entry, live) for entry in entries)
    unused = unused_entries(stored, entries, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    return [*(entry for entry in of_all if entry is not None), *unused]


def _of_this_broker(services: Services, entries: Iterable[ConfigEntry]) -> list[ConfigEntry]:
    """Returns entries with the effective advertised listeners, and with broker.id, as in Kafka."""
    actual = {
        _ADVERTISED: ",".join(
            str(Listener(each.name, *each.advertised)) for each in services.listeners
        )
    }
    if services.http is not None:
        actual[_HTTP] = joined(services.http.host, services.http.port)
    found = []
    for entry in entries:
        found.append(entry._replace(value=actual.get(entry.name, entry.value)))
        if entry.name == _NODE_ID:
            found.append(entry._replace(name=_BROKER_ID))
    return found


def _of_all(entry: ConfigEntry, live: ConfigSource) -> ConfigEntry | None:
    """Returns a live change as the default of all brokers, and no other value; None without one."""
    shared = ConfigSource.DYNAMIC_DEFAULT_BROKER
    synonyms = tuple(each._replace(source=shared) for each in entry.synonyms if each.source is live)
    if not synonyms:
        return None
    value = entry.value if entry.source is live else synonyms[0].value
    return entry._replace(value=value, source=shared, synonyms=synonyms)


def no_such_resource(kind: int) -> InvalidRequest:
    """Returns the error for a resource that is neither a topic nor a broker."""
    if kind == _BROKER_LOGGER:
        return InvalidRequest("log levels are set when the broker starts, not by clients")
    return InvalidRequest(f"resources of type {kind} have no settings here")


def require_on(
    services: Services,
    session: Session,
    operation: Operation,
    resource: DescribeConfigsResource
    | incremental_alter_configs.AlterConfigsResource
    | alter_configs.AlterConfigsResource,
) -> None:
    """Raises TopicAuthorizationFailed or ClusterAuthorizationFailed if the right is missing."""
    if resource.resource_type == TOPIC:
        name = resource.resource_name
        services.authorizer.require(session, operation, ResourceType.TOPIC, name)
    else:
        services.authorizer.require(session, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def check_broker(services: Services, name: str) -> None:
    """Raises InvalidRequest unless the name is this broker's, or "" for the cluster's defaults."""
    if name not in ("", str(services.config.cluster.node_id)):
        raise InvalidRequest(f"this is broker {services.config.cluster.node_id}, not {name!r}")


def is_one_of_several(services: Services, name: str) -> bool:
    """Returns whether a change under a name would be this broker's, and not that of all brokers.

    A change is that of all if the name is "", or no other broker is registered.
    """
    others = services.metadata.image.registrations.keys() - {services.metadata.node_id}
    return bool(name) and bool(others)


def changes_of_one(
    services: Services, name: str, changes: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Returns the changes of settings of one broker alone; None removes a setting.

    Only the rates of throttled replication and the limits of connections can be set for one broker; other
    dynamic settings hold for all. Raises InvalidRequest for another setting under the name of a broker of a
    cluster. Kafka's tools remove settings there that are not set: that is no change.
    """
    now = services.metadata.image.broker_configs
    for setting, value in changes.items():
        if setting not in FOR_ONE_BROKER and now.get(setting) != value:
            raise InvalidRequest(
                f"settings are changed for all brokers, not for broker {name} alone: name none"
            )
    return {setting: value for setting, value in changes.items() if setting in FOR_ONE_BROKER}


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.is_default,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in entry.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )


def _failed(resource: DescribeConfigsResource, error: BrokerError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )


async def refuse(request: DescribeConfigsRequest, error: BrokerError) -> DescribeConfigsResponse:
    """Returns the error for every resource."""
    return DescribeConfigsResponse(
        results=await listed(_failed(resource, error) for resource in request.resources)
    )
