"""What the checker sees of a broker: its logs as they are stored, and who leads what.

It looks at the product's objects after each step, and changes nothing. Only what a process has been
told by its own parts is asked for there: `Views.observe`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.replication.brokers.logs import StoredLog
from tests.simulation.replication.checking.ledger import BrokenInvariantError
from tidelog.broker.lifecycle import registration
from tidelog.broker.metadata.brokers.records import OfflineRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.brokers.machine import Machine
    from tidelog.broker.boot import Services
    from tidelog.broker.partitions.following.partition_follower import PartitionFollower
    from tidelog.broker.partitions.leading.partition_leader import PartitionLeader
    from tidelog.broker.partitions.replica_manager import ReplicaManager
    from tidelog.broker.partitions.replication.leader import Leader
    from tidelog.broker.partitions.replication.messages import LeaderRules
    from tidelog.storage.directory.store import LogStore
    from tidelog.storage.log.partition import Appended, Partition

PATIENCE_MS = 16_000  # an append waits for slow threads, and for those before it


class Replica(NamedTuple):
    """A replica of a partition in a role; `leader` is None if it follows."""

    broker: Machine
    key: str
    log: StoredLog
    leader: Leader | None
    epoch: int

    @property
    def rules(self) -> LeaderRules:
        return self.leader.rules

    @property
    def assignment(self) -> Leader:
        """What has the stored `record`, as the leader knows it."""
        return self.leader


class Rules(NamedTuple):
    """What deletes batches by their times."""

    retention_ms: int
    retention_event_ms: int


class Views:
    """The logs and roles of one broker."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._world = machine.world
        self._led: dict[str, PartitionLeader] = {}
        self._seen: dict[
            PartitionLeader | PartitionFollower, Replica
        ] = {}  # as the last look found them
        self._judged: dict[Leader, tuple[object, ...]] = {}  # what was checked of leaders
        self._keys: dict[Partition, str] = {}
        self._waiting: dict[asyncio.Future[Appended], int] = {}  # producers, and until when
        self._is_fresh = True

    def begin(self) -> None:
        """A process starts."""
        self._led, self._seen, self._judged = {}, {}, {}
        self._keys, self._is_fresh = {}, True
        self._waiting.clear()

    def look_again(self) -> None:
        """The disk has another state: the logs are what they are when they are opened again."""
        for key in self._machine.disk.logs:
            self._world.checker.touch(self._machine.id, key)

    # --- after each step --------------------------------------------------------------------------

    def look(self) -> None:
        """Looks at what a step has changed."""
        machine = self._machine
        node = machine.node
        if node is None:
            return
        added = self._look_at_logs(node.store)
        replicas, checker = node.replicas, self._world.checker
        found: dict[str, Replica] = {}
        new: list[Replica] = []
        for led in replicas.leaders.by_name.values():
            view = self._view(led, led.leader, led.leader.leader_epoch)
            if view is not None:
                found[view.key] = view
                if self._led.get(view.key) is not led:
                    self._led[view.key] = led
                    new.append(view)
        for followed in replicas.fetchers.followers:
            view = self._view(followed, None, followed.follower.leader_epoch)
            if view is not None:
                found[view.key] = view
                checker.cut_off.follows(view.key, view.epoch, machine.id)
        machine.replicas = found
        for view in new:
            self._world.say("lead", machine, view.key[-4:], view.epoch, view.log.end)
            checker.leads(view)
        for key in added:
            view = found.get(key)
            if view is not None and view.leader is None:
                checker.followed(view, view.epoch)
        for view in found.values():
            if view.leader is not None:
                self._check_leader(view)

    def _check_leader(self, view: Replica) -> None:
        """Checks a leader that has changed; `Checker.after_step` does so when the stored state has."""
        leader = view.leader
        now = leader.maximal_isr, leader.record, leader.rules
        if self._judged.get(leader) != now:
            self._judged[leader] = now
            self._world.checker.check_leader(view)

    def _view(
        self, role: PartitionLeader | PartitionFollower, leader: Leader | None, epoch: int
    ) -> Replica | None:
        """Returns a partition in its role, that of the last look if it is the same; None without a log."""
        seen = self._seen.get(role)
        if seen is not None and seen.epoch == epoch and self._logs.get(seen.key) is seen.log:
            return seen
        key = self._world.key_of(*role.name)
        log = self._logs.get(key)
        if log is None:
            return None
        view = self._seen[role] = Replica(self._machine, key, log, leader, epoch)
        return view

    @property
    def _logs(self) -> dict[str, StoredLog]:
        return self._machine.disk.logs

    def _look_at_logs(self, store: LogStore) -> list[str]:
        """Returns the partitions to which something was appended."""
        machine, checker, added = self._machine, self._world.checker, []
        logs = self._logs
        for key in [key for key, log in logs.items() if log.partition.state.is_deleted]:
            del logs[key]
        if self._is_fresh:
            self._is_fresh = False
            here = set(store.names())
            for key, log in list(logs.items()):
                if (log.partition.topic, log.partition.index) not in here:
                    del logs[key]
        for partition in store._table.opened.values():
            key = self._keys.get(partition)
            if key is None:
                if partition.topic_id is None:
                    continue
                key = self._keys[partition] = self._world.key_of(
                    partition.topic_id, partition.index
                )
            log = logs.get(key)
            if log is None or log.partition is not partition:
                log = logs[key] = StoredLog(machine.disk, partition)
                log.changed = self._changed(key)
                checker.touch(machine.id, key)
                continue
            first = log.start
            if log.follow_changes():
                added.append(key)
            if log.start > first and not partition.state.is_follower:
                checker.deletes(
                    machine, key, log, first, self._rules(partition), self._deletion_ms()
                )
            if partition.state.offline is not None and not log.has_failed:
                log.has_failed = True
                self._note_deletion(key, log)  # what fails may be the start of the log
                checker.fails(machine, [key])
        return added

    def note_deletions(self) -> None:
        """Leaders may be in the middle of deleting."""
        if self._machine.node is None:
            return
        for key, log in self._logs.items():
            self._note_deletion(key, log)

    def _note_deletion(self, key: str, log: StoredLog) -> None:
        if not log.partition.state.is_follower:
            rules = self._rules(log.partition)
            self._world.checker.was_deleting(key, log.start, rules, self._deletion_ms())

    def failures(self) -> dict[str, str]:
        """Returns the directories of logs that have failed in this run, by their keys.

        What an earlier process had is kept until the log is opened again. Its topic may be deleted, and
        another have its name.
        """
        failed = {key: log for key, log in self._logs.items() if log.is_offline and log.is_there}
        return {key: log.partition.directory.name for key, log in failed.items()}

    def is_failure_stored(self, node: Services) -> bool:
        """Returns whether the metadata say which logs have failed, as far as this broker knows."""
        image, offline = node.metadata.image, node.cluster._disks.offline
        failed = OfflineRecord(offline.directories, offline.partitions)
        if self._machine.epoch < 0 or not offline.directories:
            return False
        me, epoch = self._machine.id, self._machine.epoch
        return registration.report_offline(image, me, epoch, failed) is None

    def _rules(self, partition: Partition) -> Rules:
        config = partition.config
        return Rules(config.retention_ms, config.retention_max_eventtime_ms)

    def _deletion_ms(self) -> int:
        return self._machine.node.clock_watch.deletion_ms()

    def _changed(self, key: str) -> Callable[[], None]:
        checker, number = self._world.checker, self._machine.id
        return lambda: checker.touch(number, key)

    # --- what a process is told -------------------------------------------------------------------

    def observe(self, replicas: ReplicaManager) -> None:
        """Sees each acknowledgement with acks=all, and what only leaders answer, when it is given."""
        acknowledged, check_leading = replicas.acknowledged, replicas.check_leading

        def observed(partition: Partition, appended: Any, timeout_ms: int) -> Any:
            answer = acknowledged(partition, appended, timeout_ms)
            if isinstance(answer, asyncio.Future):
                self._waiting[answer] = self._world.timeline.now_ms + timeout_ms
                answer.add_done_callback(lambda done: self._answered(partition, done))
            else:
                self._acknowledged(partition, answer)
            return answer

        def checked(partition: Partition) -> None:
            check_leading(partition)
            self._world.checker.answers_as_leader(self._machine)
            led = replicas.led(partition)
            key = self._world.key_of(*led.name)
            self._world.checker.cut_off.check(self._machine, key, led.leader)

        replicas.acknowledged, replicas.check_leading = observed, checked

    @property
    def has_waiting(self) -> bool:
        """Whether a producer has waited for long: somebody may have forgotten it."""
        now_ms = self._world.timeline.now_ms
        return any(now_ms > due_ms for due_ms in self._waiting.values())

    def check_waiting(self) -> None:
        """Invariant 13: who waits for the in-sync replicas is answered when that takes too long."""
        now_ms = self._world.timeline.now_ms
        for due_ms in self._waiting.values():
            if now_ms > max(due_ms, self._machine.awake_ms) + PATIENCE_MS:
                waited = f"a producer waits since {due_ms} for an answer"
                raise BrokenInvariantError(f"invariant 13: {self._machine}: {waited}")

    def _answered(self, partition: Partition, done: asyncio.Future[Appended]) -> None:
        self._waiting.pop(done, None)
        if not done.cancelled() and done.exception() is None:
            self._acknowledged(partition, done.result())

    def _acknowledged(self, partition: Partition, appended: Appended) -> None:
        self.look()
        machine, world = self._machine, self._world
        world.checker.after_step()
        key = self._keys.get(partition)
        view = machine.replicas.get(key)
        if view is None or view.leader is None:
            if key in world.checker.stored.ledgers:
                world.notes["acknowledged by who has just resigned"] += 1
            return
        number = view.log.number_at(appended.base_offset)
        batches = view.log.batches[number : number + 1]
        # A retry may be of a batch that has been deleted since: then another one is the first.
        is_there = batches and batches[0].base <= appended.base_offset
        world.checker.acknowledges(view, batches[0] if is_there else None, -1)
