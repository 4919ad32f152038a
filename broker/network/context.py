"""What handlers share: a request's context, CloseConnection, errors as codes, whom clients can reach."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from broker.metadata.visible import VisibleBroker, controller_of, fenced_brokers, visible_brokers
from protocol.errors import BrokerError, UnknownServerError

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from broker.node import Node
    from broker.security.session import Session
    from protocol.message import RequestHeader

log = logging.getLogger("tidelog.dispatch")


class CloseConnection(Exception):
    """The request has no response and the connection must be closed. The text says why."""


class Context(NamedTuple):
    """What a handler knows of a request beside its body."""

    header: RequestHeader
    connection: Connection

    @property
    def version(self) -> int:
        """The request's version."""
        return self.header.api_version

    @property
    def session(self) -> Session:
        """The client's principal and the listener of its connection."""
        return self.connection.session


def as_broker_error(node: Node, error: Exception, doing: str) -> BrokerError:
    """Returns the error as a BrokerError; an unexpected one is logged with its traceback.

    Raises `error` again if it is a CloseConnection.
    """
    if isinstance(error, CloseConnection):
        raise error
    if isinstance(error, BrokerError):
        return error
    node.metrics.unexpected_errors += 1
    log.error("unexpected error in %s", doing, exc_info=error)
    return UnknownServerError(f"unexpected error in {doing}")


class Listed(NamedTuple):
    """The brokers, and the id of the controller; -1 if none of them is it."""

    brokers: list[VisibleBroker]
    controller: int


def listed_brokers(node: Node, context: Context, *, with_fenced: bool = False) -> Listed:
    """Returns whom a client can reach by the listener by which it came.

    A broker that is alone lists itself, and is the controller.
    """
    me, listener = node.config.node_id, context.connection.listener
    if node.cluster is None:
        return Listed([VisibleBroker(me, *listener.advertised)], me)
    image = node.metadata.image
    visible = visible_brokers(image, listener.name)
    brokers = list(visible.values())
    if with_fenced:
        brokers = sorted(brokers + fenced_brokers(image, listener.name))
    return Listed(brokers, controller_of(image, visible, me))
