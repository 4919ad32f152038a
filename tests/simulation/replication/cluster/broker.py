"""A broker: one process after another on one machine, with the partitions that the image gives it.

It keeps an image of the metadata, hands it to its replicas, and writes what its machines propose.
How it registers and keeps its lease is in `session.py`; what it does as the controller is in
`governing.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.power_loss import PowerLoss
from tests.simulation.replication.cluster import isr_changes
from tests.simulation.replication.cluster.coordinating import Coordinating
from tests.simulation.replication.cluster.coordinator import UNKNOWN, Pushed
from tests.simulation.replication.cluster.disk import Clock
from tests.simulation.replication.cluster.failed_logs import FailedLogs
from tests.simulation.replication.cluster.governing import Governing, rules_of
from tests.simulation.replication.cluster.replica import Replica
from tests.simulation.replication.cluster.session import Session
from tests.simulation.replication.cluster.settings import settings_of
from tidelog.broker.metadata.brokers.records import OfflineRecord
from tidelog.broker.metadata.image_builder import ImageBuilder
from tidelog.broker.replication.isr_change import cannot_store
from tidelog.broker.replication.messages import Assignment, BrokerStatus, LeaderRules
from tidelog.protocol.errors import KafkaStorageError
from tidelog.storage.directory.log_directory import LogDirectoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from tests.simulation.replication.cluster.log import Log
    from tests.simulation.replication.cluster.settings import Settings
    from tests.simulation.replication.world import World
    from tidelog.broker.metadata.image import Image, Topic
    from tidelog.broker.metadata.memory import MemoryState
    from tidelog.broker.metadata.store import KeyValue
    from tidelog.broker.replication.lease import Lease
    from tidelog.broker.replication.messages import ChangeIsr
    from tidelog.protocol.errors import BrokerError

TRANSACT_MS = 2_000
TICK_MS = 1_000
OPEN_AGAIN_MS = 1_500
RESYNC_MS = 5_000
CHECKPOINTED = 0.2  # of the ticks write down the high watermarks


class Broker:
    """All lives of one broker."""

    def __init__(self, world: World, number: int) -> None:
        pick = world.timeline.random
        self.world = world
        self.id = number
        self.disk = world.new_disk(self)
        self.clock = Clock(pick)
        self.boot = 0
        self.life = 0  # of the process; 0: never started
        self.is_up = False
        self.registered_life = 0  # the life that registered last, in truth; 0: none
        self.lossy_life = 0  # the life after which its disk lost something; 0: none
        self.must_confirm = False  # it was paused past its lease
        self.paused_since: int | None = None
        self.is_hung = False  # the data loop alone stands still
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = 0
        self._begin()

    def _begin(self) -> None:
        self.builder: ImageBuilder | None = None
        self.replicas: dict[str, Replica] = {}
        self.failed = FailedLogs(self)
        self.session = Session(self)
        self.governing = Governing(self)
        self.coordinating = Coordinating(self)

    def __repr__(self) -> str:
        return f"broker {self.id}"

    # --- the process ------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The broker epoch; -1 while it is not registered."""
        return self.session.epoch

    @property
    def lease(self) -> Lease:
        """The lease of the registration."""
        assert self.session.lease is not None
        return self.session.lease

    @property
    def is_lossy(self) -> bool:
        """Whether its disk has lost something since it registered, in truth."""
        return self.lossy_life >= self.registered_life > 0

    def life_of(self, incarnation: str) -> int:
        """Returns the life in which a session began."""
        return int(incarnation.split("-")[1])

    @property
    def is_serving(self) -> bool:
        """Whether it is up and registered."""
        return self.is_up and self.epoch >= 0

    @property
    def is_fenced(self) -> bool:
        """Whether it is fenced, in truth."""
        live = self.world.checker.stored.live.get(self.id)
        return live is None or bool(live[1].get("is_fenced"))

    @property
    def now_ms(self) -> int:
        return self.world.timeline.now_ms

    def next_number(self) -> int:
        """Returns another number each time."""
        self._numbers += 1
        return self._numbers

    def start(self) -> None:
        """Starts a process."""
        if self.is_up:
            return
        self.life += 1
        self.is_up = True
        self.paused_since = None
        self._backlog = []
        self._begin()
        self.world.say("start", self, self.life)
        if self.call(self._open_disk):
            self._begin_life()

    def _open_disk(self) -> None:
        try:
            self.disk.start(self.boot)
        except LogDirectoryError:  # it is full
            self.stop("its directory cannot be opened")
            self.world.timeline.after(OPEN_AGAIN_MS, self.start)

    def _begin_life(self) -> None:
        self.session.begin()
        for interval_ms, call in (
            (TICK_MS, self._tick),
            (RESYNC_MS, self._resync),
        ):
            self._repeat(interval_ms, call)

    def _repeat(self, interval_ms: int, call: Callable[[], None]) -> None:
        def again() -> None:
            call()
            self.world.after(self, interval_ms, again)

        self.world.after(self, self.world.timeline.random.randint(0, interval_ms), again)

    def stop(self, how: str) -> None:
        """Ends the process at once."""
        if not self.is_up:
            return
        self.is_up = False
        self.must_confirm = False
        self.world.say("stop", self, how)
        self.world.coordinator.watchers.pop(self.id, None)
        self.failed.end(self._offline())
        self.world.checker.ends(self)
        self.disk.kill()
        self._begin()

    def run(self, life: int, call: Callable[..., None], *args: Any) -> None:
        """Makes a call in a life of the process, now or when its pause is over."""
        if not self.is_up or life != self.life:
            return
        if self.paused_since is not None:
            self._backlog.append((call, args))
        else:
            self.call(call, *args)

    def call(self, call: Callable[..., None], *args: Any) -> bool:
        """Makes a call now; returns whether the process still runs.

        What storage refuses is not done. A process may die in the middle of what it writes.
        """
        try:
            call(*args)
        except KafkaStorageError as error:
            self.refused(error)
        except PowerLoss:
            self.world.faults.interrupted(self)
        return self.is_up

    def refused(self, error: BrokerError) -> None:
        """Storage has refused something: the disk is full, or a log is offline until a start."""
        self.world.say("refused", self, error.code.name)
        if any(log.is_offline for log in self.disk.logs.values()):
            self.disk.fail()
            self.stop("a log is offline")
            self.world.timeline.after(OPEN_AGAIN_MS, self.start)

    def pause(self, *, is_hung: bool) -> None:
        """Stops the process as SIGSTOP does; `is_hung`: only its data loop stands still."""
        if self.is_up and self.paused_since is None:
            self.paused_since, self.is_hung = self.now_ms, is_hung
            self.session.note_pause()
            self.world.say("hang" if is_hung else "pause", self)

    def resume(self) -> None:
        """Lets the process go on with all that has come meanwhile."""
        if not self.is_up or self.paused_since is None:
            return
        paused_ms = self.now_ms - self.paused_since
        self.paused_since = None
        self.must_confirm = self.session.is_over_after(paused_ms)
        self.world.checker.resumes(self, paused_ms)
        self.world.say("resume", self, paused_ms, self.must_confirm)
        backlog, self._backlog = self._backlog, []
        for call, args in backlog:
            self.world.timeline.after(0, self.run, self.life, call, *args)

    def _tick(self) -> None:
        for replica in list(self.replicas.values()):
            replica.tick()
            if self.world.timeline.random.random() < CHECKPOINTED:
                self.disk.checkpoint(replica.log)
        if self.is_serving and self.lease.is_lost(self.now_ms):
            self.session.lost("it ended")
        self.report_disk()
        self.session.look()
        self.governing.look()
        self.retain()

    # --- metadata ---------------------------------------------------------------------------------

    @property
    def image(self) -> Image | None:
        """The metadata as this broker knows it."""
        return None if self.builder is None else self.builder.image

    def load(self, revision: int, pairs: tuple[KeyValue, ...]) -> None:
        """Takes all keys at one revision."""
        if self.builder is None or revision > self.builder.image.revision:
            self.builder = ImageBuilder(revision, pairs)
            self._apply()

    def hear(self, pushed: Pushed) -> None:
        """Takes changes that the coordinator has pushed; a gap is asked for."""
        if self.builder is None:
            return
        known = self.builder.image.revision
        if pushed.after > known:
            self._resync()
            return
        changes = [change for change in pushed.changes if change.revision > known]
        if changes:
            self.builder.apply(changes)
            self._apply()

    def _resync(self) -> None:
        """Asks for changes that were not pushed, and for everything if they are compacted."""
        if self.builder is None:
            return
        after = self.builder.image.revision
        coordinator = self.world.coordinator
        life = self.life

        def ask(store: MemoryState) -> Any:
            return coordinator.changes(after) or store.read()

        def take(found: Any) -> None:
            if isinstance(found, Pushed):
                self.run(life, self.hear, found)
            elif found != UNKNOWN:
                self.run(life, self.load, *found)

        coordinator.ask(self.id, ask, take, TRANSACT_MS)

    def _apply(self) -> None:
        """Hands the image to the replicas."""
        self.session.look()
        if self.epoch < 0:
            return
        image = self.image
        mine: dict[str, None] = {}
        for topic in image.topics.values():
            for index, record in enumerate(topic.assignments):
                if self.id in record.replicas:
                    key = self.world.key_of(topic.topic_id, index)
                    mine[key] = None
                    assignment = Assignment(record, topic.mod_revisions[index])
                    if not self.call(self._assign, key, assignment, topic):
                        return
        for key in [key for key in self.replicas if key not in mine]:
            self._remove(key)
        self.coordinating.on_image()
        self.governing.look()

    def _assign(self, key: str, assignment: Assignment, topic: Topic) -> None:
        replica = self.replicas.get(key)
        settings = settings_of(topic)
        self.disk.configure(key.partition("/")[0], settings)
        if replica is None:
            log = self.disk.open_log(key, topic.topic_id)
            replica = self.replicas[key] = Replica(self, key, log)
        if key in self.failed.keys:
            return
        lag_ms, ids = self.world.lag_time_max_ms, self.world.ids[key]
        unable = cannot_store(self.image, assignment.record.replicas, *ids)
        rules = LeaderRules(
            settings.min_insync,
            lag_ms,
            settings.needs_flush,
            unable,
            allows_unclean=rules_of(topic).allows_unclean,
        )
        replica.assign(assignment, rules, may_lead=self._may_lead())

    def _may_lead(self) -> bool:
        """Returns whether what the image says of this broker is said of its session now."""
        live = self.image.brokers.get(self.id)
        return live is not None and live.epoch == self.epoch and not live.record.is_fenced

    def _remove(self, key: str) -> None:
        """The partition is not here any more: its log goes."""
        self.world.say("remove", self, key[-6:])
        replica = self.replicas.pop(key)
        replica.stop("the replica is gone")
        self.disk.remove_log(key)

    def look_at_all(self) -> None:
        """There is room again: roles that were refused are taken."""
        if self.image is not None:
            self._apply()

    def look_again(self, replica: Replica) -> None:
        """A leader has stepped down: the lease is gone, or the image will say who leads."""
        if self.is_serving and self.lease.is_lost(self.now_ms):
            self.world.after(self, 0, self.session.lost, "it ended")

    def view(self) -> dict[int, BrokerStatus]:
        """Returns the brokers as the image has them."""
        return {
            broker: BrokerStatus(live.epoch, live.record.is_fenced, live.record.is_stopping)
            for broker, live in self.image.brokers.items()
        }

    def settings(self, key: str) -> Settings:
        """Returns the settings of a partition's topic."""
        return settings_of(self.image.topics_by_id[self.world.ids[key][0]])

    def metadata(self, topic: str, index: int) -> tuple[str, int, int] | None:
        """Returns (partition, leader, leader epoch), as Metadata answers."""
        if not self.is_serving or self.paused_since is not None or self.image is None:
            return None
        known = self.image.topics.get(topic)
        if known is None or index >= known.partitions:
            return None
        record = known.assignments[index]
        return self.world.key_of(known.topic_id, index), record.leader, record.leader_epoch

    def change_isr(self, replica: Replica, change: ChangeIsr) -> None:
        """Stores what a leader proposes; the machine hears how it ended."""
        isr_changes.propose(self, replica, change)

    # --- time -------------------------------------------------------------------------------------

    def append_time(self, log: Log) -> int:
        """Returns the append time of the next batch: never before the last one."""
        return max(log.last_append, self.clock.wall_ms(self.now_ms))

    def retain(self) -> None:
        """Raises the log starts of the partitions that this broker leads, by their times."""
        for key, replica in self.replicas.items():
            leader, log = replica.leader, replica.log
            if leader is None and not self.call(log.tidy, self.clock.wall_ms(self.now_ms)):
                return
            if leader is None or log.high_watermark < leader.epoch_start_offset:
                continue
            settings, first = self.settings(key), log.start
            self.world.checker.look(replica)
            if not self.call(log.retain, settings, self.world.true_ms):
                self.world.checker.was_deleting(replica, first, settings, self.world.true_ms)
                return
            if log.start > first:
                self.world.checker.deletes(replica, first, settings, self.world.true_ms)
                leader.on_log_start(log.start)

    def report_disk(self) -> None:
        """Says which partitions cannot be led or written to, or that all can."""
        if self.image is not None and self.epoch >= 0:
            self.session.report(self._offline())

    def _offline(self) -> OfflineRecord:
        directories = (self.disk.directory,) if self.failed.keys else ()
        full = self.by_topic(self.replicas) if self.disk.is_full else {}
        return OfflineRecord(directories, self.failed.partitions(), full)

    def by_topic(self, keys: Iterable[str]) -> dict[UUID, tuple[int, ...]]:
        """Returns the numbers of partitions, by the id of their topic."""
        found: dict[UUID, tuple[int, ...]] = {}
        for key in keys:
            topic_id, index = self.world.ids[key]
            found[topic_id] = tuple(sorted({*found.get(topic_id, ()), index}))
        return found
