"""The fourteen invariants, checked after every step by one who sees all nodes.

Metadata is checked in `stored.py`, what was promised is kept in `ledger.py`, and this file compares
the logs and the leaders with both. What is compared after a step is what the step touched;
everything is compared at the end.

    1 committed            2 complete candidates  3 prefixes       4 maximal in-sync replicas
    5 epochs               6 sets of replicas     7 nothing back   8 enough copies
    9 append times        10 retention           11 lookups       12 sequences   13 liveness
   14 no leader answers when it is cut off
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.checking.cut_off import LEASE_MS, CutOff
from tests.simulation.replication.checking.ledger import BrokenInvariantError
from tests.simulation.replication.checking.lookups import check_lookups
from tests.simulation.replication.checking.prefixes import is_prefix
from tests.simulation.replication.checking.stored import Stored
from tests.simulation.replication.network.network import CALM

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.simulation.replication.brokers.machine import Machine
    from tests.simulation.replication.brokers.views import Replica, Rules
    from tests.simulation.replication.checking.ledger import Ledger
    from tests.simulation.replication.checking.log import Batch, Log
    from tests.simulation.replication.life import Life


LOOKED_UP = 0.15  # of the changes of stored logs are followed by a lookup


class Seen:
    """What the checker has seen of one replica's log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.cuts = log.cuts
        self.life = -1
        self.high_watermark = log.high_watermark
        self.start, self.end = log.start, log.end
        self.mark, self.back = log.mark, log.back
        self.last_append = log.last_append
        self.equal_to = 0  # below this offset it has been compared with the ledger


