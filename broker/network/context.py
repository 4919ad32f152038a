"""What handlers share: the request's context, how to close a connection, how an error gets its code."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from protocol.errors import BrokerError, UnknownServerError

if TYPE_CHECKING:
    from broker.network.connection import Connection
    from broker.node import Node
    from broker.security.session import Session
    from protocol.message import RequestHeader

log = logging.getLogger("tidelog.dispatch")


class CloseConnection(Exception):  # noqa: N818 - it is an instruction, not an error of ours
    """The request cannot be answered; the connection must go. The text says why."""


class Context(NamedTuple):
    """What a handler may know of a request beside its body."""

    header: RequestHeader
    connection: Connection

    @property
    def version(self) -> int:
        """The request's version."""
        return self.header.api_version

    @property
    def session(self) -> Session:
        """Who asks, and by which listener."""
        return self.connection.session


def as_broker_error(node: Node, error: Exception, doing: str) -> BrokerError:
    """The error as one that carries a code; what nobody foresaw is logged with its traceback.

    Raises CloseConnection again if that is what `error` is.
    """
    if isinstance(error, CloseConnection):
        raise error
    if isinstance(error, BrokerError):
        return error
    node.metrics.unexpected_errors += 1
    log.error("unexpected error in %s", doing, exc_info=error)
    return UnknownServerError(f"unexpected error in {doing}")
