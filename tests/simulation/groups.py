"""A group in a simulated world, of which a seed is one schedule.

There are members that join, leave, die, pause and are slow, a network that delays and loses, a broker that
starts again from its log. Nothing here waits, and nothing is random but what the seed says. What must
hold (BrokenPromiseError says what does not):

- a generation gives no partition to two members;
- what is committed for a partition never goes back: no commit is lost, none comes from a former owner;
- a leader is shown only members who joined its generation, or are static;
- who is steady is never thrown out;
- left alone, the group is stable, and those alive own every partition once.
"""

from __future__ import annotations

import heapq
import itertools
import random
from typing import TYPE_CHECKING, Any

from tidelog.broker.coordinators.groups.committed import Committed, offset_record
from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata, Loading
from tidelog.broker.coordinators.groups.messages import Answer, Join, Joined, State, Store, Synced
from tidelog.protocol.errors import BrokerError, ErrorCode
from tidelog.protocol.group_errors import MemberIdRequired

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PARTITIONS = 6
SESSION_MS, REBALANCE_MS, HEARTBEAT_MS = 10_000, 30_000, 3_000
CHAOS_MS = 180_000
CALM_MS = 150_000
_LOST = "lost"


class BrokenPromiseError(AssertionError):
    """A promise that does not hold."""


class World:
    """Time, the network, the coordinator and what is watched."""

    def __init__(self, seed: int, group_type: type[Group] = Group) -> None:
        self.random = random.Random(seed)
        self.group_type = group_type
        self.now_ms = 0
        self.is_calm = False
        self.restarts = 0
        self._wake_ms = 0
        self.generations = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._ids = itertools.count(1)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.kept = GroupMetadata(self._new("g"))
        self.life = 0
        self.owners: dict[tuple[int, int], str] = {}
        self.joined: dict[int, set[str]] = {}
        self.highest = dict.fromkeys(range(PARTITIONS), -1)
        self.members: list[Client] = []

    def _new(self, group_id: str) -> Group:
        delay_ms = self.random.choice([0, 0, 3_000])
        return self.group_type(group_id, initial_delay_ms=delay_ms)

    def at(self, delay_ms: int, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._order), what))

    def run_until(self, end_ms: int) -> None:
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, what = heapq.heappop(self._events)
            what()
            self._tick()
        self.now_ms = end_ms

    def _tick(self) -> None:
        due_ms = self.kept.group.next_deadline_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self.act(self.kept.group.tick(self.now_ms))
            due_ms = self.kept.group.next_deadline_ms()
        if due_ms is not None and not self.now_ms < self._wake_ms <= due_ms:
            self._wake_ms = max(self.now_ms + 1, due_ms)
            self.at(self._wake_ms - self.now_ms, lambda: None)

    # -- the broker -----------------------------------------------------------------------------

    def act(self, actions: list[Any]) -> None:
        self.kept.note_state(self.now_ms)
        for action in actions:
            if isinstance(action, Store):
                self.log.append(self.kept.group_record())
            elif isinstance(action, Answer):
                action.ticket(action.outcome)

    def restart(self) -> None:
        self.life += 1
        self.restarts += 1
        for ticket in self.kept.group.tickets():
            ticket(_LOST)
        loading = Loading(self._new)
        for at, (key, value) in enumerate(self.log):
            loading.replay(at, key, value)
        found = list(loading.groups(self.now_ms))
        self.kept = found[0] if found else GroupMetadata(self._new("g"))

    def new_id(self) -> str:
        return f"m{next(self._ids)}"

    def commit(self, client: Client, generation: int, offsets: dict[int, int]) -> None:
        group = self.kept.group
        group.check_commit(client.member_id, client.instance, generation, self.now_ms)
        for partition, offset in offsets.items():
            name = ("t", partition)
            committed = Committed(offset, -1, "", self.now_ms)
            self.log.append(offset_record("g", name, committed))
            self.kept.commit(name, committed._replace(at=len(self.log)))
            if offset < self.highest[partition]:
                raise BrokenPromiseError(
                    f"{partition}: {offset} after {self.highest[partition]} was committed"
                )
            self.highest[partition] = offset

    def committed(self, partition: int) -> int:
        found = self.kept.offsets.get(("t", partition))
        offset = -1 if found is None else found.offset
        if offset != self.highest[partition]:
            raise BrokenPromiseError(f"{partition}: {offset} is left of {self.highest[partition]}")
        return offset

    # -- what is watched ------------------------------------------------------------------------

    def saw_joined(self, joined: Joined) -> None:
        self.generations = max(self.generations, joined.generation)
        if self.restarts:
            return  # a generation that was never stored is counted again
        here = self.joined.setdefault(joined.generation, set())
        here.add(joined.member_id)

    def saw_leader(self, joined: Joined) -> None:
        group = self.kept.group
        if self.restarts or joined.generation != group.generation:
            return
        known = self.joined[joined.generation]
        for member, instance, _ in joined.members:
            if instance is None and member not in known:
                raise BrokenPromiseError(
                    f"{member} is in generation {joined.generation} and never joined it"
                )

    def saw_owned(self, client: Client, generation: int, partitions: Iterable[int]) -> None:
        who = client.instance or client.member_id
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), who)
            if owner != who:
                raise BrokenPromiseError(
                    f"{partition} is owned by {owner} and {who} in {generation}"
                )

    def saw_thrown_out(self, client: Client) -> None:
        if client.is_steady and not self.restarts:
            raise BrokenPromiseError(f"{client.member_id} was steady, and thrown out")


