"""Mistakes to plant: in the product's rules of replication, and in the broker simulated here.

Each replaces one rule, or two that catch each other's mistakes. The checker has to notice every one
of them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from broker.membership import clean_start, registration
from broker.metadata.store import Compare
from broker.replication import (
    controller,
    election,
    in_sync,
    isr_change,
    leadership,
    reassignment,
    transactions,
)
from broker.replication.follower import Follower
from broker.replication.in_sync import InSyncReplicas
from broker.replication.leader import Leader
from broker.replication.leadership import Leadership
from broker.replication.lease import Lease
from broker.replication.messages import AdvanceHighWatermark
from protocol.errors import ErrorCode
from tests.simulation.replication.cluster.broker import Broker
from tests.simulation.replication.cluster.log import Log
from tests.simulation.replication.cluster.replica import Replica
from tests.simulation.replication.cluster.settings import due

if TYPE_CHECKING:
    from collections.abc import Iterator

ON_ANSWER = Follower.on_answer
BECOME_FOLLOWER = Replica.become_follower
RETAIN = Broker.retain
LED_BY = election.led_by


class Patch(NamedTuple):
    """A rule: where it is, its name, and what replaces it."""

    owner: Any
    name: str
    wrong: Any


class Mistake(NamedTuple):
    """Rules that are replaced, and a seed that catches it, tried first; a change may move it."""

    patches: tuple[Patch, ...]
    known: int = 1


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


def cut_to_high_watermark(self: Replica, record: Any) -> None:
    """A follower begins by cutting its log to its own high watermark, as before KIP-101."""
    if self.log.end > self.log.high_watermark:
        self.log.truncate(self.log.high_watermark)
    BECOME_FOLLOWER(self, record)


def take_high_watermark_first(self: Follower, request: Any, answer: Any, log: Any) -> Any:
    """The high watermark of an answer that says truncate is taken, too."""
    actions = ON_ANSWER(self, request, answer, log)
    if answer.diverging is not None and actions:
        offset = max(log.high_watermark, min(answer.high_watermark, log.log_end_offset))
        return [AdvanceHighWatermark(offset), *actions]
    return actions


def without_asking(self: Follower, request: Any, answer: Any, log: Any) -> Any:
    """An answer is taken by whom it did not ask, in whatever epoch."""
    self._asked = request
    return ON_ANSWER(self, request, answer, log)


def leave(name: str) -> Any:
    """Returns a truncation that leaves one of the things that lie beside the batches."""
    cut = Log._cut_beside

    def cut_the_rest(self: Log) -> None:
        kept = getattr(self, name)
        cut(self)
        setattr(self, name, kept)

    return cut_the_rest


def retain_everywhere(self: Broker) -> None:
    """Followers delete by their own clocks, as Kafka's do."""
    RETAIN(self)
    for key, replica in self.replicas.items():
        if replica.leader is None:
            settings = self.settings(key)
            offset = due(replica.log, settings, self.clock.wall_ms(self.now_ms))
            if offset > replica.log.start:
                replica.log.delete_before(offset)


def unchecked(key: str, _: int) -> Compare:
    """Compares nothing but that the key is there."""
    return Compare(key, "mod", ">", 0)


def in_the_same_epoch(record: Any, *args: Any) -> Any:
    """A new leader takes over the leader epoch."""
    return LED_BY(record, *args)._replace(leader_epoch=record.leader_epoch)


def all_that_live(image: Any) -> controller.Able:
    """Whoever has a session can lead, fenced or stopping."""
    return controller.Able(frozenset(image.brokers), {}, {})


def any_replica(record: Any, _: Any, able: Any, **__: Any) -> int:
    """Whoever lives may lead."""
    return election._first(record.replicas, able)


def take_all(self: Follower, answer: Any, log: Any) -> int:
    """The leader's high watermark, beyond the follower's own log."""
    return max(log.high_watermark, answer.high_watermark)


_NO_ELR = always(())

