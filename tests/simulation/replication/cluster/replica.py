"""One partition on one broker: the product's machines, their actions carried out on a virtual log.

It is the shell that a broker will be: it decides nothing about replication. It parks fetches, keeps
requests of producers until the machine acknowledges them, and does the leader's part of time:
append times, retention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.replication.cluster.log import NO_EPOCH, Slice
from tests.simulation.replication.cluster.requests import Parked, Waiting, known_batch
from tidelog.broker.replication import messages
from tidelog.broker.replication.follower import Follower
from tidelog.broker.replication.leader import Leader
from tidelog.protocol.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.replication.cluster.broker import Broker
    from tests.simulation.replication.cluster.log import Batch, Log
    from tests.simulation.replication.cluster.requests import Produce
    from tidelog.broker.metadata.records import PartitionRecord
    from tidelog.broker.replication.messages import (
        Assignment,
        FetchAnswer,
        FetchRequest,
        LeaderRules,
    )

FETCH_WAIT_MS = 1_000
FETCH_TIMEOUT_MS = 2_000
PRODUCE_TIMEOUT_MS = 3_000
EMPTY = Slice((), (), (), None)


class Replica:
    """The replica of a partition in one life of its broker."""

    def __init__(self, broker: Broker, key: str, log: Log) -> None:
        self.broker = broker
        self.world = broker.world
        self.key = key
        self.log = log
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        self.assignment: Assignment | None = None
        self.rules: LeaderRules | None = None
        self.epoch = NO_EPOCH
        self.parked: list[Parked] = []
        self.waiting: list[Waiting] = []
        self.fetches = 0  # counts what this follower asks; the timer of an old one does nothing

    def __repr__(self) -> str:
        return f"{self.broker.id}:{self.key[-4:]}"

    @property
    def now_ms(self) -> int:
        return self.world.timeline.now_ms

    # --- roles ------------------------------------------------------------------------------------

    def assign(self, assignment: Assignment, rules: LeaderRules, *, may_lead: bool) -> None:
        """Takes what the image says of the partition now."""
        record, me = assignment.record, self.broker.id
        if self.assignment is not None and assignment.mod_revision < self.assignment.mod_revision:
            return  # metadata never goes back
        is_new_epoch = record.leader_epoch > self.epoch
        self.assignment, self.rules = assignment, rules
        if record.leader == me:
            if not may_lead:
                self.stop("a session that has ended led")
            elif is_new_epoch:
                self._lead(assignment, rules)
            elif self.leader is not None:
                self._do(
                    self.leader.on_assignment(assignment, self.broker.view(), rules, self.now_ms)
                )
            return
        if self.leader is not None:
            self.resign("another leads")
        self.epoch = record.leader_epoch
        if record.leader < 0:
            self.follower = None
        elif is_new_epoch or self.follower is None:
            self.become_follower(record)

    def become_follower(self, record: PartitionRecord) -> None:
        """Follows the leader of a record."""
        self.follower = None
        self.log.follow(record.leader_epoch)
        self.follower = Follower(
            self.broker.id, self.broker.epoch, record, needs_flush=self.rules.needs_flush
        )
        self.fetches += 1
        self.world.after(self.broker, 0, self.fetch)

    def _lead(self, assignment: Assignment, rules: LeaderRules) -> None:
        self.resign("a new epoch")
        self.follower = None
        log = self.log
        log.begin_epoch(assignment.record.leader_epoch)
        if rules.needs_flush:
            log.sync()
        self.epoch = assignment.record.leader_epoch
        self.leader = Leader(
            self.broker.id,
            assignment,
            messages.LeaderLog(log.start, log.high_watermark, log.end, log.synced, log),
            rules,
            self.broker.view(),
            self.broker.lease,
            self.now_ms,
        )
        self.world.say("lead", self, self.epoch, log.end)
        self.world.checker.leads(self)
        self.broker.coordinating.on_led(self)
        self._do(self.leader.begin(self.now_ms))

    def stop(self, why: str) -> None:
        """Neither leads nor follows, until the image says what to do."""
        self.resign(why)
        self.follower = None

    def resign(self, why: str) -> None:
        """Leads no more: whoever waits is told so."""
        if self.leader is None:
            return
        self.world.say("resign", self, self.epoch, why)
        self.leader = None
        self.broker.coordinating.on_stopped(self)
        self.log.resign()
        waiting, self.waiting = self.waiting, []
        parked, self.parked = self.parked, []
        for each in waiting:
            each.reply(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for request in parked:
            request.reply(self._not_leader(), EMPTY)

    def _suspend(self) -> None:
        """Answers no client until the leader goes on."""
        self.world.say("suspended", self, self.epoch)
        self.broker.coordinating.on_stopped(self)
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each.reply(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _not_leader(self) -> FetchAnswer:
        return messages.FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.epoch)

    # --- the leader's side ------------------------------------------------------------------------

    def _do(self, actions: Sequence[Any]) -> None:
        """Carries out the actions of a leader, then answers producers."""
        for action in actions:
            if self.leader is None:
                return
            if isinstance(action, messages.AdvanceHighWatermark):
                self.log.advance(action.offset)
            elif isinstance(action, messages.ChangeIsr):
                self.broker.change_isr(self, action)
            elif isinstance(action, messages.WakeFetches):
                self._wake()
            elif isinstance(action, messages.Suspend):
                self._suspend()
            elif isinstance(action, messages.Resume):
                self.world.say("goes on", self, self.epoch)
                self.broker.coordinating.on_led(self)
            elif isinstance(action, messages.StepDown):
                self.resign(action.reason)
                self.broker.look_again(self)
        if self.leader is not None:
            self.world.checker.check_leader(self)
        self._answer_producers()

    def serve_fetch(self, request: FetchRequest, reply: Callable[..., None]) -> None:
        """Answers a follower, at once or when there is news."""
        if self.leader is None:
            reply(self._not_leader(), EMPTY)
            return
        answer, actions = self.leader.on_fetch(request, self.now_ms)
        number = self.broker.next_number()
        if self._has_something(request, answer):
            reply(answer, self._slice(request, answer))
        else:
            self.parked.append(Parked(number, request, reply))
            self.world.after(self.broker, FETCH_WAIT_MS, self._end_wait, number)
        self._do(actions)

    def _has_something(self, request: FetchRequest, answer: FetchAnswer) -> bool:
        if answer.error != ErrorCode.NONE or answer.diverging is not None:
            return True
        return request.fetch_offset < answer.log_end_offset or self.leader.has_news(request)

    def _slice(self, request: FetchRequest, answer: FetchAnswer) -> Slice:
        if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            return EMPTY._replace(known=self.log.known())
        if answer.error != ErrorCode.NONE or answer.diverging is not None:
            return EMPTY
        return self.log.read(request.fetch_offset, answer.log_end_offset, self.world.most_batches)

    def _wake(self) -> None:
        parked, self.parked = self.parked, []
        for each in parked:
            if self.leader is not None and self.leader.has_news(each.request):
                self._answer_parked(each)
            else:
                self.parked.append(each)

    def _end_wait(self, number: int) -> None:
        for each in self.parked:
            if each.number == number and self.leader is not None:
                self.parked.remove(each)
                self._answer_parked(each)
                return

    def _answer_parked(self, each: Parked) -> None:
        answer = self.leader.on_wake(each.request, self.now_ms)
        each.reply(answer, self._slice(each.request, answer))

    def tick(self) -> None:
        """Looks at the time, twice in replica.lag.time.max.ms."""
        if self.leader is not None:
            self._do(self.leader.on_tick(self.now_ms))

    def change_applied(self, leader: Leader, assignment: Assignment) -> None:
        """Tells the machine that a change of the in-sync replicas is stored."""
        if leader is self.leader:
            self._do(leader.on_change_applied(assignment, self.now_ms))

    def change_refused(
        self, leader: Leader, change: messages.ChangeIsr, now: Assignment | None
    ) -> None:
        """Tells the machine that a change is certainly not stored, and what is."""
        if leader is self.leader:
            self._do(leader.on_change_refused(change, now, self.now_ms))

    def change_unknown(self, leader: Leader, change: messages.ChangeIsr) -> None:
        """Tells the machine that a change may be stored, now or later."""
        if leader is self.leader:
            leader.on_change_unknown(change)
            self.world.checker.check_leader(self)

    # --- producers --------------------------------------------------------------------------------

    def produce(self, request: Produce, reply: Callable[..., None]) -> None:
        """Appends a producer's batch, and answers when its acks are there."""
        if self.leader is None:
            reply(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            self.leader.check_append(request.acks, self.now_ms)
        except BrokerError as error:
            reply(error.code)
            self._do(self.leader.on_tick(self.now_ms))
            return
        known = self.known(request)
        if isinstance(known, ErrorCode):
            reply(known)
            return
        try:
            batch = known or self._append(request)
        except BrokerError as error:
            reply(error.code)
            if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                self.broker.report_disk()
                self.broker.refused(error)
            return
        if batch is None:
            reply(ErrorCode.KAFKA_STORAGE_ERROR)
        elif request.acks == 1:
            self.world.checker.acknowledges(self, batch, 1)
            reply(ErrorCode.NONE)
        else:
            self.waiting.append(Waiting(request, batch, self.now_ms + PRODUCE_TIMEOUT_MS, reply))
        if known is None and batch is not None:
            self._do(self.leader.on_appended(self.log.end, self.now_ms))
            if self.rules.needs_flush:
                self.world.after(self.broker, self.broker.disk.sync_ms(), self._flush)
        self._answer_producers()

    def known(self, request: Produce) -> Batch | ErrorCode | None:
        """Returns what the log has of a batch; see `known_batch`."""
        return known_batch(self.log, request)

    def _append(self, request: Produce) -> Batch | None:
        log, broker = self.log, self.broker
        if broker.disk.is_full and not broker.disk.refuses:
            broker.report_disk()
            return None
        return log.produce(request, broker.settings(self.key), self.epoch, broker)

    def _is_gone(self) -> bool:
        """Returns whether the partition has been removed from this broker meanwhile."""
        return self.broker.replicas.get(self.key) is not self

    def _flush(self) -> None:
        if self._is_gone():
            return
        self.log.sync()
        if self.leader is not None:
            self._do(self.leader.on_flushed(self.log.synced, self.now_ms))

    def _answer_producers(self) -> None:
        waiting, self.waiting = self.waiting, []
        for number, each in enumerate(waiting):
            if self.leader is None:
                self.waiting += waiting[number:]
                break
            state = self.leader.acknowledgement(each.batch.end, self.now_ms, each.deadline_ms)
            if state is None:
                self.waiting.append(each)
            elif state != ErrorCode.NONE:
                each.reply(state)
            else:
                self.world.checker.acknowledges(self, each.batch, -1)
                each.reply(ErrorCode.NONE)

    def read(self, offset: int, reply: Callable[..., None]) -> None:
        """Answers a consumer with what is below the high watermark."""
        if not self._may_answer():
            reply(ErrorCode.NOT_LEADER_OR_FOLLOWER, ())
        elif offset < self.log.start or offset > self.log.end:
            self.world.checker.answers_as_leader(self.broker)
            reply(ErrorCode.OFFSET_OUT_OF_RANGE, ())
        else:
            batches = self.log.read_for_consumer(offset, self.world.most_batches)
            self.world.checker.reads(self, batches)
            reply(ErrorCode.NONE, batches)

    def _may_answer(self) -> bool:
        """Returns whether a client may be answered as by the leader."""
        if self.leader is None:
            return False
        try:
            self.leader.check_leading(self.now_ms)
        except BrokerError:
            return False
        return True

    # --- the follower's side ----------------------------------------------------------------------

    def _follower_log(self) -> messages.FollowerLog:
        log = self.log
        return messages.FollowerLog(
            log.start, log.high_watermark, log.end, log.synced, log.last_epoch, log
        )

    def fetch(self) -> None:
        """Asks the leader for what comes next."""
        follower = self.follower
        if follower is None:
            return
        request = follower.next_fetch(self._follower_log())
        if request is None:  # it was the leader, and has not flushed all
            self.world.after(self.broker, self.broker.disk.sync_ms(), self._flush_follower)
            return
        self.fetches += 1
        self.world.ask_leader(self, follower, request)
        self.world.after(self.broker, FETCH_TIMEOUT_MS, self._time_out, self.fetches)

    def _time_out(self, number: int) -> None:
        if number == self.fetches:
            self.fetch()

    def is_followed_by(self, follower: Follower) -> bool:
        """Returns whether a machine is the one of now: an answer to another is for nobody."""
        return follower is self.follower

    def take_answer(
        self, follower: Follower, request: FetchRequest, answer: FetchAnswer, told: Slice
    ) -> None:
        """Takes an answer, maybe a late or a second one, of this follower's leader."""
        disk = self.broker.disk
        if not self.is_followed_by(follower) or (disk.is_full and not disk.refuses):
            return
        actions = follower.on_answer(request, answer, self._follower_log())
        if not actions:
            return
        wait_ms, flushes = 0, False
        while actions:
            action, *actions = actions
            if isinstance(action, messages.Append):
                self.log.append_as_follower(told)
                actions += follower.on_appended(answer, self._follower_log())
                self.world.checker.followed(self, answer.leader_epoch)
            elif isinstance(action, messages.WaitBefore):
                wait_ms = action.ms
            else:
                flushes |= isinstance(action, messages.Flush)
                self._change_log(action)
                if isinstance(action, messages.RestartAt):
                    # Before the next fetch, which may bring this replica into the ISR.
                    self.log.take_mark(told.known)
                self.world.checker.after_step()
        self.fetches += 1
        if not flushes:
            self.world.after(self.broker, wait_ms, self.fetch)

    def _change_log(self, action: messages.FollowerAction) -> None:
        log = self.log
        if isinstance(action, messages.Truncate):
            self.world.say("truncate", self, log, action.offset)
            log.truncate(action.offset, is_below_high_watermark=action.is_below_high_watermark)
        elif isinstance(action, messages.RestartAt):
            self.world.say("restart", self, log, action.offset)
            log.restart_at(action.offset)
        elif isinstance(action, messages.AdvanceHighWatermark):
            log.advance(action.offset)
        elif isinstance(action, messages.RaiseLogStart):
            log.delete_before(action.offset)
        elif isinstance(action, messages.Flush):
            self.world.after(self.broker, self.broker.disk.sync_ms(), self._flush_follower)

    def _flush_follower(self) -> None:
        if self._is_gone():
            return
        self.log.sync()
        self.fetch()