class Client:
    """One member, as real clients behave: it joins, syncs, heartbeats, commits, and joins again."""

    def __init__(self, world: World, instance: str | None, *, is_steady: bool) -> None:
        self.world, self.instance, self.is_steady = world, instance, is_steady
        self.member_id, self.generation = "", -1
        self.owned: dict[int, int] = {}
        self.owned_in = -1
        self.is_alive, self.paused_until = True, 0
        self.is_member = False
        self.slow_ms = 0 if is_steady else world.random.choice([0, 0, 0, 4_000])
        self.turn = 0  # what was begun before it is void
        self._arrival_ms = 0  # requests of one connection arrive in order

    # -- the network ----------------------------------------------------------------------------

    def _delay_ms(self) -> int:
        chance = self.world.random.random()
        if self.world.is_calm or self.is_steady or chance < 0.8:
            return self.world.random.randint(1, 50)
        return self.world.random.randint(50, 4_000)

    def send(
        self, what: Callable[[Callable[[Any], None]], None], then: Callable[[Any], None]
    ) -> None:
        """Deliver a request, later, and its answer, later still; either may be lost outside calm."""
        turn, world = self.turn, self.world

        def answered(outcome: Any) -> None:
            lost = not world.is_calm and not self.is_steady and world.random.random() < 0.03
            world.at(self._delay_ms(), lambda: self._hear(turn, _LOST if lost else outcome, then))

        def arrive() -> None:
            if not world.is_calm and not self.is_steady and world.random.random() < 0.03:
                world.at(2_000, lambda: self._hear(turn, _LOST, then))
                return
            try:
                what(answered)
            except BrokerError as error:
                answered(error)

        self._arrival_ms = max(self._arrival_ms, world.now_ms + self._delay_ms())
        world.at(self._arrival_ms - world.now_ms, arrive)

    def _hear(self, turn: int, outcome: Any, then: Callable[[Any], None]) -> None:
        if not self.is_alive or turn != self.turn:
            return
        if self.paused_until > self.world.now_ms:
            wait_ms = self.paused_until - self.world.now_ms
            self.world.at(wait_ms, lambda: self._hear(turn, outcome, then))
            return
        then(outcome)

    # -- the run of a member -------------------------------------------------------------------

    def join(self) -> None:
        if self.owned and self.is_member:
            self._commit(wait=False)
        self.turn += 1
        self.generation, world = -1, self.world
        request = Join(
            self.member_id,
            world.new_id(),
            self.instance,
            "c",
            "/h",
            SESSION_MS,
            REBALANCE_MS,
            "consumer",
            (("range", b""),),
            needs_id=True,
            can_skip=True,
        )
        life = world.life

        def ask(answer: Callable[[Any], None]) -> None:
            if life != world.life:
                answer(_LOST)
                return

            def told(outcome: Any) -> None:
                if isinstance(outcome, Joined):
                    world.saw_joined(outcome)
                answer(outcome)

            world.act(world.kept.group.join(request, told, world.now_ms))

        self.send(ask, self._joined)

    def _joined(self, outcome: Any) -> None:
        if not isinstance(outcome, Joined):
            self._failed(outcome)
            return
        self.member_id, self.generation = outcome.member_id, outcome.generation
        self.is_member = True
        parts: dict[str, bytes] = {}
        if outcome.members and not outcome.skip_assignment:
            self.world.saw_leader(outcome)
            names = [member for member, _, _ in outcome.members]
            for at, name in enumerate(names):
                parts[name] = bytes(range(at, PARTITIONS, len(names)))

        def ask(answer: Callable[[Any], None]) -> None:
            protocols = ("consumer", "range")
            group = self.world.kept.group
            self.world.act(
                group.sync(
                    self.member_id,
                    self.instance,
                    outcome.generation,
                    protocols,
                    parts,
                    answer,
                    self.world.now_ms,
                )
            )

        self.turn += 1
        wait_ms = 0 if self.world.is_calm else self.slow_ms
        turn = self.turn
        self.world.at(wait_ms, lambda: self.send(ask, self._synced) if turn == self.turn else None)
        self.world.at(HEARTBEAT_MS, lambda: self._heartbeat(turn))

    def _synced(self, outcome: Any) -> None:
        if not isinstance(outcome, Synced):
            self._failed(outcome)
            return
        partitions = list(outcome.assignment)
        self.world.saw_owned(self, self.generation, partitions)
        self.owned_in = self.generation
        self.owned = {partition: self.world.committed(partition) for partition in partitions}
        self._work(self.turn)

    def _work(self, turn: int) -> None:
        if turn != self.turn or not self.is_alive:
            return
        if self.paused_until <= self.world.now_ms:
            for partition in self.owned:
                self.owned[partition] += self.world.random.randint(0, 5)
            self._commit(wait=True)
        self.world.at(self.world.random.randint(500, 3_000), lambda: self._work(turn))

    def _commit(self, *, wait: bool) -> None:
        offsets, generation = dict(self.owned), self.owned_in
        if not offsets:
            return

        def ask(answer: Callable[[Any], None]) -> None:
            self.world.commit(self, generation, offsets)
            answer(None)

        self.send(ask, self._heard if wait else lambda _: None)

    def _heartbeat(self, turn: int) -> None:
        if turn != self.turn or not self.is_alive:
            return
        if self.paused_until <= self.world.now_ms:
            generation = self.generation

            def ask(answer: Callable[[Any], None]) -> None:
                group = self.world.kept.group
                group.heartbeat(self.member_id, self.instance, generation, self.world.now_ms)
                answer(None)

            self.send(ask, self._heard)
        self.world.at(HEARTBEAT_MS, lambda: self._heartbeat(turn))

    def _heard(self, outcome: Any) -> None:
        if isinstance(outcome, BrokerError):
            self._failed(outcome)

    def _failed(self, outcome: Any) -> None:
        """Join again, as whoever the broker says."""
        if isinstance(outcome, MemberIdRequired):
            self.member_id = outcome.member_id
        elif isinstance(outcome, BrokerError):
            if outcome.code == ErrorCode.UNKNOWN_MEMBER_ID:
                if self.is_member:
                    self.world.saw_thrown_out(self)
                self.member_id, self.is_member, self.owned = "", False, {}
            elif outcome.code == ErrorCode.FENCED_INSTANCE_ID:
                self.is_alive = False
                return
            elif outcome.code == ErrorCode.ILLEGAL_GENERATION:
                self.owned = {}
        self.turn += 1
        turn = self.turn
        self.world.at(100, lambda: self.join() if turn == self.turn and self.is_alive else None)

    def leave(self) -> None:
        self.is_alive = False
        if self.member_id and self.instance is None:
            with_id = self.member_id

            def ask(answer: Callable[[Any], None]) -> None:
                self.world.act(self.world.kept.group.leave(with_id, None, self.world.now_ms))
                answer(None)

            self.send(ask, lambda _: None)


