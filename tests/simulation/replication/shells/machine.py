"""A broker of the product on a simulated machine: its disk, its clock, and one process after another.

A process runs the whole node: metadata, session, controller, topics, replicas, and the handlers of
its connections. What a test would need a real machine for is given to it: an event loop in virtual
time, a disk that loses power, a clock that may be wrong, a store at the coordinator.
"""

from __future__ import annotations

import asyncio
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from tests.simulation.power_loss import PowerLoss
from tests.simulation.replication.cluster.disk import Clock
from tests.simulation.replication.real.disk import FAR_MS, RealDisk
from tests.simulation.replication.shells.process import Process, VirtualKeepAlive
from tests.simulation.replication.shells.views import Views
from tidelog.broker.clock import Clock as NodeClock
from tidelog.broker.cluster.cluster import NO_SESSION, Cluster
from tidelog.broker.maintenance.retention_rounds import Rounds
from tidelog.broker.metadata.cluster import ClusterMetadata
from tidelog.broker.metadata.store import MetadataError
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network.accepting.listener import Listener
from tidelog.broker.network.connection import Connection
from tidelog.broker.node import Node
from tidelog.broker.topics.startup import open_topics
from tidelog.config import load
from tidelog.protocol.errors import BrokerError
from tidelog.storage.directory import registration_file
from tidelog.storage.directory.log_directory import LogDirectoryError
from tidelog.storage.directory.registration_file import RegistrationFileError
from tidelog.storage.directory.store import LogStore
from tidelog.storage.time.trusted_clock import Reading

if TYPE_CHECKING:
    from tests.simulation.replication.shells.life import Life
    from tidelog.broker.replication.lease import Lease
    from tidelog.config import BrokerConfig

PORT = 9092
LEASE_MS = 3_000
OPEN_AGAIN_MS = 1_500
CHECKPOINT_S = 3.0


