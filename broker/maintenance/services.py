"""What retention, compaction and the clock watch need of the broker; `boot.py` makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tidelog.broker.topics.services import Services as Below

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidelog.broker.maintenance.checkpoint import Waiters
    from tidelog.broker.maintenance.clock_watch import ClockWatch
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.time.trusted_clock import Change


class Groups(Protocol):
    """The groups that this broker coordinates."""

    async def correct_times(self, changes: Sequence[Change]) -> None:
        """Takes steps of the clock into account in the times of offsets."""


class Logs(Protocol):
    """The logs of this broker, opened when they are needed."""

    def open_log(self, topic: str, index: int) -> Partition | None:
        """Returns a log, offline or not; None if there is none. Raises KafkaStorageError."""


class Services(Below, Protocol):
    """What retention, compaction and the watch of the clock need."""

    @property
    def clock_watch(self) -> ClockWatch: ...

    @property
    def coordinator(self) -> Groups: ...

    @property
    def partitions(self) -> Logs: ...

    @property
    def waiting(self) -> Waiters: ...

    @property
    def ready(self) -> bool: ...
