"""When to retry, and after which pause. It does no I/O and gets its clock as an argument.

`Retry` handles the failures of one operation, `Backoff` failures to connect to one broker.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from tidelog.client.errors import (
    ClusterUnreachable,
    ConnectionBroken,
    HandshakeBroken,
    NoListener,
    RequestError,
    UnsupportedByBroker,
)
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.client.errors import VersionMismatch

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0
_UNKNOWN_TOPIC_S: Final = 3.0  # a new topic may not yet be known everywhere
HANDSHAKE_S: Final = 5.0
"""A broker that starts or stops may close connections without an answer for so long."""
NO_LISTENER_S: Final = 10.0
"""A broker that nobody has reached yet may be starting for so long."""
_RANDOM = random.Random()  # noqa: S311 - spreads retries


class Retry:
    """The pauses of one operation: they double, and end after `timeout_s`.

    They end sooner where a retry hardly helps: where a listener never answers, and, at the
    `is_first_contact` with a cluster, where nothing listens.
    """

    def __init__(
        self, clock: Callable[[], float], timeout_s: float, *, is_first_contact: bool = False
    ) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._began = clock()
        self._pause_s = FIRST_PAUSE_S
        self._hopeless: dict[type[Exception], float] = {HandshakeBroken: HANDSHAKE_S}
        if is_first_contact:
            self._hopeless[NoListener] = NO_LISTENER_S
        self._last: type[Exception] | None = None
        self._last_since = self._began  # since when every try has failed in the same way

    def pause_after(self, error: ConnectionBroken | RequestError | VersionMismatch) -> float:
        """Returns the seconds to wait before the next try.

        Raises the error of the operation if there is no next try: RequestError, ClusterUnreachable
        or UnsupportedByBroker.
        """
        if type(error) is not self._last:
            self._last, self._last_since = type(error), self._clock()
        if isinstance(error, ConnectionBroken):
            if not self._has_time(self._timeout_s) or self._is_hopeless():
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

    def _is_hopeless(self) -> bool:
        patience_s = None if self._last is None else self._hopeless.get(self._last)
        return (
            patience_s is not None and self._clock() + self._pause_s > self._last_since + patience_s
        )

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
