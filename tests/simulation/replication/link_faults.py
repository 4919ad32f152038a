"""What goes wrong between brokers, and between them and the coordinator, each for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.replication.network.network import COORDINATOR
from tests.simulation.replication.timeline import HOUR_MS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.replication.brokers.machine import Machine
    from tests.simulation.replication.life import Life


class LinkFaults:
    """The faults of links, and of a follower that is left behind."""

    world: Life
    pick: random.Random
    is_over: bool

    def _later(self, least_ms: int, most_ms: int, call: Callable[..., None], *args: object) -> None:
        self.world.timeline.after(self.pick.randint(least_ms, most_ms), call, *args)

    def _broker(self) -> Machine:
        """Returns any broker, more often one that leads."""
        leaders = self.world.leaders()
        if leaders and self.pick.random() < 0.5:
            return self.world.brokers[self.pick.choice(leaders)]
        return self.pick.choice(list(self.world.brokers.values()))

    # --- links ------------------------------------------------------------------------------------

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
        """Cuts a broker off from the coordinator, until others have led for long.

        Maybe a follower is cut off with it, or it is cut off from the other brokers, too.
        """
        number = 1 if self.pick.random() < 0.7 else 2
        brokers = self.pick.sample(sorted(self.world.brokers), number)
        delay_ms = self.pick.randint(8_000, 14_000)
        is_alone = self.pick.random() < 0.3
        for broker in brokers:
            self.world.say("cut off", broker)
            others = [each for each in self.world.brokers if is_alone and each != broker]
            for other in (COORDINATOR, *others):
                self.world.network.cut(broker, other, both_ways=True)
                self.world.timeline.after(delay_ms, self._join, broker, other)

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
            if not self.is_over:
                go(key, behind, leader, rest)

        def wait() -> None:
            if self.is_over:
                return
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
        self.world.brokers[leader].kill("killed before a follower came back")
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
        self.world.wires.heal()
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
