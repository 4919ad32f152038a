"""What goes wrong, each for a while: processes, machines, disks, networks, clocks, coordinator.

Which faults a life has is chosen by its seed, so that some lives have one kind again and again and
others have all of them. `end` puts everything right, for the time in which the cluster must
recover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.cluster.disk import HOUR_MS
from tests.simulation.replication.cluster.network import CALM, COORDINATOR

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.cluster.broker import Broker
    from tests.simulation.replication.world import World


class Faults:
    """The faults of one life."""

    def __init__(self, world: World) -> None:
        pick = world.timeline.random
        self.world = world
        self.pick = pick
        self.is_over = False
        kinds: list[tuple[Callable[[], None], int]] = [
            (self.kill, 4),
            (self.kill_all, 1),
            (self.lose_power, 3),
            (self.lose_all_power, 1),
            (self.wipe, 2),
            (self.fail_logs, 2) if world.storage is None else (self.fail_disk, 1),
            (self.fill_disk, 1),
            (self.pause, 3),
            (self.hang, 1),
            (self.cut_brokers, 4),
            (self.cut_coordinator, 3),
            (self.isolate, 2),
            (self.slow_down, 2),
            (self.leave_behind, 4),
            (self.lose_quorum, 1),
            (self.end_leases, 1),
            (self.forget_answers, 2),
            (self.lag, 1),
            (self.change_clock, 3),
            (self.shut_down, 2),
        ]
        if world.storage is not None:
            kinds.append((self.interrupt, 4))
        if world.cuts_off:
            kinds.append((self.cut_off, 6))
        count = pick.choice([1, 3, len(kinds), len(kinds)])
        self.kinds = pick.sample(kinds, count)
        self.interval_ms = pick.choice([800, 2_000, 5_000])
        if world.fault:
            self.kinds, self.interval_ms = [(getattr(self, world.fault), 1)], 5_000
        world.timeline.after(pick.randint(3_000, 6_000), self.next)

    def next(self) -> None:
        """Lets something go wrong, and plans the next fault."""
        if self.is_over:
            return
        calls, weights = zip(*self.kinds, strict=True)
        self.pick.choices(calls, weights)[0]()
        self.world.timeline.after(self.pick.randint(100, self.interval_ms), self.next)

    def _later(self, least_ms: int, most_ms: int, call: Callable[..., None], *args: object) -> None:
        self.world.timeline.after(self.pick.randint(least_ms, most_ms), call, *args)

    def _broker(self) -> Broker:
        """Returns any broker, more often one that leads."""
        leaders = self.world.leaders()
        if leaders and self.pick.random() < 0.5:
            return self.world.brokers[self.pick.choice(leaders)]
        return self.pick.choice(list(self.world.brokers.values()))

    # --- processes and machines -------------------------------------------------------------------

    def kill(self) -> None:
        """Ends a process; the page cache stays."""
        broker = self._broker()
        broker.stop("killed")
        self._later(50, 6_000, broker.start)

    def kill_all(self) -> None:
        """Ends all processes at once."""
        for broker in self.world.brokers.values():
            broker.stop("killed with all")
            self._later(50, 6_000, broker.start)

    def lose_power(self) -> None:
        """Ends a machine: what was not synced may be gone."""
        broker = self._broker()
        self._lose_power(broker)
        self._later(200, 6_000, broker.start)

    def lose_all_power(self) -> None:
        """Ends all machines at once."""
        for broker in self.world.brokers.values():
            self._lose_power(broker)
            self._later(200, 6_000, broker.start)

    def _lose_power(self, broker: Broker) -> None:
        broker.stop("power")
        if self.pick.random() < 0.5:
            self._delay_last(broker)
        broker.boot += 1
        if not broker.disk.is_flushed:
            self.world.checker.loses(broker, all_of_it=False)
        self.world.say("lost", broker, broker.disk.lose_power())

    def _delay_last(self, broker: Broker) -> None:
        life = broker.life
        self.world.network.delay_last(
            broker.id, lambda: broker.life > life and broker.is_serving and not broker.is_fenced
        )

    def interrupt(self) -> None:
        """Ends a process, or its machine, in the middle of what it soon does with its disk."""
        broker = self._broker()
        if broker.is_up:
            broker.disk.stop_after(self.pick.randint(1, 40))

    def interrupted(self, broker: Broker) -> None:
        """A broker was in the middle of something when it, or its machine, stopped."""
        if self.pick.random() < 0.5:
            broker.stop("killed in the middle")
        else:
            self._lose_power(broker)
        self._later(50, 6_000, broker.start)

    def wipe(self) -> None:
        """Replaces a disk by an empty one."""
        broker = self._broker()
        broker.stop("wiped")
        self._delay_last(broker)
        self.world.checker.loses(broker, all_of_it=True)
        broker.disk.wipe()
        self._later(200, 6_000, broker.start)

    def fail_logs(self) -> None:
        """Syncs of some logs fail; the process goes on with the others, and ends later."""
        broker = self._broker()
        if not broker.is_up or broker.paused_since is not None or not broker.replicas:
            return
        keys = list(broker.replicas)
        some = self.pick.sample(keys, self.pick.randint(1, len(keys)))
        broker.failed.add(some, takes_file=self.pick.random() < 0.5)
        self._later(500, 9_000, self._start_again, broker, broker.life)

    def fail_disk(self) -> None:
        """A sync fails: the directory says so. The machine starts anew, and sees what was synced."""
        broker = self._broker()
        if not broker.is_up or broker.disk.registration is None:
            return
        broker.disk.fail()
        broker.stop("EIO")
        broker.boot += 1
        self.world.checker.loses(broker, all_of_it=True)
        broker.disk.lose_power()
        self._later(200, 6_000, broker.start)

    def fill_disk(self) -> None:
        """A disk is full for a while."""
        broker = self._broker()
        broker.disk.is_full = True
        self.world.say("full", broker)
        self._later(500, 8_000, self._make_room, broker)

    def _make_room(self, broker: Broker) -> None:
        broker.disk.is_full = False
        if broker.disk.refuses:
            self.world.after(broker, 0, broker.look_at_all)
        for replica in broker.replicas.values():
            self.world.after(broker, 0, replica.fetch)

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

    def shut_down(self) -> None:
        """Stops a broker in order, as a rolling restart does, or kills it when that takes too long."""
        broker = self._broker()
        if broker.is_up and broker.epoch >= 0:
            broker.call(broker.session.stop)
            self._later(3_000, 8_000, self._start_again, broker, broker.life)

    def _start_again(self, broker: Broker, life: int) -> None:
        if broker.life == life:
            broker.stop("killed, to start again")
            broker.start()

    # --- the network ------------------------------------------------------------------------------

    def cut_brokers(self) -> None:
        """Cuts the link between two brokers, maybe in one direction."""
        one, other = self.pick.sample(sorted(self.world.brokers), 2)
        self._cut(one, other)

    def cut_coordinator(self) -> None:
        """Cuts a broker off from the coordinator, maybe in one direction."""
        broker = self._broker().id
        pair = (broker, COORDINATOR) if self.pick.random() < 0.5 else (COORDINATOR, broker)
        self._cut(*pair)

    def cut_off(self) -> None:
        """Cuts a broker off from the coordinator alone, until others have led for long.

        Maybe a follower is cut off with it.
        """
        number = 1 if self.pick.random() < 0.7 else 2
        brokers = self.pick.sample(sorted(self.world.brokers), number)
        delay_ms = self.pick.randint(8_000, 14_000)
        for broker in brokers:
            self.world.network.cut(broker, COORDINATOR, both_ways=True)
            self.world.say("cut off", broker)
            self.world.timeline.after(delay_ms, self._join, broker, COORDINATOR)

    def isolate(self) -> None:
        """Cuts a broker off from everybody, maybe not from the coordinator."""
        broker = self._broker().id
        for other in self.world.brokers:
            if other != broker:
                self._cut(broker, other)
        if self.pick.random() < 0.7:
            self._cut(broker, COORDINATOR)

    def leave_behind(self) -> None:
        """Cuts a follower off until it is out of the ISR; it comes back to the next leader.

        That is one that has what was committed, and does not know yet that it was.
        """
        used = {client.key for client in self.world.clients}
        stored = self.world.checker.stored.parts.items()
        parts = [(key, part) for key, part in stored if part.leader > 0 and key in used]
        if not parts:
            return
        key, part = self.pick.choice(parts)
        others = [each for each in part.replicas if each != part.leader]
        if len(others) < 2:
            return
        behind, *rest = self.pick.sample(others, len(others))
        for other in (part.leader, *rest):
            self.world.network.cut(behind, other, both_ways=True)
        self.world.say("left behind", behind)
        leader, world = part.leader, self.world
        is_settled_soon = world.settle_ms < HOUR_MS // 4 and (
            len(rest) == 1 or self.pick.random() < 0.5
        )
        go = self._hand_over if is_settled_soon else self._die

        def knows_less() -> bool:
            logs = [self.world.brokers[each].disk.logs.get(key) for each in (leader, rest[0])]
            theirs, mine = logs
            if theirs is None or mine is None:
                return False
            return mine.high_watermark < mine.end <= theirs.high_watermark

        def end() -> None:
            world.network.slow.pop((leader, rest[0]), None)
            go(key, behind, leader, rest)

        def wait() -> None:
            world.network.slow[leader, rest[0]] = self.pick.randint(50, 500)
            self._when(knows_less, 800, end)

        world.timeline.after(world.lag_time_max_ms + 2_500, wait)

    def _when(self, is_true: Callable[[], bool], tries: int, call: Callable[[], None]) -> None:
        """Makes a call as soon as something is true, or when nobody waits for that any more."""
        if is_true() or not tries or self.is_over:
            call()
        else:
            self._later(1, 10, self._when, is_true, tries - 1, call)

    def _hand_over(self, key: str, behind: int, leader: int, rest: list[int]) -> None:
        """Another becomes the preferred leader; it cannot be reached from the old one."""
        self.world.network.cut(leader, rest[0], both_ways=False)
        self._later(2_000, 8_000, self._join, leader, rest[0])
        order = [rest[0], leader, *rest[1:], behind]
        self.world.timeline.after(10, self.world.administrators.reorder, order)
        self._come_back(key, behind, rest)

    def _die(self, key: str, behind: int, leader: int, rest: list[int]) -> None:
        """The leader is killed, and the others cannot reach each other."""
        self.world.brokers[leader].stop("killed before a follower came back")
        self._later(1_000, 6_000, self.world.brokers[leader].start)
        for one in rest:
            for other in rest:
                if one < other:
                    self._cut(one, other)
        self._join(behind, leader)
        self._come_back(key, behind, rest)

    def _come_back(self, key: str, behind: int, rest: list[int]) -> None:
        """Lets a follower come back, on a slow link, when another leads."""
        parts = self.world.checker.stored.parts

        def has_new_leader() -> bool:
            return key not in parts or parts[key].leader == rest[0]

        def come_back() -> None:
            self._join(behind, rest[0])
            for other in self.world.brokers:
                if other not in (behind, rest[0]):
                    self._later(1_000, 3_000, self._join, behind, other)
            self.world.network.slow[rest[0], behind] = self.pick.randint(50, 500)
            self._later(2_000, 4_000, self._speed_up, rest[0])

        self._when(has_new_leader, 800, come_back)

    def _cut(self, one: int, other: int) -> None:
        network = self.world.network
        network.cut(one, other, both_ways=self.pick.random() < 0.6)
        self.world.say("cut", one, other)
        self._later(200, 8_000, self._join, one, other)

    def _join(self, one: int, other: int) -> None:
        self.world.network.is_cut.pop((one, other), None)
        self.world.network.is_cut.pop((other, one), None)
        self.world.say("join", one, other)

    def slow_down(self) -> None:
        """Makes the links from a broker slow."""
        one = self._broker().id
        for other in (COORDINATOR, *self.world.brokers):
            self.world.network.slow[one, other] = self.pick.randint(100, 1_500)
        self._later(500, 8_000, self._speed_up, one)

    def _speed_up(self, one: int) -> None:
        for other in (COORDINATOR, *self.world.brokers):
            self.world.network.slow.pop((one, other), None)

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
        world.network.weather = CALM
        world.coordinator.find_quorum()
        self._answer_again()
        self._hear_soon()
        for broker in world.brokers.values():
            broker.disk.repair()
            self._make_room(broker)
            if broker.session.is_stopping or broker.failed.keys:
                broker.stop("killed, to start again")
            broker.resume()
            broker.start()
        world.say("all faults are over")
