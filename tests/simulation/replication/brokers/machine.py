"""A broker of the product on a simulated machine: its disk, its clock, and one process after another.

A process runs the whole node: metadata, session, controller, topics, replicas, and the handlers of
its connections. What a test would need a real machine for is given to it: an event loop in virtual
time, a disk that loses power, a clock that may be wrong, a store at the coordinator.
"""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from tests.simulation.power_loss import PowerLoss
from tests.simulation.replication.brokers.clock import Clock, MachineClock
from tests.simulation.replication.brokers.disk import FAR_MS
from tests.simulation.replication.brokers.process import Process, VirtualKeepAlive
from tests.simulation.replication.brokers.views import Views
from tests.simulation.replication.checking.cut_off import LEASE_MS
from tidelog.broker.boot import Services
from tidelog.broker.controller.controller_loop import ControllerLoop
from tidelog.broker.controller.rules import Rules
from tidelog.broker.controller.topics.startup import open_topics
from tidelog.broker.lifecycle.cluster import NO_SESSION, Cluster
from tidelog.broker.logs.maintenance.checkpoint import checkpoint
from tidelog.broker.logs.maintenance.compaction_rounds import CompactionRounds
from tidelog.broker.logs.maintenance.disk_space_watch import watch_disk_space
from tidelog.broker.logs.maintenance.retention_rounds import RetentionRounds
from tidelog.broker.metadata.cluster import ClusterMetadata
from tidelog.broker.metadata.store import MetadataError
from tidelog.broker.metrics.counters import Metrics
from tidelog.broker.network.accepting.listener import Listener
from tidelog.broker.network.connection import Connection
from tidelog.config import load
from tidelog.protocol.errors import BrokerError
from tidelog.storage.directory.log_directory import LogDirectoryError
from tidelog.storage.filenames import REGISTRATION_FILE

if TYPE_CHECKING:
    from tests.simulation.replication.life import Life
    from tidelog.broker.lifecycle.lease import Lease
    from tidelog.config import BrokerConfig
    from tidelog.storage.log.partition import Partition

PORT = 9092
GROUPS = "__consumer_offsets"  # the topic of the coordinators of groups
OPEN_AGAIN_MS = 1_500
CHECKPOINT_S = 3.0


