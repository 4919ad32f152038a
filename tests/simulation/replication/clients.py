"""Clients: producers with acks=all and acks=1, and consumers, as patient as real ones.

A producer sends a batch again, with the same sequence, until it is answered that it is there. It
asks any broker who leads, and never goes back to an older leader epoch. Where brokers are cut off
for long, every second client asks the leader itself, as long as that answers. Consumers read on from
where they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.cluster.network import CLIENTS
from tests.simulation.replication.cluster.requests import Produce
from tidelog.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.simulation.replication.cluster.log import Batch
    from tests.simulation.replication.world import World

TIMEOUT_MS = 3_500
BACKOFF_MS = 200
QUIET, QUIET_MS = 0.04, 9_000  # how often nothing is sent for so long
AHEAD_MS = (*[0] * 20, *[-5_000] * 10, *[60_000] * 5, -3_600_000, 4 * 3_600_000)  # record times
_NEW_EPOCH = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}


class Client:
    """What producers and consumers have in common: they find a partition's leader."""

    def __init__(self, world: World, number: int, topic: str, index: int) -> None:
        self.world = world
        self.id = CLIENTS + number
        self.topic = topic
        self.index = index
        self.key = ""  # of the partition; a topic that is created again has another id
        self.leader_epoch = -1
        self.attempt = 0
        self.is_stopped = False
        self._stays = world.cuts_off and number % 2 == 1
        self._asked: int | None = None  # the leader that was asked last
        self._answering: int | None = None  # the leader to stay with

    def was_answered(self, *, is_served: bool) -> None:
        """Takes whether the leader did what it was asked for."""
        self._answering = self._asked if is_served and self._stays else None

    def find_leader(self) -> int | None:
        """Returns the leader by the metadata of some broker."""
        pick, brokers = self.world.timeline.random, self.world.brokers
        broker = pick.choice(list(brokers.values()))
        if self._answering is not None:
            broker, self._answering = brokers[self._answering], None
        found = broker.metadata(self.topic, self.index)
        if found is None:
            return None
        key, leader, leader_epoch = found
        if key != self.key:
            if self.world.is_older(key, self.key):
                return None
            self.key, self.leader_epoch = key, -1
            self.begin_partition()
        if leader < 0 or leader_epoch < self.leader_epoch:
            return None
        self.leader_epoch, self._asked = leader_epoch, leader
        return leader

    def begin_partition(self) -> None:
        """Begins with another partition than before: the topic was created again."""


class Producer(Client):
    """Sends one batch at a time."""

    def __init__(self, world: World, number: int, topic: str, index: int) -> None:
        super().__init__(world, number, topic, index)
        pick = world.timeline.random
        self.acks = pick.choice([-1, -1, -1, 1])
        self.is_idempotent = pick.random() < 0.6
        self.pause_ms = pick.choice([150, 500, 1_500])
        self.sequence = 0
        self.epoch = 0
        self.current: Produce | None = None
        self.done = 0
        world.timeline.after(pick.randint(0, 500), self.next)

    def begin_partition(self) -> None:
        self.sequence = 0
        self.epoch += 1
        self.current = None

    @property
    def is_waiting(self) -> bool:
        """Whether a batch has not been answered."""
        return self.current is not None

    def next(self) -> None:
        """Sends the next batch, or the last one again."""
        if self.is_stopped and self.current is None:
            return
        leader = self.find_leader()
        if leader is None:
            self.world.timeline.after(BACKOFF_MS, self.next)
            return
        if self.current is None:
            self.current = self._batch()
        self.attempt += 1
        attempt, life = self.attempt, self.world.brokers[leader].life
        self.world.to_broker(self.id, leader, life, "produce", self.current, attempt, self)
        self.world.timeline.after(TIMEOUT_MS, self.answered, attempt, None)

    def _batch(self) -> Produce:
        pick, world = self.world.timeline.random, self.world
        # Compaction leaves a batch of one record as it is, or removes it.
        count = 1 if self.topic in world.compacted else pick.randint(1, 4)
        return Produce(
            self.key,
            world.next_value(),
            count,
            self.acks,
            world.true_ms + pick.choice(AHEAD_MS),
            self.id if self.is_idempotent else -1,
            self.epoch,
            self.sequence,
        )

    def answered(self, attempt: int, error: ErrorCode | None) -> None:
        """Takes the answer to an attempt; None: there was none in time."""
        if attempt != self.attempt or self.current is None:
            return
        self.attempt += 1  # nothing that comes later is for this attempt
        self.was_answered(is_served=error == ErrorCode.NONE)
        timeline = self.world.timeline
        if error == ErrorCode.NONE:
            self.done += 1
            self.sequence += self.current.count
            self.current = None
            is_quiet = timeline.random.random() < QUIET
            pause_ms = QUIET_MS if is_quiet else self.pause_ms
            timeline.after(timeline.random.randint(1, pause_ms), self.next)
            return
        if error in _NEW_EPOCH:
            self.epoch += 1
            self.sequence = 0
            self.current = self.current._replace(producer_epoch=self.epoch, sequence=0)
        timeline.after(timeline.random.randint(1, BACKOFF_MS), self.next)


class Consumer(Client):
    """Reads a partition from its start on."""

    def __init__(self, world: World, number: int, topic: str, index: int) -> None:
        super().__init__(world, number, topic, index)
        self.offset = 0
        world.timeline.after(world.timeline.random.randint(0, 500), self.next)

    def begin_partition(self) -> None:
        self.offset = 0

    def next(self) -> None:
        """Asks for what comes next."""
        if self.is_stopped:
            return
        leader = self.find_leader()
        if leader is not None:
            self.attempt += 1
            life = self.world.brokers[leader].life
            self.world.to_broker(
                self.id, leader, life, "read", self.key, self.offset, self.attempt, self
            )
        wait_ms = self.world.timeline.random.randint(500, 2_000)
        self.world.timeline.after(wait_ms, self.next)

    def answered(self, attempt: int, error: ErrorCode, batches: tuple[Batch, ...]) -> None:
        """Takes what was read; an offset out of range begins again at the start."""
        if attempt != self.attempt:
            return
        self.was_answered(is_served=error == ErrorCode.NONE)
        if error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.offset = self.world.log_start(self.key)
        elif batches:
            self.offset = batches[-1].end
