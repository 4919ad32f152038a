"""Metadata (key 3): brokers, topics, partitions, and who leads them.

Behaviour: no list (v0: an empty one) asks for every topic, an empty list (v1+) for none. A topic that
does not exist is created when the request allows it (always before v4) and auto.create.topics.enable is
on, and is answered as existing at once. The address given is the advertised one of the listener the
request came in by.

Version notes: 1 null for all topics, controller, internal flag; 2 cluster id; 4 auto creation may be
refused; 5 offline replicas; 7 leader epochs; 8 authorized operations (not served: there are no ACLs);
9 flexible; 10 topic ids; 11 no cluster operations; 12 lookup by topic id; 13 top-level error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.context import as_broker_error
from protocol.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.errors import TopicAlreadyExists, UnknownTopicId, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from broker.context import Context
    from broker.metadata.store import Topic
    from broker.node import Node
    from protocol.api.metadata import MetadataRequest, MetadataRequestTopic
    from protocol.errors import BrokerError

_AUTO_CREATE_FLAG_SINCE = 4


def handle(
    node: Node, request: MetadataRequest, context: Context
) -> MetadataResponse | Coroutine[Any, Any, MetadataResponse]:
    """Describe the cluster and the topics asked for."""
    image = node.metadata.image
    if request.topics is None or (context.version == 0 and not request.topics):
        return _response(node, context, (_describe(node, t) for t in image.topics.values()))
    allowed = node.config.auto_create_topics_enable and (
        context.version < _AUTO_CREATE_FLAG_SINCE or request.allow_auto_topic_creation
    )
    if allowed and any(
        topic.name is not None and topic.name not in image.topics for topic in request.topics
    ):
        return _create_and_answer(node, request, context)
    return _response(node, context, (_one(node, topic) for topic in request.topics))


async def _create_and_answer(
    node: Node, request: MetadataRequest, context: Context
) -> MetadataResponse:
    """Create the topics that are missing, then answer."""
    answers = []
    for topic in request.topics or ():
        try:
            if topic.name is not None and topic.name not in node.metadata.image.topics:
                await node.create_topic(topic.name)
        except TopicAlreadyExists:
            pass  # another request was faster
        except Exception as error:  # noqa: BLE001 - one topic's failure is its own
            known = as_broker_error(node, error, "auto creation")
            answers.append(
                MetadataResponseTopic(
                    error_code=known.code, name=topic.name, topic_id=topic.topic_id, partitions=[]
                )
            )
            continue
        answers.append(_one(node, topic))
    return _response(node, context, answers)


def _one(node: Node, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    """Describe one topic, by name or by id."""
    image = node.metadata.image
    if wanted.name is None:
        found = image.topics_by_id.get(wanted.topic_id)
        missing: type[BrokerError] = UnknownTopicId
    else:
        found = image.topics.get(wanted.name)
        missing = UnknownTopicOrPartition
    if found is None:
        return MetadataResponseTopic(
            error_code=missing.code, name=wanted.name, topic_id=wanted.topic_id, partitions=[]
        )
    return _describe(node, found)


def _describe(node: Node, topic: Topic) -> MetadataResponseTopic:
    """Describe a topic that exists: this node leads every partition."""
    replicas = [node.config.node_id]
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=node.is_internal(topic.name),
        partitions=[
            MetadataResponsePartition(
                partition_index=index,
                leader_id=node.config.node_id,
                leader_epoch=0,
                replica_nodes=replicas,
                isr_nodes=replicas,
                offline_replicas=[],
            )
            for index in range(topic.partitions)
        ],
    )


def _response(
    node: Node, context: Context, topics: Iterable[MetadataResponseTopic]
) -> MetadataResponse:
    host, port = context.connection.listener.advertised
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node.config.node_id, host=host, port=port)],
        cluster_id=node.metadata.image.cluster_id,
        controller_id=node.config.node_id,
        topics=list(topics),
    )


def refuse(request: MetadataRequest, error: BrokerError) -> MetadataResponse:
    """The error at the top (v13) and on every topic named."""
    return MetadataResponse(
        error_code=error.code,
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=error.code, name=topic.name, topic_id=topic.topic_id, partitions=[]
            )
            for topic in request.topics or ()
        ],
    )
