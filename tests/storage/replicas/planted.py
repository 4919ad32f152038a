"""Mistakes of replication to plant, each in one place; the test demands that each is caught."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.storage.log_model.planted import keep_producers, nothing
from tidelog.storage.log import appender
from tidelog.storage.log.epochs import LeaderEpochs
from tidelog.storage.log.recovery import unknown_append_times
from tidelog.storage.log.replication import leader_state, truncater
from tidelog.storage.log.replication.replica import Replica
from tidelog.storage.log.replication.roles import Roles
from tidelog.storage.log.retention.retainer import Retainer
from tidelog.storage.log.state import LogState
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.time.retention import retention_of
from tidelog.storage.time.stamping import stamps_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.storage.time.stamping import Rules, Stamps

LEADER_STATE = leader_state.leader_state
TAKE_CORRECTIONS = leader_state.take_corrections
TAKE_LAST = leader_state.take_last_append_time
BEGIN = getattr(Roles, "_begin")  # noqa: B009 - the bug is planted in it


def by_the_clock_alone(
    rules: Rules, _last: int | None, now_ms: int, *_: object, **__: object
) -> Stamps:
    return stamps_at(rules, None, now_ms)


def by_own_clock(_self: Retainer, config: Any) -> object:
    return retention_of(config)


def without(**fields: object) -> Callable[..., object]:
    def answer(*args: Any) -> object:
        return LEADER_STATE(*args)._replace(**fields)

    return answer


def lower_always(state: LogState, leader: Any, *, is_newer: bool) -> None:
    TAKE_LAST(state, leader, is_newer=True)


def newer_never(state: LogState, leader: Any) -> bool:
    state.mark = leader.mark
    return TAKE_CORRECTIONS(state, leader)


def to_the_end(state: LogState) -> int:
    return state.ends.log_end_offset


def believed_to_the_end(self: Roles, role: Any, epoch: int, _: int | None) -> None:
    BEGIN(self, role, epoch, self._state.ends.log_end_offset)


# What each is, and what is replaced by what.
PLANTED: dict[str, tuple[object, str, object]] = {
    "append times are not cut with the log": (AppendTimes, "truncate", nothing),
    "epochs are not cut with the log": (LeaderEpochs, "truncate_to", nothing),
    "producer state is not cut with the log": (truncater, "producers_before", keep_producers),
    "a new leader stamps by its clock alone": (appender, "stamps_at", by_the_clock_alone),
    "followers retain by their own clocks": (Retainer, "_rules", by_own_clock),
    "epochs do not travel": (LeaderEpochs, "within", lambda *_: ()),
    "the last append time may always go down": (
        leader_state,
        "take_last_append_time",
        lower_always,
    ),
    "a newer mark lowers nothing": (leader_state, "take_corrections", newer_never),
    "corrections do not travel": (leader_state, "leader_state", without(corrections=())),
    "the largest event time does not travel": (
        leader_state,
        "leader_state",
        without(max_event_time=None),
    ),
    "the mark does not travel": (leader_state, "leader_state", without(back_offset=0)),
    "batches without append times are kept": (unknown_append_times, "lost_from", nothing),
    "a follower is sent what is not flushed": (LogState, "stored_offset", property(to_the_end)),
    "an opened log is readable to its end": (Roles, "_begin", believed_to_the_end),
    "the leader's log start is not followed": (Replica, "_follow", nothing),
}
