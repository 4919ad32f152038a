"""Connections that have been silent for long: the first to be closed when a new one needs room.

A client that is at work is never among them: whoever waits for an answer is not silent, and members of
groups send heartbeats. Others connect again when they need to, as they do after connections.max.idle.ms.
"""

from __future__ import annotations

from collections import deque
from heapq import nsmallest
from operator import attrgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from tidelog.broker.network.connection import Connection

SILENT_S: Final = 30.0
_AT_ONCE: Final = 100  # that are found by one search of all connections
_SEARCH_INTERVAL_S: Final = 1.0  # a flood of new connections does not make each search all others


def is_silent(connection: Connection, since_s: float) -> bool:
    """Returns whether a connection has sent nothing since a time, and waits for nothing."""
    is_waiting = connection.is_busy or connection.is_muted
    return connection.last_active_s < since_s and not is_waiting


class Silent:
    """Finds the connection that has been silent for longest."""

    def __init__(self) -> None:
        self._found: deque[Connection] = deque()
        self._searched_s = -_SEARCH_INTERVAL_S

    def longest(self, connections: Collection[Connection], now_s: float) -> Connection | None:
        """Returns the one that has been silent for longest, at least for `SILENT_S`; None if there is none.

        Connections beyond the limits, which have a rule of their own, are left out.
        """
        since_s = now_s - SILENT_S
        if not self._found and now_s >= self._searched_s + _SEARCH_INTERVAL_S:
            self._searched_s = now_s
            silent = (each for each in connections if is_silent(each, since_s))
            of_clients = (each for each in silent if not each.is_over_limit)
            self._found.extend(nsmallest(_AT_ONCE, of_clients, attrgetter("last_active_s")))
        while self._found:
            first = self._found.popleft()
            if first in connections and is_silent(first, since_s):
                return first
        return None