class MachineClock(NodeClock):
    """What a process reads: the machine's wall clock, and virtual time."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._timeline = machine.world.timeline
        self._boot_id = machine.boot_id

    def now_ms(self) -> int:
        return self._machine.clock.wall_ms(self._timeline.now_ms)

    def steady_ms(self) -> int:
        return self._timeline.now_ms

    async def reached(self, steady_ms: int) -> None:
        await asyncio.sleep((steady_ms - self.steady_ms()) / 1000)

    def monotonic_s(self) -> float:
        return self._timeline.now_ms / 1000

    def reading(self) -> Reading:
        return Reading(self.now_ms(), self._timeline.now_ms, self._boot_id)


class MachineDisk(RealDisk):
    """A log directory whose logs are opened by a node."""

    def new_store(self, boot_id: str, config: BrokerConfig) -> LogStore:
        """Returns the store of a process that starts."""
        self._store = LogStore(
            [self.path],
            default_config=config.topic_defaults,
            producer_id_expiration_ms=FAR_MS,
            boot_id=boot_id,
        )
        return self._store

    @property
    def is_off(self) -> bool:
        """Whether it has lost power in the middle of a call."""
        return self._power.is_off

    @property
    def is_flushed(self) -> bool:
        """Whether the last process stopped in order, with everything flushed."""
        try:
            state = registration_file.read_state(self.path)
        except RegistrationFileError:
            return False
        return state is None or state.is_stopped


class Machine:
    """All lives of one broker."""

    def __init__(self, world: Life, number: int) -> None:
        pick = world.timeline.random
        self.world = world
        self.id = number
        self.host = f"broker-{number}"
        self.clock = Clock(pick)
        self.disk = world.new_disk(self)
        self.boot = 0
        self.has_power = True
        self.life = 0
        self.process: Process | None = None
        self.node: Node | None = None
        self.stop_asked: asyncio.Event | None = None
        self.registered_life = self.lossy_life = 0  # as in `cluster/broker.py`
        self.must_confirm = False
        self.is_hung = False
        self.paused_since: int | None = None
        self.awake_ms = 0  # since then it has done what came while it stood still
        self.replicas: dict[str, object] = {}
        self._own = {  # segments and indexes are this broker's own
            "log.segment.bytes": pick.choice([30_000, 100_000, 1 << 20]),
            "log.index.interval.bytes": pick.choice([0, 150, 4_096]),
            "log.segment.delete.delay.ms": pick.choice([0, 3_000]),
            "log.event.time.ahead.max.ms": FAR_MS,
        }
        self.views = Views(self)
        self.lives: dict[str, int] = {}  # by incarnation

    def __repr__(self) -> str:
        return f"broker {self.id}"

    # --- what the checker asks --------------------------------------------------------------------

    @property
    def boot_id(self) -> str:
        return f"boot-{self.id}-{self.boot}"

    @property
    def is_up(self) -> bool:
        return self.process is not None

    @property
    def epoch(self) -> int:
        """The broker epoch; -1 while it is not registered."""
        cluster = None if self.node is None else self.node.cluster
        return NO_SESSION if cluster is None else cluster.epoch

    @property
    def is_serving(self) -> bool:
        return self.is_up and self.epoch >= 0

    @property
    def lease(self) -> Lease:
        """The lease of the session."""
        assert self.node is not None
        return self.node.cluster.lease

    @property
    def is_lossy(self) -> bool:
        """Whether its disk has lost something since it registered, in truth."""
        return self.lossy_life >= self.registered_life > 0

    def life_of(self, incarnation: str) -> int:
        """Returns the life in which a session began."""
        return self.lives[incarnation]

    def metadata(self, topic: str, index: int) -> tuple[str, int, int] | None:
        """Returns a partition's key, leader and leader epoch, as clients hear of them here."""
        if self.node is None or self.paused_since is not None:
            return None
        known = self.node.metadata.image.topics.get(topic)
        if known is None or index >= known.partitions:
            return None
        record = known.assignments[index]
        return self.world.key_of(known.topic_id, index), record.leader, record.leader_epoch

    # --- processes --------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts a process, and the machine if it is off."""
        if self.is_up:
            return
        if not self.has_power:
            self.has_power = True
            self.boot += 1
        self.life += 1
        self.paused_since = None
        self.process = Process(self.world, self.id)
        self.process.slow_threads = self.world.slow_threads
        self.views.begin()
        self.world.say("start", self, self.life)
        loop = self.process.loop
        loop.call_soon(loop.create_task, self._main(self.process))

    def _config(self) -> BrokerConfig:
        world = self.world
        given = {
            "node.id": self.id,
            "metadata.store": "sqlite:/simulated" if world.etcd is None else "etcd://simulated",
            "broker.session.timeout.ms": LEASE_MS,
            "replica.lag.time.max.ms": world.lag_time_max_ms,
            "replica.fetch.wait.max.ms": world.fetch_wait_ms,
            "replica.fetch.response.max.bytes": world.response_max_bytes,
            "replica.fetch.max.bytes": world.response_max_bytes,
            "log.retention.check.interval.ms": 2_000,
            **self._own,
        }
        return load(None, {}, {name: str(value) for name, value in given.items()})

    async def _main(self, process: Process) -> None:
        try:
            await self._serve(process)
        except (MetadataError, BrokerError, LogDirectoryError, OSError) as error:
            self._ended(f"it cannot start: {error}")
            self.world.timeline.after(OPEN_AGAIN_MS, self.start)
        except (PowerLoss, asyncio.CancelledError):
            raise
        except Exception as error:
            self.world.fail(error)

    async def _serve(self, process: Process) -> None:
        """Does what `broker.server` does, but for signals, sockets and HTTP."""
        config, loop = self._config(), process.loop
        store = self.disk.new_store(self.boot_id, config)
        store.lock()
        metadata = ClusterMetadata(self.world.new_metadata_store(self.id), self.id)
        await metadata.open()
        node = Node(config, MachineClock(self), store, metadata, Metrics())
        self.world.turns.append(node.turns)
        cluster = Cluster(node, boot_id=self.boot_id, keep_alive=VirtualKeepAlive)
        replicas = node.join(cluster)
        self.views.observe(replicas)
        node.clock_watch.begin()
        await open_topics(node)
        self.node, self.stop_asked = node, asyncio.Event()
        listener = Listener("PLAINTEXT", self.host, PORT, (self.host, PORT))
        self.world.wires.listen(loop, self.host, PORT, partial(Connection, node, listener))
        await cluster.start([listener])
        node.ready = True
        node.coordinator.start()
        self.world.say("ready", self)
        chores = [
            loop.create_task(work)
            for work in (
                self._checkpoint(node),
                Rounds(node).run(),
                node.topics.run(),
                node.clock_watch.run(),
                replicas.run(),
            )
        ]
        await self.stop_asked.wait()
        await self._end(process, node, chores)

    async def _checkpoint(self, node: Node) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            try:
                await node.checkpoint()
            except BrokerError as error:
                self.world.say("no checkpoint", self, error.message)

    async def _end(self, process: Process, node: Node, chores: list[asyncio.Task[None]]) -> None:
        """Stops in order."""
        await node.cluster.hand_over()
        node.ready = False
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        await node.coordinator.stop()
        node.waiting.wake_all()
        await asyncio.sleep(0.1)
        for connection in sorted(node.connections, key=attrgetter("peer")):
            connection.abort()
        await node.replicas.close()
        node.clock_watch.end()
        await node.topics.stop()
        process.finish_jobs()
        node.pools.stop()
        self.views.look()
        failed = {partition.directory.parent for partition in node.offline()}
        is_flushed = False
        try:
            node.store.close()
            is_flushed = True
        except BrokerError as error:
            self.world.say("not flushed", self, error.message)
        await node.cluster.leave(is_flushed=is_flushed, failed=failed)
        await node.metadata.close()
        self._ended("in order")

    def _ended(self, how: str) -> None:
        """The process is gone."""
        process = self.process
        if process is None:
            return
        self.world.say("stop", self, how)
        process.die()
        self.world.bury(process)
        self.world.coordinator.watchers.pop(self.id, None)
        self.process = self.node = self.stop_asked = None
        self.replicas = {}
        self.must_confirm = self.is_hung = False
        self.disk.kill()
        if self.has_power:
            self.world.wires.died(process)

    # --- faults -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Looks whether everybody is answered who waits; a process that stands still answers nobody."""
        is_awake = self.paused_since is None and self.world.timeline.now_ms > self.awake_ms
        if self.is_up and is_awake:
            self.views.check_waiting()

    def kill(self, how: str = "killed") -> None:
        """Ends the process at once; the system keeps what it has written."""
        self._ended(how)

    def wipe(self) -> None:
        """Ends the process, and replaces the disk by an empty one."""
        self._ended("wiped")
        self.world.checker.loses(self, all_of_it=True)
        self.disk.wipe()

    def lose_power(self) -> None:
        """Ends the machine at once; the disk keeps what was synced, and any of the rest."""
        self.has_power = False
        self._ended("no power")
        was_flushed = self.disk.is_flushed
        said = self.disk.lose_power()
        self.world.say("lost", self, *said)
        if not was_flushed:
            self.world.checker.loses(self, all_of_it=False)
        self.views.look_again()

    def shut_down(self) -> None:
        """Asks the process to end, as SIGTERM does."""
        if self.stop_asked is not None and self.process is not None:
            self.world.say("shut down", self)
            self.process.loop.call_soon(self.stop_asked.set)

    def pause(self, *, is_hung: bool) -> None:
        """Stops the process as SIGSTOP does; `is_hung`: only its event loop stands still."""
        if self.process is not None and self.paused_since is None:
            self.paused_since, self.is_hung = self.world.timeline.now_ms, is_hung
            self.process.pause(is_hung=is_hung)
            self.world.say("hang" if is_hung else "pause", self)

    def resume(self) -> None:
        """Lets the process go on."""
        if self.process is None or self.paused_since is None:
            return
        paused_ms = self.world.timeline.now_ms - self.paused_since
        self.world.checker.resumes(self, paused_ms)
        self.paused_since = None
        self.world.say("resume", self, paused_ms)
        self.awake_ms = self.world.timeline.now_ms + 1_000
        self.process.resume()
