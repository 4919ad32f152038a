"""When to retry, and after which pause. It does no I/O and gets its clock as an argument.

`Retry` handles the failures of one operation, `Backoff` failures to connect to one broker.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from client.errors import (
    ClusterUnreachable,
    ConnectionBroken,
    HandshakeBroken,
    RequestError,
    UnsupportedByBroker,
)
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from client.errors import VersionMismatch

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
_UNKNOWN_TOPIC_S: Final = 3.0  # a new topic may not yet be known everywhere
_HANDSHAKE_S: Final = 5.0  # a broker that starts or stops may close connections without an answer
_RANDOM = random.Random()  # noqa: S311 - spreads retries


class Retry:
    """The pauses of one operation: they double, and end after `timeout_s`."""

    def __init__(self, clock: Callable[[], float], timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._began = clock()
        self._pause_s = FIRST_PAUSE_S
        self._unanswered_since: float | None = None  # since when every try is a HandshakeBroken

    def pause_after(self, error: ConnectionBroken | RequestError | VersionMismatch) -> float:
        """Returns the seconds to wait before the next try.

        Raises the error of the operation if there is no next try: RequestError, ClusterUnreachable
        or UnsupportedByBroker.
        """
        if isinstance(error, HandshakeBroken):
            if self._unanswered_since is None:
                self._unanswered_since = self._clock()
        else:
            self._unanswered_since = None
        if isinstance(error, ConnectionBroken):
            if not self._has_time(self._timeout_s) or self._is_never_answered():
                raise ClusterUnreachable(str(error)) from error
        elif isinstance(error, RequestError):
            is_unknown = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not error.retriable or not self._has_time(
                _UNKNOWN_TOPIC_S if is_unknown else self._timeout_s
            ):
                raise error
        else:
            raise UnsupportedByBroker(str(error)) from error
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        return pause_s * (0.5 + _RANDOM.random() / 2)

    def _is_never_answered(self) -> bool:
        since = self._unanswered_since
        return since is not None and self._clock() + self._pause_s > since + _HANDSHAKE_S

    def _has_time(self, patience_s: float) -> bool:
        return self._clock() + self._pause_s <= self._began + min(patience_s, self._timeout_s)


class Backoff:
    """When to connect to a broker again: at once after a success, later after each failure."""

    def __init__(self) -> None:
        self._pause_s = 0.0
        self._not_before = 0.0

    def wait_s(self, now_s: float) -> float:
        """Returns the seconds until the next try is allowed."""
        return max(0.0, self._not_before - now_s)

    def failed(self, now_s: float) -> None:
        """Records a failure to connect."""
        self._pause_s = min(max(2 * self._pause_s, FIRST_PAUSE_S), LONGEST_PAUSE_S)
        self._not_before = now_s + self._pause_s * (0.8 + _RANDOM.random() * 0.2)

    def succeeded(self) -> None:
        """Records a connection."""
        self._pause_s = self._not_before = 0.0
