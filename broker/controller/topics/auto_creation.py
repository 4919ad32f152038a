"""Automatic creation: a topic that does not exist is created when a client asks for its metadata.

The broker must allow it (auto.create.topics.enable), the request must not forbid it, and the client
needs the rights to describe the topic and to create it. The topic gets num.partitions partitions,
default.replication.factor replicas of each, and the broker's settings.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tidelog.protocol.acl import Operation, ResourceType
from tidelog.protocol.errors import TopicAlreadyExists

if TYPE_CHECKING:
    from tidelog.broker.controller.topics.services import Services
    from tidelog.broker.security.session import Session
    from tidelog.config import BrokerConfig


def is_allowed(config: BrokerConfig, *, request_allows: bool) -> bool:
    """Returns whether missing topics are created for a request."""
    return config.auto_create_topics_enable and request_allows


async def create_missing(services: Services, session: Session, name: str) -> None:
    """Creates a topic unless it exists.

    Raises TopicAuthorizationFailed, and what `Topics.create` raises except TopicAlreadyExists.
    """
    if name in services.metadata.image.topics:
        return
    _require_rights(services, session, name)
    with suppress(TopicAlreadyExists):  # another request has created it
        await services.topics.create(name)


def _require_rights(services: Services, session: Session, name: str) -> None:
    """Raises TopicAuthorizationFailed unless the client may describe the topic and create it."""
    services.authorizer.require(session, Operation.DESCRIBE, ResourceType.TOPIC, name)
    if not services.authorizer.allows_on_cluster(session, Operation.CREATE):
        services.authorizer.require(session, Operation.CREATE, ResourceType.TOPIC, name)
