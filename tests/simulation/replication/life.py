"""One life of a cluster: brokers of the product, on event loops in virtual time; a seed decides all.

The brokers are nodes of the product (`brokers/machine.py`). Clients speak Kafka's protocol with them
over connections in memory (`network/wires.py`), and their metadata are at a coordinator
(`metadata/`). All of that has the faults of `faults.py`; administrators work all the time. After
every step the checker (`checking/`), who sees all nodes, looks at fourteen invariants. Then the
faults end, and the cluster must recover.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import random
import uuid
import warnings
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.simulation.power_loss import PowerLoss
from tests.simulation.replication.administrators import Administrators
from tests.simulation.replication.brokers.cleaning import VirtualWorker
from tests.simulation.replication.brokers.loop import VirtualLoop
from tests.simulation.replication.brokers.machine import Machine
from tests.simulation.replication.brokers.storage import Storage
from tests.simulation.replication.checking.invariants import Checker
from tests.simulation.replication.checking.ledger import BrokenInvariantError
from tests.simulation.replication.checking.liveness import check_liveness
from tests.simulation.replication.clients import Consumer, Producer
from tests.simulation.replication.faults import Faults
from tests.simulation.replication.injected import Mistake, injected
from tests.simulation.replication.members import Member
from tests.simulation.replication.metadata.coordinator import Coordinator
from tests.simulation.replication.metadata.etcd import Etcd
from tests.simulation.replication.metadata.store import RemoteStore
from tests.simulation.replication.network.network import WEATHERS, Network
from tests.simulation.replication.network.wires import Wires
from tests.simulation.replication.timeline import BEGIN_MS, Timeline
from tests.simulation.seeds import BrokenSeedError
from tidelog.broker.controller import controller_loop
from tidelog.broker.controller.sessions import Sessions
from tidelog.broker.lifecycle import session
from tidelog.broker.logs.maintenance import clock_watch, compaction_rounds
from tidelog.broker.metadata import names, records
from tidelog.broker.metadata.names import written_id
from tidelog.client.errors import ClientError
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from tests.simulation.replication.brokers.process import Process
    from tidelog.broker.metadata.store import KeyValueStore

FAULTS_MS = 15_000
PEACE_MS = 25_000  # at most: a run ends when the cluster has recovered
LEAST_PEACE_MS = 6_000
LAST_MS = 5_000  # nobody sends anything new
OBSERVED_S = 1.0  # how often a broker looks at its clock
MOST_STEPS = 50_000  # in one millisecond
COLLECTED = 10  # after so many runs all of their garbage is collected
_TRACE_LINES = 1000
_lives = itertools.count(1)
_LOG = logging.getLogger("tidelog")
_WATCH_LOST = "etcd watch lost changes"  # what the product logs
_MAY_BE_RAISED = (BrokerError, ClientError, OSError, PowerLoss, asyncio.CancelledError)

# Crashes make storage warn all the time; without a handler the warnings would be printed.
_LOG.addHandler(logging.NullHandler())


class Told(logging.Handler):
    """What the brokers log, in the trace."""

    def __init__(self, world: Life) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        loop = asyncio._get_running_loop()
        node = loop.process.node if isinstance(loop, VirtualLoop) else ""
        world = self._world
        error = record.exc_info[1] if record.exc_info else None
        text = f"{record.getMessage()} {getattr(record, 'reason', '')}".strip()
        text = text.replace(str(world.storage.path), "")
        world.say("log", node, text, *([] if error is None else [repr(error)]))
        if error is not None and not isinstance(error, _MAY_BE_RAISED):
            world.fail(error)
        if text.startswith(_WATCH_LOST) and world.etcd is not None and world.etcd.tells_all:
            world.fail(BrokenInvariantError(f"{node} has lost changes that etcd tells"))


class Life:
    """One life of a cluster."""

    def __init__(self, seed: int, *, fault: str = "", has_etcd: bool = False) -> None:
        """Begins a run; `fault` is the only one that it has, if it is named."""
        self.fault = fault
        self.timeline = timeline = Timeline(seed)
        pick = timeline.random
        self.network = Network(timeline, pick.choice(WEATHERS))
        self.wires = Wires(self, self.network)
        self.coordinator = Coordinator(timeline, self.network)
        self.etcd = Etcd(self, random.Random(seed)) if has_etcd else None
        self._choose(random.Random(f"settings {seed}"))
        self.brokers: dict[int, Machine] = {}
        self.quorum_ms = 0  # when the coordinator last found its quorum again
        self.ids: dict[str, tuple[UUID, int]] = {}
        self._keys: dict[tuple[UUID, int], str] = {}
        self._values = 0
        self.notes: Counter[str] = Counter()
        self._moment_ms = self._first_step = 0
        self._failure: BaseException | None = None
        self._graves: list[Process] = []
        self.storage = Storage(self)
        self._patches = self._patched()
        for patch in self._patches:
            patch.start()
        self._told = Told(self)
        _LOG.addHandler(self._told)
        for number in range(1, pick.choice([3, 3, 3, 4]) + 1):
            self.brokers[number] = Machine(self, number)
            self.wires.hosts[f"broker-{number}"] = number
        self.wires.is_on = lambda node: node not in self.brokers or self.brokers[node].has_power
        self.checker = self._checker_of_new_metadata()
        if self.etcd is not None:
            self.coordinator.on_change = self._metadata_changed
        self.administrators = Administrators(self)
        self.faults = Faults(self)
        self.clients = self._clients()
        for broker in self.brokers.values():
            timeline.after(pick.randint(0, 200), broker.start)
            timeline.every(1_000, broker.check)

    def _choose(self, pick: random.Random) -> None:
        """Chooses what this run is like."""
        self.cuts_off = pick.random() < 0.3 or self.fault == "cut_off"
        self.lag_time_max_ms = pick.choice([2_500, 5_000])
        self.fetch_wait_ms = pick.choice([100, 500])
        self.response_max_bytes = pick.choice([1, 1_000, 1 << 20])
        self.transact_ms = pick.choice([150, 2_000])
        self.settle_ms = pick.choice([2_000, 1_000_000])  # until a preferred leader leads
        self.slow_threads = pick.choice([0.0, 0.0, 0.1])
        self.large_percent = pick.choice([0, 15, 50])  # of the batches are appended in threads
        self.has_groups = pick.random() < 0.4 or self.fault == "move_groups"
        self.has_resets = pick.random() < 0.3  # of append clocks
        self.has_steps = not self.has_resets and pick.random() < 0.4  # of clocks
        compacts = pick.random() < 0.4
        self.compacted = {
            f"topic-{number}" for number in range(2) if compacts and pick.random() < 0.7
        }

    def _patched(self) -> list[Any]:
        """Returns what replaces parts of the product: what is random, and what needs a process."""
        numbers = itertools.count()
        drawn = SimpleNamespace(token_hex=lambda _size: f"secret {next(numbers)}")
        return [
            mock.patch.object(names, "uuid4", self._name),
            mock.patch.object(session, "secrets", drawn),
            mock.patch.object(compaction_rounds, "Worker", VirtualWorker),
            mock.patch.object(clock_watch, "_INTERVAL_S", OBSERVED_S),
            mock.patch.object(controller_loop, "Sessions", self._sessions),
        ]

    def _sessions(self, *, lease_ms: int, settle_ms: int | None) -> Sessions:
        assert settle_ms is not None
        return Sessions(lease_ms=lease_ms, settle_ms=self.settle_ms)

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
        clients: list[Any] = []
        pick = self.timeline.random
        if self.has_groups:
            clients += [Member(self, 80 + number) for number in range(pick.choice([1, 2]))]
        for number in range(pick.choice([1, 2, 3])):
            topic = f"topic-{pick.randrange(self.administrators.topics)}"
            index = pick.randrange(self.administrators.partitions)
            clients.append(Producer(self, number, topic, index))
            clients.append(Consumer(self, 50 + number, topic, index))
        return clients

    # --- what its parts ask -----------------------------------------------------------------------

    @property
    def true_ms(self) -> int:
        """The true time."""
        return BEGIN_MS + self.timeline.now_ms

    def say(self, *what: Any) -> None:
        """Notes what happened."""
        self.timeline.say(*what)

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

    def touch(self, broker: int, key: str) -> None:
        """Notes that a log has changed."""
        self.checker.touch(broker, key)

    def format_of(self, key: str) -> int:
        """Returns the format of records that a topic has now, in truth."""
        topic = self.checker.stored.topics.get(key.partition("/")[0])
        return 2 if topic is None else topic.format

    def _name(self) -> uuid.UUID:
        """Returns an id; one that a process makes may name its session."""
        made = uuid.UUID(int=random.Random(self.timeline.random.random()).getrandbits(128))
        for broker in self.brokers.values():
            broker.lives[written_id(made)] = broker.life
        return made

    def new_metadata_store(self, broker: int) -> KeyValueStore:
        """Returns the store of a process that starts."""
        return RemoteStore(self, broker) if self.etcd is None else self.etcd.new_store()

    def _metadata_changed(self) -> None:
        assert self.etcd is not None
        self.checker.stored.follow()
        self.etcd.changed()

    # --- steps ------------------------------------------------------------------------------------

    def stepped(self, process: Process) -> None:
        """Looks at what a step of a process has changed."""
        machine = self.brokers.get(process.node)
        if machine is not None and not process.is_dead:
            if machine.disk.is_off:
                self.faults.interrupted(machine)
            else:
                machine.views.look()
        self.checker.after_step()

    def fail(self, error: BaseException) -> None:
        """Ends this run: something was raised where nothing may be."""
        self._failure = self._failure or error

    def _after_event(self) -> None:
        if self.timeline.now_ms != self._moment_ms:
            self._moment_ms, self._first_step = self.timeline.now_ms, self.timeline.steps
        elif self.timeline.steps - self._first_step > MOST_STEPS:
            raise BrokenInvariantError("invariant 13: time stands still, because somebody spins")
        if self._failure is not None:
            raise self._failure
        self.checker.after_step()

    def bury(self, process: Process) -> None:
        """Keeps a dead process, so that nothing of it is closed before the end."""
        self._graves.append(process)

    # --- its run ---------------------------------------------------------------------------------

    def live(self) -> None:
        """Plays the time of faults, then the time of peace."""
        timeline, step = self.timeline, self._after_event
        timeline.run_until(FAULTS_MS, step)
        self.faults.end()
        self.administrators.end()
        timeline.run_until(FAULTS_MS + LEAST_PEACE_MS, step)
        while timeline.now_ms < FAULTS_MS + PEACE_MS and not self._has_recovered():
            timeline.run_until(timeline.now_ms + 1_000, step)
        for client in self.clients:
            client.is_stopped = True
        timeline.run_until(timeline.now_ms + LAST_MS, step)
        check_liveness(self)

    def _has_recovered(self) -> bool:
        """Returns whether nothing is left to wait for, so that the end may be checked."""
        stored = self.checker.stored
        return (
            not self.faults.restarting
            and all(set(part.isr) == set(part.replicas) for part in stored.parts.values())
            and not any(broker.views.has_waiting for broker in self.brokers.values())
        )

    def close(self) -> None:
        """Removes what is left."""
        for broker in self.brokers.values():
            broker.kill("the end")
        for client in self.clients:
            client.end()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of what died before it began
            self._bury_all()
        asyncio._set_running_loop(None)
        _LOG.removeHandler(self._told)
        for patch in self._patches:
            patch.stop()
        if self.etcd is not None:
            self.etcd.close()
        self.storage.close()

    def _bury_all(self) -> None:
        """Closes all that the dead have left; who looks at this run finds logs and the trace."""
        for process in self._graves:
            for loop in process.loops:
                loop.bury()
        self._graves.clear()
        self.timeline._events.clear()
        self.wires.ends.clear()
        self.wires.listeners.clear()
        gc.collect()


def chosen_store() -> str:
    """Returns where `STORE` in the environment puts all metadata; empty if it says nothing.

    Raises ValueError.
    """
    chosen = os.environ.get("STORE", "")
    if chosen not in ("", "memory", "etcd"):
        raise ValueError(f"STORE={chosen}: it is memory or etcd")
    return chosen


def has_etcd(seed: int) -> bool:
    """Returns whether the brokers of a seed's cluster have their metadata in etcd."""
    chosen = chosen_store()
    return chosen == "etcd" if chosen else seed % 2 == 1


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Lets no garbage be collected, but when a run is closed, and then only that of this run.

    What a broker does when an answer is gone would come at moments that depend on what else the
    interpreter has done.
    """
    was_enabled = gc.isenabled()
    if next(_lives) % COLLECTED == 0:
        gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def lived(life: Life, seed: int) -> Life:
    """Plays a run to its end; raises BrokenSeedError with its trace."""
    try:
        life.live()
    except Exception as error:
        lines = life.timeline.text(_TRACE_LINES)
        raise BrokenSeedError("\n".join([f"FROM={seed} SEEDS=1:", *lines, repr(error)])) from error
    finally:
        life.close()
    return life


def run(seed: int, mistake: Mistake | None = None) -> Life:
    """Plays one seed, maybe with a mistake injected; raises BrokenSeedError with its trace."""
    mistake = mistake or Mistake(())
    with injected(mistake), uncollected():
        is_in_etcd = mistake.has_etcd or has_etcd(seed)
        return lived(Life(seed, fault=mistake.fault, has_etcd=is_in_etcd), seed)
