"""What one follower has asked of this broker and was not answered yet, partition by partition.

A follower's fetches are one session (KIP-227): each names only the partitions that are to be fetched anew.
A partition is answered once, when there is an update for it; then the follower fetches it again, from where
its log ends now. So a fetch costs what has changed, however many partitions a follower has. A session is
that of its connection, and ends with it.

What a leader knows of its log beside the records changes without an update, too. This state is compared with
what the follower was sent, now and then, and sent again after a while whether or not it has changed: the
follower may have failed to store it. A follower joins the in-sync replicas by a fetch, so the pending fetch
of a follower that is out of sync is answered now and then, too: what kept it out may be over.
"""

from __future__ import annotations

from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.broker.alarm import Alarm
from tidelog.broker.partitions.fetch.consumers import directs_consumers
from tidelog.broker.partitions.fetch.followers.pending_fetch import PendingFetch
from tidelog.broker.partitions.fetch.followers.throttled import Throttled
from tidelog.broker.partitions.fetch.session_epochs import FIRST, SESSIONLESS, next_epoch
from tidelog.broker.partitions.replication_state import facts
from tidelog.broker.partitions.views import received_fetch
from tidelog.protocol.errors import (
    FetchSessionIdNotFound,
    InvalidFetchSessionEpoch,
    NotLeaderOrFollower,
    UnknownTopicId,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from uuid import UUID

    from tidelog.broker.partitions.leading.leaders import Leaders
    from tidelog.broker.partitions.leading.partition_leader import PartitionLeader
    from tidelog.broker.partitions.leading.pending_elections import PendingElections
    from tidelog.broker.partitions.leading.shared_reads import SharedReads
    from tidelog.broker.partitions.replication.quota import ReplicationQuotas
    from tidelog.broker.partitions.services import Services
    from tidelog.protocol.api.fetch import FetchPartition, FetchRequest, ReplicaState
    from tidelog.protocol.errors import BrokerError
    from tidelog.protocol.topic_partition import TopicIdPartition

# Partitions with updates in one answer, at most: some 5 ms of work on the event loops of leader and follower.
_ANSWERED = 64
_LOOK_S = 0.5  # how often what leaders know is compared with what was last sent
_LOOKED_AT, _LOOKS = 100, 8  # partitions at once: so many, or all in so many looks
_SEND_AGAIN_S = 120.0
_SENT_AGAIN = 32  # partitions in one answer, at most
_SENT_LOOKED_AT = 1000  # at once, to find them, and those that are not asked for any more


class WaitingFetch(Protocol):
    """The fetch of a session that waits for an update."""

    def wake(self) -> None:
        """Ends the wait."""

    def wake_soon(self) -> None:
        """Ends the wait in a moment."""


class SessionContext(NamedTuple):
    """What all sessions of followers use."""

    services: Services
    leaders: Leaders[PartitionLeader]
    elections: PendingElections
    shared_reads: SharedReads
    quotas: ReplicationQuotas
    now_ms: Callable[[], int]  # monotonic


class FollowerSession:
    """The pending fetches of one follower, on one connection."""

    __slots__ = (
        "_context",
        "_epoch",
        "_fetches",
        "_is_alone",
        "_last_sent",
        "_late",
        "_looked_s",
        "_replica",
        "_to_look_at",
        "_woken",
        "alarm",
        "directs_consumers",
        "elections",
        "fetched_ms",
        "shared_reads",
        "throttled",
        "waiting",
    )

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self.elections, self.shared_reads = context.elections, context.shared_reads
        # So they read from followers.
        self.directs_consumers = directs_consumers(context.services.config)
        self._epoch = FIRST
        self._is_alone = False  # the fetch has no session
        self._replica = -1
        self._fetches: dict[TopicIdPartition, PendingFetch] = {}
        self._woken: dict[
            PendingFetch, None
        ] = {}  # pending fetches for which there may be an update
        self._late: dict[
            PendingFetch, None
        ] = {}  # those for which there is an update that can wait
        self._last_sent: dict[
            TopicIdPartition, tuple[float, object]
        ] = {}  # when and what, the oldest first
        self.fetched_ms = 0  # when its last fetch came
        self._looked_s = 0.0
        self._to_look_at: Iterator[TopicIdPartition] = iter(())
        self.waiting: WaitingFetch | None = None  # the fetch that waits for an update
        self.alarm = Alarm(self._wait_is_over)
        self.throttled = Throttled(context.quotas, context.now_ms)

    def __len__(self) -> int:
        return len(self._fetches)

    @property
    def has_woken(self) -> bool:
        """Whether there may be an update."""
        return bool(self._woken)

    @property
    def has_late(self) -> bool:
        """Whether there is an update that can wait."""
        return bool(self._late)

    # --- pending fetches --------------------------------------------------------------------------

    def take(self, request: FetchRequest) -> None:
        """Adds the partitions that a fetch names, and drops those that it forgets.

        Raises FetchSessionIdNotFound and InvalidFetchSessionEpoch.
        """
        if request.session_epoch > FIRST:
            self._check(request)
        elif self._fetches:
            self.close()
        self._epoch = max(request.session_epoch, FIRST)
        self._is_alone = request.session_epoch == SESSIONLESS
        self.fetched_ms = self._context.now_ms()
        replica = request.replica_state
        assert replica is not None
        self._replica = replica.replica_id
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                self._forget((forgotten.topic_id, index))
        for topic in request.topics:
            for wanted in topic.partitions:
                self._add(topic.topic_id, wanted, replica)

    def _check(self, request: FetchRequest) -> None:
        if request.session_id != self.session_id:
            raise FetchSessionIdNotFound("a fetch session is that of one connection")
        expected = next_epoch(self._epoch)
        if request.session_epoch != expected:
            raise InvalidFetchSessionEpoch(f"{request.session_epoch} instead of {expected}")

    @property
    def session_id(self) -> int:
        """The number that a follower has to repeat; a connection has one session."""
        return 1

    def _add(self, topic_id: UUID, wanted: FetchPartition, replica: ReplicaState) -> None:
        name = (topic_id, wanted.partition)
        led = self._context.leaders.by_name.get(name)
        error: type[BrokerError] = NotLeaderOrFollower
        is_coming = False
        if led is None:
            topic = self._context.services.metadata.image.topics_by_id.get(topic_id)
            is_coming = self.elections.is_coming(topic, wanted.partition)
            if topic is None:
                error = UnknownTopicId
        before = self._fetches.get(name)
        if before is not None:
            self._end(before)
        sent = received_fetch(wanted, replica)
        pending = PendingFetch(self, name, wanted, sent, led, error, is_coming=is_coming)
        self._fetches[name] = pending
        if pending.is_judged:
            if not self.throttled.holds(pending):
                self._woken[pending] = None
            return
        pending.park()
        if pending.has_updates():
            self._late[pending] = None

    def _forget(self, name: TopicIdPartition) -> None:
        """Drops a partition for which the follower asks no more."""
        pending = self._fetches.pop(name, None)
        if pending is not None:
            self._end(pending)
            self.throttled.discard(name)
        self._last_sent.pop(name, None)
        led = self._context.leaders.by_name.get(name)
        if led is not None:
            led.on_forgotten(self._replica)

    def _end(self, pending: PendingFetch) -> None:
        """Ends a pending fetch."""
        pending.is_open = False
        pending.unpark()
        self._woken.pop(pending, None)
        self._late.pop(pending, None)

    def _wait_is_over(self) -> None:
        if self.waiting is not None:
            self.waiting.wake()

    def close(self) -> None:
        """Ends the session: nothing that the follower has asked for is answered any more."""
        self.alarm.close()
        self.throttled.close()
        for name in {**self._fetches, **self._last_sent}:
            self._forget(name)

    # --- updates ----------------------------------------------------------------------------------

    def wake(self, pending: PendingFetch, *, at_once: bool = True) -> None:
        """Marks a pending fetch as one with updates, and wakes the waiting fetch, which checks that."""
        if not pending.is_open or self.throttled.keeps(pending):
            return
        if at_once:
            self._woken[pending] = None
            if self.waiting is not None:
                self.waiting.wake()
        else:
            self._late[pending] = None
            if self.waiting is not None:
                self.waiting.wake_soon()

    def answerable(self, now_s: float) -> list[PendingFetch]:
        """Returns the fetches to answer now, which are pending no more.

        If they are many, those that have waited longest; the next fetch is answered the rest at once.
        """
        woken = [*self._woken, *(pending for pending in self._late if pending not in self._woken)]
        self._woken, self._late = {}, {}
        for pending in woken[_ANSWERED:]:
            self._woken[pending] = None
            pending.hold()
        found = [
            pending
            for pending in woken[:_ANSWERED]
            if pending.look_again() and not self.throttled.holds(pending)
        ]
        if now_s - self._looked_s >= _LOOK_S:
            self._looked_s = now_s
            known = set(found)
            for pending in (*self._worth_an_answer(), *self._sent_long_ago(now_s)):
                if pending not in known:
                    known.add(pending)
                    pending.look_again()
                    found.append(pending)
        self._answered(found, now_s)
        return found

    def all_of_them(self, now_s: float) -> list[PendingFetch]:
        """Returns all pending fetches, which are pending no more.

        Those for a leader that is about to begin stay open, if the follower has a session.
        """
        found = [
            pending for pending in self._fetches.values() if self._is_alone or not pending.is_coming
        ]
        for pending in found:
            pending.look_again()
        self._answered(found, now_s)
        return found

    def _answered(self, fetches: Collection[PendingFetch], now_s: float) -> None:
        for pending in fetches:
            name = pending.name
            self._end(pending)
            self._fetches.pop(name, None)
            self._last_sent.pop(name, None)
            self.throttled.discard(name)
            if pending.led is not None and pending.has_leader_state:
                self._last_sent[name] = now_s, facts(pending.led.partition)

    def _worth_an_answer(self) -> list[PendingFetch]:
        """Returns pending fetches to answer, so that the follower learns something or fetches again.

        The leader knows something else than was sent, or the follower is not in the ISR.
        Some of the pending fetches are checked, in turn, if they are many.
        """
        fetches, sent = self._fetches, self._last_sent
        found = []
        if not length_hint(self._to_look_at):
            self._to_look_at = iter(list(fetches))
        for name in islice(self._to_look_at, max(_LOOKED_AT, len(fetches) // _LOOKS)):
            pending = fetches.get(name)
            if pending is None or pending.led is None:
                continue
            is_known = name in sent and sent[name][1] == facts(pending.led.partition)
            if not is_known or pending.is_out_of_sync():
                found.append(pending)
        return found

    def _sent_long_ago(self, now_s: float) -> list[PendingFetch]:
        """Returns pending fetches of which nothing was sent for long, some of them if they are many."""
        found: list[PendingFetch] = []
        gone: list[
            TopicIdPartition
        ] = []  # not asked for any more: the follower follows another broker
        for name, (sent_s, _) in islice(self._last_sent.items(), _SENT_LOOKED_AT):
            if now_s - sent_s < _SEND_AGAIN_S or len(found) >= _SENT_AGAIN:
                break
            if name in self._fetches:
                found.append(self._fetches[name])
            else:
                gone.append(name)
        for name in gone:
            del self._last_sent[name]
        return found
