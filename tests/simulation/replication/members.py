"""Members of consumer groups: they commit offsets and ask for them, at whichever broker leads.

A member commits its next offset when the last one was acknowledged. Each request has a connection
of its own, which is closed when the member gives up: what arrives on it later is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.checking.ledger import BrokenInvariantError
from tests.simulation.replication.clients import BACKOFF_MS, TIMEOUT_MS, Client
from tests.simulation.replication.cluster.coordinating import TOPIC
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.simulation.replication.world import World


class Member(Client):
    """The only member of a group."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number, TOPIC, 0)
        pick = world.timeline.random
        self.pause_ms = pick.choice([300, 1_500])
        self.committing: int | None = None
        self.acknowledged = -1
        self.losses = 0  # of the partition, as far as they are excused
        world.timeline.after(pick.randint(0, 500), self.next)

    def begin_partition(self) -> None:
        self.committing, self.acknowledged = None, -1

    @property
    def is_waiting(self) -> bool:
        """Whether a commit has not been acknowledged."""
        return self.committing is not None

    def next(self) -> None:
        """Commits, or asks for what is committed."""
        if self.is_stopped and self.committing is None:
            return
        timeline, leader = self.world.timeline, self.find_leader()
        if leader is None:
            timeline.after(BACKOFF_MS, self.next)
            return
        if self.committing is None and timeline.random.random() < 0.6:
            self.committing = self.acknowledged + 1
        self.attempt += 1
        life = self.world.brokers[leader].life
        what, known = ("commit", self.committing), self.acknowledged
        if self.committing is None:
            what = ("committed", None)
        self.world.to_broker(self.id, leader, life, "coordinate", what, self.attempt, self, known)
        timeline.after(TIMEOUT_MS, self.answered, self.attempt, None, known, None)

    def answered(
        self, attempt: int, error: ErrorCode | None, known: int, offset: int | None
    ) -> None:
        """Takes the answer to an attempt; `known` was acknowledged when it was sent."""
        if attempt != self.attempt:
            return
        self.attempt += 1
        self.was_answered(is_served=error == ErrorCode.NONE)
        timeline = self.world.timeline
        if error != ErrorCode.NONE:
            timeline.after(timeline.random.randint(1, BACKOFF_MS), self.next)
            return
        if offset is None:
            self.acknowledged, self.committing = self.committing, None
            self.world.checker.committed += 1
        else:
            self._check(known, offset)
        timeline.after(timeline.random.randint(1, self.pause_ms), self.next)

    def _check(self, known: int, offset: int) -> None:
        """Invariant 12: what was acknowledged is never answered older."""
        ledger = self.world.checker.stored.ledgers[self.key]
        if ledger.losses > self.losses or ledger.is_excused:
            self.losses, self.acknowledged = ledger.losses, offset
        elif offset < known:
            raise BrokenInvariantError(
                f"invariant 12: group {self.id} is answered {offset}, and {known} was acknowledged"
            )
