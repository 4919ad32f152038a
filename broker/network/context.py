"""What handlers share: a request's context, answers that come later, errors, whom clients can reach."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from tidelog.broker.metadata.brokers.visible import (
    VisibleBroker,
    controller_of,
    departed_brokers,
    fenced_brokers,
    visible_brokers,
)
from tidelog.protocol.errors import BrokerError, UnknownServerError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from tidelog.broker.network.connection import Connection
    from tidelog.broker.network.services import Services
    from tidelog.broker.network.throttling import RequestQuota
    from tidelog.broker.security.session import Session
    from tidelog.protocol.message import RequestHeader

log = logging.getLogger("tidelog.dispatch")


class CloseConnection(Exception):
    """The request has no response and the connection must be closed. The text says why."""


class Folded(CloseConnection):
    """A reason that a client may repeat for ever: it is logged a few times and then counted.

    Those of one `kind` are counted together.
    """

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        self.kind = kind


class NotServed(Folded):
    """The API, or its version, is not served: a client that asks blindly may repeat this for ever."""


class NoRoom(Folded):
    """There are too many connections, and this one is kept for another broker, which asks otherwise."""


class Excessive(Folded):
    """The request, or its response, is larger than it may be."""


def _nothing() -> None:
    """Frees nothing."""


class Later(NamedTuple):
    """An answer that waits for one event and is then made on the event loop, without a task.

    A task costs about as much as a small request. What waits for a thread, or again and again, is a
    coroutine.
    """

    happened: asyncio.Future[Any]
    finish: Callable[[], Any]  # makes the answer then, or returns a coroutine of it
    dropped: Callable[[], None] = _nothing  # called instead if `happened` is cancelled
    is_stored: bool = False  # all that the request asks for is done: the answer alone waits


class Context(NamedTuple):
    """What a handler knows of a request beside its body."""

    header: RequestHeader
    connection: Connection
    quota: RequestQuota | None = None  # counts what the request takes, if its client has quotas

    @property
    def version(self) -> int:
        """The request's version."""
        return self.header.api_version

    @property
    def session(self) -> Session:
        """The client's principal and the listener of its connection."""
        return self.connection.session


def as_broker_error(services: Services, error: Exception, doing: str) -> BrokerError:
    """Returns the error as a BrokerError; an unexpected one is logged with its traceback.

    Raises `error` again if it is a CloseConnection.
    """
    if isinstance(error, CloseConnection):
        raise error
    if isinstance(error, BrokerError):
        return error
    services.metrics.unexpected_errors += 1
    log.error("unexpected error in %s", doing, exc_info=error)
    return UnknownServerError(f"unexpected error in {doing}")


class Listed(NamedTuple):
    """The brokers, and the id of the controller; -1 if none of them is it."""

    brokers: list[VisibleBroker]
    controller: int


def listed_brokers(
    services: Services, context: Context, *, with_fenced: bool = False, with_departed: bool = False
) -> Listed:
    """Returns whom a client can reach by the listener by which it came.

    A broker that is alone lists itself, and is the controller. So does one in a cluster list itself
    when all are fenced, or have lost their sessions at the same time: librdkafka 2.10 and newer forgets
    every broker that is not listed, and would have nobody left to ask again.

    It also loses the new leader of a partition for a while if the old one is not listed in the
    response that names the new one. `with_departed` lists brokers for a session's time after they died.
    Every broker is listed once, in the order of their ids: Java's clients refuse a list with duplicates.
    """
    me, listener = services.config.cluster.node_id, context.connection.listener
    if services.cluster is None:
        return Listed([VisibleBroker(me, *listener.advertised)], me)
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
