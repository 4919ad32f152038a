"""Which new connections are served, and when: the limits of one address, and of a second.

A refusal is a sentence. Of max.connection.creation.rate, and of the quota connection_creation_rate of an
address (KIP-612), so many connections as come in a second are served
at once; the next ones wait, each until the rate allows it. Kafka does not accept meanwhile; here the
connection is accepted and not read, which is the same for its client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.broker.quotas.entity import NO_QUOTAS, connection_rate
from tidelog.config.setting import INT_MAX
from tidelog.protocol.api import add_partitions_to_txn, fetch, write_txn_markers
from tidelog.protocol.message import API_VERSIONS

if TYPE_CHECKING:
    from tidelog.broker.quotas.entity import Quotas
    from tidelog.broker.settings import Settings

TOO_MANY: Final = "max.connections reached"
TOO_FEW_DESCRIPTORS: Final = "the limit of open files (ulimit -n) leaves no room"
TOO_FAST: Final = "max.connection.creation.rate reached"
ASKED_BETWEEN_BROKERS: Final = frozenset(
    (API_VERSIONS, fetch.API.key, write_txn_markers.API.key, add_partitions_to_txn.API.key)
)
"""What connections beyond the limits may ask (`over_limit.py`)."""
MOST_WAIT_S: Final = 10.0
_BURST_S = 1.0
_MOST_ADDRESSES = 10_000  # that are remembered, unless more of them are over their rates
_MAPPED = "::ffff:"  # an IPv4 address, as a socket for both families shows it


class Admission:
    """The open connections of each address, and when the next new one may be served."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._open: dict[str, int] = {}
        self._due_s = 0.0  # when so many connections will have been due, at the rate
        self._due_of: dict[str, float] = {}  # the same of addresses that have a rate of their own

    def admit(self, host: str, now_s: float, quotas: Quotas = NO_QUOTAS) -> float | str:
        """Counts a new connection; returns for how many seconds it waits, or why it is refused.

        `now_s` is the time of the monotonic clock; `quotas` have the rates of single addresses. A connection
        that is refused is not counted.
        """
        if refusal := self.refusal(host):
            return refusal
        address, due_s = _address(host), now_s
        rate = self._settings.broker.connections.max_connection_creation_rate
        if rate < INT_MAX:
            due_s = _next_due_s(self._due_s, rate, now_s)
            if due_s - _BURST_S - now_s > MOST_WAIT_S:
                return TOO_FAST
        own_due_s, own_rate = now_s, connection_rate(quotas, address) if quotas else None
        if own_rate is not None:
            own_due_s = _next_due_s(self._due_of.get(address, 0.0), own_rate, now_s)
            if own_due_s - _BURST_S - now_s > MOST_WAIT_S:
                return "connection_creation_rate of the address reached"
            self._keep(address, own_due_s, now_s)
        if rate < INT_MAX:
            self._due_s = due_s
        self._count(address)
        return max(0.0, max(due_s, own_due_s) - _BURST_S - now_s)

    def admit_over_limit(self, host: str) -> float | str:
        """Admits a new connection beyond the limits of all connections, and counts it.

        Returns 0.0, or why it is refused: those of its address are limited all the same.
        """
        if refusal := self.refusal(host):
            return refusal
        self._count(_address(host))
        return 0.0

    def refusal(self, host: str) -> str | None:
        """Returns why an address may have no more connections, None if it may."""
        address = _address(host)
        is_full = self._open.get(address, 0) >= self._most(address)
        return "max.connections.per.ip reached" if is_full else None

    def _count(self, address: str) -> None:
        self._open[address] = self._open.get(address, 0) + 1

    def _keep(self, address: str, due_s: float, now_s: float) -> None:
        """Remembers when an address will have been due; drops those that are not over their rates."""
        if len(self._due_of) >= _MOST_ADDRESSES:
            self._due_of = {each: due for each, due in self._due_of.items() if due > now_s}
        self._due_of[address] = due_s

    def discard(self, host: str) -> None:
        """Counts an admitted connection of an address no longer."""
        address = _address(host)
        left = self._open.get(address, 0) - 1
        if left > 0:
            self._open[address] = left
        else:
            self._open.pop(address, None)

    def _most(self, address: str) -> int:
        config = self._settings.broker.connections
        for limit in config.max_connections_per_ip_overrides:
            if limit.address == address:
                return limit.most
        return config.max_connections_per_ip


def _next_due_s(due_s: float, rate: float, now_s: float) -> float:
    """Returns when one more connection will have been due."""
    return max(due_s, now_s) + (1 / rate if rate else MOST_WAIT_S + 2 * _BURST_S)


def _address(host: str) -> str:
    """Returns an address as the settings write it: an IPv4 address as such, IPv6 without zone."""
    return host.removeprefix(_MAPPED).partition("%")[0]
