"""Metadata (key 3): brokers, topics, partitions and their leaders.

Behaviour: no list (v0: an empty one) asks for every topic, an empty list (v1+) for none. A topic
that does not exist is created if the request allows it (always before v4) and
auto.create.topics.enable is on (broker/controller/topics/auto_creation.py); the response describes it as
existing. The address is the advertised address of the listener that received the request. Of several
brokers those are listed that are not fenced. A partition whose leader is not among them is
LEADER_NOT_AVAILABLE; replicas that are not are offline. A broker of which the client's listener is
missing is LISTENER_NOT_FOUND as a leader. In version 0 replicas that are not listed are left out,
with REPLICA_NOT_AVAILABLE.

Version notes: 1 null for all topics, controller, internal flag; 2 cluster id; 4 auto creation may
be refused; 5 offline replicas; 7 leader epochs; 8 authorized operations (all, if the client asks);
9 flexible; 10 topic ids; 11 no cluster operations; 12 lookup by topic id; 13 top-level error.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tidelog.broker.controller.topics import auto_creation
from tidelog.broker.metadata.brokers.visible import visible_brokers, visible_partition
from tidelog.broker.metadata.names import check_topic_name
from tidelog.broker.network.answers import Encoded
from tidelog.broker.network.encoded import encode_in_steps
from tidelog.broker.network.listed_brokers import listed_brokers
from tidelog.broker.network.per_partition import per_partition_async
from tidelog.broker.network.scheduler import checkpoint, listed
from tidelog.broker.security.authorizer import CLUSTER_NAME, NOT_ASKED, OpenAuthorizer
from tidelog.broker.settings import is_internal
from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.errors import (
    ErrorCode,
    InvalidRequest,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tidelog.protocol.message import codec

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from tidelog.broker.api.services import Services
    from tidelog.broker.metadata.brokers.visible import VisibleBroker
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.network.answers import Pending
    from tidelog.broker.network.context import Context
    from tidelog.protocol.api.metadata import MetadataRequest, MetadataRequestTopic
    from tidelog.protocol.errors import BrokerError

Answer = MetadataResponse | Encoded
_ALL_REPLICAS_SINCE = 1
_AUTO_CREATE_FLAG_SINCE = 4
_LISTENER_NOT_FOUND_SINCE = 6
_BY_ID_SINCE = 12


async def handle(
    services: Services, request: MetadataRequest, context: Context
) -> Answer | Pending:
    """Describes the cluster and the requested topics, once the leader epochs are known.

    A partition whose leader has just died is described when it has a new leader.
    """
    if _asks_for_all(request, context.version):
        cached = _cached_answer(services, request, context)
        if cached is not None:
            return cached
    pending_elections = services.replicas.pending_elections
    topics = partial(_existing_topics, services, request, context.version)
    if pending_elections.is_near(topics()):
        await pending_elections.elected(topics)
        return await _answer(services, request, context)
    unread = await listed(
        name
        for topic in topics()
        for name in services.replicas.unread_epochs(topic, range(topic.partitions))
    )
    if unread:
        await services.pools.reads.run(services.store.read_leader_epochs, unread)
    return await _answer(services, request, context)


def _existing_topics(services: Services, request: MetadataRequest, version: int) -> Iterable[Topic]:
    """Returns the requested topics that exist."""
    image = services.metadata.image
    if _asks_for_all(request, version):
        return image.topics.values()
    found = (
        image.topics_by_id.get(topic.topic_id)
        if topic.name is None
        else image.topics.get(topic.name)
        for topic in request.topics or ()
    )
    return (topic for topic in found if topic is not None)


async def _answer(services: Services, request: MetadataRequest, context: Context) -> Answer:
    image = services.metadata.image
    if _asks_for_all(request, context.version):
        return await _answer_all(services, request, context)
    wanted = await _without_duplicates(request.topics or [])
    asked = context.version < _AUTO_CREATE_FLAG_SINCE or request.allow_auto_topic_creation
    if auto_creation.is_allowed(services.config, request_allows=asked) and any(
        await listed(topic.name is not None and topic.name not in image.topics for topic in wanted)
    ):
        return await _create_and_answer(services, request, wanted, context)
    failed = partial(_failed, context.version)
    topics = await per_partition_async(
        services, "metadata", wanted, partial(_one, services, context), failed
    )
    return await _response(services, request, context, topics)


def _asks_for_all(request: MetadataRequest, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _cached_answer(
    services: Services, request: MetadataRequest, context: Context
) -> Encoded | Pending | None:
    """Returns the cached response to a request for all topics, also one that is being made."""
    if not isinstance(services.authorizer, OpenAuthorizer):
        return None  # each principal may see other topics
    again = partial(handle, services, request, context)
    key, state = _cache_key(request, context), _cache_state(services, context)
    return services.encoded.find(key, services.metadata.image, state, again)


def _cache_key(request: MetadataRequest, context: Context) -> tuple[int, str, bool, bool]:
    """Returns the key of a response with all topics among those cached for one image."""
    return (
        context.version,
        context.session.listener,
        request.include_topic_authorized_operations,
        request.include_cluster_authorized_operations,
    )


def _cache_state(services: Services, context: Context) -> tuple[tuple[VisibleBroker, ...], int]:
    """Returns the parts of a response with all topics that may change while the image does not."""
    listed = listed_brokers(services, context, with_departed=True)
    return tuple(listed.brokers), listed.controller


async def _answer_all(
    services: Services, request: MetadataRequest, context: Context
) -> Encoded | MetadataResponse:
    """Describes all topics, once for all clients while nothing changes."""
    image = services.metadata.image
    allows, session = services.authorizer.allows, context.session

    async def describe() -> MetadataResponse:
        shown = await listed(
            image.topics.values(),
            lambda topic: allows(session, Operation.DESCRIBE, ResourceType.TOPIC, topic.name),
        )
        described = [await _describe(services, topic, context) for topic in shown]
        return await _response(services, request, context, described)

    if not isinstance(services.authorizer, OpenAuthorizer):
        return await describe()

    async def encode() -> Encoded:
        response = await describe()
        parts = await encode_in_steps(
            codec(MetadataResponse, context.version), response, "Metadata"
        )
        return Encoded(b"".join(parts))

    cached = _cached_answer(services, request, context)  # made by somebody else meanwhile
    if isinstance(cached, Encoded):
        return cached
    return await services.encoded.make(
        _cache_key(request, context), image, _cache_state(services, context), encode
    )


async def _without_duplicates(topics: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Returns each topic once, however often it is named."""
    once: dict[tuple[str | None, UUID], MetadataRequestTopic] = {}
    for topic in topics:
        once[topic.name, topic.topic_id] = topic
        await checkpoint()
    return list(once.values())


