"""What a leader's answer brings for a log that follows, and whether it takes long to store it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.partitions import replication_state
from tidelog.protocol.errors import CorruptMessage
from tidelog.storage.log.replication.leader_state import written_with

if TYPE_CHECKING:
    from tidelog.protocol.api.fetch import PartitionData, ReplicationState
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.replication.leader_state import LeaderState
    from tidelog.storage.log.state import LogState

# What is appended on the event loop at once: some 4 ms of work. Large batches cost less CPU there than in a
# thread.
LOOP_BYTES = 1 << 20


def state_of(data: PartitionData) -> ReplicationState:
    """Returns the state of the leader's log in an answer. Raises CorruptMessage if there is none."""
    if data.replication_state is None:
        raise CorruptMessage("the leader sent records without the state of its log")
    return data.replication_state


def records_of(data: PartitionData) -> Buffer:
    """Returns the records of an answer, which was decoded: they are in one buffer."""
    records = data.records
    return b"" if records is None or isinstance(records, list) else records


def leader_state(data: PartitionData, sent: ReplicationState, behind_ms: int) -> LeaderState:
    """Returns the state of the log of a leader whose clock is so far behind this broker's."""
    return replication_state.received_state(data, sent, behind_ms)


def is_quick(state: LogState, data: PartitionData, behind_ms: int) -> bool:
    """Returns whether nothing of an answer waits for the disk. Raises CorruptMessage."""
    sent, records = state_of(data), records_of(data)
    return (
        (not records or (state.is_read and len(records) <= LOOP_BYTES))
        and (not sent.epochs or sent.epochs[-1].epoch <= state.epochs.latest)
        and data.log_start_offset <= state.version.log_start_offset
        and (sent.mark_epoch, sent.mark_number) == state.timing.mark
        and sent.back_offset == state.timing.back_offset
        and _is_clock_noted(state, behind_ms, has_batches=bool(records))
    )


def _is_clock_noted(state: LogState, behind_ms: int, *, has_batches: bool) -> bool:
    """Returns whether the log has noted already how far the leader's clock is behind."""
    if not behind_ms and state.timing.written_behind is None:
        return True
    return written_with(state, behind_ms, (), has_batches) == state.timing.written_behind


def is_known(state: LogState, data: PartitionData, behind_ms: int) -> bool:
    """Returns whether an answer without records has nothing new of the leader's times."""
    sent = data.replication_state
    if sent is None:
        return True
    leader = leader_state(data, sent, behind_ms)
    return (
        leader.mark == state.timing.mark
        and leader.corrections == state.timing.corrections
        and leader.cleaned_offset == state.leadership.leader_cleaned_offset
        and (leader.adopted is None or leader.adopted == state.timing.adoptions.ranges)
        and leader.back_offset == state.timing.back_offset
        and (not leader.behind_ms or state.leadership.compared_epoch == state.leadership.epoch)
        and leader.last_append_time_ms == state.last_append_time_ms
        and leader.max_event_time == state.max_event_time
    )