class Checker:
    """Sees everything; brokers tell it what they answered, and it looks at the rest."""

    def __init__(self, world: Life) -> None:
        self.world = world
        self.stored = Stored(world.coordinator.store, world.brokers, world.timeline)
        self.cut_off = CutOff(self.stored, world.timeline)
        self._touched: dict[tuple[int, str], None] = {}
        self.seen: dict[tuple[int, str], Seen] = {}
        self.acknowledged = 0
        self.read = 0
        self.committed = 0
        self.elections = 0

    # --- after every step -------------------------------------------------------------------------

    def touch(self, broker: int, key: str) -> None:
        """Notes that a log has changed."""
        self._touched[broker, key] = None

    def after_step(self) -> None:
        """Checks what the last step has changed."""
        if self._touched:
            touched, self._touched = self._touched, {}
            for number, key in touched:
                broker = self.world.brokers[number]
                log = broker.disk.logs.get(key)
                if log is not None:
                    self._look(broker, key, log)
        if self.stored.changed:
            changed, self.stored.changed = self.stored.changed, []
            for key in dict.fromkeys(changed):
                self._check_candidates(key)
                self._check_leaders(key)

    def _check_leaders(self, key: str) -> None:
        for broker in self.world.brokers.values():
            replica = broker.replicas.get(key)
            if replica is not None and replica.leader is not None:
                self.check_leader(replica)

    def _look(self, broker: Machine, key: str, log: Log) -> None:
        seen = self.seen.get((broker.id, key))
        if seen is None or seen.log is not log:
            seen = self.seen[broker.id, key] = Seen(log)
        ledger = self.stored.ledgers.get(key)
        if ledger is None:
            return  # the topic is deleted
        is_new_life = seen.life != broker.life or not broker.is_up
        if seen.cuts != log.cuts or is_new_life:
            seen.equal_to = 0
            self.stored.changed.append(key)
        self._check_shape(ledger, log)
        replica = broker.replicas.get(key)
        if replica is not None and replica.leader is not None:
            self._note_committed(ledger, key, replica, log, seen)
        if broker.id not in ledger.unjudged:
            part = self.stored.parts[key]
            is_outside = broker.id not in (*part.isr, *part.elr)
            is_copied_again = is_outside and log.start == log.end
            self._check_log(
                broker, ledger, log, seen, is_new_life=is_new_life, is_copied_again=is_copied_again
            )
        if seen.cuts == log.cuts and not is_new_life:
            self._check_times(broker, ledger, log, seen)
        seen.mark, seen.back, seen.last_append = log.mark, log.back, log.last_append
        seen.cuts, seen.life = log.cuts, broker.life
        seen.high_watermark, seen.start, seen.end = log.high_watermark, log.start, log.end

    def _check_times(self, broker: Machine, ledger: Ledger, log: Log, seen: Seen) -> None:
        """Invariant 9: only a newer mark of an operator lowers the last append time.

        A log that has lost its end and fetches it again may reach an older mark once more: append
        times go back there.
        """
        is_lower = log.last_append < seen.last_append
        if any(seen.end <= offset < log.end for offset, _ in ledger.marks):
            is_lower = False
        is_newer = log.mark > seen.mark or log.back > seen.back
        if is_lower and not is_newer:
            times = f"the last append time {seen.last_append}, and now {log.last_append}"
            raise ledger.broken(9, f"{broker} knew {times}: {log.mark}")

    def _check_shape(self, ledger: Ledger, log: Log) -> None:
        if not log.start <= log.high_watermark <= log.end:
            raise ledger.broken(7, f"{log.start} <= {log.high_watermark} <= {log.end} is not true")
        if log.batches and log.batches[0].base > log.start and not ledger.is_compacted:
            raise ledger.broken(1, f"the log begins at {log.batches[0].base}, not at {log.start}")
        epochs = log.epochs
        for number in range(1, len(epochs)):
            one, next_one = epochs[number - 1], epochs[number]
            if one.epoch >= next_one.epoch or one.start_offset >= next_one.start_offset:
                raise ledger.broken(5, f"the epochs are {epochs}")

    def _note_committed(
        self, ledger: Ledger, key: str, replica: Replica, log: Log, seen: Seen
    ) -> None:
        """What a leader has below its high watermark is promised."""
        part = self.stored.parts[key]
        ledger.start = max(ledger.start, log.start)
        if replica.epoch < ledger.unclean_epoch:
            return
        if ledger.is_anew:
            is_known = log.high_watermark >= replica.leader.epoch_start_offset
            if len(part.isr) < self.stored.full(key) or not is_known:
                return
            ledger.begin_with(log)
        if log.high_watermark > ledger.end:
            known = replica.leader.record
            full = min(replica.rules.min_insync, len(known.replicas))
            if len(known.isr) < full and log.high_watermark > seen.high_watermark:
                raise ledger.broken(8, f"the high watermark moved with {known.isr} in sync")
            ledger.add(log, log.high_watermark)
            ledger.committed_with[log.high_watermark] = replica.rules.min_insync
            self.stored.changed.append(key)

    def _check_log(
        self,
        broker: Machine,
        ledger: Ledger,
        log: Log,
        seen: Seen,
        *,
        is_new_life: bool,
        is_copied_again: bool,
    ) -> None:
        """Invariants 1, 3, 5, 7, 9 and 10 of one log.

        A log that nobody counts on may begin empty, and be copied again: it was compacted, or a kill in the
        middle of a write took what says that it has no gaps.
        """
        if ledger.is_anew:
            return
        if log.high_watermark > ledger.end:
            raise ledger.broken(7, f"{broker} has {log.high_watermark}, the truth is {ledger.end}")
        if not is_new_life and not ledger.is_excused and not is_copied_again:
            if log.high_watermark < seen.high_watermark:
                raise ledger.broken(7, f"{broker} went from {seen.high_watermark} back to {log}")
            if log.start < seen.start:
                raise ledger.broken(7, f"the log start of {broker} went from {seen.start} to {log}")
        if log.start > max(ledger.start, ledger.most_deleted):
            raise ledger.broken(10, f"{broker} starts at {log.start}, leaders at {ledger.start}")
        if seen.equal_to < log.high_watermark:
            what = ledger.difference(log, seen.equal_to, log.high_watermark)
            if what:
                raise ledger.broken(3, f"{broker}: {what}")
            seen.equal_to = log.high_watermark
            if log.is_there and broker.is_up and not log.is_offline:
                self._check_lookup(ledger, log)

    def _check_lookup(self, ledger: Ledger, log: Log) -> None:
        """Invariant 11 of one time, while the log changes; at the end all replicas are asked."""
        pick = self.world.timeline.random
        numbers = ledger.numbers(log.start, log.high_watermark)
        if numbers and log.start >= ledger.start and pick.random() < LOOKED_UP:
            check_lookups(pick, ledger, ledger.entries[pick.choice(numbers)], [log])

    def _check_candidates(self, key: str) -> None:
        """Invariants 1 and 2: whoever may be elected has everything."""
        part, ledger = self.stored.parts.get(key), self.stored.ledgers.get(key)
        if part is None or ledger is None or ledger.is_anew or ledger.is_excused:
            return
        for member in (*part.isr, *part.elr):
            broker = self.world.brokers[member]
            if member in ledger.unjudged or not broker.is_serving:
                continue
            if self.stored.live.get(member, (-1,))[0] != broker.epoch:
                continue
            log = broker.disk.logs.get(key)
            if log is None:
                if ledger.end > ledger.start:
                    raise ledger.broken(2, f"{broker} is a candidate without a log: {part}")
                continue
            if log.end < ledger.end:
                raise ledger.broken(
                    2, f"{broker} ends at {log.end}, the truth at {ledger.end}: {part}"
                )
            what = ledger.difference(log, self.seen[member, key].equal_to, ledger.end)
            if what:
                raise ledger.broken(2, f"{broker} is a candidate, and {what}")

    # --- what brokers tell ------------------------------------------------------------------------

    def leads(self, replica: Replica) -> None:
        """A replica becomes leader: invariants 2 and 5."""
        key, broker = replica.key, replica.broker
        self.elections += 1
        ledger = self.stored.ledgers.get(key)
        if ledger is None:
            return
        known = self.stored.leaders.setdefault((key, replica.epoch), broker.id)
        if known != broker.id:
            raise ledger.broken(5, f"{broker} and broker {known} lead in epoch {replica.epoch}")
        ledger.note_untimed(replica.log, is_wounded=broker.id in ledger.wounded)

    def loses(
        self, broker: Machine, *, all_of_it: bool, failed: Collection[str] | None = None
    ) -> None:
        """A disk has forgotten what was not synced, or everything; `failed`: only of some logs."""
        broker.lossy_life = broker.life
        self._count_loss(broker, all_of_it=all_of_it, failed=failed)

    def fails(self, broker: Machine, failed: Collection[str]) -> None:
        """Logs have failed: what they have counts no more, even if the process lives on."""
        self._count_loss(broker, all_of_it=True, failed=failed)

    def _count_loss(
        self, broker: Machine, *, all_of_it: bool, failed: Collection[str] | None
    ) -> None:
        for key, ledger in self.stored.ledgers.items():
            part = self.stored.parts[key]
            if broker.id in (*part.isr, *part.elr, part.last_leader):
                keeps = self.stored.topic_of(key).is_flushed and not all_of_it
                if failed is not None:
                    keeps = key not in failed
                (ledger.restarted if keeps else ledger.wounded).add(broker.id)

    def resumes(self, broker: Machine, paused_ms: int) -> None:
        """A loop that hung goes on: its lease must have ended, if it hung for so long."""
        since_ms = self.world.timeline.now_ms - paused_ms
        if not broker.is_hung or paused_ms < 3 * LEASE_MS or self.world.quorum_ms > since_ms:
            return
        has_quorum = self.world.coordinator.quorum_lost_since is None
        if self.world.network.weather is not CALM or not has_quorum:
            return  # a renewal from before may have come late
        live = self.stored.live.get(broker.id)
        if live is not None and live[0] == broker.epoch:
            raise BrokenInvariantError(f"invariant 13: {broker} hung and kept its lease")

    def answers_as_leader(self, broker: Machine) -> None:
        """Nothing is answered after a pause before the lease was confirmed."""
        if broker.must_confirm:
            raise BrokenInvariantError(f"{broker} answers as leader after a pause past its lease")

    def followed(self, replica: Replica, leader_epoch: int) -> None:
        """A follower has appended, or truncated, as the leader of an epoch said: invariant 3."""
        key = replica.key
        leader = self.stored.leaders.get((key, leader_epoch))
        if leader is None or key not in self.stored.ledgers:
            return
        theirs = self.world.brokers[leader].replicas.get(key)
        if theirs is None or theirs.leader is None or theirs.epoch != leader_epoch:
            return  # it has died, or leads no more
        ledger = self.stored.ledgers[key]
        if not is_prefix(replica.log, theirs.log, ledger):
            raise ledger.broken(
                3, f"{replica.log} of {replica.broker} is no prefix of {theirs.log}"
            )
        if replica.log.high_watermark == theirs.log.high_watermark:
            self._check_event_time(ledger, replica, theirs)

    def _check_event_time(self, ledger: Ledger, replica: Replica, leader: Replica) -> None:
        """Invariant 10: a follower knows the event times that its leader has counted."""
        known, theirs = replica.log.counted_event, leader.log.counted_event
        if None in (known, theirs) or ledger.marks:
            return  # not read yet, or a mark may have lowered one of both
        if known < theirs:
            what = f"{replica.broker} has the largest event time {known}, its leader has {theirs}"
            raise ledger.broken(10, what)

    def acknowledges(self, replica: Replica, batch: Batch | None, acks: int) -> None:
        """A leader has answered a producer: invariants 1 and 8; None: the batch is deleted by now."""
        self.answers_as_leader(replica.broker)
        self.cut_off.check(replica.broker, replica.key, replica.leader)
        ledger = self.stored.ledgers.get(replica.key)
        if acks != -1 or ledger is None or batch is None:
            return
        self.acknowledged += 1
        if batch.end <= replica.log.start or ledger.may_lack(batch):
            return  # a retry of what has been deleted since
        copies = 0
        for broker in self.world.brokers.values():
            log = broker.disk.logs.get(replica.key)
            if log is not None and has(log, batch, flushed=replica.rules.needs_flush):
                copies += 1
            elif broker.id in ledger.wounded or broker.is_lossy:
                copies += 1  # it had the batch, and lost it to a fault
        # A reassignment that the leader has not heard of may have removed replicas, and their copies.
        replicas = (replica.assignment.record.replicas, self.stored.parts[replica.key].replicas)
        # min.insync.replicas may have been raised since the high watermark passed the batch.
        committed = (least for end, least in ledger.committed_with.items() if end >= batch.end)
        min_insync = min(replica.rules.min_insync, next(committed, replica.rules.min_insync))
        least = min(min_insync, *map(len, replicas))
        if copies < least:
            raise ledger.broken(8, f"{batch} is acknowledged with {copies} copies of {least}")
        if batch.end > replica.log.high_watermark:
            raise ledger.broken(8, f"{batch} is acknowledged above {replica.log.high_watermark}")

    def deletes(
        self, broker: Machine, key: str, log: Log, first: int, rules: Rules, now_ms: int
    ) -> None:
        """A leader has raised its log start from `first`: invariant 10, by what was promised."""
        ledger = self.stored.ledgers.get(key)
        if ledger is None:
            return
        ledger.start = max(ledger.start, log.start)
        if ledger.losses or ledger.is_excused:
            return  # what was lost may still be in the largest event time
        kept = ledger.due(first, rules, now_ms)
        if kept < log.start:
            raise ledger.broken(10, f"{broker} deletes {kept} at {now_ms}")

    def was_deleting(self, key: str, first: int, rules: Rules, now_ms: int) -> None:
        """A leader stopped, or its log failed, in the middle of deleting: all that was due may be gone."""
        ledger = self.stored.ledgers.get(key)
        if ledger is not None:
            is_sure = not ledger.losses and not ledger.is_excused
            due = ledger.due(first, rules, now_ms) if is_sure else ledger.end
            ledger.most_deleted = max(ledger.most_deleted, due)

    # --- leaders ----------------------------------------------------------------------------------

    def check_leader(self, replica: Replica) -> None:
        """Invariant 4: the maximal in-sync replicas contain the stored ones."""
        part, leader = self.stored.parts.get(replica.key), replica.leader
        if part is None or leader is None or part.leader_epoch != replica.epoch:
            return
        maximal = set(leader.maximal_isr)
        known = leader.record
        full = min(replica.rules.min_insync, len(known.replicas))
        if known.elr:
            return  # min.insync.replicas was lowered: nothing is committed yet
        if len(known.isr) >= full and not maximal >= {*part.isr, *part.elr}:
            ledger = self.stored.ledgers[replica.key]
            raise ledger.broken(4, f"{replica.broker} counts {sorted(maximal)}, stored is {part}")


def has(log: Log, batch: Batch, *, flushed: bool) -> bool:
    """Returns whether a log has a batch, and with `flushed` durably."""
    if batch.end <= log.start:
        return True
    if batch.end > (log.synced if flushed else log.end):
        return False
    number = log.number_at(batch.base)
    return number < len(log.batches) and log.batches[number] == batch
