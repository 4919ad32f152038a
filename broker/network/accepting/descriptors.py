"""How the descriptors of the process are divided: clients get what the logs, other brokers and HTTP leave.

Without a division, connections that do nothing would take them all, and then no file could be opened:
appends, commits of the metadata and imports of modules would fail. The limit is that of the process
(RLIMIT_NOFILE). libuv accepts a connection for which there is no descriptor, and closes it at once.
"""

from __future__ import annotations

import contextlib
import resource
from typing import Final

from tidelog.config.setting import INT_MAX

_OWN: Final = 64
"""For the process: its ports, standard streams, metadata, processes that compact, and HTTP's kept slots."""
_MOST_SEGMENTS: Final = 384
_OF_ONE_SEGMENT: Final = 2  # its log and its append times
_OF_ONE_BROKER: Final = 8  # connections to it, and from it beyond the limit of clients
_LEAST_CONNECTIONS: Final = 8


class Descriptors:
    """The shares of a number of descriptors."""

    def __init__(self, limit: int = INT_MAX) -> None:
        self.limit = limit
        self.segments = min(_MOST_SEGMENTS, limit // 3 // _OF_ONE_SEGMENT)
        """So many segments may be open at once."""
        self._first_spare = limit - min(limit // 16, _OWN)

    def http(self, wanted: int) -> int:
        """Returns how many connections HTTP may have, of those that it wants."""
        return min(wanted, self.limit // 8)

    def clients(self, *, http: int, other_brokers: int) -> int:
        """Returns how many connections clients may have beside those of HTTP and of other brokers."""
        brokers = min(_OF_ONE_BROKER * other_brokers, self.limit // 8)
        logs = _OF_ONE_SEGMENT * self.segments
        left = self.limit - _OWN - logs - brokers - self.http(http)
        return max(left, _LEAST_CONNECTIONS)

    def are_short(self, number: int) -> bool:
        """Returns whether so few are left that one with this number, just opened, should be closed.

        A process gets the smallest number that is free. Answers that are not read may hold files beyond the
        shares.
        """
        return number >= self._first_spare


def of_process() -> Descriptors:
    """Raises the limit of descriptors to what the machine allows this process; returns their shares."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return Descriptors(INT_MAX if soft == resource.RLIM_INFINITY else soft)
