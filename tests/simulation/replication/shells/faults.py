"""What goes wrong with processes that run the product's shells, each for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication import faults as simulated
from tests.simulation.replication.cluster.network import CALM
from tests.simulation.replication.shells.etcd import ADDRESS

if TYPE_CHECKING:
    from tests.simulation.replication.shells.life import Life
    from tests.simulation.replication.shells.machine import Machine


class Faults(simulated.Faults):
    """The faults of one life; those of network and coordinator are the same as beside."""

    def __init__(self, world: Life) -> None:
        pick = world.timeline.random
        self.world = world
        self.pick = pick
        self.is_over = False
        kinds = [
            (self.kill, 4),
            (self.kill_all, 1),
            (self.lose_power, 3),
            (self.lose_all_power, 1),
            (self.wipe, 1),
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
        count = pick.choice([1, 3, len(kinds), len(kinds)])
        self.kinds = pick.sample(kinds, count)
        self.interval_ms = pick.choice([800, 2_000, 5_000])
        if world.fault:
            self.kinds, self.interval_ms = [(getattr(self, world.fault), 1)], 2_500
        world.timeline.after(pick.randint(2_000, 4_000), self.next)

    def kill(self) -> None:
        broker = self._broker()
        broker.kill()
        self._later(50, 6_000, broker.start)

    def kill_all(self) -> None:
        for broker in self.world.brokers.values():
            broker.kill("killed with all")
            self._later(50, 6_000, broker.start)

    def _lose_power(self, broker: Machine) -> None:
        broker.lose_power()

    def interrupted(self, broker: Machine) -> None:
        """A broker was in the middle of a write when it, or its machine, stopped."""
        if self.pick.random() < 0.5:
            broker.kill("killed in the middle")
        else:
            broker.lose_power()
        self._later(50, 6_000, broker.start)

    def wipe(self) -> None:
        broker = self._broker()
        broker.wipe()
        self._later(200, 6_000, broker.start)

    def shut_down(self) -> None:
        broker = self._broker()
        if broker.is_up and broker.epoch >= 0:
            broker.shut_down()
            self._later(3_000, 8_000, self._start_again, broker, broker.life)

    def _start_again(self, broker: Machine, life: int) -> None:
        if broker.life == life:
            broker.kill("killed, to start again")
            broker.start()

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

    def _join(self, one: int, other: int) -> None:
        super()._join(one, other)
        self.world.wires.heal()

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
            self._speed_up_threads(broker)
            if broker.stop_asked is not None and broker.stop_asked.is_set():
                broker.kill("killed, to start again")
            broker.resume()
            broker.start()
        world.say("all faults are over")
