"""DescribeConfigs (key 32): settings of topics and brokers, and the source of each value.

Behaviour: resources are topics (type 2) and brokers (type 4: this one by its id, or "" for the
cluster's defaults); others are INVALID_REQUEST. A request without keys asks for all settings, each
under its own name; one with keys gets the entry of a second name too, under that name. Each resource
succeeds or fails on its own. What was changed while the brokers run holds for all of them: where there
are several, its source is their default.

Version notes: 1 source and synonyms instead of a default flag (KIP-226); 3 type and documentation
(KIP-569); 4 flexible.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from broker.metadata.names import check_topic_name
from broker.network.per_partition import per_partition
from broker.security.authorizer import CLUSTER_NAME
from config import BROKER_ALIASES, TOPIC_ALIASES, Source, broker_entries, topic_entries
from protocol.acl import Operation, ResourceType
from protocol.api.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.errors import InvalidRequest, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from broker.network.context import Context
    from broker.node import Node
    from broker.security.session import Session
    from config import Entry
    from protocol.api import alter_configs, incremental_alter_configs
    from protocol.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
    from protocol.errors import BrokerError

TOPIC = 2
BROKER = 4
_BROKER_LOGGER = 8


def handle(
    node: Node, request: DescribeConfigsRequest, context: Context
) -> DescribeConfigsResponse:
    """Describes each resource separately."""
    describe = partial(_describe, node, context.session, request)
    return DescribeConfigsResponse(
        results=per_partition(node, "describe_configs", request.resources, describe, _failed)
    )


def _describe(
    node: Node,
    session: Session,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
) -> DescribeConfigsResult:
    require_on(node, session, Operation.DESCRIBE_CONFIGS, resource)
    entries = _entries(node, resource)
    if resource.configuration_keys:
        aliases = TOPIC_ALIASES if resource.resource_type == TOPIC else BROKER_ALIASES
        entries = _asked(entries, resource.configuration_keys, aliases)
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_shown(entry, request) for entry in entries],
    )


def _asked(
    entries: Iterable[Entry], keys: Iterable[str], aliases: Mapping[str, str]
) -> list[Entry]:
    """Returns the entries that a client asks for, each under the name by which it asks."""
    names: dict[str, list[str]] = {}
    for key in dict.fromkeys(keys):
        names.setdefault(aliases.get(key, key), []).append(key)
    return [entry._replace(name=name) for entry in entries for name in names.get(entry.name, ())]


def _entries(node: Node, resource: DescribeConfigsResource) -> list[Entry]:
    """Returns every setting of the resource. Raises the error of an invalid or missing resource."""
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        topic = node.metadata.image.topics.get(name)
        if topic is None:
            check_topic_name(name)
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return topic_entries(
            node.config, node.settings.of_topic(topic.name, topic.configs), topic.configs
        )
    if resource.resource_type == BROKER:
        check_broker(node, name)
        entries = broker_entries(node.config)
        if name:
            return entries if node.cluster is None else [_renamed(entry) for entry in entries]
        return [_of_all(entry) for entry in entries if entry.source is Source.DYNAMIC_BROKER]
    raise no_such_resource(resource.resource_type)


def _of_all(entry: Entry) -> Entry:
    """Returns a live change as the default of all brokers, which it is, and no other value."""
    dynamic = (each for each in entry.synonyms if each.source is Source.DYNAMIC_BROKER)
    return _renamed(entry._replace(synonyms=tuple(dynamic)))


def _renamed(entry: Entry) -> Entry:
    """Returns an entry whose live change is named the default of all brokers, where it is one."""
    live, shared = Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER
    synonyms = tuple(
        each._replace(source=shared) if each.source is live else each for each in entry.synonyms
    )
    source = shared if entry.source is live else entry.source
    return entry._replace(source=source, synonyms=synonyms)


def no_such_resource(kind: int) -> InvalidRequest:
    """Returns the error for a resource that is neither a topic nor a broker."""
    if kind == _BROKER_LOGGER:
        return InvalidRequest("log levels are set when the broker starts, not by clients")
    return InvalidRequest(f"resources of type {kind} have no settings here")


def require_on(
    node: Node,
    session: Session,
    operation: Operation,
    resource: DescribeConfigsResource
    | incremental_alter_configs.AlterConfigsResource
    | alter_configs.AlterConfigsResource,
) -> None:
    """Raises TopicAuthorizationFailed or ClusterAuthorizationFailed if the right is missing."""
    if resource.resource_type == TOPIC:
        name = resource.resource_name
        node.authorizer.require(session, operation, ResourceType.TOPIC, name)
    else:
        node.authorizer.require(session, operation, ResourceType.CLUSTER, CLUSTER_NAME)


def check_broker(node: Node, name: str) -> None:
    """Raises InvalidRequest unless the name is this broker's, or "" for the cluster's defaults."""
    if name not in ("", str(node.config.node_id)):
        raise InvalidRequest(f"this is broker {node.config.node_id}, not {name!r}")


def check_of_all(node: Node, name: str, changes: Mapping[str, str | None]) -> None:
    """Checks that changes of settings, None for one that is removed, may be made under a name.

    What is changed while brokers run holds for all. Raises InvalidRequest for a change under the
    name of one of several brokers. Kafka's tools remove settings there that are not set: that is no
    change.
    """
    if not name or node.cluster is None:
        return
    now = node.metadata.image.broker_configs
    if any(now.get(setting) != value for setting, value in changes.items()):
        raise InvalidRequest(
            f"settings are changed for all brokers, not for broker {name} alone: name none"
        )


def _shown(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=entry.is_default,
        config_source=entry.source,
        is_sensitive=False,
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


def refuse(request: DescribeConfigsRequest, error: BrokerError) -> DescribeConfigsResponse:
    """Returns the error for every resource."""
    return DescribeConfigsResponse(
        results=[_failed(resource, error) for resource in request.resources]
    )
