"""The replication simulator: a cluster of the product's state machines; a seed decides all.

Each broker is the product's machine on a virtual log, the product's controller and registration,
and a shell that carries out what they say (`cluster/`). In every tenth seed the logs are those of
the product's storage, on disks that lose power (`real/`). Coordinator, network, disks, machines and
clocks have the faults of `faults.py`; clients and administrators work all the time. After every
step the checker (`checking/`), who sees all nodes, looks at fourteen invariants. Then the faults
end, and the cluster must recover.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from tests.simulation.replication.administrators import Administrators
from tests.simulation.replication.checking.invariants import Checker
from tests.simulation.replication.checking.liveness import check_liveness
from tests.simulation.replication.clients import Consumer, Producer
from tests.simulation.replication.cluster.broker import Broker
from tests.simulation.replication.cluster.coordinator import Coordinator
from tests.simulation.replication.cluster.disk import BEGIN_MS, Disk
from tests.simulation.replication.cluster.network import WEATHERS, Network
from tests.simulation.replication.cluster.timeline import Timeline
from tests.simulation.replication.faults import Faults
from tests.simulation.replication.members import Member
from tests.simulation.replication.planted import PLANTED, Mistake, planted
from tests.simulation.replication.real.storage import Storage, has_real_storage
from tests.simulation.seeds import BrokenSeedError
from tidelog.broker.metadata import records
from tidelog.broker.metadata.names import written_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from tests.simulation.replication.cluster.replica import Replica
    from tidelog.broker.replication.follower import Follower
    from tidelog.broker.replication.messages import FetchRequest

FAULTS_MS = 20_000
PEACE_MS = 20_000
_TRACE_LINES = 1000


class World:
    """One life of a cluster."""

    def __init__(self, seed: int, *, has_storage: bool, fault: str = "") -> None:
        """Begins a life; `fault` is the only one that it has, if it is named."""
        self.fault = fault
        self.timeline = timeline = Timeline(seed)
        pick = timeline.random
        self.network = Network(timeline, pick.choice(WEATHERS))
        self.coordinator = Coordinator(timeline, self.network)
        self.brokers: dict[int, Broker] = {}
        self.lag_time_max_ms = pick.choice([2_500, 5_000])
        self.most_batches = pick.choice([1, 2, 8])  # in one fetch
        self.transact_ms = pick.choice([150, 2_000])  # until an outcome is unknown
        self.cuts_off = (
            pick.random() < 0.2 or fault == "cut_off"
        )  # who is cut off keeps its clients
        self.has_locks = pick.random() < 0.5  # a process knows that the one before it is dead
        self.impostor = pick.choice([0, 0, 0, 1])
        self.settle_ms = pick.choice([2_000, 1_000_000])
        self.load_ms = pick.choice([50, 800, 6_000])  # at most, until groups are read
        self.quorum_ms = 0  # when the coordinator last found its quorum again
        self.ids: dict[str, tuple[UUID, int]] = {}
        self._keys: dict[tuple[UUID, int], str] = {}
        self._values = 0
        also = random.Random(seed)
        self.has_resets = also.random() < 0.3  # of append clocks
        compacts = has_storage and also.random() < 0.4  # a virtual log is not compacted
        self.compacted = {
            f"topic-{number}" for number in range(2) if compacts and also.random() < 0.7
        }
        self.has_steps = has_storage and not self.has_resets and also.random() < 0.4  # of clocks
        self.commits: dict[int, tuple[int, int]] = {}  # group and offset, by the record's value
        self.storage = Storage(self) if has_storage else None
        for number in range(1, pick.choice([3, 3, 3, 4]) + 1):
            self.brokers[number] = Broker(self, number)
        self.checker = self._checker_of_new_metadata()
        self.administrators = Administrators(self)
        self.faults = Faults(self)
        self.clients = self._clients()
        for broker in self.brokers.values():
            timeline.after(pick.randint(0, 200), broker.start)

    def _checker_of_new_metadata(self) -> Checker:
        """Returns the checker, which has seen the first keys of the store being written."""
        checker = Checker(self)
        self.coordinator.on_change = checker.stored.follow
        self.coordinator.store.transact(
            (),
            (
                records.put_cluster("simulated"),
                records.put_broker_configs({}),
                records.put_producer_ids(0),
            ),
        )
        return checker

    def _clients(self) -> list[Any]:
        pick = self.timeline.random
        clients: list[Any] = []
        if self.administrators.has_groups:
            clients += [Member(self, 80 + number) for number in range(pick.choice([1, 2]))]
        return clients + self._producers_and_consumers(Producer, Consumer)

    def _producers_and_consumers(
        self, producer: Callable[..., Any], consumer: Callable[..., Any]
    ) -> list[Any]:
        """Returns one of each for up to three partitions."""
        pick = self.timeline.random
        clients: list[Any] = []
        for number in range(pick.choice([1, 2, 3])):
            topic = f"topic-{pick.randrange(self.administrators.topics)}"
            index = pick.randrange(self.administrators.partitions)
            clients.append(producer(self, number, topic, index))
            clients.append(consumer(self, 50 + number, topic, index))
        return clients

    # --- what its parts ask -----------------------------------------------------------------------

    @property
    def true_ms(self) -> int:
        """The true time."""
        return BEGIN_MS + self.timeline.now_ms

    def say(self, *what: Any) -> None:
        """Notes what happened."""
        self.timeline.say(*what)

    def after(self, broker: Broker, delay_ms: int, call: Callable[..., None], *args: Any) -> None:
        """Makes a call in this life of a broker, after a delay."""
        self.timeline.after(delay_ms, broker.run, broker.life, call, *args)

    def new_disk(self, broker: Broker) -> Disk:
        """Returns the disk of a new broker."""
        number, pick = broker.id, self.timeline.random

        def changed(key: str) -> None:
            self.checker.touch(number, key)

        if self.storage is None:
            return Disk(pick, changed)
        return self.storage.new_disk(broker, pick, changed)

    def close(self) -> None:
        """Removes what real storage has written."""
        if self.storage is not None:
            self.storage.close()

    def next_value(self) -> int:
        """Returns a value that no batch has."""
        self._values += 1
        return self._values

    def add_topic(self, topic_id: UUID, partitions: int) -> None:
        """Notes a topic that may be created."""
        for index in range(partitions):
            key = self.key_of(topic_id, index)
            self.ids[key] = topic_id, index

    def key_of(self, topic_id: UUID, index: int) -> str:
        """Returns the name of a partition here."""
        key = self._keys.get((topic_id, index))
        if key is None:
            key = self._keys[topic_id, index] = f"{written_id(topic_id)}/{index}"
        return key

    def is_older(self, key: str, than: str) -> bool:
        """Returns whether a partition's topic was created before another's."""
        created = list(self.checker.stored.topics)
        one, other = key.partition("/")[0], than.partition("/")[0]
        return other in created and created.index(one) < created.index(other)

    def leaders(self) -> list[int]:
        """Returns the leaders that are stored."""
        parts = self.checker.stored.parts.values()
        return sorted({part.leader for part in parts if part.leader > 0})

    def log_start(self, key: str) -> int:
        """Returns where a consumer begins that asks for the earliest offset."""
        ledger = self.checker.stored.ledgers.get(key)
        return 0 if ledger is None else ledger.start

    # --- messages ---------------------------------------------------------------------------------

    def to_broker(self, source: int, target: int, life: int, what: str, *args: Any) -> None:
        """Sends a client's request on a connection to a life of a broker."""
        broker = self.brokers[target]
        self.network.send(
            source, target, broker.run, life, getattr(self, f"_{what}"), broker, *args
        )

    def _produce(self, broker: Broker, request: Any, attempt: int, client: Producer) -> None:
        replica = broker.replicas.get(request.key)

        def reply(error: Any) -> None:
            self.network.send(broker.id, client.id, client.answered, attempt, error)

        if replica is None:
            reply(None)
        else:
            replica.produce(request, reply)

    def _read(self, broker: Broker, key: str, offset: int, attempt: int, client: Consumer) -> None:
        replica = broker.replicas.get(key)

        def reply(error: Any, batches: Any) -> None:
            self.network.send(broker.id, client.id, client.answered, attempt, error, batches)

        if replica is not None:
            replica.read(offset, reply)

    def _coordinate(
        self, broker: Broker, what: tuple[str, int | None], attempt: int, client: Member, known: int
    ) -> None:
        if client.attempt != attempt:
            return  # its connection is closed

        def reply(error: Any, offset: int | None) -> None:
            self.network.send(broker.id, client.id, client.answered, attempt, error, known, offset)

        broker.coordinating.coordinate(client.key, client.id, what[1], reply)

    def ask_leader(self, replica: Replica, follower: Follower, request: FetchRequest) -> None:
        """Sends a follower's fetch to its leader; what comes back goes to the follower."""
        source, target = replica.broker, self.brokers[follower.leader]
        life = source.life

        def answer(*told: Any) -> None:
            self.network.send(
                target.id,
                source.id,
                source.run,
                life,
                replica.take_answer,
                follower,
                request,
                *told,
            )

        def serve() -> None:
            theirs = target.replicas.get(replica.key)
            if theirs is not None:
                theirs.serve_fetch(request, answer)

        self.network.send(source.id, target.id, target.run, target.life, serve)

    # --- its life ---------------------------------------------------------------------------------

    def live(self) -> None:
        """Plays the time of faults, then the time of peace."""
        timeline, step = self.timeline, self.checker.after_step
        timeline.run_until(FAULTS_MS, step)
        self.faults.end()
        self.administrators.end()
        timeline.run_until(FAULTS_MS + PEACE_MS, step)
        for client in self.clients:
            client.is_stopped = True
        timeline.run_until(FAULTS_MS + PEACE_MS + 4_000, step)
        check_liveness(self)


def lived(world: World, seed: int) -> World:
    """Plays a life to its end; raises BrokenSeedError with its trace."""
    try:
        world.live()
    except Exception as error:
        lines = world.timeline.text(_TRACE_LINES)
        raise BrokenSeedError("\n".join([f"FROM={seed} SEEDS=1:", *lines, repr(error)])) from error
    finally:
        world.close()
    return world


def run(seed: int, plant: str | None = None) -> World:
    """Plays one seed with simulated brokers; raises BrokenSeedError with its trace."""
    mistake = Mistake(()) if plant is None else PLANTED[plant]
    with planted(mistake):
        has_storage = mistake.is_stored or has_real_storage(seed)
        return lived(World(seed, has_storage=has_storage, fault=mistake.fault), seed)
