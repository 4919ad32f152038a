"""Mistakes to inject in the product's rules of replication, and in its storage.

Each replaces one rule, or more where one catches the mistake of the other (README.md says which).
The checker has to notice every one of them. Those in what is around the rules are in `injected_around.py`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from tidelog.broker.controller import controller, election
from tidelog.broker.coordinators.ownership import Ownership
from tidelog.broker.lifecycle import clean_start, registration
from tidelog.broker.lifecycle.lease import Lease
from tidelog.broker.metadata import eligible_leaders, transactions
from tidelog.broker.metadata.store import Compare
from tidelog.broker.partitions.replication import epochs, high_watermark, isr, isr_change
from tidelog.broker.partitions.replication.follower import Follower
from tidelog.broker.partitions.replication.isr import InSyncReplicas
from tidelog.broker.partitions.replication.leader import Leader
from tidelog.broker.partitions.replication.messages import NO_EPOCH, Diverging
from tidelog.protocol.errors import ErrorCode, NotLeaderOrFollower
from tidelog.protocol.group_errors import NotCoordinator
from tidelog.storage.log import appender
from tidelog.storage.log.compactor import Compactor
from tidelog.storage.log.epochs import LeaderEpochs
from tidelog.storage.log.producers.producer_state import Producers
from tidelog.storage.log.recovery import unknown_append_times
from tidelog.storage.log.replication import leader_state
from tidelog.storage.log.replication.roles import Roles
from tidelog.storage.log.retention.retainer import Retainer
from tidelog.storage.segment.append_times import AppendTimes
from tidelog.storage.segment.appended import entries
from tidelog.storage.time.retention import retention_of
from tidelog.storage.time.stamping import stamps_at
from tidelog.storage.time.timestamp import exceeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


ON_ANSWER = Follower.on_answer
LED_BY = eligible_leaders.led_by
LEADER_STATE = leader_state.leader_state
TAKE_LAST = leader_state.take_last_append_time
BEGIN = getattr(Roles, "_begin")  # noqa: B009 - the bug is injected in it


class Patch(NamedTuple):
    """A rule: where it is, its name, and what replaces it."""

    owner: Any
    name: str
    wrong: Any


class Mistake(NamedTuple):
    """Rules that are replaced, and a seed that catches it, tried first; a change may move it.

    `fault`: the only fault that its seeds have; others would hide it from most seeds. `has_etcd`:
    all its seeds have the metadata in etcd.
    """

    patches: tuple[Patch, ...]
    known: int = 1
    fault: str = ""
    has_etcd: bool = False


def mistake(owner: Any, name: str, wrong: Any, **more: Any) -> Mistake:
    """Returns the mistake of one rule that is replaced."""
    return Mistake((Patch(owner, name, wrong),), **more)


def always(result: Any) -> Any:
    """Returns a function that ignores what it is asked."""
    return lambda *_, **__: result


def count_the_proposal(self: InSyncReplicas) -> None:
    """Only what was proposed last counts, as if it were stored."""
    change = self._undecided
    self.maximal = frozenset(self.stored.record.isr if change is None else change.record.isr)


def read_the_old_value(self: Leader, change: Any) -> None:
    """The old value is still there, so the change must have failed."""
    self._in_sync.refuse(change)


def nothing(*_: Any, **__: Any) -> None:
    """Does nothing."""


def served_at_once(self: Ownership, index: int) -> int:
    """The groups of a partition are served as soon as the metadata name this broker."""
    known = self._partitions.get(index)
    if known is None:
        raise NotCoordinator
    return known.epoch


def cut_to_high_watermark(self: Follower, request: Any, answer: Any, log: Any) -> Any:
    """A follower begins by cutting its log to its own high watermark, as before KIP-101."""
    is_first = self._is_asked(request, log) and not self._is_compared
    if is_first and answer.error == ErrorCode.NONE and log.high_watermark < log.log_end_offset:
        self._asked, self._is_compared = None, True
        return [self._truncate(log.high_watermark, log)]
    return ON_ANSWER(self, request, answer, log)


def name_the_offset_alone(leader: Leader, request: Any) -> Diverging | None:
    """A leader says where an epoch ends, and not whether it ever had it, as before KIP-279."""
    if request.last_fetched_epoch == NO_EPOCH:
        return None
    epoch, end_offset = leader.epochs.end_of(request.last_fetched_epoch)
    if end_offset >= request.fetch_offset:
        return None
    return Diverging(epoch if epoch == NO_EPOCH else request.last_fetched_epoch, end_offset)


def unchecked(key: str, _: int) -> Compare:
    """Compares nothing but that the key is there."""
    return Compare(key, "mod", ">", 0)


def in_the_same_epoch(record: Any, *args: Any) -> Any:
    """A new leader takes over the leader epoch."""
    return LED_BY(record, *args)._replace(leader_epoch=record.leader_epoch)


def all_that_live(image: Any) -> controller.Able:
    """Whoever has a session can lead, fenced or stopping."""
    return controller.Able(frozenset(image.brokers), {}, {}, {})


def ask_nothing_but_the_lease(self: Leader, now_ms: int) -> None:
    """A leader that is suspended answers readers, and whoever asks its coordinator."""
    if self._has_ended(now_ms):
        raise NotLeaderOrFollower


def followed_once(leader: Leader, now_ms: int, within_ms: int) -> bool:
    """A replica that has asked in this epoch keeps a leader from being suspended, however long ago."""
    return any(remote.asked_ms is not None for remote in leader.remotes.values())


def by_the_clock_alone(rules: Any, _last: int | None, now_ms: int, *_: Any, **__: Any) -> Any:
    """A leader stamps without the last append time."""
    return stamps_at(rules, None, now_ms)


def by_own_clock(_: Retainer, config: Any) -> Any:
    """Followers have the rules of a leader."""
    return retention_of(config)


def without(**fields: Any) -> Callable[..., Any]:
    """A leader does not say everything of itself."""
    return lambda *args: LEADER_STATE(*args)._replace(**fields)


def lower_always(state: Any, leader: Any, *, is_newer: bool) -> None:
    """The last append time of a follower may go down without a newer mark."""
    TAKE_LAST(state, leader, is_newer=True)


def believed_to_the_end(self: Roles, role: Any, epoch: int, _: int | None) -> None:
    """A log that was opened is readable to its end."""
    BEGIN(self, role, epoch, self._state.ends.log_end_offset)


_NO_ELR = always(())

BUGS: dict[str, Mistake] = {
    # the five likeliest: (a)
    "a change of the ISR counts before it is known": mistake(
        InSyncReplicas, "_count", count_the_proposal, known=10
    ),
    # (b)
    "a follower joins before it has reached the epoch": mistake(
        isr, "has_reached_epoch", always(True), known=8, fault="leave_behind"
    ),
    # (c)
    "a follower cuts its log to its high watermark": mistake(
        Follower, "on_answer", cut_to_high_watermark, known=2
    ),
    "divergence is answered without the leader's epoch": mistake(
        epochs, "diverging_epoch", name_the_offset_alone, known=212, fault="kill_all"
    ),
    "append times are not cut with the log": mistake(AppendTimes, "truncate", nothing, known=2),
    "epochs are not cut with the log": mistake(LeaderEpochs, "truncate_to", nothing, known=9),
    "epochs do not travel": mistake(LeaderEpochs, "within", always(()), known=2),
    # (d)
    "a fetch of another epoch counts, and is not compared": Mistake(
        (
            Patch(epochs, "judge_epoch", always(ErrorCode.NONE)),
            Patch(epochs, "diverging_epoch", always(None)),
        ),
        known=2,
    ),
    # (e)
    "every start is clean": mistake(clean_start, "is_clean", always(True), known=13),
    "an unknown outcome is a failure": mistake(
        Leader, "on_change_unknown", read_the_old_value, known=24, fault="forget_answers"
    ),
    "nobody hears that a log has failed": mistake(
        registration, "report_offline", always(None), fault="fail_syncs"
    ),
    # ours
    "an operator's mark does not travel": mistake(
        leader_state, "leader_state", without(back_offset=0), known=4
    ),
    "the last append time may always go down": mistake(
        leader_state, "take_last_append_time", lower_always, known=24
    ),
    "a new leader stamps by its clock alone": mistake(
        appender, "stamps_at", by_the_clock_alone, known=2
    ),
    "followers delete by their own clocks": mistake(Retainer, "_rules", by_own_clock, known=18),
    "a broker that hangs keeps its lease": mistake(Lease, "may_renew", always(True), fault="hang"),
    "a pause past the lease is not noticed": mistake(
        Lease, "_was_paused_past_end", always(False), fault="pause"
    ),
    # the rest
    "the high watermark moves below min.insync.replicas": mistake(
        isr, "may_advance", always(True), known=2
    ),
    "acks=all is answered after the leader's append": mistake(
        high_watermark, "is_committed", always(True)
    ),
    "what is not flushed counts": Mistake(
        (
            Patch(Leader, "fetchable_end", property(lambda self: self.log_end_offset)),
            Patch(Follower, "_waits_for_flush", always(False)),
        ),
    ),
    "there is no ELR": Mistake(
        (
            Patch(election, "elr_after", _NO_ELR),
            Patch(isr, "elr_after", _NO_ELR),
            Patch(registration, "elr_after", _NO_ELR),
        ),
        known=74,
    ),
    "fenced brokers are elected": mistake(controller, "able", all_that_live, known=3),
    "sessions are not compared": Mistake(
        (
            Patch(controller, "able", all_that_live),
            Patch(transactions, "as_seen", lambda *_: Compare("cluster", "mod", ">", 0)),
        ),
        known=3,
    ),
    "every election may be unclean": mistake(
        election,
        "_last_resort",
        lambda record, _, able, **__: election._first(record.replicas, able),
        known=14,
    ),
    "a new leader takes over the epoch": mistake(election, "led_by", in_the_same_epoch),
    "a change of the ISR compares no revision": mistake(
        isr_change, "unmodified", unchecked, known=10
    ),
    "divergence is not noticed": mistake(epochs, "diverging_epoch", always(None), known=2),
    "a retry is appended again": mistake(Producers, "check", always(None), known=3),
    "who fetches is in sync": Mistake(
        (
            Patch(isr, "has_committed", always(True)),
            Patch(isr, "has_reached_epoch", always(True)),
            Patch(isr, "would_stay", always(True)),
        ),
    ),
    "what is not committed is compacted": mistake(
        Compactor, "_limit", lambda self: self._state.ends.log_end_offset, known=59
    ),
    "batches without append times are kept": mistake(
        unknown_append_times, "lost_from", nothing, known=64
    ),
    "an opened log is readable to its end": mistake(Roles, "_begin", believed_to_the_end, known=3),
    "corrections of a clock do not travel": mistake(
        leader_state, "leader_state", without(corrections=()), known=4
    ),
    "the largest event time does not travel": mistake(
        leader_state, "leader_state", without(max_event_time=None), known=9, fault="kill_all"
    ),
    "a lookup passes by what was appended at the time": mistake(entries, "reaches", exceeds),
    "groups are served before they are loaded": mistake(
        Ownership, "check", served_at_once, known=11, fault="move_groups"
    ),
    "a leader that is cut off goes on": mistake(
        Leader, "_update_suspension", always([]), known=9, fault="cut_off"
    ),
    "a leader that is suspended answers readers": mistake(
        Leader, "check_leading", ask_nothing_but_the_lease, known=9, fault="cut_off"
    ),
    "who has followed once keeps a leader from being suspended": mistake(
        isr, "is_followed", followed_once, known=88, fault="cut_off"
    ),
}


@contextlib.contextmanager
def injected(mistake: Mistake) -> Iterator[None]:
    """Injects a mistake for the time of a `with` block."""
    with contextlib.ExitStack() as stack:
        for patch in mistake.patches:
            stack.enter_context(mock.patch.object(patch.owner, patch.name, patch.wrong))
        yield
