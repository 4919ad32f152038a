"""The random life of a partition with two or three replicas, each with a clock of its own.

Every step happens to real logs and to their models. The cluster here is a few rules: replicas that
are in sync decide the high watermark, one of them is elected, followers truncate by epoch and fetch.
After each step every replica has to be what its model says, and all have to agree below the smallest
high watermark (`sameness.py`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.storage.conftest import kill
from tests.storage.log_model.host import prefixes
from tests.storage.replicas import sameness
from tests.storage.replicas.replica import Replica, ReplicaLog, Router
from tidelog.storage import files
from tidelog.storage.log import slices
from tidelog.storage.log.high_watermark import Role
from tidelog.storage.log.replication.received import unpacked
from tidelog.storage.time.corrections import ForwardStep

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = 50_000_000
MINUTES, HOURS = 60_000, 3_600_000
STEPS = 60


class Cluster:
    """Replicas of one partition, and who leads."""

    def __init__(self, path: Path, seed: int, *, is_wild: bool | None = None) -> None:
        pick = self.random = random.Random(seed)
        self.now, self.said = BEGIN, list[str]()
        wild = pick.random() < 0.4
        self.is_wild = wild if is_wild is None else is_wild  # clocks hours apart, no power losses
        self.has_forward_steps = not self.is_wild and pick.random() < 0.3
        common = {
            "retention_ms": pick.choice([-1, -1, 2_000]),
            "retention_bytes": pick.choice([-1, -1, -1, 3_000]),
            "flush_messages": pick.choice([2**63 - 1, 2**63 - 1, 1]),
        }
        self.must_flush = common["flush_messages"] == 1
        self.router = Router()
        self.before = files.use(self.router)
        self.replicas = [
            Replica(path / str(number), self.router, pick, common, BEGIN)
            for number in range(pick.choice([2, 2, 3]))
        ]
        self.skews = [0] * len(self.replicas)
        self.in_sync = set(range(len(self.replicas)))
        self.acknowledged: dict[int, int] = {}  # by followers, in this epoch
        self.is_unclean = self.has_lost_times = False
        self.steps = 0  # of the clock, forward
        self.history = sameness.History()
        self.epoch = self.number = 0
        self.elect(0, {})

    @property
    def leader(self) -> Replica:
        return self.replicas[self.number]

    @property
    def followers(self) -> list[int]:
        return [number for number in range(len(self.replicas)) if number != self.number]

    def close(self) -> None:
        for replica in self.replicas:
            kill(replica.store)
        files.use(self.before)

    # --- steps ------------------------------------------------------------------------------------

    def live(self) -> None:
        for _ in range(self.random.choice([8, STEPS])):
            self.step()
            for replica in self.replicas:
                replica.check()
            sameness.check(self)

    def step(self) -> None:
        self.now += self.random.choice([0, 0, 1, 7, 300, 1_500])
        for replica, skew in zip(self.replicas, self.skews, strict=True):
            replica.now = self.now + skew
        weights = {
            self.produce: 12,
            self.fetch: 16,
            self.flush: 2,
            self.checkpoint: 0.7,
            self.shrink: 1,
            self.elect_another: 1.5,
            self.alter: 1,
            self.jump: 0.8,
            self.reset: 0.7 if not self.has_forward_steps else 0,
            self.step_forward: 0.5 if self.has_forward_steps else 0,
            self.trim: 0.4,
            self.retain: 1.5,
            self.stop: 0.5,
            self.kill: 1.2,
            self.lose_power: 0 if self.is_wild else 0.8,
        }
        (do,) = self.random.choices(list(weights), list(weights.values()))
        self.said.append(do.__name__)
        do()

    def produce(self) -> None:
        self.leader.append()
        if self.must_flush:
            self.leader.partition.commit()
        self.advance()

    def flush(self) -> None:
        self.made_durable(self.random.choice(self.replicas), checkpoint=False)

    def checkpoint(self) -> None:
        self.made_durable(self.random.choice(self.replicas), checkpoint=True)

    def made_durable(self, replica: Replica, *, checkpoint: bool) -> None:
        if checkpoint:
            replica.store.checkpoint()
        else:
            assert replica.partition.flush() == replica.model.end
        replica.acknowledged = replica.model.end  # append times that are lost are fetched again
        self.advance()

    def alter(self) -> None:
        pick = self.random
        magic, is_stamped = pick.choice([0, 1, 2, 2]), pick.choice([False, False, True])
        for replica in self.replicas:
            replica.configure(magic, is_stamped=is_stamped)

    # --- the high watermark -----------------------------------------------------------------------

    def advance(self) -> None:
        """Move the leader's high watermark to what all that are in sync have stored."""
        leader = self.leader
        offsets = [self.acknowledged.get(number, -1) for number in self.in_sync - {self.number}]
        offset = min([leader.partition.stored_offset, *offsets])
        with leader.partition.state.append_lock:
            leader.partition.state.advance_high_watermark(offset)
        leader.model.advance(offset)
        self.history.commit(leader.model)

    def shrink(self) -> None:
        self.in_sync = {self.number} | {n for n in self.in_sync if self.random.random() < 0.5}
        self.advance()

    # --- fetches ----------------------------------------------------------------------------------

    def fetch(self) -> None:
        number = self.random.choice(self.followers)
        replica = self.replicas[number]
        if replica.epoch != self.epoch:
            replica.follow(self.epoch, None)
        is_behind = replica.model.end < self.leader.partition.log_start_offset
        if (is_behind or not replica.is_reconciled) and self.ends_early(number, self.reconcile):
            return
        if self.must_flush:
            replica.partition.commit()
        stored = self.acknowledged[number] = replica.partition.stored_offset
        if stored >= max(
            self.leader.partition.high_watermark, self.leader.partition.state.epoch_start_offset
        ):
            self.in_sync.add(number)
        self.advance()
        if not self.ends_early(number, self.replicate):
            self.advance()

    def reconcile(self, number: int) -> None:
        """Truncate a follower's log until nothing in it differs from the leader's (KIP-279)."""
        replica, leader = self.replicas[number], self.leader.partition
        follower = replica.partition
        while (end := follower.log_end_offset) and follower.state.epochs.latest >= 0:
            asked = follower.state.epochs.latest
            epoch, offset = leader.reader.end_offset_for_epoch(asked)
            if epoch == asked and offset >= end:
                break
            own = follower.reader.end_offset_for_epoch(epoch)[1]
            self.truncate(number, min(offset, end, own if own >= 0 else end))
            if follower.log_end_offset == end:
                break
        if follower.log_end_offset < leader.log_start_offset:
            self.begin_at(number, leader.log_start_offset)
        replica.is_reconciled = True

    def truncate(self, number: int, offset: int) -> None:
        replica = self.replicas[number]
        self.after = replica.model.copy()
        self.after.cut(offset)
        replica.partition.truncater.truncate_to(offset, below_high_watermark=self.is_unclean)
        self.cut(replica)

    def begin_at(self, number: int, offset: int) -> None:
        replica = self.replicas[number]
        self.after = replica.model.copy()
        self.after.begin_at(offset)
        replica.partition.truncater.start_at(offset)
        self.cut(replica)

    def cut(self, replica: Replica) -> None:
        assert self.after is not None
        replica.model = self.after
        replica.count_what_came_back()
        replica.now_acknowledged(replica.model.end)

    def replicate(self, number: int) -> None:
        """Fetch once, and store what comes."""
        replica, leader, pick = self.replicas[number], self.leader, self.random
        begun = replica.partition.log_end_offset
        read = leader.partition.reader.read_for_follower(
            begun, pick.choice([100, 400, 5_000]), minimum_one=True
        )
        end = slices.end_of(read.fetched.buffers, begun)
        if self.must_flush:
            assert end <= max(leader.partition.durable_offset, begun)
        first_base = replica.partition.segments[0].base_offset
        self.after = replica.model.fetched(leader.model, end, first_base)
        assert self.after.end == end
        assert end > begun or begun >= leader.partition.stored_offset
        replica.partition.replica.append_as_follower(
            b"".join(read.fetched.buffers),
            unpacked(read.append_times),
            read.epochs,
            read.leader,
            now_ms=replica.now,
        )
        replica.model = self.after

    def ends_early(self, number: int, do) -> bool:
        """Do something to a follower; sometimes its process or its machine stops in the middle."""
        replica, self.after = self.replicas[number], None
        if self.random.random() < 0.9:
            do(number)
            return False
        before = replica.model.copy()
        if not replica.is_interrupted(lambda: do(number)):
            return False
        after = before if self.after is None else self.after
        now = replica.model  # truncations may have come before the last
        if not self.is_wild and self.random.random() < 0.5:
            replica.power_went([now, *half_way(now, after)[-1:], after])
            self.lost(number)
        else:
            replica.killed([now, *half_way(now, after), after])
        self.back(number, now)
        return True

    # --- elections --------------------------------------------------------------------------------

    def elect(self, number: int, hints: dict[int, int]) -> None:
        """Let a replica lead in a new epoch; `hints` says how far a log that was opened is read."""
        self.epoch += 1
        self.number, self.acknowledged = number, {}
        if self.leader.partition.state.lost_offset is not None:
            self.has_lost_times = True
            self.history.resets.add(self.leader.model.end)
        self.leader.lead(self.epoch, hints.get(number))
        self.advance()

    def elect_another(self) -> None:
        self.elect(self.random.choice(sorted(self.in_sync)), {})

    # --- clocks -----------------------------------------------------------------------------------

    def jump(self) -> None:
        """Set a broker's clock, by minutes or hours in any direction."""
        most = 5 * HOURS if self.is_wild else 20 * MINUTES
        number = self.random.randrange(len(self.replicas))
        self.skews[number] = self.random.randint(-most, most)
        replica = self.replicas[number]
        replica.now = self.now + self.skews[number]
        assert not replica.partition.append_clock.note_step_back(replica.now)

    def reset(self) -> None:
        """An operator lets append times go back."""
        leader = self.leader
        if leader.partition.append_clock.reset(leader.now) is None:
            return
        model = leader.model
        model.mark, model.last_append = model.end, None
        model.bounds.append((model.end, leader.now))
        model.version = (max(self.epoch, model.version[0]), model.version[1] + 1)
        leader.learn_counted()
        self.history.resets.add(model.end)

    def step_forward(self) -> None:
        """The clocks were behind for a while, and are corrected."""
        leader, behind_ms = self.leader, self.random.randint(1, 10) * MINUTES
        self.steps += 1
        for replica in self.replicas:
            now = replica.now
            step = ForwardStep(now - 2_000, now, behind_ms, now + behind_ms)
            replica.partition.append_clock.note_step_forward(step, "history", self.steps)
            replica.now += behind_ms
        self.now += behind_ms
        if leader.partition.state.mark > leader.model.version:
            leader.model.version = tuple(leader.partition.state.mark)

    # --- what goes --------------------------------------------------------------------------------

    def trim(self) -> None:
        leader = self.leader
        offset = self.random.randint(leader.model.start, leader.model.high_watermark)
        leader.model.start = leader.partition.retainer.delete_records_before(offset)
        self.is_trimmed()

    def is_trimmed(self) -> None:
        for replica in self.replicas:
            replica.is_trimmed = True

    def retain(self) -> None:
        """A round of retention on each broker, by its own clock."""
        for replica in self.replicas:
            model, partition = replica.model, replica.partition
            deleted = partition.retainer.apply_retention(replica.now)
            if partition.state.role is Role.LEADER:  # or has been, and has not heard of another
                assert partition.log_start_offset <= model.high_watermark
                model.start = partition.log_start_offset
            if deleted:
                self.is_trimmed()
                model.forget_before(partition.segments[0].base_offset)
                model.base = max(model.base, partition.segments[0].base_offset)

    # --- ends -------------------------------------------------------------------------------------

    def stop(self) -> None:
        number = self.random.randrange(len(self.replicas))
        replica, before = self.replicas[number], self.replicas[number].model
        replica.store.close()
        replica.acknowledged = before.end
        replica.boot += not self.is_wild and self.random.random() < 0.3
        replica.come_back()
        self.back(number, before)

    def kill(self) -> None:
        number = self.random.randrange(len(self.replicas))
        replica, before = self.replicas[number], self.replicas[number].model
        kill(replica.store)
        replica.come_back()
        self.back(number, before)

    def lose_power(self) -> None:
        number = self.random.randrange(len(self.replicas))
        replica, before = self.replicas[number], self.replicas[number].model
        replica.power_went([before])
        self.lost(number)
        self.back(number, before)

    def lost(self, number: int) -> None:
        """A machine lost power: it is in sync no more, unless nobody else is."""
        if self.in_sync == {number}:
            self.is_unclean = self.is_unclean or (
                self.replicas[number].model.end < self.history.high_watermark
            )
            self.history.forget_from(self.replicas[number].model.end)
        else:
            self.in_sync.discard(number)

    def back(self, number: int, before: ReplicaLog) -> None:
        """Give a broker that was opened again its role; another may lead by now."""
        replica = self.replicas[number]
        hint = replica.learn(before)
        self.acknowledged.pop(number, None)
        if number == self.number:
            self.in_sync = self.in_sync or {number}
            chosen = self.random.choice(sorted(self.in_sync))
            hints = {number: hint}
            if chosen != number:
                replica.follow(self.epoch, hint)
            self.elect(chosen, hints)
        else:
            replica.follow(self.epoch, hint)
        replica.learn_counted()


def half_way(before: ReplicaLog, after: ReplicaLog) -> list[ReplicaLog]:
    """Return the logs that a follower may have while it stores what it fetched.

    It begins anew where the leader's log starts within a batch, stores one batch after another, and
    follows the leader's log start at last.
    """
    begun, stored = before.copy(), [b for b in after.batches if b.end > before.end]
    if not stored:
        return []
    if stored[0].first < before.end:
        begun.begin_at(stored[0].first)
    logs = [begun, *prefixes(begun, after)]
    for log in logs:
        log.start = begun.start
    return logs
