"""What handlers share: a request's context, CloseConnection, and errors as error codes."""

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
