"""One partition on this broker: which role it has, and the change to the one that it shall have.

A change takes several steps, some of them in a thread: the old role ends, appends under way are
finished, the log begins the leader epoch, the new role starts. Only one change of a partition is in
progress. Meanwhile the partition neither leads nor follows. A newer state in the metadata is applied
when the step in progress has ended.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.partitions.following.partition_follower import PartitionFollower
from tidelog.broker.partitions.leading.partition_leader import PartitionLeader
from tidelog.broker.partitions.replication.follower import Follower
from tidelog.broker.partitions.replication.leader import Leader
from tidelog.broker.partitions.views import leader_log
from tidelog.protocol.errors import BrokerError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from tidelog.broker.lifecycle.cluster import Cluster
    from tidelog.broker.logs.maintenance.clock_watch import ClockWatch
    from tidelog.broker.partitions.following.fetchers import Fetchers
    from tidelog.broker.partitions.following.partition_follower import FollowerContext
    from tidelog.broker.partitions.leading.partition_leader import LeaderContext
    from tidelog.broker.partitions.leading.pending_elections import PendingElections
    from tidelog.broker.partitions.produce.appends import Appends
    from tidelog.broker.partitions.replication.messages import (
        Assignment,
        BrokerView,
        LeaderRules,
    )
    from tidelog.broker.partitions.role_transitions import RoleTransitions
    from tidelog.protocol.topic_partition import TopicIdPartition
    from tidelog.storage.log.partition import Partition

log = logging.getLogger("tidelog.replicas")

_RETRY_S = 1.0


class _Part(NamedTuple):
    """Leading or following, in a leader epoch, in a session of this broker."""

    leader: int
    leader_epoch: int
    session: int
    needs_flush: bool


@dataclass(slots=True)
class PartitionContext:
    """What all partitions of a broker use."""

    cluster: Cluster
    appends: Appends
    clock_watch: ClockWatch
    transitions: RoleTransitions
    leading: LeaderContext
    elections: PendingElections
    following: FollowerContext
    fetchers: Fetchers
    brokers: BrokerView  # by the newest image


class ServedPartition:
    """The replica of a partition on this broker."""

    def __init__(
        self,
        context: PartitionContext,
        name: TopicIdPartition,
        topic: str,
        after: asyncio.Task[None] | None = None,
    ) -> None:
        """`after`: the end of what a former role here still does with the log."""
        self._context, self._after = context, after
        self.name = name
        self.topic = topic
        self.assignment: Assignment | None = None
        self._rules: LeaderRules | None = None
        self._wanted: _Part | None = None
        self._has: _Part | None = None
        self._led: PartitionLeader | None = None
        self.followed: PartitionFollower | None = None
        self._change: asyncio.Task[None] | None = None

    @property
    def led(self) -> PartitionLeader | None:
        """The leader, if it is here and has not stopped."""
        led = self._led
        return None if led is None or led.is_stopped else led

    # --- what it shall be -------------------------------------------------------------------------

    def assign(self, assignment: Assignment, rules: LeaderRules) -> None:
        """Applies the state of the partition in an image, unless a newer one was applied before."""
        if self.assignment is not None and assignment.mod_revision < self.assignment.mod_revision:
            return
        self.assignment, self._rules = assignment, rules
        record, session = assignment.record, self._context.cluster.epoch
        if record.leader < 0:
            self._want(None)
            return
        part = _Part(record.leader, record.leader_epoch, session, rules.needs_flush)
        if record.leader == self._context.cluster.me:
            part = part._replace(needs_flush=False)
        self._want(part)
        if self.led is not None and self._has == part:
            self.led.assigned(assignment, self._context.brokers, rules)

    def stop(self, reason: str) -> None:
        """Ends the role; the next assignment brings another one."""
        self._wanted = self._has = None
        self._leave(reason)

    @property
    def is_busy(self) -> bool:
        """Whether a change of the role still works on the log."""
        return self._change is not None

    async def finish(self) -> None:
        """Returns when nothing works on the log any more; `stop` was called."""
        if self._change is not None:
            await asyncio.wait([self._change])

    def _want(self, part: _Part | None) -> None:
        self._wanted = part
        if part == self._has:
            return
        self._has = None
        self._leave("another epoch begins")
        if self._change is None:
            self._change = asyncio.get_running_loop().create_task(self._become())

    def _leave(self, reason: str) -> None:
        """Ends the role at once; work in a thread goes on."""
        led, followed = self.led, self.followed
        self._led = None
        if led is not None:
            led.stop(reason)
        if followed is not None:
            followed.stop()
            self._context.fetchers.discard(followed)

    # --- the change -------------------------------------------------------------------------------

    async def _become(self) -> None:
        """Begins the wanted role, and another one if that is wanted meanwhile."""
        try:
            while self._has != self._wanted:
                await self._context.transitions.turn()
                part = self._wanted
                try:
                    partition = await self._idle()
                    if part is not None:
                        await self._begin(part, partition)
                except BrokerError as error:
                    why = error.named.replace(f"{self._log_name}: ", "")
                    self._context.following.folded.add(
                        logging.ERROR, "partition roles not started", self._log_name, reason=why
                    )
                    await asyncio.sleep(_RETRY_S)
                    continue
                except Exception:
                    if self._context.transitions.is_over:
                        return  # the pools have stopped
                    log.exception(
                        "partition role not started, retrying", extra={"log": self._log_name}
                    )
                    await asyncio.sleep(_RETRY_S)
                    continue
                if part == self._wanted and not self._is_over(part):
                    self._has = part
                    if part is not None:
                        self._start(part, partition)
        except Exception:
            log.exception("partition role not changed", extra={"log": self._log_name})
        finally:
            self._change = None

    def _is_over(self, part: _Part | None) -> bool:
        """Returns whether the session has ended in which a role was to begin: `stop` follows."""
        return part is not None and part.session != self._context.cluster.epoch

    async def _idle(self) -> Partition:
        """Returns the log once nothing writes to it.

        Raises UnknownTopicOrPartition if the log is that of a topic that has the name now.
        """
        if self._after is not None:
            await asyncio.wait([self._after])
        followed, self.followed = self.followed, None
        if followed is not None and followed.work is not None:
            await asyncio.wait([followed.work])
        partition = await self._context.transitions.open(self.topic, self.name[1])
        if partition.topic_id not in (None, self.name[0]):
            raise UnknownTopicOrPartition(f"{self.topic}-{self.name[1]} is of another topic now")
        await self._context.appends.finished(partition)
        return partition

    async def _begin(self, part: _Part, partition: Partition) -> None:
        """Begins the leader epoch in the log, in a thread. Raises KafkaStorageError."""
        work = self._context.transitions
        if part.leader == self._context.cluster.me:
            await work.run(partition, self._begin_leading, part, partition)
        else:
            await work.run(partition, partition.roles.follow, part.leader_epoch)

    def _begin_leading(self, part: _Part, partition: Partition) -> None:
        partition.roles.lead(part.leader_epoch)
        partition.append_clock.note_leaders_behind(self._context.clock_watch.deletion_ms())
        self._context.clock_watch.correct(partition)
        partition.appender.read_for_appends()
        if partition.config.flush_messages == 1:
            partition.commit()  # only what is durable counts

    def _start(self, part: _Part, partition: Partition) -> None:
        """Begins to serve in the new role."""
        assignment, rules, context = self.assignment, self._rules, self._context
        assert assignment is not None
        assert rules is not None
        cluster = context.cluster
        if part.leader != cluster.me:
            follower = Follower(
                cluster.me, cluster.epoch, assignment.record, needs_flush=rules.needs_flush
            )
            self.followed = PartitionFollower(context.following, self.name, partition, follower)
            context.following.folded.add(
                logging.INFO,
                "partition followers started",
                self._log_name,
                {"epoch": part.leader_epoch},
                leader=part.leader,
            )
            context.fetchers.add(self.followed)
            return
        now_ms = context.leading.now_ms()
        log_now, brokers = leader_log(partition), context.brokers
        leader = Leader(cluster.me, assignment, log_now, rules, brokers, cluster.lease, now_ms)
        own = {"epoch": part.leader_epoch, "end_offset": partition.log_end_offset}
        context.leading.folded.add(logging.INFO, "partition leaders started", self._log_name, own)
        led = self._led = PartitionLeader(context.leading, self.name, partition, leader)
        context.leading.leaders.started(led)
        led.do(leader.on_tick(now_ms))
        context.elections.begun(led)

    @property
    def _log_name(self) -> str:
        return f"{self.topic}-{self.name[1]}"
