"""The coordinator of every group: a thin shell around the state machine in groups.py.

It keeps the groups, hands events down, does what comes back (answers those who wait, writes to
__consumer_offsets), and has one timer for all deadlines. What is committed is answered once it is in the log,
by the log's own flush rules. The topic is made when the first group is to be kept.

At start the topic is read in a thread, partition by partition; until a group's partition has been read it
is COORDINATOR_LOAD_IN_PROGRESS. Sessions and the expiry of offsets go by the machine's clock, or with
clock.scope=all by the broker's.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from broker.clock import SystemClock
from broker.group_store import Committed, Kept, Loading
from broker.groups import Answer, Group, Join, Joined, State, Store, Synced
from broker.retention import finished
from protocol.errors import (
    BrokerError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaStorageError,
    MessageTooLarge,
    NonEmptyGroup,
    NotCoordinator,
    RecordListTooLarge,
    TopicAlreadyExists,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from protocol.group_records import partition_of
from protocol.records import batch as batches
from protocol.wire import STRING_MAX
from storage.segment import NotAtHandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from broker.clock import Clock
    from broker.group_store import Log, Name, Written
    from broker.groups import Action
    from broker.node import Node
    from storage.partition import Partition

log = logging.getLogger("tidelog.groups")

TOPIC = "__consumer_offsets"
_READ_BYTES = 1 << 20
_PRODUCE_VERSION = 13
_RECORDS_PER_BATCH = 1_000


class Coordinator:
    """The groups of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._clock: Clock = node.clock if node.config.clock_scope == "all" else SystemClock()
        self._groups: dict[str, Kept] = {}
        self._loading: set[int] = set()
        self._unloadable: dict[int, str] = {}
        self._creating = asyncio.Lock()
        self._due: list[tuple[int, str]] = []  # deadlines of groups; some are no longer true
        self._next: dict[str, int] = {}  # each group's deadline that is true
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._chores: list[asyncio.Task[None]] = []

    # -- start and stop -------------------------------------------------------------------------

    def start(self) -> None:
        """Read what is kept, and begin to watch the time."""
        topic = self._node.metadata.image.topics.get(TOPIC)
        self._loading = set(range(topic.partitions)) if topic is not None else set()
        loop = asyncio.get_running_loop()
        self._chores = [
            loop.create_task(self._load()),
            loop.create_task(self._watch()),
            loop.create_task(self._expire()),
        ]

    async def stop(self) -> None:
        """Let nobody wait any longer: the broker stops."""
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        for kept in self._groups.values():
            for ticket in kept.group.tickets():
                _resolve(ticket, CoordinatorNotAvailable("the broker stops"))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _load(self) -> None:
        """Read the partitions, one after another."""
        for index in sorted(self._loading):
            try:
                loading = await finished(partial(self._read, index))
            except Exception as error:
                self._unloadable[index] = str(error)
                log.exception("groups cannot be read", extra={"log": f"{TOPIC}-{index}"})
            else:
                for kept in loading.groups(self._clock.steady_ms()):
                    self._found(kept, index)
            self._loading.discard(index)
        log.info("groups are at hand", extra={"groups": len(self._groups)})

    def _found(self, kept: Kept, index: int) -> None:
        """Take in a group that a partition tells of; of several the one it belongs to is right."""
        group_id = kept.group.group_id
        known = self._groups.get(group_id)
        if known is not None and index != partition_of(group_id, self._partitions()):
            known.fill_in(kept)
            return
        if known is not None:
            kept.fill_in(known)
        self._groups[group_id] = kept
        self._schedule(kept.group)

    def _read(self, index: int) -> Loading:
        """In a thread: take in every record of one partition."""
        partition = self._node.partition(TOPIC, index)
        loading = Loading(self._new_group, (partition.topic_id, index))
        offset = partition.log_start_offset
        while offset < partition.high_watermark and self._node.ready:
            fetched = partition.read(
                offset, _READ_BYTES, upper_offset=partition.high_watermark, minimum_one=True
            )
            before = offset
            for buffer in fetched.buffers:
                for batch in batches.scan(buffer):
                    for record in batches.records(buffer, batch):
                        if not batch.is_control:
                            loading.record(record.offset, record.key, record.value)
                    offset = batch.last_offset + 1
            if offset == before:
                break
        return loading

    # -- finding groups -------------------------------------------------------------------------

    def _new_group(self, group_id: str) -> Group:
        config = self._node.config
        return Group(group_id, config.group_initial_rebalance_delay_ms, config.group_max_size)

    def _partitions(self) -> int:
        topic = self._node.metadata.image.topics.get(TOPIC)
        return self._node.config.offsets_topic_num_partitions if topic is None else topic.partitions

    def _check_loaded(self, group_id: str) -> None:
        if not self._loading and not self._unloadable:
            return
        index = partition_of(group_id, self._partitions())
        if index in self._loading:
            raise CoordinatorLoadInProgress(f"group {group_id} is being read")
        if index in self._unloadable:
            raise CoordinatorNotAvailable(f"group {group_id}: {self._unloadable[index]}")

    def find(self, group_id: str, *, may_be_empty: bool = False) -> Kept | None:
        """The group, if there is one; raises InvalidGroupId, CoordinatorLoadInProgress."""
        if group_id == "" and not may_be_empty:
            raise InvalidGroupId("the group id is empty")
        self._check_loaded(group_id)
        return self._groups.get(group_id)

    def _known(self, group_id: str) -> Kept:
        kept = self.find(group_id)
        if kept is None:
            raise UnknownMemberId(f"there is no group {group_id}")
        return kept

    def all(self) -> list[Kept]:
        """Every group; raises CoordinatorLoadInProgress until all have been read."""
        if self._loading:
            raise CoordinatorLoadInProgress("the groups are being read")
        return list(self._groups.values())

    # -- events ---------------------------------------------------------------------------------

    async def join(self, group_id: str, request: Join) -> Joined:
        """A member joins; raises what it should see."""
        config = self._node.config
        least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        kept = self.find(group_id)
        if not least <= request.session_timeout_ms <= most:
            raise InvalidSessionTimeout(
                f"{request.session_timeout_ms} ms is not within {least} and {most} ms"
            )
        if kept is None:
            if request.member_id:
                raise UnknownMemberId(f"there is no group {group_id}")
            kept = Kept(self._new_group(group_id), since_ms=self._clock.now_ms())
            self._groups[group_id] = kept
        group, ticket = kept.group, self._ticket()
        try:
            self._act(kept, group.join(request, ticket, self._clock.steady_ms()))
        except BrokerError:
            self._schedule(group)
            raise
        joined: Joined = await ticket
        return joined

    async def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocols: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> Synced:
        """A member asks for its part; raises what it should see."""
        kept, ticket = self._known(group_id), self._ticket()
        now_ms = self._clock.steady_ms()
        actions = kept.group.sync(
            member_id, instance_id, generation, protocols, assignments, ticket, now_ms
        )
        self._act(kept, actions)
        synced: Synced = await ticket
        return synced

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """A member is alive; raises what it should know."""
        kept = self._known(group_id)
        kept.group.heartbeat(member_id, instance_id, generation, self._clock.steady_ms())

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        """A member goes; raises UnknownMemberId, FencedInstanceId."""
        kept = self._known(group_id)
        self._act(kept, kept.group.leave(member_id, instance_id, self._clock.steady_ms()))

    def _ticket(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    # -- actions --------------------------------------------------------------------------------

    def _act(self, kept: Kept, actions: Sequence[Action]) -> None:
        """Do what the machine says: at once, or in a task where something has to be written."""
        kept.noted(self._clock.now_ms())
        self._schedule(kept.group)
        if not any(isinstance(action, Store) for action in actions):
            for action in actions:
                if isinstance(action, Answer):
                    _resolve(action.ticket, action.outcome)
            return
        task = asyncio.get_running_loop().create_task(
            self._store_then_answer(kept, kept.group_record(), actions)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _store_then_answer(
        self, kept: Kept, written: Written, actions: Sequence[Action]
    ) -> None:
        """Answer what does not depend on the log, write, and answer the rest."""
        failure: BrokerError | None = None
        for action in actions:
            if isinstance(action, Store):
                try:
                    await self._append(kept.group.group_id, [written])
                except BrokerError as error:
                    log.warning("group not stored: %s", error, extra={"group": kept.group.group_id})
                    # What is too large stays so however often it is sent: its sender has to know.
                    is_too_large = isinstance(error, MessageTooLarge | RecordListTooLarge)
                    failure = error if is_too_large else CoordinatorNotAvailable(str(error))
            else:
                is_refused = failure is not None and not isinstance(action.outcome, BrokerError)
                _resolve(action.ticket, failure if is_refused and failure else action.outcome)
        if failure is not None:
            self._act(kept, kept.group.not_stored(self._clock.steady_ms()))

    async def _append(self, group_id: str, records: Sequence[Written]) -> tuple[Log, int]:
        """Put records of a group into its log; which that is, and the first offset, once they are stored.

        A log that cannot take them is NotCoordinator, as in Kafka: clients look for another and ask again.
        """
        try:
            partition = await self._log_of(group_id)
            appended = self._node.append(partition, self._batch(records), _PRODUCE_VERSION)
            if isinstance(appended, asyncio.Future):
                appended = await appended
        except BrokerError as error:
            raise _refused_as_kafka_does(error) from None
        return (partition.topic_id, partition.index), appended.base_offset

    def _batch(self, records: Sequence[Written]) -> bytes:
        return batches.build_plain(records, self._clock.now_ms())

    def _log_at_hand(self, group_id: str) -> Partition | None:
        """The partition a group is kept in, if it is there and open."""
        if TOPIC not in self._node.metadata.image.topics:
            return None
        try:
            return self._node.opened_partition(TOPIC, partition_of(group_id, self._partitions()))
        except (NotAtHandError, BrokerError):
            return None  # whoever may wait will see

    async def _log_of(self, group_id: str) -> Partition:
        """The partition a group is kept in; makes the topic."""
        node, config = self._node, self._node.config
        if TOPIC not in node.metadata.image.topics:
            async with self._creating:
                if TOPIC not in node.metadata.image.topics:
                    settings = {
                        "cleanup.policy": "compact",
                        "compression.type": "producer",
                        "segment.bytes": str(config.offsets_topic_segment_bytes),
                    }
                    with contextlib.suppress(TopicAlreadyExists):
                        await node.create_topic(
                            TOPIC, partitions=config.offsets_topic_num_partitions, configs=settings
                        )
        index = partition_of(group_id, self._partitions())
        return await node.open_partition(TOPIC, index)

    # -- offsets --------------------------------------------------------------------------------

    def commit_now(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[Name, Committed],
    ) -> bool:
        """Store offsets if nothing has to be waited for, and return whether they are stored.

        Raises why they may not be.
        """
        kept = self._committing(group_id, member_id, instance_id, generation)
        partition = self._log_at_hand(group_id) if offsets else None
        if partition is None:
            return not offsets
        kept = self._groups.setdefault(group_id, kept)
        made = self._batch([kept.offset_record(name, each) for name, each in offsets.items()])
        try:
            appended = self._node.appends.append_now(partition, made, _PRODUCE_VERSION)
        except BrokerError as error:
            raise _too_large_for_a_commit(_refused_as_kafka_does(error)) from None
        if appended is None:
            return False
        kept.take_in(offsets, (partition.topic_id, partition.index), appended.base_offset)
        return True

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[Name, Committed],
    ) -> None:
        """Store offsets; raises why not, and then none of them is."""
        kept = self._committing(group_id, member_id, instance_id, generation)
        if not offsets:
            return
        kept = self._groups.setdefault(group_id, kept)
        records = [kept.offset_record(name, committed) for name, committed in offsets.items()]
        try:
            place, base_offset = await self._append(group_id, records)
        except BrokerError as error:
            raise _too_large_for_a_commit(error) from None
        if kept.group.state is State.DEAD:  # deleted meanwhile: this came after
            anew = Kept(self._new_group(group_id), since_ms=self.now_ms())
            if self._groups.get(group_id, kept) is kept:
                self._groups[group_id] = anew
            kept = self._groups[group_id]
        kept.take_in(offsets, place, base_offset)

    def _committing(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> Kept:
        """The group somebody commits in, or what is to become it; raises why that may not be."""
        kept = self.find(group_id, may_be_empty=True)
        if kept is None:
            if generation >= 0:
                raise IllegalGeneration(f"there is no group {group_id}")
            kept = Kept(self._new_group(group_id), since_ms=self._clock.now_ms())
        kept.group.check_commit(member_id, instance_id, generation, self._clock.steady_ms())
        return kept

    def now_ms(self) -> int:
        """The time of a commit."""
        return self._clock.now_ms()

    async def forget(self, group_id: str) -> None:
        """Delete a group; raises GroupIdNotFound, NonEmptyGroup."""
        kept = self.find(group_id, may_be_empty=True)
        if kept is None or kept.group.state is State.DEAD:
            raise GroupIdNotFound(f"there is no group {group_id}")
        if kept.group.state is not State.EMPTY:
            raise NonEmptyGroup(f"group {group_id} has members")
        kept.group.state = State.DEAD
        try:
            await self._append_all(group_id, kept.tombstones())
        except BrokerError:
            kept.group.state = State.EMPTY
            raise
        self._groups.pop(group_id, None)
        log.info("group deleted", extra={"group": group_id, "offsets": len(kept.offsets)})

    async def forget_offsets(self, group_id: str, names: Sequence[Name]) -> None:
        """Delete offsets of a group, and an empty group with its last one."""
        kept = self.find(group_id, may_be_empty=True)
        if kept is None:
            return
        going = [name for name in names if name in kept.offsets]
        before = {name: kept.offsets[name] for name in going}
        await self._append_all(group_id, [kept.offset_record(name, None) for name in going])
        for name in going:
            if kept.offsets.get(name) == before[name]:  # not committed again meanwhile
                del kept.offsets[name]
        if going and kept.is_idle and self._groups.get(group_id) is kept:
            await self.forget(group_id)

    async def _append_all(self, group_id: str, records: Sequence[Written]) -> None:
        for at in range(0, len(records), _RECORDS_PER_BATCH):
            await self._append(group_id, records[at : at + _RECORDS_PER_BATCH])

    async def forget_topic(self, topic: str) -> None:
        """A topic is gone, and so are the offsets in it."""
        for kept in list(self._groups.values()):
            names = [name for name in kept.offsets if name[0] == topic]
            if names:
                with contextlib.suppress(BrokerError):
                    await self.forget_offsets(kept.group.group_id, names)

    # -- time -----------------------------------------------------------------------------------

    def _schedule(self, group: Group) -> None:
        """Have the group looked at when it says; later is seen to when the time comes."""
        at_ms, known_ms = group.next_deadline_ms(), self._next.get(group.group_id)
        if at_ms is None or (known_ms is not None and known_ms <= at_ms):
            return
        self._next[group.group_id] = at_ms
        heapq.heappush(self._due, (at_ms, group.group_id))
        self._woken.set()

    async def _watch(self) -> None:
        """Tell groups that their time has come."""
        while True:
            self._woken.clear()
            self._tick()
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._woken.wait())]
            if self._due:
                waits.append(asyncio.ensure_future(self._clock.reached(self._due[0][0])))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    def _tick(self) -> None:
        now_ms = self._clock.steady_ms()
        while self._due and self._due[0][0] <= now_ms:
            at_ms, group_id = heapq.heappop(self._due)
            if self._next.get(group_id) != at_ms:
                continue
            del self._next[group_id]
            kept = self._groups.get(group_id)
            if kept is None:
                continue
            try:
                self._act(kept, kept.group.tick(now_ms))
            except Exception:  # one group must not stop the clock of the others
                log.exception("group failed at its time", extra={"group": group_id})
            if kept.is_idle and not kept.group.generation:
                self._groups.pop(group_id, None)  # nobody ever came in

    async def _expire(self) -> None:
        """Let offsets go that are not kept any longer, again and again."""
        every_ms = self._node.config.offsets_retention_check_interval_ms
        due_ms = self._clock.steady_ms() + every_ms
        while True:
            await self._clock.reached(due_ms)
            try:
                await self.expire()
            except Exception:  # the next round may go better; the loop must not end
                log.exception("offsets could not expire")
            due_ms = self._clock.steady_ms() + every_ms

    async def expire(self) -> int:
        """Let offsets go that are not kept any longer, and groups of which nothing is left."""
        retention_ms = self._node.config.offsets_retention_minutes * 60_000
        gone = 0
        for group_id, kept in list(self._groups.items()):
            names = kept.expired(self._clock.now_ms(), retention_ms)
            if names:
                await self.forget_offsets(group_id, names)
                gone += len(names)
                log.info("offsets expired", extra={"group": group_id, "offsets": len(names)})
            if kept.is_idle and self._groups.get(group_id) is kept:
                await self.forget(group_id)
        return gone


def _refused_as_kafka_does(error: BrokerError) -> BrokerError:
    """A log that cannot take a group makes its clients look for another coordinator."""
    if isinstance(error, UnknownTopicOrPartition):
        return CoordinatorNotAvailable(error.message)
    if isinstance(error, KafkaStorageError):
        return NotCoordinator(error.message)
    return error


def _too_large_for_a_commit(error: BrokerError) -> BrokerError:
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return InvalidCommitOffsetSize(str(error))
    return error


def new_member_id(prefix: str | None) -> str:
    """An id nobody has, as Kafka makes them; of a prefix that leaves no room for it only the beginning."""
    ending = f"-{uuid.uuid4()}"
    kept = (prefix or "").encode()[: STRING_MAX - len(ending)]
    return kept.decode(errors="ignore") + ending


def _resolve(ticket: asyncio.Future[Any], outcome: Joined | Synced | BrokerError) -> None:
    if ticket.done():
        return
    if isinstance(outcome, BrokerError):
        ticket.set_exception(outcome)
    else:
        ticket.set_result(outcome)
