"""A life of a cluster whose brokers run the product's shells, on event loops in virtual time.

The coordinator, the network's cuts, the clocks and the checker are those of the simulator beside
(`../world.py`). The brokers are nodes of the product (`machine.py`), and the clients speak Kafka's
protocol with them over connections in memory (`wires.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import random
import uuid
import warnings
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from tests.simulation.power_loss import PowerLoss
from tests.simulation.replication.administrators import Administrators
from tests.simulation.replication.checking.ledger import BrokenInvariantError
from tests.simulation.replication.checking.liveness import check_liveness
from tests.simulation.replication.cluster.coordinator import Coordinator
from tests.simulation.replication.cluster.network import WEATHERS, Network
from tests.simulation.replication.cluster.timeline import Timeline
from tests.simulation.replication.planted import Mistake, planted
from tests.simulation.replication.real.storage import ONE_IN, Storage, chosen_storage
from tests.simulation.replication.shells.clients import Consumer, Producer
from tests.simulation.replication.shells.etcd import Etcd
from tests.simulation.replication.shells.faults import Faults
from tests.simulation.replication.shells.loop import VirtualLoop
from tests.simulation.replication.shells.machine import Machine, MachineDisk
from tests.simulation.replication.shells.planted import PLANTED_IN_SHELLS
from tests.simulation.replication.shells.store import RemoteStore
from tests.simulation.replication.shells.wires import Wires
from tests.simulation.replication.world import World, lived
from tidelog.broker.cluster import session
from tidelog.broker.metadata import names
from tidelog.broker.metadata.names import written_id
from tidelog.client.errors import ClientError
from tidelog.protocol.errors import BrokerError

if TYPE_CHECKING:
    from tests.simulation.replication.shells.process import Process
    from tidelog.broker.metadata.store import KeyValueStore
    from tidelog.broker.network.turns import Turns

FAULTS_MS = 15_000
PEACE_MS = 25_000
MOST_STEPS = 50_000  # in one millisecond
_LOG = logging.getLogger("tidelog")
_WATCH_LOST = "etcd's watch has lost changes"  # what the product logs
_MAY_BE_RAISED = (BrokerError, ClientError, OSError, PowerLoss, asyncio.CancelledError)


class ShellStorage(Storage):
    """The disks of the brokers."""

    disk = MachineDisk


class ShellAdministrators(Administrators):
    """Administrators who change what a broker has settings for."""

    def _configs(self) -> dict[str, str]:
        pick = self.pick
        configs = {
            "min.insync.replicas": str(self.min_isr),
            "message.timestamp.type": pick.choice(["CreateTime", "LogAppendTime"]),
        }
        if pick.random() < 0.3:
            configs["flush.messages"] = "1"
        if pick.random() < 0.2:
            configs["unclean.leader.election.enable"] = "true"
        return configs


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
        text = record.getMessage().replace(str(world.storage.path), "")
        world.say("log", node, text, *([] if error is None else [repr(error)]))
        if error is not None and not isinstance(error, _MAY_BE_RAISED):
            world.fail(error)
        if text.startswith(_WATCH_LOST) and world.etcd is not None and world.etcd.tells_all:
            world.fail(BrokenInvariantError(f"{node} has lost changes that etcd tells"))


class Life(World):
    """One life of a cluster."""

    def __init__(self, seed: int, *, fault: str = "", has_etcd: bool = False) -> None:
        """Begins a life; `fault` is the only one that it has, if it is named."""
        self.fault = fault
        self.timeline = timeline = Timeline(seed)
        pick = timeline.random
        self.network = Network(timeline, pick.choice(WEATHERS))
        self.wires = Wires(self, self.network)
        self.coordinator = Coordinator(timeline, self.network)
        self.etcd = Etcd(self, random.Random(seed)) if has_etcd else None
        self.cuts_off = random.Random(seed).random() < 0.3 or fault == "cut_off"
        self.brokers: dict[int, Machine] = {}
        self.lag_time_max_ms = pick.choice([2_500, 5_000])
        self.fetch_wait_ms = pick.choice([100, 500])
        self.response_max_bytes = pick.choice([1, 1_000, 1 << 20])
        self.transact_ms = pick.choice([150, 2_000])
        self.slow_threads = pick.choice([0.0, 0.0, 0.1])
        self.large_percent = pick.choice([0, 15, 50])  # of the batches are appended in threads
        self.quorum_ms = 0
        self.has_resets = self.has_steps = False
        self.compacted: set[str] = set()
        self.ids = {}
        self._keys = {}
        self._values = 0
        self.notes: Counter[str] = Counter()
        self._moment_ms = self._first_step = 0
        self._failure: BaseException | None = None
        self._graves: list[Process] = []
        self.turns: list[Turns] = []  # of all processes
        self.storage = ShellStorage(self)
        self._names = mock.patch.object(names, "uuid4", self._name)
        self._names.start()
        numbers = itertools.count()
        drawn = SimpleNamespace(token_hex=lambda _size: f"secret {next(numbers)}")
        self._secrets = mock.patch.object(session, "secrets", drawn)
        self._secrets.start()
        self._told = Told(self)
        _LOG.addHandler(self._told)
        for number in range(1, pick.choice([3, 3, 3, 4]) + 1):
            self.brokers[number] = Machine(self, number)
            self.wires.hosts[f"broker-{number}"] = number
        self.wires.is_on = lambda node: node not in self.brokers or self.brokers[node].has_power
        self.checker = self._checker_of_new_metadata()
        if self.etcd is not None:
            self.coordinator.on_change = self._metadata_changed
        self.administrators = ShellAdministrators(self)
        self.faults = Faults(self)
        self.clients = self._clients()
        for broker in self.brokers.values():
            timeline.after(pick.randint(0, 200), broker.start)
            timeline.every(1_000, broker.check)

    def _clients(self) -> list[Any]:
        return self._producers_and_consumers(Producer, Consumer)

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
        """Ends this life: something was raised where nothing may be."""
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

    # --- its life ---------------------------------------------------------------------------------

    def live(self) -> None:
        """Plays the time of faults, then the time of peace."""
        timeline, step = self.timeline, self._after_event
        timeline.run_until(FAULTS_MS, step)
        self.faults.end()
        self.administrators.end()
        timeline.run_until(FAULTS_MS + PEACE_MS, step)
        for client in self.clients:
            client.is_stopped = True
        timeline.run_until(FAULTS_MS + PEACE_MS + 5_000, step)
        check_liveness(self)

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
        self._names.stop()
        self._secrets.stop()
        if self.etcd is not None:
            self.etcd.close()
        super().close()

    def _bury_all(self) -> None:
        """Closes all that the dead have left; who looks at this life finds logs and the trace."""
        for process in self._graves:
            for loop in process.loops:
                loop.bury()
        self._graves.clear()
        for turns in self.turns:  # else their greenlets would keep all of this in memory
            with contextlib.suppress(*_MAY_BE_RAISED):
                turns.close()
        self.timeline._events.clear()
        self.wires.ends.clear()
        self.wires.listeners.clear()
        gc.collect()


def has_etcd(seed: int) -> bool:
    """Returns whether the brokers of a seed's cluster have their metadata in etcd."""
    return chosen_storage() == "etcd" or seed // ONE_IN % 2 == 1


def run(seed: int, plant: str | None = None) -> Life:
    """Plays one seed; raises BrokenSeedError with its trace."""
    mistake = Mistake(()) if plant is None else PLANTED_IN_SHELLS[plant]
    with planted(mistake):
        life = Life(seed, fault=mistake.fault, has_etcd=mistake.has_etcd or has_etcd(seed))
        lived(life, seed)
        return life
