"""The values that a log's state consists of. Each is immutable, and replaced as a whole.

A reader that needs several fields of one value reads it once. All are replaced under the append lock:

| value | replaced by |
|---|---|
| `Version`, `Ends` (`version.py`) | `LogState`, under the version lock too; `producers/stability.py` |
| `TopicRules` (`settings.py`) | `LogState.configure`, as a whole, without the lock |
| `Durability` | `LogState.mark_durable`, `limit_recovery_point`; a truncation |
| `Leadership` | `LogState`, `epochs.py`, `replication/roles.py`, `replication/leader_state.py` |
| `Timing` | `LogState.replace_timing`, for `times/` and `replication/` |
| `RecoveryState` | `replication/roles.py`; the first append, the first read of producers |
| `Cleaning` | the compactor; a truncation |
| `Truncation` | the truncater; `failures.go_offline` |
| `Stopped` | `LogState.stop` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage.log.high_watermark import Role
from tidelog.storage.time.corrections import NO_MARK
from tidelog.storage.time.timestamp import MIN_TIMESTAMP

if TYPE_CHECKING:
    from tidelog.storage.log.times.partition_times import ClockMark
    from tidelog.storage.time.adoption import Adoptions
    from tidelog.storage.time.corrections import Correction, Mark, WrittenBehind


class Durability(NamedTuple):
    """How far a log survives a power loss."""

    recovery_point: int  # everything before it is durable, indexes too
    durable_offset: int  # batches and append times before it are durable
    covered_offset: int  # `partition.times` says that append times before it are durable


class Leadership(NamedTuple):
    """The role of a log, and what this broker knows of the present epoch.

    A log leads when it is opened, as the only replica of its partition. If others have copies, it has no
    role until replication assigns one.
    """

    role: Role | None = Role.LEADER
    is_replicated: bool = False  # others have copies: append times go back by command alone
    epoch: int = 0  # the leader epoch, the last one that began here
    epoch_start_offset: int = 0  # at which this broker began to lead
    has_begun_to_follow: bool = False  # in the present epoch: no appends
    leader_cleaned_offset: int | None = None  # before which a follower's leader has compacted
    compared_epoch: int = -1  # in which a follower has compared the clocks

    @property
    def is_assigned(self) -> bool:
        """Whether replication has assigned the role, and moves the high watermark."""
        return self.is_replicated and self.role is not None


class Timing(NamedTuple):
    """What the append times of a log count as (`storage/time/corrections.py`)."""

    adoptions: Adoptions  # when batches with unknown append times were adopted
    steps: ClockMark  # the steps of the clock that the corrections have
    corrections: tuple[Correction, ...] = ()
    mark: Mark = NO_MARK  # the last of them
    back_offset: int = 0  # the last reset of the append clock; 0: none
    corrected_ms: int = MIN_TIMESTAMP  # what the clock showed when it was last set forward
    # What leaders have appended whose clocks were behind that of this broker; None: nothing is known.
    written_behind: WrittenBehind | None = None
    # What this leader has appended while its clock was behind append times; how far is not known yet.
    appended_behind: WrittenBehind | None = None


class RecoveryState(NamedTuple):
    """What a start has found, until a role or the first append decides on it."""

    lost_offset: int | None = None  # append times from it on were lost with the power
    known_high_watermark: int | None = None  # of the checkpoint
    is_counted: bool = True  # the largest event time has all below it; False after a kill
    unindexed_offset: int | None = None  # aborts from it on may lack their entry in the index


class Cleaning(NamedTuple):
    """What compaction has done to a log."""

    cleaned_offset: int | None = None  # the log before it was compacted; None: never
    replacing: frozenset[int] = frozenset()  # segments that are being replaced


class Truncation(NamedTuple):
    """The last truncation of a log."""

    pending: tuple[int, bool] | tuple[()] = ()  # to be completed, see `Cut`
    was_cut: bool = False  # since the last clean stop: checkpoints may be older


class Stopped(NamedTuple):
    """Why a log accepts no appends any more."""

    is_deleted: bool = False
    offline: str | None = None  # why, until the process ends
    is_closed: bool = False


NO_CLEANING, NO_TRUNCATION, NOT_STOPPED = Cleaning(), Truncation(), Stopped()
