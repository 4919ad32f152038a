"""What the checker sees of a broker: its logs as they are stored, and who leads what.

It looks at the product's objects after each step, and changes nothing. Only what a process has been
told by its own parts is asked for there: `Views.observe`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.replication.checking.ledger import BrokenInvariantError
from tests.simulation.replication.real.log import RealLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.replication.shells.machine import Machine
    from tidelog.broker.node import Node
    from tidelog.broker.replicas.led import Led
    from tidelog.broker.replicas.replicas import Replicas
    from tidelog.broker.replication.leader import Leader
    from tidelog.broker.replication.messages import LeaderRules
    from tidelog.storage.log.partition import Appended, Partition

PATIENCE_MS = 16_000  # an append waits for slow threads, and for those before it


class Replica(NamedTuple):
    """A replica of a partition in a role; `leader` is None if it follows."""

    broker: Machine
    key: str
    log: RealLog
    leader: Leader | None
    epoch: int

    @property
    def rules(self) -> LeaderRules:
        return self.leader.rules

    @property
    def assignment(self) -> Leader:
        """What has the stored `record`, as the leader knows it."""
        return self.leader


class StoredLog(RealLog):
    """The log of a partition, read again when it has changed."""

    def __init__(self, disk: Any, partition: Partition) -> None:
        self.print: tuple[object, ...] = ()
        super().__init__(disk, partition)
        self.print = self._print()

    def _print(self) -> tuple[object, ...]:
        partition, state = self.partition, self.partition.state
        return (
            state.version.log_start_offset,
            state.ends,
            state.epochs.entries[-1:],
            len(state.epochs.entries),
            state.mark,
            state.back_offset,
            state.lost_offset,
            partition.durable_offset,
            partition.state.version.segments[0].base_offset,
        )

    def follow_changes(self) -> bool:
        """Looks at the log if it has changed; returns whether records were added."""
        now = self._print()
        if now == self.print or self.is_offline:
            return False
        before, self.print = self.end, now
        end = self.partition.log_end_offset
        is_longer = end >= before and self.print[-1] <= self.start
        if not is_longer:
            self.cuts += 1
        self._look(before if is_longer else 0)
        return is_longer and end > before


class Views:
    """The logs and roles of one broker."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._world = machine.world
        self._led: dict[str, Led] = {}
        self._seen: dict[str, Replica] = {}  # as the last look found them
        self._keys: dict[Partition, str] = {}
        self._waiting: dict[asyncio.Future[Appended], int] = {}  # producers, and until when
        self._is_fresh = True

    def begin(self) -> None:
        """A process starts."""
        self._led, self._seen, self._keys, self._is_fresh = {}, {}, {}, True
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
        self._forget_what_is_gone(node)
        added = self._look_at_logs(node.store.opened())
        replicas = node.replicas
        found: dict[str, Replica] = {}
        new: list[Replica] = []
        for name, led in replicas._led_by_name.items():
            key = self._world.key_of(*name)
            view = self._view(key, led.leader, led.leader.leader_epoch)
            if view is not None:
                found[key] = view
                if self._led.get(key) is not led:
                    self._led[key] = led
                    new.append(view)
        for followed in replicas._fetches:
            key = self._world.key_of(*followed.name)
            view = self._view(key, None, followed.follower.leader_epoch)
            if view is not None:
                found[key] = view
                self._world.checker.cut_off.follows(key, view.epoch, machine.id)
        machine.replicas = self._seen = found
        for view in new:
            self._world.say("lead", machine, view.key[-4:], view.epoch, view.log.end)
            self._world.checker.leads(view)
        for key in added:
            view = found.get(key)
            if view is not None and view.leader is None:
                self._world.checker.followed(view, view.epoch)
        for view in found.values():
            if view.leader is not None:
                self._world.checker.check_leader(view)

    def _view(self, key: str, leader: Leader | None, epoch: int) -> Replica | None:
        """Returns a partition in its role, that of the last look if it is the same; None without a log."""
        log = self._machine.disk.logs.get(key)
        if log is None:
            return None
        seen = self._seen.get(key)
        if seen is not None and seen[2] is log and seen[3] is leader and seen[4] == epoch:
            return seen
        return Replica(self._machine, key, log, leader, epoch)

    def _forget_what_is_gone(self, node: Node) -> None:
        logs = self._machine.disk.logs
        gone = [key for key, log in logs.items() if log.partition.is_deleted]
        if self._is_fresh:
            self._is_fresh = False
            here = set(node.store.names())
            gone += [
                key
                for key, log in logs.items()
                if (log.partition.topic, log.partition.index) not in here
            ]
        for key in gone:
            logs.pop(key, None)

    def _look_at_logs(self, opened: Any) -> list[str]:
        """Returns the partitions to which something was appended."""
        machine, checker, added = self._machine, self._world.checker, []
        logs = machine.disk.logs
        for partition in opened:
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
            elif log.follow_changes():
                added.append(key)
        return added

    def _changed(self, key: str) -> Callable[[], None]:
        checker, number = self._world.checker, self._machine.id
        return lambda: checker.touch(number, key)

    # --- what a process is told -------------------------------------------------------------------

    def observe(self, replicas: Replicas) -> None:
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
            led = replicas.led(partition)
            key = self._world.key_of(*led.name)
            self._world.checker.cut_off.check(self._machine, key, led.leader)

        replicas.acknowledged, replicas.check_leading = observed, checked

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
        if number < len(view.log.batches):
            world.checker.acknowledges(view, view.log.batches[number], -1)