PLANTED: dict[str, Mistake] = {
    # the five likeliest
    "a change of the ISR counts before it is known": Mistake(
        (Patch(InSyncReplicas, "_count", count_the_proposal),)
    ),
    "a follower cuts its log to its high watermark": Mistake(
        (Patch(Replica, "become_follower", cut_to_high_watermark),), 16
    ),
    "append times are not cut with the log": Mistake((Patch(Log, "_cut_beside", leave("times")),)),
    "epochs are not cut with the log": Mistake((Patch(Log, "_cut_beside", leave("epochs")),)),
    "producers are not cut with the log": Mistake((Patch(Log, "_cut_beside", leave("producers")),)),
    "an answer of an older leader counts": Mistake(
        (
            Patch(Replica, "is_followed_by", always(True)),
            Patch(Follower, "on_answer", without_asking),
        )
    ),
    "the high watermark comes from an answer that says truncate": Mistake(
        (Patch(Follower, "on_answer", take_high_watermark_first),)
    ),
    "every start is clean": Mistake((Patch(clean_start, "is_clean", always(True)),)),
    # ours
    "a new leader stamps by its clock alone": Mistake(
        (Patch(Broker, "append_time", lambda self, _: self.clock.wall_ms(self.now_ms)),)
    ),
    "followers delete by their own clocks": Mistake((Patch(Broker, "retain", retain_everywhere),)),
    "a broker that hangs keeps its lease": Mistake((Patch(Lease, "may_renew", always(True)),)),
    "a pause past the lease is not noticed": Mistake(
        (Patch(Lease, "_was_paused_past_end", always(False)),), 24
    ),
    # the rest
    "the high watermark moves below min.insync.replicas": Mistake(
        (Patch(leadership, "may_advance", always(True)),)
    ),
    "acks=all is answered after the leader's append": Mistake(
        (Patch(Leadership, "_is_committed", always(True)),)
    ),
    "what is not flushed counts": Mistake(
        (
            Patch(Leadership, "fetchable_end", property(lambda self: self.log_end_offset)),
            Patch(Follower, "_waits_for_flush", always(False)),
        )
    ),
    "there is no ELR": Mistake(
        (
            Patch(election, "elr_after", _NO_ELR),
            Patch(in_sync, "elr_after", _NO_ELR),
            Patch(registration, "elr_after", _NO_ELR),
        )
    ),
    "fenced brokers are elected": Mistake((Patch(controller, "able", all_that_live),)),
    "sessions are not compared": Mistake(
        (
            Patch(controller, "able", all_that_live),
            Patch(transactions, "as_seen", lambda *_: Compare("cluster", "mod", ">", 0)),
        )
    ),
    "every election may be unclean": Mistake(
        (
            Patch(
                election,
                "_last_resort",
                lambda record, _, able, **__: election._first(record.replicas, able),
            ),
        )
    ),
    "a new leader takes over the epoch": Mistake((Patch(election, "led_by", in_the_same_epoch),)),
    "a change of the ISR compares no revision": Mistake(
        (Patch(isr_change, "unmodified", unchecked),)
    ),
    "divergence is not noticed": Mistake((Patch(Leadership, "_diverging_epoch", always(None)),)),
    "a follower takes a high watermark beyond its log": Mistake(
        (Patch(Follower, "_high_watermark", take_all),)
    ),
    "a retry is appended again": Mistake((Patch(Replica, "known", always(None)),)),
    "who fetches is in sync": Mistake(
        (
            Patch(Leadership, "_has_committed", always(True)),
            Patch(Leadership, "_has_reached_epoch", always(True)),
            Patch(Leadership, "_would_stay", always(True)),
        )
    ),
    "a fetch of an older registration counts": Mistake(
        (
            Patch(Leadership, "_judge_registration", always(ErrorCode.NONE)),
            Patch(Leadership, "_is_of_registration", always(True)),
            Patch(isr_change, "_can_join", always(True)),
        ),
        44,
    ),
    "an unknown outcome is a failure": Mistake(
        (Patch(Leader, "on_change_unknown", read_the_old_value),), 37
    ),
    "the largest event time does not travel": Mistake(
        (Patch(Log, "take_mark", always(None)),), 119
    ),
    "a reassignment does not wait": Mistake(
        (Patch(reassignment, "_is_target_ready", always(True)),), 59
    ),
}


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plants one mistake for the time of a `with` block; None plants none."""
    with contextlib.ExitStack() as stack:
        for patch in () if name is None else PLANTED[name].patches:
            stack.enter_context(mock.patch.object(patch.owner, patch.name, patch.wrong))
        yield
