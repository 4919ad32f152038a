"""Three brokers with a clock each, one partition, and leaders that change.

Logs, clocks, retention and the comparison of clocks are the product's. Followers copy each append; the next
leader has all of them. No two clocks are wrong at the same time. The model knows the true time of every
append, and judges each round of the leader.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.clocks.broker import ERRORS, BrokerClock
from tests.simulation.clocks.machine import TOLERANCE_MS, Machine
from tests.simulation.clocks.model import Batch, Model
from tests.simulation.clocks.settings import (
    BEGIN_MS,
    DAY,
    HOUR,
    MINUTE,
    STAMPS,
    YEAR,
    choose,
    rules_of,
)
from tests.simulation.clocks.world import OBSERVE_MS, TOPIC_ID, moment
from tests.storage.conftest import kill
from tidelog.broker.partitions.following.leader_clocks import LeaderClocks
from tidelog.config.topic import TopicConfig
from tidelog.protocol.records.batch import Record, build
from tidelog.storage.directory.store import LogStore
from tidelog.storage.log.replication.received import unpacked
from tidelog.storage.time.corrections import is_behind

if TYPE_CHECKING:
    from pathlib import Path

BROKERS = 3
STEPS = 40


class Broker:
    """A replica of the partition, its machine, and what it knows of clocks."""

    def __init__(self, world: ReplicatedWorld, number: int, first_error: int) -> None:
        self.world, self.number = world, number
        self.was_never_right = first_error != 0
        self.machine = Machine(world.true_ms, world.true_ms + first_error)
        self.clock = BrokerClock(self.machine)
        self.clock.on_change = lambda what: world.say(f"{number}: {what}")
        self.open(is_new=True)

    def open(self, *, is_new: bool = False) -> None:
        world = self.world
        config = TopicConfig(**world.settings)
        boot_id = self.clock.reading().boot_id
        path = world.path / str(self.number)
        self.store = LogStore([path], default_config=config, boot_id=boot_id)
        self.clock.serve(self.store)
        self.store.open(self.machine.wall_ms, {"t": config})
        if is_new:
            self.store.create_partition("t", TOPIC_ID, 0, config, self.machine.wall_ms)
        self.partition = self.clock.partition = self.store.partition("t", 0)
        self.leader_clocks = LeaderClocks(self.clock.now_ms)

    def append(self, data: bytes) -> None:
        least_ms = None
        now_ms = self.clock.now_ms()
        if is_behind(self.partition.last_append_time, now_ms):
            least_ms = self.clock.read.latest.time_without_step_back(self.clock.reading())
        self.clock.append(data, produce_version=9, least_ms=least_ms)

    def lead(self, epoch: int) -> None:
        self.partition.roles.lead(epoch)
        self.world.say(
            f"{self.number}: leaders were behind: {self.partition.state.timing.written_behind}"
        )
        self.partition.append_clock.note_leaders_behind(self.clock.deletion_ms())
        self.partition.append_clock.catch_up(self.clock.history, self.clock.now_ms())

    def fetch(self, leader: Broker) -> None:
        """Copies all that the leader has, and what it says of its log and its clock."""
        while True:
            end_offset = self.partition.log_end_offset
            read = leader.partition.reader.read_for_follower(end_offset, 1 << 20, minimum_one=True)
            self.leader_clocks.compare(leader.number, leader.clock.now_ms())
            self.partition.replica.append_as_follower(
                b"".join(read.fetched.buffers),
                unpacked(read.append_times),
                read.epochs,
                read.leader._replace(behind_ms=self.leader_clocks.behind_ms(leader.number)),
                now_ms=self.clock.now_ms(),
            )
            if self.partition.log_end_offset == end_offset:
                return


class ReplicatedWorld:
    """One life of the cluster."""

    def __init__(self, path: Path, seed: int, *, blinks: bool) -> None:
        self.random = pick = random.Random(f"replicated {seed}")
        self.path, self.blinks = path, blinks
        self.trace: list[str] = []
        self.true_ms = BEGIN_MS + pick.randint(0, YEAR)
        self.next_observation = self.true_ms + OBSERVE_MS
        self.settings = choose(pick) | {"message_format_version": "3.0"}
        self.model = Model(rules_of(self.settings))
        self.undetected_ms = 0  # how far clocks were behind from their first reading on
        self.epoch = 0
        wrong = pick.randrange(2 * BROKERS)  # one at the most, from its first reading on
        self.brokers = [
            Broker(self, number, pick.choice(ERRORS) if number == wrong else 0)
            for number in range(BROKERS)
        ]
        self.producers = pick.sample(sorted(STAMPS), 2)
        self.say(f"{self.producers} {self.settings}")
        self.lead(0)

    def say(self, what: str) -> None:
        errors = [broker.machine.error_ms for broker in getattr(self, "brokers", ())]
        self.trace.append(f"{moment(self.true_ms)} {errors}: {what}")

    @property
    def machine(self) -> Machine:
        """The leader's, for the stamps of producers."""
        return self.leader.machine

    @property
    def followers(self) -> list[Broker]:
        return [broker for broker in self.brokers if broker is not self.leader]

    # --- the brokers ------------------------------------------------------------------------------

    def lead(self, number: int) -> None:
        self.epoch += 1
        self.leader = self.brokers[number]
        self.leader.lead(self.epoch)
        for follower in self.followers:
            follower.partition.roles.follow(self.epoch)
        self.say(f"broker {number} leads from {self.model.end}")
        self.replicate()

    def replicate(self) -> None:
        for follower in self.followers:
            follower.fetch(self.leader)
        state = self.leader.partition.state
        with state.append_lock:
            state.advance_high_watermark(self.leader.partition.log_end_offset)
        for follower in self.followers:
            follower.fetch(self.leader)
            state = follower.partition.state
            with state.append_lock:
                state.advance_high_watermark(self.leader.partition.log_end_offset)

    @property
    def slack_ms(self) -> int:
        """What is tolerated of readings and of stamps."""
        return sum(broker.clock.exempt.slack_ms for broker in self.brokers)

    def change_leader(self) -> None:
        self.replicate()
        self.lead(self.random.choice(self.followers).number)

    def restart(self) -> None:
        """A broker stops, or its machine does; the others go on."""
        broker = self.random.choice(self.brokers)
        if broker is self.leader:
            self.change_leader()
        off_ms = int(10 ** self.random.uniform(3, 8))
        reboots = self.random.random() < 0.3
        if self.random.random() < 0.5:
            broker.store.close()
        else:
            broker.partition.flush()
            kill(broker.store)
        broker.clock.partition = None
        self.pass_time(off_ms, without=broker)
        if reboots:
            broker.machine.restart(0)
        broker.clock.observe()
        broker.open()
        broker.partition.roles.follow(self.epoch)
        self.replicate()
        self.say(f"broker {broker.number} was off for {off_ms} ms, machine {reboots}")

    # --- time -------------------------------------------------------------------------------------

    def observe(self, without: Broker | None = None) -> None:
        for broker in self.brokers:
            if broker is not without:
                broker.clock.observe()
        self.next_observation = self.true_ms + OBSERVE_MS

    def pass_time(self, ms: int, without: Broker | None = None) -> None:
        """Lets time pass: clocks are read every ten seconds, and now and then if it is long."""
        end = self.true_ms + ms
        while self.next_observation < end:
            self._go_to(max(self.next_observation, self.true_ms))
            self.observe(without)
            rest = end - self.true_ms
            if rest > 10 * OBSERVE_MS:
                skipped = self.random.randint(rest // 3, rest) // OBSERVE_MS - 1
                self.next_observation += max(skipped, 0) * OBSERVE_MS
        self._go_to(end)
        if without is None:
            self.replicate()  # followers fetch all the time

    def _go_to(self, true_ms: int) -> None:
        for broker in self.brokers:
            broker.machine.pass_time(true_ms - self.true_ms)
        self.true_ms = true_ms

    def go_wrong(self) -> None:
        """A clock goes wrong, if no other one is."""
        if not self.blinks:
            self.observe()
        self._go_to(self.true_ms + 1)
        wrong = [broker for broker in self.brokers if not broker.clock.is_right]
        (broker,) = wrong or [self.random.choice([self.leader, *self.brokers])]
        if broker.was_never_right:
            return  # from its first reading on: what it shows next is trusted, whatever it is
        broker.clock.go_wrong(self.random)
        self.say(f"the clock of {broker.number} goes wrong, rate {broker.machine.rate}")

    def heal(self) -> None:
        """Every clock is set right; an operator accepts a leap, as status says."""
        self.pass_time(self.random.randint(0, 20_000))
        self.observe()
        for broker in self.brokers:
            self.undetected_ms = max(self.undetected_ms, -broker.clock.exempt._first_ms)
            broker.clock.set_right()
            broker.was_never_right = False
        self.say("the clocks are right again")
        for _ in range(3):
            self.pass_time(OBSERVE_MS)
        self.observe()
        for broker in self.brokers:
            if broker.clock.accept():
                self.say(f"{broker.number}: accepted")
        self.observe()

    # --- records ----------------------------------------------------------------------------------

    def produce(self) -> None:
        gap = self.random.choice([0, 1_000, 5_000, MINUTE, HOUR, 5 * HOUR, 2 * DAY])
        for _ in range(self.random.choice([1, 2, 4])):
            self.append()
            self.pass_time(gap)

    def append(self) -> None:
        pick, partition = self.random, self.leader.partition
        source = STAMPS[pick.choice(self.producers)]
        times = [source(self) for _ in range(pick.choice([1, 1, 3]))]
        base, before = partition.log_end_offset, partition.state.size
        self.leader.append(build([Record(i, t, b"k", b"v" * 40) for i, t in enumerate(times)]))
        is_stamped = self.settings["message_timestamp_type"] == "LogAppendTime"
        own = tuple(None if t == -1 or is_stamped else t for t in times)
        stamped = (partition.last_append_time,) * len(times) if is_stamped else own
        size = partition.state.size - before
        batch = Batch(base, partition.log_end_offset, size, self.true_ms, own, stamped)
        batch.is_stamped = is_stamped
        self.model.append(batch)
        self.model.count_events(self.slack_ms)
        self.replicate()

    def sweep(self) -> None:
        """A round of the leader; its followers delete what it has deleted."""
        if not self.blinks or self.random.random() < 0.5:
            self.observe()
        partition, exempt = self.leader.partition, [each.clock.exempt for each in self.brokers]
        deletions = partition.retainer.apply_retention(self.leader.clock.deletion_ms())
        if deletions:
            self.say(f"deleted {[(d.base_offset, d.end_offset, d.policy) for d in deletions]}")
        allowed_ms = max(each.ahead_ms for each in exempt) + self.slack_ms
        self.model.check_deleted(
            [(each.base_offset, each.end_offset) for each in deletions],
            self.true_ms + allowed_ms + self.undetected_ms,
            max(each.behind_ms for each in exempt) if any(e.was_wrong for e in exempt) else None,
        )
        if not any(each.was_wrong for each in exempt):
            self.model.check_gone(self.true_ms, TOLERANCE_MS)
        self.replicate()

    def wait(self) -> None:
        self.pass_time(int(10 ** self.random.uniform(3, 8.6)))
        self.sweep()

    # --- all of it --------------------------------------------------------------------------------

    def live(self) -> None:
        weights = {
            self.produce: 8,
            self.wait: 3,
            self.sweep: 3,
            self.change_leader: 3,
            self.restart: 1,
            self.go_wrong: self.random.choice([0, 1, 2]),
            self.heal: 2,
        }
        for _ in range(STEPS):
            (do,) = self.random.choices(list(weights), list(weights.values()))
            do()
        for broker in self.brokers:
            broker.store.close()
