"""Bugs to inject, each a way not to cut, or to take over wrongly, what belongs to a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.storage.log.epochs import LeaderEpochs
from tidelog.storage.log.recovery import gaps
from tidelog.storage.log.replication import replica, truncater
from tidelog.storage.log.replication.replica import Replica
from tidelog.storage.log.replication.truncater import Truncater
from tidelog.storage.log.state import LogState
from tidelog.storage.log.times import largest_event, partition_times
from tidelog.storage.log.times.largest_event import LargestEvent
from tidelog.storage.log.times.partition_times import Cut
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.offset_index import OffsetIndex
from tidelog.storage.segment.time_index import TimeIndex

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.protocol.wire import Buffer
    from tidelog.storage.log.producers.producer_state import Producers

CUT_ENDS = LogState.cut_ends
RECEIVE = replica.receive
PARSE_CUT = getattr(partition_times, "_cut")  # noqa: B009 - the bug is injected in it
REMAINING = LargestEvent.remaining


def nothing(*_: object, **__: object) -> None:
    """Do nothing."""


def keep_producers(producers: Producers, *_: object) -> Producers:
    return producers


def keep_high_watermark(state: LogState, end_offset: int, high_watermark: int) -> None:
    CUT_ENDS(state, end_offset, state.ends.high_watermark)


def keep_last_times(self: Truncater, end_offset: int, *, begins_anew: bool) -> tuple:
    return self._state.last_append_time_ms, self._state.timing.back_offset


def without_intention(recovery_point: int, cleaned_offset: int, *_: object) -> Cut:
    return Cut(recovery_point, cleaned_offset)


def without_append_times(data: Buffer, *_: object) -> list:
    return [each._replace(append_time_ms=7) for each in RECEIVE(data, ())]


def gaps_anywhere(*_: object, **__: object) -> int:
    return gaps.ANYWHERE


def whole_segments(self: LargestEvent, high_watermark: int, *rest: object) -> int | None:
    self.advance(high_watermark)
    self._part = largest_event._NO_PART
    return REMAINING(self, high_watermark, *rest)


def checkpoint_believed(data: memoryview) -> Cut | None:
    cut = PARSE_CUT(data)
    return None if cut is None else cut._replace(recovery_point=1 << 40)


# What each is, and what is replaced by what.
BUGS: dict[str, tuple[object, str, Callable[..., object]]] = {
    "append times are not cut": (AppendTimes, "truncate", nothing),
    "producer state is not cut": (truncater, "producers_before", keep_producers),
    "epochs are not cut": (LeaderEpochs, "truncate_to", nothing),
    "the time index is not cut": (TimeIndex, "truncate", nothing),
    "the offset index is not cut": (OffsetIndex, "truncate", nothing),
    "the high watermark is not cut": (LogState, "cut_ends", keep_high_watermark),
    "the last append time is not cut": (Truncater, "_last_times", keep_last_times),
    "the largest event time is not cut": (LargestEvent, "truncate_to", nothing),
    "only whole segments have a largest event time": (LargestEvent, "remaining", whole_segments),
    "the intention is not written": (truncater, "Cut", without_intention),
    "the checkpoint's recovery point is believed": (partition_times, "_cut", checkpoint_believed),
    "snapshots of producers are not cut": (Truncater, "_drop_snapshots", nothing),
    "segments behind the cut stay": (Truncater, "_remove", nothing),
    "told append times are not stored": (replica, "receive", without_append_times),
    "gaps of a follower are not recorded": (Replica, "_record_gaps", nothing),
    "recovery allows gaps anywhere": (gaps, "gaps_end", gaps_anywhere),
    "told epochs are not stored": (LeaderEpochs, "adopt", nothing),
    "the leader's word does not move the high watermark": (
        LogState,
        "advance_high_watermark",
        nothing,
    ),
}
