"""The errors that the client raises. Every message is a sentence for a user.

`ConnectionBroken` and `VersionMismatch` come from one connection. A client retries the first, and
turns both into a `ClientError` when it gives up. `RequestError` is a broker's refusal, with its
code. `public` names the errors of all packages, in tracebacks and pickles, by the module in which
users find them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from tidelog.protocol.error_codes import ERRORS
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.protocol.topic_partition import TopicPartition

# Not retriable in Kafka's table, but solved by fresh metadata.
_STALE_METADATA: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH})

_E = TypeVar("_E", bound=Exception)


def public(module: str, name: str | None = None) -> Callable[[type[_E]], type[_E]]:
    """Returns a decorator that names an error by a public module, which must have it."""

    def named(kind: type[_E]) -> type[_E]:
        kind.__module__ = module
        kind.__name__ = kind.__qualname__ = name or kind.__name__
        return kind

    return named


@public("tidelog.errors")
class ConnectionBroken(ConnectionError):
    """The connection could not be opened, was closed, timed out or received invalid data."""


@public("tidelog.errors")
class NoListener(ConnectionBroken):
    """Nothing listens there: the machine refused the connection, or no machine has that name.

    A broker that a program has not reached yet is probably named wrongly, or down for longer.
    """


@public("tidelog.errors")
class HandshakeBroken(ConnectionBroken):
    """The broker closed the connection before it answered a request.

    Its listener may speak another protocol, so this is retried for a short time only.
    """


def none_reached(failures: Sequence[ConnectionBroken]) -> ConnectionBroken:
    """Returns the error for several addresses of which none could be connected to."""
    sentence = "; ".join(map(str, failures))
    for kind in (HandshakeBroken, NoListener):
        if failures and all(isinstance(each, kind) for each in failures):
            return kind(sentence)
    return ConnectionBroken(sentence)


@public("tidelog.errors")
class VersionMismatch(Exception):
    """The broker does not support an API, or no version of it that the client supports."""


@public("tidelog.errors")
class ClientError(Exception):
    """The base class of the errors that a client raises."""


@public("tidelog.errors")
class ClusterUnreachable(ClientError):
    """No broker could be reached before the timeout, or not the one that is needed."""


@public("tidelog.errors")
class UnsupportedByBroker(ClientError):
    """The broker does not support an API that is needed."""


@public("tidelog.errors")
class AuthenticationFailed(ClientError):
    """The broker and the client do not agree on TLS or SASL: a retry cannot help."""


@public("tidelog.errors")
class SecuritySettingsError(ClientError, ValueError):
    """A security setting is unknown, wrong, or contradicts another. It never contains a value."""


@public("tidelog.errors")
class SequenceGap(ClientError):
    """The partition has more or fewer records of this producer than the sequences imply."""


@public("tidelog.errors")
class Fenced(ClientError):
    """A newer producer has taken over: this one must stop."""


@public("tidelog.errors")
class RequestError(ClientError):
    """A broker refused a request.

    `code` is Kafka's error code, `reason` its description, and `retriable` whether a retry may
    succeed.
    """

    def __init__(self, code: int, doing: str, message: str | None = None) -> None:
        known = ERRORS.get(code)
        self.code = known if known is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        self.name = known.name if known is not None else f"error {code}"
        self.message = message
        self.reason = message or (known.sentence if known is not None else "")
        self.retriable = known is not None and (known.retriable or known in _STALE_METADATA)
        super().__init__(f"{doing}: {self.name}" + (f": {self.reason}" if self.reason else ""))


@public("tidelog.errors")
class PartitionRefused(RequestError):
    """A broker refused a request for one partition."""

    def __init__(self, code: int, doing: str, place: TopicPartition) -> None:
        super().__init__(code, f"{doing} {place[0]}-{place[1]}")
        self.topic, self.partition = place


def raise_for_code(code: int, doing: str, message: str | None = None) -> None:
    """Raises RequestError unless the code is 0."""
    if code:
        raise RequestError(code, doing, message)