def run(seed: int, group_type: type[Group] = Group) -> World:
    """Live through one schedule; raises BrokenPromiseError."""
    world = World(seed, group_type)
    rng = world.random
    instances = itertools.count(1)

    def arrive(instance: str | None = None, *, is_steady: bool = False) -> None:
        client = Client(world, instance, is_steady=is_steady)
        world.members.append(client)
        client.join()

    for _ in range(rng.randint(1, 3)):
        instance = f"i{next(instances)}" if rng.random() < 0.3 else None
        world.at(rng.randint(0, 5_000), lambda instance=instance: arrive(instance))
    world.at(rng.randint(0, 5_000), lambda: arrive(is_steady=True))

    def trouble() -> None:
        living = [client for client in world.members if client.is_alive and not client.is_steady]
        what = rng.random()
        if what < 0.35 or not living:
            if len(living) < 6:
                arrive(f"i{next(instances)}" if rng.random() < 0.3 else None)
            return
        client = rng.choice(living)
        if what < 0.5:
            client.leave()
        elif what < 0.65:
            client.is_alive = False
        elif what < 0.85:
            client.paused_until = world.now_ms + rng.randint(1_000, 25_000)
        elif what < 0.95 and client.instance is not None:
            if rng.random() < 0.5:
                client.is_alive = False
            arrive(client.instance)
        elif rng.random() < 0.3:
            world.restart()

    for _ in range(rng.randint(4, 16)):
        world.at(rng.randint(0, CHAOS_MS), trouble)
    world.run_until(CHAOS_MS)
    world.is_calm = True
    world.run_until(CHAOS_MS + CALM_MS)
    _judge(world)
    return world


def _judge(world: World) -> None:
    """What must be so once a group has been left alone."""
    group = world.kept.group
    living = {client.member_id for client in world.members if client.is_alive}
    if group.state is not State.STABLE or set(group.members) != living or group.pending:
        raise BrokenPromiseError(
            f"{group.state}: {sorted(group.members)}, and alive are {sorted(living)}"
        )
    owned = sorted(
        partition
        for client in world.members
        if client.is_alive and client.generation == group.generation
        for partition in client.owned
    )
    if owned != list(range(PARTITIONS)):
        raise BrokenPromiseError(f"left alone, members own {owned}")