async def _create_and_answer(
    services: Services,
    request: MetadataRequest,
    wanted: list[MetadataRequestTopic],
    context: Context,
) -> MetadataResponse:
    """Creates the missing topics, as many as one request may, then returns the response.

    A client requests those that are not created yet again.
    """
    left = services.config.limits.auto_create_topics_per_request

    async def create(topic: MetadataRequestTopic) -> MetadataResponseTopic:
        nonlocal left
        if topic.name is not None and topic.name not in services.metadata.image.topics:
            if not left:
                check_topic_name(topic.name)
                raise UnknownTopicOrPartition
            left -= 1
            await auto_creation.create_missing(services, context.session, topic.name)
        return await _one(services, context, topic)

    failed = partial(_failed, context.version)
    topics = await per_partition_async(services, "metadata", wanted, create, failed)
    return await _response(services, request, context, topics)


async def _one(
    services: Services, context: Context, wanted: MetadataRequestTopic
) -> MetadataResponseTopic:
    """Describes one topic, by name or, from version 12 on, by id."""
    image, version = services.metadata.image, context.version
    if wanted.name is not None:
        services.authorizer.require(
            context.session, Operation.DESCRIBE, ResourceType.TOPIC, wanted.name
        )
        found = image.topics.get(wanted.name)
        if found is None:
            check_topic_name(wanted.name)
            raise UnknownTopicOrPartition
    elif version < _BY_ID_SINCE:
        raise InvalidRequest(f"version {version} cannot ask for a topic by its id")
    else:
        found = image.topics_by_id.get(wanted.topic_id)
        if found is None:
            raise UnknownTopicId
        services.authorizer.require(
            context.session, Operation.DESCRIBE, ResourceType.TOPIC, found.name
        )
    return await _describe(services, found, context)


