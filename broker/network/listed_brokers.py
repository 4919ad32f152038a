"""Whom a client can reach: the brokers that a response lists, by the listener of its request."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.metadata.brokers.visible import (
    VisibleBroker,
    controller_of,
    departed_brokers,
    fenced_brokers,
    visible_brokers,
)

if TYPE_CHECKING:
    from tidelog.broker.network.context import Context
    from tidelog.broker.network.services import Services


class Listed(NamedTuple):
    """The brokers, and the id of the controller; -1 if none of them is it."""

    brokers: list[VisibleBroker]
    controller: int


def listed_brokers(
    services: Services, context: Context, *, with_fenced: bool = False, with_departed: bool = False
) -> Listed:
    """Returns whom a client can reach by the listener by which it came.

    This broker lists itself when all are fenced, or have lost their sessions at the same time:
    librdkafka 2.10 and newer forgets every broker that is not listed, and would have nobody left to ask
    again.

    It also loses the new leader of a partition for a while if the old one is not listed in the
    response that names the new one. `with_departed` lists brokers for a session's time after they died.
    Every broker is listed once, in the order of their ids: Java's clients refuse a list with duplicates.
    """
    me, listener = services.config.cluster.node_id, context.connection.listener
    image = services.metadata.image
    visible = visible_brokers(image, listener.name)
    found = dict(visible)
    if not found:
        rack = services.config.cluster.broker_rack
        found[me] = VisibleBroker(me, *listener.advertised, rack, is_fenced=with_fenced)
    if with_departed:
        gone = services.metadata.departed(services.config.cluster.broker_session_timeout_ms / 1000)
        for each in departed_brokers(gone, listener.name):
            found.setdefault(each.broker, each)
    if with_fenced:
        for each in fenced_brokers(image, listener.name):
            found.setdefault(each.broker, each)
    brokers = [found[broker] for broker in sorted(found)]
    return Listed(brokers, controller_of(image, visible, me))
