"""What goes in and out of the state machines of replication, in Kafka's words.

Offsets are those of the log. An end offset is the offset after the last record. Times are
milliseconds of a monotonic clock. Actions are values: the shell carries them out in the order in
which a machine returns them, before it passes in the next event of that partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.protocol.errors import ErrorCode

NO_EPOCH = -1
NO_OFFSET = -1


# --- a fetch between brokers ----------------------------------------------------------------------


class FetchRequest(NamedTuple):
    """What a follower asks for one partition: Fetch v18, which has all these fields.

    `fetch_offset` is the end of the follower's log. The fetch acknowledges every offset below.
    """

    replica: int
    broker_epoch: int  # of the follower's registration (KIP-903)
    leader_epoch: int  # the follower's current leader epoch (KIP-320)
    fetch_offset: int
    last_fetched_epoch: int  # the last in its history; NO_EPOCH if it has none (KIP-595)
    log_start_offset: int
    high_watermark: int  # the follower's own (KIP-1166)


class Diverging(NamedTuple):
    """The leader's largest epoch up to the one asked for, and where it ended (KIP-595)."""

    epoch: int
    end_offset: int


class FetchAnswer(NamedTuple):
    """What a leader answers for one partition.

    Records, their append times, their leader epochs and storage's `LeaderState` travel beside it.
    Only an answer with the error NONE and without `diverging` may have records: those from
    `fetch_offset` up to `log_end_offset`. With the error OFFSET_OUT_OF_RANGE the offsets are the
    leader's, too; with other errors they are NO_OFFSET.
    """

    error: ErrorCode
    leader_epoch: int
    high_watermark: int = NO_OFFSET
    log_start_offset: int = NO_OFFSET
    log_end_offset: int = NO_OFFSET  # what followers may fetch ends here
    diverging: Diverging | None = None


# --- the metadata that a machine sees -------------------------------------------------------------


class BrokerStatus(NamedTuple):
    """A broker that is registered now."""

    epoch: int  # of its registration: the revision that created its `live` key
    is_fenced: bool = False
    is_stopping: bool = False


BrokerView = Mapping[int, BrokerStatus]  # by broker id; one that is not registered is missing


class Assignment(NamedTuple):
    """The stored state of a partition, and the revision that last modified its key."""

    record: PartitionRecord
    mod_revision: int


class LeaderRules(NamedTuple):
    """What a leader obeys beside the stored state: settings, and which replicas cannot store."""

    min_insync: int  # min.insync.replicas
    lag_time_max_ms: int  # replica.lag.time.max.ms
    needs_flush: bool = False  # flush.messages=1: only what is flushed counts
    cannot_store: frozenset[int] = frozenset()  # replicas whose log has failed, or disk is full
    allows_unclean: bool = False  # unclean.leader.election.enable


# --- logs -----------------------------------------------------------------------------------------


class EpochHistory(Protocol):
    """The leader epochs of a log (KIP-101, KIP-279)."""

    def end_of(self, epoch: int) -> tuple[int, int]:
        """Returns (the largest epoch up to `epoch`, the offset at which it ended).

        The last epoch ends at the log's end, and one before the first known one where that begins.
        Returns (NO_EPOCH, NO_OFFSET) if there is no epoch, or the last one is before `epoch`.
        """
        ...


class LeaderLog(NamedTuple):
    """The log of a replica when it becomes leader.

    Its history has the new epoch already, durably, from `log_end_offset` on.
    """

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    flushed_offset: int  # what is durable ends here
    epochs: EpochHistory


class FollowerLog(NamedTuple):
    """The log of a follower at one moment."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    flushed_offset: int  # what is durable ends here
    last_epoch: int  # the last one in its history, maybe without a batch; NO_EPOCH if there is none
    epochs: EpochHistory
    gaps_end_offset: int  # before it lies what has replaced the batches that compaction removed


# --- actions of both ------------------------------------------------------------------------------


class AdvanceHighWatermark(NamedTuple):
    """Set the log's high watermark, which never goes back."""

    offset: int


# --- actions of a leader --------------------------------------------------------------------------


class ChangeIsr(NamedTuple):
    """Store a record, if the partition's key has not been modified since `mod_revision`.

    The transaction also compares the leader's own registration, and for each one added the broker
    epoch of its fetch, and that it is neither fenced nor stopping. The shell then calls one of
    `on_change_applied`, `on_change_refused` and `on_change_unknown` with this value.
    """

    record: PartitionRecord  # with a nonce that no other proposal has
    mod_revision: int
    added: Mapping[int, int]  # broker id -> broker epoch


class WakeFetches(NamedTuple):
    """Answer the parked fetches that `Leader.has_updates` is true of."""


class StepDown(NamedTuple):
    """Lead no more. Waiting requests get NOT_LEADER_OR_FOLLOWER."""

    reason: str


class Suspend(NamedTuple):
    """Answer no client until `Resume`. Waiting requests get NOT_LEADER_OR_FOLLOWER.

    Followers are answered as before, and no role ends.
    """


class Resume(NamedTuple):
    """Answer clients again, in the same leader epoch."""


LeaderAction = AdvanceHighWatermark | ChangeIsr | WakeFetches | StepDown | Suspend | Resume


# --- actions of a follower ------------------------------------------------------------------------


class Append(NamedTuple):
    """Append the records of the answer, if it has any; then call `Follower.on_appended`."""


class Truncate(NamedTuple):
    """Cut the log, with everything that belongs to it, to an end offset.

    Epochs that begin at the offset or after it go, too, even where the log ends there already: a
    leader that appended nothing leaves such an entry. Only after an unclean election, or after more
    failures than min.insync.replicas allows, is `offset` below the high watermark. The shell logs
    that loudly: records that were acknowledged are lost.
    """

    offset: int
    is_below_high_watermark: bool


class RestartAt(NamedTuple):
    """Drop the whole log, and begin an empty one. Its high watermark is the same offset.

    The leader has what was dropped before `end_offset`.
    """

    offset: int
    end_offset: int


class Flush(NamedTuple):
    """Make the log durable up to its end; only then does the follower fetch again."""


class RaiseLogStart(NamedTuple):
    """Raise the log's start; records before it may be deleted."""

    offset: int


class WaitBefore(NamedTuple):
    """Wait so long before the next fetch."""

    ms: int


FollowerAction = (
    Append | Truncate | RestartAt | AdvanceHighWatermark | RaiseLogStart | Flush | WaitBefore
)
