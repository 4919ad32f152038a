"""Which keys this broker coordinates: those in the partitions of an internal topic that it leads.

`Ownership` is a pure state machine. Its events are the partitions that this broker leads by the metadata,
what happens to their logs, and the results of loading; it returns what is to be done:

    AWAITED -> LOADING -> READY        the metadata name this broker; its log leads; it has been read
                       -> FAILED       the log cannot be read
    any     -> LOST                    the log leads no more, and the metadata still name this broker

The leader epoch of the partition is the coordinator epoch. Each epoch loads its partition anew, and
a result of another epoch is thrown away.

Source: Kafka's GroupMetadataManager (onElection, onResignation) and CoordinatorRuntime as of 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from tidelog.protocol.group_errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    NotCoordinator,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

NO_EPOCH = -1
"""The coordinator epoch of what has not been loaded."""


class Load(NamedTuple):
    """Read a partition up to its log's end; then call `on_loaded` or `on_failed` with this value."""

    topic_id: UUID
    partition: int
    epoch: int
    attempt: int = 0  # a log may lead twice in one epoch, if a session ends in between


class Resign(NamedTuple):
    """Drop what a partition has. Requests that wait for it are answered with NOT_COORDINATOR."""

    partition: int


Action = Load | Resign


class Phase(Enum):
    """How far this broker is with a partition."""

    AWAITED = auto()
    LOADING = auto()
    READY = auto()
    FAILED = auto()
    LOST = auto()


@dataclass(slots=True)
class _Partition:
    """One partition that this broker has."""

    epoch: int
    phase: Phase = Phase.AWAITED
    attempt: int = 0
    reason: str = ""  # why it could not be read


class Ownership:
    """The partitions of an internal topic that one broker coordinates, and the phase of each."""

    def __init__(self) -> None:
        """Begins without any partition."""
        self._topic_id: UUID | None = None
        self._partitions: dict[int, _Partition] = {}
        self._led: dict[int, tuple[UUID, int]] = {}  # topic and epoch of logs that lead
        self._attempts = 0

    # -- metadata and logs ----------------------------------------------------------------------

    def on_image(self, topic_id: UUID | None, led: Mapping[int, int]) -> list[Action]:
        """The metadata name this broker as leader of these partitions, with their leader epochs.

        A topic that was created again is another one: its partitions begin anew.
        """
        actions: list[Action] = []
        if topic_id != self._topic_id:
            actions += self._drop(self._partitions)
            self._topic_id = topic_id
        actions += self._drop(
            index for index, each in self._partitions.items() if led.get(index) != each.epoch
        )
        for index, epoch in led.items():
            if index not in self._partitions:
                self._partitions[index] = _Partition(epoch)
                actions += self._load_if_led(index)
        return actions

    def on_led(self, topic_id: UUID, index: int, epoch: int) -> list[Action]:
        """The log of a partition leads now in an epoch, which the image may not have yet."""
        self._led[index] = topic_id, epoch
        return self._load_if_led(index)

    def on_stopped(self, topic_id: UUID, index: int) -> list[Action]:
        """The log of a partition leads no more: the lease has ended, its disk has failed, or so."""
        if index in self._led and self._led[index][0] == topic_id:
            del self._led[index]
        known = self._partitions.get(index)
        if known is None or topic_id != self._topic_id:
            return []
        was_served = known.phase in (Phase.LOADING, Phase.READY)
        known.phase = Phase.LOST
        return [Resign(index)] if was_served else []

    def _drop(self, indexes: Iterable[int]) -> list[Action]:
        """Drops partitions; those that are loading or loaded are resigned."""
        gone = {index: self._partitions.pop(index).phase for index in list(indexes)}
        served = (Phase.LOADING, Phase.READY)
        return [Resign(index) for index, phase in gone.items() if phase in served]

    def _load_if_led(self, index: int) -> list[Action]:
        known, led = self._partitions.get(index), self._led.get(index)
        if known is None or led is None or led != (self._topic_id, known.epoch):
            return []
        if known.phase not in (Phase.AWAITED, Phase.LOST):
            return []
        self._attempts += 1
        known.phase, known.attempt = Phase.LOADING, self._attempts
        return [Load(led[0], index, known.epoch, known.attempt)]

    # -- results --------------------------------------------------------------------------------

    def is_wanted(self, load: Load) -> bool:
        """Returns whether the result of a load is still waited for."""
        known = self._partitions.get(load.partition)
        return known is not None and known.phase is Phase.LOADING and load.attempt == known.attempt

    def on_loaded(self, load: Load) -> bool:
        """A partition has been read; returns whether that counts, or came too late."""
        if not self.is_wanted(load):
            return False
        self._partitions[load.partition].phase = Phase.READY
        return True

    def on_failed(self, load: Load, reason: str) -> None:
        """A partition cannot be read: its keys are not available, unless that came too late."""
        if self.is_wanted(load):
            known = self._partitions[load.partition]
            known.phase, known.reason = Phase.FAILED, reason

    # -- questions ------------------------------------------------------------------------------

    def check(self, index: int) -> int:
        """Returns the epoch in which this broker coordinates the keys of a partition.

        Raises NotCoordinator, CoordinatorLoadInProgress, and CoordinatorNotAvailable if the
        partition could not be read.
        """
        known = self._partitions.get(index)
        if known is None:
            raise NotCoordinator(f"this broker does not lead partition {index} of the coordinators")
        if known.phase is Phase.READY:
            return known.epoch
        if known.phase in (Phase.AWAITED, Phase.LOADING):
            raise CoordinatorLoadInProgress(f"partition {index} of the coordinators is being read")
        if known.phase is Phase.LOST:
            raise NotCoordinator(f"this broker leads partition {index} of the coordinators no more")
        raise CoordinatorNotAvailable(
            f"partition {index} of the coordinators cannot be read: {known.reason}"
        )

    @property
    def is_loading(self) -> bool:
        """Whether a partition has not been read yet, so that keys are missing."""
        phases = (Phase.AWAITED, Phase.LOADING)
        return any(each.phase in phases for each in list(self._partitions.values()))