class Machine:
    """All runs of one broker."""

    def __init__(self, world: Life, number: int) -> None:
        pick = world.timeline.random
        self.world = world
        self.id = number
        self.host = f"broker-{number}"
        self.clock = Clock(pick)
        self.disk = world.storage.new_disk(number)
        self.boot = 0
        self.has_power = True
        self.life = 0
        self.process: Process | None = None
        self.node: Services | None = None
        self.stop_asked: asyncio.Event | None = None
        self.registered_life = 0  # the run that registered last, in truth; 0: none
        self.lossy_life = 0  # the run after which its disk lost something; 0: none
        self._overdue_epoch: int | None = None  # it was paused past the lease of this session
        self._had_lease = False  # when it was paused, in truth
        self.is_hung = False
        self.paused_since: int | None = None
        self.awake_ms = 0  # since then it has done what came while it stood still
        self.replicas: dict[str, object] = {}
        sizes = [30_000, 100_000] if world.large_percent else [1_000, 4_000]
        self._own = {  # segments and indexes are this broker's own
            "log.segment.bytes": pick.choice([*sizes, 1 << 20]),
            "log.roll.ms": pick.choice([5_000, FAR_MS]),
            "log.segment.min.roll.interval.ms": pick.choice([0, 100]),
            "log.index.interval.bytes": pick.choice([0, 150, 4_096]),
            "log.segment.delete.delay.ms": pick.choice([0, 3_000]),
            "log.event.time.ahead.max.ms": FAR_MS,
        }
        self._failed: dict[str, str] = {}  # by key, directories that have lost bytes
        self._restarted_life = 0  # the run that ends because logs have failed
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

    @property
    def must_confirm(self) -> bool:
        """Whether it was paused past its lease, and has not stepped down since."""
        return self._overdue_epoch is not None and self._overdue_epoch == self.epoch

    def life_of(self, incarnation: str) -> int:
        """Returns the run in which a session began."""
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
        if self._failed:
            self.world.checker.loses(self, all_of_it=True, failed=self._failed)
            self.disk.lose_failed(self._failed.values())
            self._failed = {}
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
            "log.cleaner.backoff.ms": 1_000,
            "offsets.topic.num.partitions": 1,
            "clock.scope": "all",
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
        node = Services(config, MachineClock(self), store, metadata, Metrics())
        rules = Rules(node.settings)
        cluster = Cluster(node, rules, boot_id=self.boot_id, keep_alive=VirtualKeepAlive)
        controller = node.controller = ControllerLoop(node, cluster, rules)
        replicas = node.join(cluster)
        self.views.observe(replicas)
        node.clock_watch.begin()
        await open_topics(node)
        self.node, self.stop_asked = node, asyncio.Event()
        listener = Listener("PLAINTEXT", self.host, PORT, (self.host, PORT))
        self.world.wires.listen(loop, self.host, PORT, partial(Connection, node, listener))
        controller.start()
        await cluster.start([listener])
        node.ready = True
        node.coordinator.start()
        self.world.say("ready", self)
        chores = [
            loop.create_task(work)
            for work in (
                self._checkpoint(node),
                RetentionRounds(node).run(),
                CompactionRounds(node).run(),
                watch_disk_space(node),
                node.topics.run(),
                node.clock_watch.run(),
                replicas.run(),
            )
        ]
        await self.stop_asked.wait()
        await self._end(process, node, chores)

    async def _checkpoint(self, node: Services) -> None:
        while True:
            await asyncio.sleep(CHECKPOINT_S)
            try:
                await checkpoint(node.store, node.pools, node.purgatory)
            except BrokerError as error:
                self.world.say("no checkpoint", self, error.message)

    async def _end(
        self, process: Process, node: Services, chores: list[asyncio.Task[None]]
    ) -> None:
        """Stops in order."""
        await node.cluster.hand_over()
        node.ready = False
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        await node.coordinator.stop()
        node.purgatory.wake_all()
        await asyncio.sleep(0.1)
        for connection in sorted(node.connections, key=attrgetter("peer")):
            connection.abort()
        await node.replicas.close()
        node.clock_watch.end()
        await node.topics.stop()
        process.finish_jobs()
        node.pools.stop()
        self.views.look()
        failed = {partition.directory.parent for partition in node.partitions.offline()}
        is_flushed = False
        try:
            node.store.close()
            is_flushed = True
        except BrokerError as error:
            self.world.say("not flushed", self, error.message)
        assert node.controller is not None
        await node.controller.stop()
        await node.cluster.leave(is_flushed=is_flushed, failed=failed)
        await node.metadata.close()
        self._ended("in order")

    def _ended(self, how: str) -> None:
        """The process is gone."""
        process = self.process
        if process is None:
            return
        self.world.say("stop", self, how)
        self._failed = {} if self.node is None else self.views.failures()
        is_noted = not self._failed or self.views.is_failure_stored(self.node)
        process.die()
        self.world.bury(process)
        self.world.coordinator.watchers.pop(self.id, None)
        self.process = self.node = self.stop_asked = None
        self.replicas = {}
        self._overdue_epoch, self.is_hung = None, False
        self.disk.kill()
        if not is_noted:
            self.disk.note_failure()
        if self.has_power:
            self.world.wires.died(process)

    # --- faults -----------------------------------------------------------------------------------

    def fail_syncs(self) -> None:
        """Lets the syncs of some logs fail: they are offline until the process ends."""
        if self.node is None or self.process is None or self.paused_since is not None:
            return
        pick, opened = self.world.timeline.random, self.node.store.opened()
        some = pick.sample(opened, pick.randint(1, len(opened))) if opened else []
        names = [partition.directory.name for partition in some]
        if pick.random() < 0.5:
            names.append(f"{REGISTRATION_FILE}.tmp")  # nor can the directory say so
        self.disk.fail_syncs(names)
        self.world.say("syncs fail", self, *names)
        self.process.in_thread(partial(_flush, some), _nothing, self.process.loop.create_future())

    def reset_clock(self, key: str) -> None:
        """Does what `tidelog clock reset` asks for: append times may go back to the clock."""
        log = self.disk.logs.get(key)
        if log is not None and self.process is not None:
            reset = partial(self._reset, key, log.partition)
            self.process.in_thread(reset, _nothing, self.process.loop.create_future())

    def _reset(self, key: str, partition: Partition) -> None:
        ledger = self.world.checker.stored.ledgers.get(key)
        if ledger is None:
            return
        now_ms = self.clock.wall_ms(self.world.timeline.now_ms)
        ledger.marks.append((partition.log_end_offset, now_ms))
        reset = None
        try:
            reset = partition.append_clock.reset(now_ms)
        except BrokerError as error:
            self.world.say("not reset", self, error.message)
        if reset is None:
            ledger.marks.pop()
        else:
            self.world.say("reset", self, key[-6:], now_ms)

    def check(self) -> None:
        """Looks whether everybody is answered who waits; a process that stands still answers nobody."""
        is_awake = self.paused_since is None and self.world.timeline.now_ms > self.awake_ms
        if self.is_up and is_awake:
            self.views.check_waiting()
        is_due = self.node is not None and self._restarted_life != self.life
        if is_due and self.views.failures():
            self._restarted_life = self.life
            self.world.faults.start_again(self)

    def kill(self, how: str = "killed") -> None:
        """Ends the process at once; the system keeps what it has written."""
        self._ended(how)

    def wipe(self) -> None:
        """Ends the process, and replaces the disk by an empty one."""
        self._ended("wiped")
        self._failed = {}
        self.world.checker.loses(self, all_of_it=True)
        self.disk.wipe()

    def lose_power(self) -> None:
        """Ends the machine at once; the disk keeps what was synced, and any of the rest."""
        self.has_power = False
        self._ended("no power")
        was_flushed = self.disk.is_flushed
        self.world.say("lost", self, self.disk.lose_power())
        # A life that has not registered may lose the file that it was writing: it has promised nothing.
        has_begun = self.registered_life == self.life or not self.disk.is_flushed
        if has_begun and not was_flushed:
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
            self._had_lease = self._is_registered()
            self.process.pause(is_hung=is_hung)
            self.world.say("hang" if is_hung else "pause", self)

    def resume(self) -> None:
        """Lets the process go on."""
        if self.process is None or self.paused_since is None:
            return
        paused_ms = self.world.timeline.now_ms - self.paused_since
        self.world.checker.resumes(self, paused_ms)
        self._note_overdue(paused_ms)
        self.paused_since = None
        self.world.say("resume", self, paused_ms)
        self.awake_ms = self.world.timeline.now_ms + 1_000
        self.process.resume()

    def _is_registered(self) -> bool:
        """Returns whether its session is there, in truth."""
        live = self.world.checker.stored.live.get(self.id)
        return live is not None and live[0] == self.epoch

    def _note_overdue(self, paused_ms: int) -> None:
        """Notes whether, in truth, the lease ran out during a pause that could be noticed."""
        is_over = self._had_lease and not self._is_registered() and paused_ms >= LEASE_MS // 3
        if is_over and self.lease._ends_ms <= self.world.timeline.now_ms:
            self._overdue_epoch = self.epoch


def _flush(partitions: list[Partition]) -> None:
    for partition in partitions:
        with contextlib.suppress(BrokerError):
            partition.flush()


def _nothing(*_: object) -> None:
    """Nobody waits for it."""
