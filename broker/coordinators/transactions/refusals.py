"""Logs which requests of transactions were refused: the client, its transactional id, and the error.

A producer that is fenced, or whose transaction was aborted, fails far from where the reason is. Errors
that pass by themselves, such as CONCURRENT_TRANSACTIONS, are not logged: clients repeat the request.
An error that a host causes again and again is logged a few times a minute, and then counted.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tidelog.broker.logging.repeats import Repeats
from tidelog.protocol.errors import BrokerError
from tidelog.protocol.message import api_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidelog.broker.clock import Clock
    from tidelog.broker.metrics.counters import Metrics
    from tidelog.broker.network.context import Context

log = logging.getLogger("tidelog.transactions")

_LONGEST_NAME: Final = 200
"""Characters of a name that are logged: clients choose them."""


class Refusals:
    """Counts and logs the refusals of one broker."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._repeats = Repeats()

    @contextmanager
    def logged(self, context: Context, transactional_id: str | None) -> Iterator[None]:
        """Logs an error that is raised within, and raises it on."""
        try:
            yield
        except BrokerError as error:
            self.note(context, transactional_id, error)
            raise

    def note(self, context: Context, transactional_id: str | None, error: BrokerError) -> None:
        """Counts a refusal, and logs it unless the same was often enough."""
        if transactional_id is None or error.code.retriable:
            return
        api = api_of(context.header.api_key)
        assert api is not None
        self._metrics.transactions.refused[api.name, error.code] += 1
        reason = f"{api.name}: {error.code.name}"
        host = context.session.host
        if not self._repeats.is_shown(host, reason, self._clock.monotonic_s()):
            return
        log.warning(
            "transactional request refused: %s (%s)",
            reason,
            error.message,
            extra={
                "peer": context.connection.peer,
                "client_id": (context.header.client_id or "")[:_LONGEST_NAME],
                "transactional_id": transactional_id[:_LONGEST_NAME],
            },
        )

    def log_repeated(self) -> None:
        """Logs the number of refusals that were not logged one by one."""
        for host, reason, times in self._repeats.take_repeated(self._clock.monotonic_s()):
            where = {"host": host, "more": times}
            log.warning("transactional requests refused: %s", reason, extra=where)
