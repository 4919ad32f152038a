"""The services that retention, compaction and the clock watch use; `boot.py` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.logs.services import Services as Below

if TYPE_CHECKING:
    from tidelog.broker.logs.maintenance.checkpoint import Waiters
    from tidelog.broker.logs.maintenance.clock_watch import ClockWatch
    from tidelog.storage.log.partition import Partition


class Logs(Protocol):
    """The logs of this broker, opened when they are needed."""

    def open_log(self, topic: str, index: int) -> Partition | None:
        """Returns a log, offline or not; None if there is none. Raises KafkaStorageError."""


class Services(Below, Protocol):
    """The services that retention, compaction and the clock watch use."""

    @property
    def clock_watch(self) -> ClockWatch: ...

    @property
    def partitions(self) -> Logs: ...

    @property
    def purgatory(self) -> Waiters: ...

    @property
    def ready(self) -> bool: ...
