"""Administrators: topics created, deleted and created again; settings changed; partitions moved.

Each change is one transaction at the coordinator, by the product's records and pure functions. It
may be lost, and it may be applied late, as all transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from tests.simulation.replication.brokers.machine import GROUPS
from tests.simulation.replication.network.network import CLIENTS
from tidelog.broker.controller import reassignment
from tidelog.broker.metadata import records
from tidelog.broker.metadata.brokers.keys import LIVE_PREFIX, REGISTRATION_PREFIX
from tidelog.broker.metadata.records import PartitionRecord, TopicRecord
from tidelog.broker.metadata.store import Delete
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from tests.simulation.replication.life import Life
    from tidelog.broker.metadata.memory import MemoryState
    from tidelog.broker.metadata.store import Operation

ADMINISTRATOR = CLIENTS - 1
TIMEOUT_MS = 2_000
MINUTE_MS = 60_000
RESET_MS = 4_000
STEP_MS = 3_000  # a clock was behind for so long before it was corrected


class Administrators:
    """What they do in one run."""

    def __init__(self, world: Life) -> None:
        pick = world.timeline.random
        self.world = world
        self.pick = pick
        self.is_over = False
        self._created: set[UUID] = set()
        self.topics = pick.choice([1, 1, 2])
        self.partitions = 1 if self.topics == 2 else pick.choice([1, 2])
        self.min_isr = pick.choice([1, 2, 2, 2, 3])
        self.factor = min(len(world.brokers), pick.choice([2, 3, 3, 3, 4]))
        self.interval_ms = pick.choice([3_000, 10_000, 1_000_000])
        self.kinds = pick.sample(
            [self.reassign, self.change_min_isr, self.create_again, self.change_settings],
            pick.choice([1, 2, 4]),
        )
        for number in range(self.topics):
            self._create(f"topic-{number}")
        if world.has_groups:
            configs = {"min.insync.replicas": str(self.min_isr), "retention.ms": "-1"}
            self._create(GROUPS, 1, configs)
        world.timeline.after(pick.randint(4_000, 8_000), self.next)
        if world.has_resets:
            world.timeline.every(RESET_MS, self.reset_clock)
        if world.has_steps:
            world.timeline.every(RESET_MS, self.step_clock)

    def next(self) -> None:
        """Does something, and plans what comes next."""
        if self.is_over:
            return
        self.pick.choice(self.kinds)()
        self.world.timeline.after(self.pick.randint(500, self.interval_ms), self.next)

    def end(self) -> None:
        """Stops; a reassignment that is in progress goes on, and no topic stays deleted."""
        self.is_over = True
        self.world.timeline.after(3_000, self._create_missing)

    def _create_missing(self) -> None:
        for number in range(self.topics):
            self._create(f"topic-{number}")

    def _ask(self, call: Any) -> None:
        self.world.coordinator.ask(ADMINISTRATOR, call, lambda result: None, TIMEOUT_MS)

    # --- topics -----------------------------------------------------------------------------------

    def _configs(self) -> dict[str, str]:
        pick = self.pick
        configs = {
            "min.insync.replicas": str(self.min_isr),
            "message.timestamp.type": pick.choice(["CreateTime", "LogAppendTime"]),
            "message.format.version": pick.choice([*["3.0"] * 4, "0.10.2", "0.9.0"]),
            "retention.time.basis": "append",
            "min.cleanable.dirty.ratio": "0.01",
        }
        if pick.random() < 0.3:
            configs["flush.messages"] = "1"
        if pick.random() < 0.2:
            configs["unclean.leader.election.enable"] = "true"
        if pick.random() < 0.6:
            configs["retention.ms"] = str(pick.choice([5_000, 5_000, 4 * 3_600_000]))
        if pick.random() < 0.3:
            configs["retention.max.eventtime.ms"] = str(pick.choice([30_000, MINUTE_MS * 90]))
            configs["retention.max.eventtime.grace.ms"] = "0"
        return configs

    def _create(
        self, name: str, partitions: int | None = None, configs: dict[str, str] | None = None
    ) -> UUID:
        """Creates a topic as soon as enough brokers are there; returns its id."""
        topic_id = UUID(int=self.pick.getrandbits(127))
        configs = configs or self._configs()
        if name in self.world.compacted:
            configs |= {"cleanup.policy": "compact", "segment.bytes": "500"}
        topic = TopicRecord(name, topic_id, partitions or self.partitions, configs)
        self.world.add_topic(topic_id, topic.partitions)

        def create(store: MemoryState) -> bool:
            live = [
                int(pair.key.removeprefix(LIVE_PREFIX))
                for pair in store.read(LIVE_PREFIX).pairs
                if not records.read(pair.key, pair.value).is_fenced
            ]
            if len(live) < self.factor or store.read(records.topic_key(name)).pairs:
                return False
            if topic_id in self._created:
                return False  # and deleted since
            operations: list[Operation] = [records.put_topic(topic)]
            for index in range(topic.partitions):
                replicas = tuple(self.pick.sample(live, self.factor))
                record = PartitionRecord(replicas, replicas, replicas[0], 0)
                operations.append(records.put_partition(topic_id, index, record))
            self._created.add(topic_id)
            store.transact((), operations)
            return True

        def again() -> None:
            key = records.topic_key(name)
            if not self.world.coordinator.store.read(key).pairs:
                self._ask(create)
                self.world.timeline.after(500, again)

        again()
        return topic_id

    def create_again(self) -> None:
        """Deletes a topic, and creates another with its name."""
        name = f"topic-{self.pick.randrange(self.topics)}"

        def delete(store: MemoryState) -> None:
            found = store.read(records.topic_key(name)).pairs
            if not found or self.is_over:
                return  # gone already, or it comes so late that nobody would create it again
            topic = records.read(found[0].key, found[0].value)
            keys = [records.partition_key(topic.topic_id, n) for n in range(topic.partitions)]
            deletes = [Delete(key) for key in (found[0].key, *keys)]
            store.transact((), [*deletes, records.put_deletion(topic.topic_id, name)])

        self.world.say("delete", name)
        self._ask(delete)
        self.world.timeline.after(self.pick.randint(100, 3_000), self._create, name)

    def _alter(self, name: str, configs: dict[str, str]) -> None:
        def alter(store: MemoryState) -> None:
            found = store.read(records.topic_key(name)).pairs
            if found:
                topic = records.read(found[0].key, found[0].value)
                changed = topic._replace(configs={**topic.configs, **configs})
                store.transact((), [records.put_topic(changed)])

        self.world.say("alter", name, configs)
        self._ask(alter)

    def change_min_isr(self) -> None:
        """Changes min.insync.replicas."""
        name = f"topic-{self.pick.randrange(self.topics)}"
        self._alter(name, {"min.insync.replicas": str(self.pick.choice([1, 2, 2, 3]))})

    def change_settings(self) -> None:
        """Changes the format of the records, who stamps them, or retention."""
        name = f"topic-{self.pick.randrange(self.topics)}"
        configs = self._configs()
        for kept in ("min.insync.replicas", "flush.messages"):
            configs.pop(kept, None)
        some = self.pick.sample(sorted(configs), self.pick.randint(1, len(configs)))
        self._alter(name, {key: configs[key] for key in some})

    def reset_clock(self) -> None:
        """Sets a leader's clock back, and lets the append times of a partition go back with it."""
        keys = [key for key, part in self.world.checker.stored.parts.items() if part.leader > 0]
        if self.is_over or not keys:
            return
        key = self.pick.choice(keys)
        broker = self.world.brokers[self.world.checker.stored.parts[key].leader]
        broker.clock.jump(-self.pick.randint(1, 10) * MINUTE_MS)
        broker.reset_clock(key)

    def step_clock(self) -> None:
        """Lets a broker's clock be behind for a while; what ends that is a step that is trusted."""
        broker = self.pick.choice(list(self.world.brokers.values()))
        if not self.is_over:
            behind_ms = self.pick.randint(1, 10) * MINUTE_MS
            self.world.say("step", broker, behind_ms)
            broker.clock.jump(-behind_ms)
            self.world.timeline.after(STEP_MS, broker.clock.jump, behind_ms)

    # --- partitions -------------------------------------------------------------------------------

    def reassign(self) -> None:
        """Moves a partition to other brokers, or stops a move that is in progress."""
        keys = sorted(self.world.checker.stored.parts)
        if not keys:
            return
        key = self.pick.choice(keys)
        brokers = self.pick.sample(sorted(self.world.brokers), self.factor)
        self._move(key, brokers, cancels=self.pick.random() < 0.3)

    def reorder(self, brokers: list[int]) -> None:
        """Makes the first of these brokers the preferred leader of what they replicate."""
        for key, part in self.world.checker.stored.parts.items():
            if set(part.replicas) == set(brokers):
                self._move(key, brokers, cancels=False)

    def _move(self, key: str, brokers: list[int], *, cancels: bool) -> None:
        topic_id, index = self.world.ids[key]

        def move(store: MemoryState) -> None:
            found = store.read(records.partition_key(topic_id, index)).pairs
            if not found or self.is_over:  # a request may arrive long after it was sent
                return
            known = records.read(found[0].key, found[0].value)
            registered = [
                int(pair.key.partition("/")[2]) for pair in store.read(REGISTRATION_PREFIX).pairs
            ]
            try:
                record = (
                    reassignment.cancel(known)
                    if cancels
                    else reassignment.begin(known, brokers, registered)
                )
            except BrokerError:
                return  # nothing is in progress
            store.transact((), [records.put_partition(topic_id, index, record)])

        self.world.say("reassign", key[-6:], "cancel" if cancels else brokers)
        self._ask(move)
