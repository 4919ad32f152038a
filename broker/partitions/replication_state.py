"""A leader's facts about its log, from storage to the wire and back (Fetch, tag 29802).

How they are written is in `protocol`, what they mean in `storage`; this module knows both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from tidelog.broker.partitions.conversion import copied_as
from tidelog.broker.pools import ON_LOOP
from tidelog.broker.settings import is_internal
from tidelog.protocol.api.fetch import (
    AdoptedBatches,
    AppendTimeCorrection,
    EpochStart,
    PartitionData,
    ReplicationState,
    SegmentAppendTimes,
)
from tidelog.protocol.records.layout import NEWEST_MAGIC, NO_TIMESTAMP
from tidelog.storage import checkpoints
from tidelog.storage.log.replication.leader_state import ForFollower, LeaderState, leader_state
from tidelog.storage.log.replication.received import unpacked
from tidelog.storage.log.slices import Fetched
from tidelog.storage.segment.appended.layout import UNKNOWN
from tidelog.storage.time.adoption import Adopted
from tidelog.storage.time.corrections import Correction, Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.protocol.api.fetch import FetchPartition
    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.replication.received import AppendedFrom
    from tidelog.storage.log.slices import SliceAppendTimes

_NEVER = -1


def sent_append_times(slices: Sequence[SliceAppendTimes]) -> list[SegmentAppendTimes]:
    """Returns append times as Fetch carries them."""
    return [SegmentAppendTimes(base_offset=base, entries=entries) for base, entries in slices]


def sent_state(read: ForFollower) -> ReplicationState:
    """Returns what a follower is sent beside the batches."""
    leader = read.leader
    from_ms, to_ms = leader.late_horizons or (UNKNOWN, UNKNOWN)
    return ReplicationState(
        epochs=[EpochStart(epoch=epoch, start_offset=start) for epoch, start in read.epochs],
        last_append_time_ms=_or(leader.last_append_time_ms, UNKNOWN),
        max_event_time_ms=_or(leader.max_event_time, NO_TIMESTAMP),
        compacted_offset=_or(leader.cleaned_offset, _NEVER),
        back_offset=leader.back_offset,
        mark_epoch=leader.mark.epoch,
        mark_number=leader.mark.number,
        corrections=[AppendTimeCorrection(**each._asdict()) for each in leader.corrections],
        adopted=[AdoptedBatches(**each._asdict()) for each in leader.adopted or ()],
        late_horizons_from_ms=from_ms,
        late_horizons_to_ms=to_ms,
    )


def state_alone(partition: Partition) -> ReplicationState:
    """Returns what a follower is sent whose fetch gets no records."""
    state = partition.state
    with partition.hold() as version:
        return sent_state(ForFollower(Fetched([], 0, 0), [], (), leader_state(state, version)))


def facts(partition: Partition) -> object:
    """Returns what followers should know of a log, to be compared with what they were sent."""
    state = partition.state
    return (
        state.ends,
        state.version.log_start_offset,
        state.last_append_time_ms,
        state.cleaning.cleaned_offset,
        state.timing.back_offset,
        state.timing.mark,
        state.timing.corrections,
        state.timing.adoptions,
        state.timing.steps,
    )


class ReadForFollower(NamedTuple):
    """The answer for one partition, the bytes of its records, and how many were converted."""

    data: PartitionData
    size: int
    converted: int


def read_for_follower(
    partition: Partition,
    wanted: FetchPartition,
    max_bytes: int,
    *,
    minimum_one: bool,
    may_block: bool,
    newest_magic: int = NEWEST_MAGIC,
    check: Callable[[], None] = ON_LOOP.check,
) -> ReadForFollower:
    """Reads one partition for a follower's fetch.

    Batches are returned whole. Those of a newer format than `newest_magic` are converted, unless
    they would lose more than their times (`convert.down_convert_copy`), or belong to a topic of the
    brokers' own. `check` is called between steps of a conversion. Raises what it raises, the errors
    of `Reader.read_for_follower`, and without `may_block` WouldConvert.
    """
    read = partition.reader.read_for_follower(
        wanted.fetch_offset, max_bytes, minimum_one=minimum_one, may_block=may_block
    )
    _, size, first_batch_size = read.fetched
    buffers: Sequence[Buffer] = read.fetched.buffers
    converted = 0
    if size < first_batch_size:
        read = read._replace(append_times=[], epochs=())
        buffers, size = [], 0
    elif newest_magic < NEWEST_MAGIC and not is_internal(partition.topic):
        records = copied_as(buffers, newest_magic, check, may_block=may_block)
        buffers = cast("Sequence[Buffer]", records.buffers)  # converted, so in memory
        size, converted = records.size, records.converted
    leader = read.leader
    data = PartitionData(
        partition_index=wanted.partition,
        high_watermark=leader.high_watermark,
        last_stable_offset=leader.high_watermark,
        log_start_offset=leader.log_start_offset,
        aborted_transactions=None,
        records=list(buffers),
        replication_state=sent_state(read),
    )
    if read.append_times:
        data.append_times = sent_append_times(read.append_times)
    return ReadForFollower(data, size, converted)


def received_append_times(data: PartitionData) -> list[AppendedFrom]:
    """Returns the append times of a leader's answer by offset. Raises CorruptMessage."""
    slices = data.append_times or ()
    return unpacked([(each.base_offset, each.entries) for each in slices])


def received_epochs(state: ReplicationState) -> list[checkpoints.EpochStart]:
    """Returns the leader epochs of a leader's answer, oldest first."""
    return [checkpoints.EpochStart(each.epoch, each.start_offset) for each in state.epochs]


def received_state(data: PartitionData, state: ReplicationState, behind_ms: int = 0) -> LeaderState:
    """Returns the facts of a leader's answer, whose clock is so far behind, as a follower takes them over."""
    horizons = (state.late_horizons_from_ms, state.late_horizons_to_ms)
    return LeaderState(
        data.high_watermark,
        data.log_start_offset,
        _or_none(state.last_append_time_ms, UNKNOWN),
        _or_none(state.max_event_time_ms, NO_TIMESTAMP),
        state.back_offset,
        Mark(state.mark_epoch, state.mark_number),
        tuple(
            Correction(
                each.start_offset,
                each.end_offset,
                each.since_ms,
                each.until_ms,
                each.shift_ms,
                each.to_ms,
            )
            for each in state.corrections
        ),
        tuple(Adopted(each.end_offset, each.time_ms) for each in state.adopted),
        _or_none(state.compacted_offset, _NEVER),
        None if horizons[0] == UNKNOWN else horizons,
        behind_ms,
    )


def _or(value: int | None, missing: int) -> int:
    return missing if value is None else value


def _or_none(value: int, missing: int) -> int | None:
    return None if value == missing else value