def _failed(
    version: int, wanted: MetadataRequestTopic, error: BrokerError
) -> MetadataResponseTopic:
    """Returns a topic's error; before version 12 a response must have a name."""
    name = "" if wanted.name is None and version < _BY_ID_SINCE else wanted.name
    return MetadataResponseTopic(
        error_code=error.code, name=name, topic_id=wanted.topic_id, partitions=[]
    )


async def _describe(services: Services, topic: Topic, context: Context) -> MetadataResponseTopic:
    """Describes an existing topic; the metadata name the leaders of its partitions."""
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal(topic.name),
        partitions=await _partitions(services, topic, context),
    )


async def _partitions(
    services: Services, topic: Topic, context: Context
) -> list[MetadataResponsePartition]:
    """Describes the partitions of a topic."""
    image, epoch_of = services.metadata.image, services.replicas.leader_epoch
    reachable = visible_brokers(image, context.connection.listener.name)
    described = []
    for index, record in enumerate(topic.assignments):
        seen = visible_partition(image, reachable, topic, index)
        replicas, isr = list(record.replicas), list(record.isr)
        code = _leader_code(image, record.leader, context.version) if seen.leader < 0 else 0
        if context.version < _ALL_REPLICAS_SINCE:
            replicas = [broker for broker in replicas if broker in reachable]
            isr = [broker for broker in isr if broker in reachable]
            if not code and (len(replicas), len(isr)) != (len(record.replicas), len(record.isr)):
                code = ErrorCode.REPLICA_NOT_AVAILABLE
        described.append(
            MetadataResponsePartition(
                error_code=code,
                partition_index=index,
                leader_id=seen.leader,
                leader_epoch=epoch_of(topic, index),
                replica_nodes=replicas,
                isr_nodes=isr,
                offline_replicas=seen.offline,
            )
        )
        await checkpoint()
    return described


def _leader_code(image: Image, leader: int, version: int) -> ErrorCode:
    """Returns the error code of a partition whose leader is not listed."""
    live = image.brokers.get(leader)
    if version < _LISTENER_NOT_FOUND_SINCE or live is None or live.record.is_fenced:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.LISTENER_NOT_FOUND


async def _response(
    services: Services,
    request: MetadataRequest,
    context: Context,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code != UnknownTopicId.code:  # then the topic is not known
                topic.topic_authorized_operations = services.authorizer.operations(
                    context.session, ResourceType.TOPIC, topic.name or ""
                )
            await checkpoint()
    listed = listed_brokers(services, context, with_departed=True)
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=each.broker, host=each.host, port=each.port, rack=each.rack
            )
            for each in listed.brokers
        ],
        cluster_id=services.metadata.image.cluster_id,
        controller_id=listed.controller,
        topics=topics,
        cluster_authorized_operations=services.authorizer.operations(
            context.session, ResourceType.CLUSTER, CLUSTER_NAME
        )
        if request.include_cluster_authorized_operations
        else NOT_ASKED,
    )


async def refuse(request: MetadataRequest, error: BrokerError) -> MetadataResponse:
    """Returns the error at the top (v13) and for every named topic."""
    return MetadataResponse(
        error_code=error.code,
        brokers=[],
        topics=await listed(_failed(0, topic, error) for topic in request.topics or ()),
    )
