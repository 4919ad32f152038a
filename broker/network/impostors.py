"""Counts the requests that claim to come from a broker and do not, and logs one a minute of each host."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidelog.protocol.errors import ClusterAuthorizationFailed

if TYPE_CHECKING:
    from tidelog.broker.clock import Clock
    from tidelog.broker.metrics.counters import Metrics
    from tidelog.broker.network.context import Context
    from tidelog.protocol.errors import BrokerError

log = logging.getLogger("tidelog.security")

FORGED: Final = "forged"
_LOG_EVERY_S: Final = 60.0
_MOST_HOSTS: Final = 1_000  # that are counted apart


class Impostors:
    """The refusals of one broker."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock, self._metrics = clock, metrics
        self._logged_s: dict[str, float] = {}  # by host

    def refuse(self, context: Context, broker: int) -> BrokerError:
        """Counts a request that names a broker without proof; returns the error that it gets."""
        self._metrics.broker_requests_refused[FORGED] += 1
        host, now_s = context.session.host, self._clock.monotonic_s()
        if now_s >= self._logged_s.get(host, -_LOG_EVERY_S) + _LOG_EVERY_S:
            if len(self._logged_s) >= _MOST_HOSTS:
                self._logged_s.clear()
            self._logged_s[host] = now_s
            log.warning(
                "broker request refused",
                extra={
                    "peer": context.connection.peer,
                    "claimed": broker,
                    "reason": "it does not prove that a broker sends it",
                },
            )
        return ClusterAuthorizationFailed("only the brokers of the cluster may ask so")
