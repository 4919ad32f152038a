"""What the client raises. Every message is a sentence for a user.

`ConnectionBroken` and `VersionMismatch` come from one connection; a client retries the first and turns
both into a `ClientError` when it gives up. `RequestError` is a broker's refusal, with its code.
"""

from __future__ import annotations

from typing import Final

from protocol.errors import ERRORS, ErrorCode

# Not retriable in Kafka's table, but gone once the metadata are fresh.
_STALE_METADATA: Final = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH})


class ConnectionBroken(ConnectionError):
    """The connection could not be made, ended, timed out or carried bytes that are no answer."""


class VersionMismatch(Exception):
    """The broker does not serve an API, or no version of it that the client speaks."""


class ClientError(Exception):
    """What a client raises."""


class ClusterUnreachable(ClientError):
    """No broker could be reached, or not the one that is needed, until the timeout."""


class UnsupportedByBroker(ClientError):
    """The broker does not serve what is needed."""


class SequenceGap(ClientError):
    """The partition has more or fewer records of this producer than the sequences say."""


class Fenced(ClientError):
    """A newer producer has taken over: this one has to stop."""


class RequestError(ClientError):
    """A broker refused; `code` says why, `reason` in words, `retriable` whether it may pass."""

    def __init__(self, code: int, doing: str, message: str | None = None) -> None:
        known = ERRORS.get(code)
        self.code = known.code if known is not None else ErrorCode.UNKNOWN_SERVER_ERROR
        self.name = known.name if known is not None else f"error {code}"
        self.message = message
        self.reason = message or (known.sentence if known is not None else "")
        self.retriable = known is not None and (known.retriable or known.code in _STALE_METADATA)
        super().__init__(f"{doing}: {self.name}" + (f": {self.reason}" if self.reason else ""))


class PartitionRefused(RequestError):
    """A broker refused what was asked of one partition."""

    def __init__(self, code: int, doing: str, place: tuple[str, int]) -> None:
        super().__init__(code, f"{doing} {place[0]}-{place[1]}")
        self.topic, self.partition = place


def raise_for_code(code: int, doing: str, message: str | None = None) -> None:
    """Raise RequestError unless the code is 0."""
    if code:
        raise RequestError(code, doing, message)
