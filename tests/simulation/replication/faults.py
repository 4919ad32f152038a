"""What goes wrong, each for a while: processes, machines, disks, threads, networks, clocks, coordinator.

Which faults a run has is chosen by its seed, so that some runs have one kind again and again and
others have all of them. `end` puts everything right, for the time in which the cluster must
recover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.brokers.machine import GROUPS
from tests.simulation.replication.link_faults import LinkFaults
from tests.simulation.replication.metadata.etcd import ADDRESS
from tests.simulation.replication.network.network import CALM
from tests.simulation.replication.timeline import HOUR_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.brokers.machine import Machine
    from tests.simulation.replication.life import Life


class Faults(LinkFaults):
    """The faults of one run."""

    def __init__(self, world: Life) -> None:
        pick = world.timeline.random
        self.world = world
        self.pick = pick
        self.is_over = False
        self.restarting: set[tuple[int, int]] = (
            set()
        )  # brokers with failed logs, and their incarnations
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.kill, 4),
            (self.kill_all, 1),
            (self.lose_power, 3),
            (self.lose_all_power, 1),
            (self.wipe, 1),
            (self.fail_syncs, 2),
            (self.fill_disk, 2),
            (self.leave_behind, 4),
            (self.interrupt, 3),
            (self.pause, 4),
            (self.hang, 2),
            (self.cut_brokers, 4),
            (self.cut_coordinator, 3),
            (self.isolate, 2),
            (self.slow_down, 2),
            (self.slow_threads, 3),
            (self.depose, 3),
            (self.break_connections, 3),
            (self.lose_quorum, 1),
            (self.end_leases, 2),
            (self.forget_answers, 2),
            (self.lag, 1),
            (self.change_clock, 2),
            (self.shut_down, 3),
        ]
        if world.etcd is not None:
            kinds += [(self.lag_member, 4), (self.break_watches, 3)]
        if world.cuts_off:
            kinds.append((self.cut_off, 6))
        if world.has_groups:
            kinds.append((self.move_groups, 2))
        count = pick.choice([1, 3, len(kinds), len(kinds)])
        self.kinds = pick.sample(kinds, count)
        self.interval_ms = pick.choice([800, 2_000, 5_000])
        if world.fault:
            self.kinds, self.interval_ms = [(getattr(self, world.fault), 1)], 2_500
        world.timeline.after(pick.randint(2_000, 4_000), self.next)

    def next(self) -> None:
        """Lets something go wrong, and plans the next fault."""
        if self.is_over:
            return
        calls, weights = zip(*self.kinds, strict=True)
        self.pick.choices(calls, weights)[0]()
        self.world.timeline.after(self.pick.randint(100, self.interval_ms), self.next)

    # --- processes and machines -------------------------------------------------------------------

    def kill(self) -> None:
        """Ends a process; the page cache stays."""
        broker = self._broker()
        broker.kill()
        self._later(50, 6_000, broker.start)

    def kill_all(self) -> None:
        """Ends all processes at once."""
        for broker in self.world.brokers.values():
            broker.kill("killed with all")
            self._later(50, 6_000, broker.start)

    def lose_power(self) -> None:
        """Ends a machine: what was not synced may be gone."""
        broker = self._broker()
        if self.pick.random() < 0.5:
            self._hold_back(broker, broker.lose_power)
        else:
            broker.lose_power()
            self._later(200, 6_000, broker.start)

    def lose_all_power(self) -> None:
        """Ends all machines at once."""
        for broker in self.world.brokers.values():
            broker.lose_power()
            self._later(200, 6_000, broker.start)

    def wipe(self) -> None:
        """Replaces a disk by an empty one."""
        broker = self._broker()
        self._hold_back(broker, broker.wipe)

    def _hold_back(self, broker: Machine, end: Callable[[], None]) -> None:
        """Ends a broker whose last requests arrive when it is back: others were paused meanwhile."""
        others = [other for other in self.world.brokers if other != broker.id]
        for other in others:
            self.world.network.cut(broker.id, other, both_ways=False)
        life = broker.life + 1

        def come_back() -> None:
            for other in others:
                self._join(broker.id, other)

        def go() -> None:
            end()
            self._later(200, 3_000, broker.start)
            self._when(lambda: broker.life >= life and broker.is_serving, 1_000, come_back)

        self._later(10, 600, go)

    def interrupt(self) -> None:
        """Ends a process, or its machine, in the middle of what it soon does with its disk."""
        broker = self._broker()
        if broker.is_up:
            broker.disk.stop_after(self.pick.randint(1, 40))

    def interrupted(self, broker: Machine) -> None:
        """A broker was in the middle of a write when it, or its machine, stopped."""
        broker.views.note_deletions()
        if self.pick.random() < 0.5:
            broker.kill("killed in the middle")
        else:
            broker.lose_power()
        self._later(50, 6_000, broker.start)

    def shut_down(self) -> None:
        """Stops a broker in order, as a rolling restart does, or kills it when that takes too long."""
        broker = self._broker()
        if broker.is_up and broker.epoch >= 0:
            broker.shut_down()
            self._later(3_000, 8_000, self._start_again, broker, broker.life)

    def _start_again(self, broker: Machine, life: int) -> None:
        self.restarting.discard((broker.id, life))
        if broker.life == life:
            broker.kill("killed, to start again")
            broker.start()

    def pause(self) -> None:
        """Stops a process for a while, maybe past its lease."""
        broker = self._broker()
        broker.pause(is_hung=False)
        self._later(50, 9_000, broker.resume)

    def hang(self) -> None:
        """Lets a data loop hang, while its lease would be renewed beside it."""
        broker = self._broker()
        broker.pause(is_hung=True)
        self._later(2_000, 14_000, broker.resume)

    def fail_syncs(self) -> None:
        """Syncs of some logs fail; the process goes on with the others, and ends later."""
        self._broker().fail_syncs()

    def start_again(self, broker: Machine) -> None:
        """Starts a broker anew some time later, as an operator does whose broker has failed logs."""
        self.restarting.add((broker.id, broker.life))
        self._later(500, 9_000, self._start_again, broker, broker.life)

    def fill_disk(self) -> None:
        """A disk is full for a while."""
        broker = self._broker()
        broker.disk.is_full = True
        self.world.say("full", broker)
        self._later(500, 8_000, self._make_room, broker)

    def _make_room(self, broker: Machine) -> None:
        broker.disk.is_full = False

    def slow_threads(self) -> None:
        """Lets many threads of a broker wait for its disk for a while."""
        self.slow_threads_of(self._broker(), self.pick.choice([0.2, 0.7]))

    def slow_threads_of(self, broker: Machine, share: float) -> None:
        """Lets a share of a broker's threads wait for a while."""
        if broker.process is not None:
            broker.process.slow_threads = share
            self.world.say("slow threads", broker)
            self._later(1_000, 6_000, self._speed_up_threads, broker)

    def _speed_up_threads(self, broker: Machine) -> None:
        if broker.process is not None:
            broker.process.slow_threads = self.world.slow_threads

    def depose(self) -> None:
        """Ends the lease of a broker while its threads are slow: another may lead."""
        broker = self._broker()
        if broker.process is None:
            return
        self.slow_threads_of(broker, 0.7)
        self._later(0, 400, self._end_lease, broker)

    def move_groups(self) -> None:
        """Lets another broker coordinate the groups, while the threads of all are slow."""
        stored = self.world.checker.stored
        for key, part in stored.parts.items():
            if stored.topic_of(key).name == GROUPS and part.leader > 0:
                for broker in self.world.brokers.values():
                    self.slow_threads_of(broker, 0.7)
                self._later(0, 400, self._end_lease, self.world.brokers[part.leader])

    def _end_lease(self, broker: Machine) -> None:
        if broker.epoch >= 0 and broker.node is not None:
            self.world.say("lease ends", broker)
            self.world.coordinator.store.revoke(broker.node.cluster.lease_id)

    def break_connections(self) -> None:
        """Breaks all connections of a broker."""
        broker = self._broker()
        self.world.say("break", broker)
        for end in self.world.wires.ends:
            if end.source == broker.id and not end.is_lost:
                end.abort()

    # --- the coordinator --------------------------------------------------------------------------

    def lose_quorum(self) -> None:
        """Lets the coordinator answer nothing for a while."""
        self.world.coordinator.lose_quorum()
        self.world.say("quorum lost")
        self._later(300, 6_000, self._find_quorum)

    def _find_quorum(self) -> None:
        self.world.coordinator.find_quorum()
        self.world.quorum_ms = self.world.timeline.now_ms
        self.world.say("quorum found")

    def end_leases(self) -> None:
        """Ends all leases at once."""
        self.world.say("all leases end")
        self.world.coordinator.end_all_leases()

    def forget_answers(self) -> None:
        """Lets outcomes be unknown for a while."""
        self.world.coordinator.forgets_answers = self.pick.choice([0.3, 0.8])
        self._later(500, 5_000, self._answer_again)

    def _answer_again(self) -> None:
        coordinator = self.world.coordinator
        coordinator.forgets_answers = 0.0 if self.is_over else coordinator.usually_forgets

    def lag(self) -> None:
        """Lets all changes be heard late for a while."""
        self.world.coordinator.lag_ms = 5_000
        self._later(1_000, 8_000, self._hear_soon)

    def _hear_soon(self) -> None:
        self.world.coordinator.lag_ms = 50

    def lag_member(self) -> None:
        """Lets a member of etcd lag behind for a while."""
        etcd = self.world.etcd
        assert etcd is not None
        member = self.pick.randrange(len(ADDRESS.endpoints))
        etcd.lag(member)
        self.world.say("member lags", member)
        self._later(500, 8_000, etcd.catch_up, member)

    def break_watches(self) -> None:
        """Breaks the watches at a member of etcd, or all."""
        etcd = self.world.etcd
        assert etcd is not None
        self.world.say("watches break")
        etcd.break_watches(self.pick.choice([None, *range(len(ADDRESS.endpoints))]))

    # --- clocks -----------------------------------------------------------------------------------

    def change_clock(self) -> None:
        """Lets a wall clock jump, or stand still."""
        clock = self._broker().clock
        chance = self.pick.random()
        if chance < 0.3:
            clock.freeze(self.world.timeline.now_ms)
            self._later(1_000, 20_000, clock.thaw)
        else:
            clock.jump(self.pick.choice([-7, -1, 1, 9]) * self.pick.randint(1, HOUR_MS))

    # --- the end ----------------------------------------------------------------------------------

    def end(self) -> None:
        """Puts everything right."""
        self.is_over = True
        world = self.world
        world.network.heal()
        world.wires.heal()
        world.network.weather = CALM
        world.coordinator.find_quorum()
        self._answer_again()
        self._hear_soon()
        world.slow_threads = 0.0
        if world.etcd is not None:
            world.etcd.end()
        for broker in world.brokers.values():
            broker.disk.repair()
            broker.clock.thaw()
            self._speed_up_threads(broker)
            if broker.stop_asked is not None and broker.stop_asked.is_set():
                broker.kill("killed, to start again")
            broker.resume()
            broker.start()
        world.say("all faults are over")
