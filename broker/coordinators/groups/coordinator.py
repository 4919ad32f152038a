"""The coordinator of every group of this broker: a thin shell around the state machine in group.py.

The shell passes events to the machine and carries out the actions that come back: it answers waiting
members and writes to the log of groups. The runtime holds the groups of the partitions that this broker
leads; `groups.py` makes and deletes them, `offset_commits.py` commits their offsets.

Sessions and the expiry of offsets follow the machine's clock, or the broker's with clock.scope=all.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.clock import ManualClock, SystemClock
from tidelog.broker.coordinators.groups import offsets_topic
from tidelog.broker.coordinators.groups.cleanup import Cleanup
from tidelog.broker.coordinators.groups.group_metadata import required
from tidelog.broker.coordinators.groups.groups import Groups
from tidelog.broker.coordinators.groups.held import of_assignments, of_join
from tidelog.broker.coordinators.groups.messages import Answer, Join, Joined, State, Store, Synced
from tidelog.broker.coordinators.groups.offset_commits import OffsetCommits
from tidelog.broker.coordinators.runtime import Runtime, resolve
from tidelog.protocol.errors import BrokerError, InvalidRequest, MessageTooLarge, RecordListTooLarge
from tidelog.protocol.group_errors import (
    CoordinatorNotAvailable,
    InvalidSessionTimeout,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidelog.broker.clock import Clock
    from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata, Loading
    from tidelog.broker.coordinators.groups.messages import Action
    from tidelog.broker.coordinators.internal_topic import Written
    from tidelog.broker.coordinators.ownership import Load
    from tidelog.broker.coordinators.services import Services
    from tidelog.broker.metadata.image import Image
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.time.trusted_clock import Change

log = logging.getLogger("tidelog.groups")

LONGEST_INSTANCE_ID: Final = 249
"""Characters of a group.instance.id, as in Kafka's clients."""
_LONGEST_CLIENT_ID: Final = 255
"""Bytes of a client id that a member id begins with."""


class GroupCoordinator:
    """The groups of one broker."""

    def __init__(self, services: Services) -> None:
        """Begins with no groups."""
        # A clock of its own beside a manual one is not watched.
        self._is_apart = (
            isinstance(services.clock, ManualClock) and services.config.clock_scope != "all"
        )
        clock: Clock = SystemClock() if self._is_apart else services.clock
        deletion_ms = clock.now_ms if self._is_apart else services.clock_watch.deletion_ms
        self._services, self._clock = services, clock
        self.runtime: Runtime[GroupMetadata, Loading] = Runtime(
            services, offsets_topic.declared(services.config.groups), clock, self
        )
        self.groups = Groups(services, self.runtime, clock)
        self.offsets = OffsetCommits(self.groups, clock)
        self.cleanup = Cleanup(services, self.groups, self.offsets, clock, deletion_ms)
        self._storing: dict[str, asyncio.Task[None]] = {}  # the last write of each group under way

    # -- start and stop -------------------------------------------------------------------------

    def start(self) -> None:
        """Starts to read the stored groups, and the timer."""
        self.runtime.start(
            self.cleanup.expire_at_intervals(),
            self.cleanup.delete_topics(),
            self.groups.make_room(self.cleanup.expire),
        )

    async def stop(self) -> None:
        """Answers all waiting members, because the broker stops."""
        await self.runtime.stop()
        self.groups.folded.flush()
        for entry in self.runtime.entries.values():
            for ticket in entry.group.tickets():
                resolve(ticket, CoordinatorNotAvailable("the broker stops"))
        await self.runtime.finish(cancels=False)

    # -- what the runtime calls -----------------------------------------------------------------

    def read(self, partition: Partition, end_offset: int, is_wanted: Callable[[], bool]) -> Loading:
        """Reads the groups of a partition, in a thread."""
        clock = None if self._is_apart else self._clock
        return offsets_topic.read(partition, end_offset, self.groups.machine, clock, is_wanted)

    def load(self, load: Load, read: Loading) -> None:
        """Adds the groups of a partition that has been read."""
        for entry in read.groups(self._clock.steady_ms()):
            entry.epoch = load.epoch
            self._add(entry, load.partition)
            self.groups.recount()
        self.offsets.transactions_loaded(load.partition)

    def _add(self, entry: GroupMetadata, index: int) -> None:
        """Adds a group read from a partition; if several have it, its own partition wins."""
        known = self.runtime.entries.get(entry.key)
        if known is not None and index != self.runtime.topic.index_of(entry.key):
            known.merge(entry)
            return
        if known is not None:
            entry.merge(known)
        self.runtime.entries[entry.key] = entry
        self.offsets.add_transactions(entry)
        self._schedule(entry)

    def unload(self, indexes: set[int], entries: Sequence[GroupMetadata]) -> None:
        """Refuses the waiting members of groups that another broker coordinates now."""
        self.offsets.unload(indexes)
        self.groups.recount()
        for entry in entries:
            for ticket in entry.group.tickets():
                resolve(ticket, NotCoordinator(f"group {entry.key} is coordinated elsewhere"))

    def deadline_reached(self, entry: GroupMetadata) -> None:
        """Removes members whose session has expired, and ends phases that took too long."""
        try:
            self._act(entry, entry.group.tick(self._clock.steady_ms()))
        finally:
            self.groups.delete_unused(entry)

    def image_changed(self, image: Image) -> None:
        """Deletes the offsets of topics that have been deleted."""
        self.cleanup.image_changed(image)

    # -- groups ---------------------------------------------------------------------------------

    def get(self, group_id: str, *, may_be_empty: bool = False) -> GroupMetadata | None:
        """Returns the group, None if there is none.

        Raises InvalidGroupId, NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable.
        """
        return self.runtime.get(group_id if may_be_empty else required(group_id))

    def _existing(self, group_id: str) -> GroupMetadata:
        entry = self.get(group_id)
        if entry is None:
            raise UnknownMemberId(f"there is no group {group_id}")
        return entry

    def partition_of(self, group_id: str) -> TopicPartition:
        """Returns the partition that keeps a group."""
        return offsets_topic.TOPIC, self.runtime.topic.index_of(group_id)

    async def correct_times(self, changes: Iterable[Change]) -> None:
        """Corrects the times of the groups that are known, after the clock has changed."""
        if not self._is_apart:
            await self.cleanup.correct_times(changes)

    # -- events ---------------------------------------------------------------------------------

    async def join(self, group_id: str, request: Join) -> Joined:
        """Adds a member, and returns when the others have joined; raises the error for the response.

        Waits a few seconds at most for a group that is being read.
        """
        entry = await self.runtime.get_loaded(required(group_id))
        config = self._services.config.groups
        least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        if not least <= request.session_timeout_ms <= most:
            raise InvalidSessionTimeout(
                f"{request.session_timeout_ms} ms is not within {least} and {most} ms"
            )
        if request.instance_id is not None and len(request.instance_id) > LONGEST_INSTANCE_ID:
            raise InvalidRequest(f"group.instance.id has up to {LONGEST_INSTANCE_ID} characters")
        if entry is None:
            if request.member_id:
                raise UnknownMemberId(f"there is no group {group_id}")
            entry = self.runtime.entries[group_id] = self.groups.create(group_id)
        group, ticket = entry.group, self._ticket()
        try:
            by, is_member = of_join(group, request)
            self.groups.grow(by, is_known=is_member)
            self._act(entry, group.join(request, ticket, self._clock.steady_ms()))
        except BrokerError:
            self._schedule(entry)
            self.groups.delete_unused(entry)
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
        """Returns a member's assignment; raises the error for the response."""
        entry, ticket = self._existing(group_id), self._ticket()
        now_ms = self._clock.steady_ms()
        if (member_id, generation) == (entry.group.leader, entry.group.generation):
            self.groups.grow(of_assignments(entry.group, assignments.values()), is_known=True)
        actions = entry.group.sync(
            member_id, instance_id, generation, protocols, assignments, ticket, now_ms
        )
        self._act(entry, actions)
        synced: Synced = await ticket
        return synced

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Extends the session of a member; raises the error for the response."""
        entry = self._existing(group_id)
        entry.group.heartbeat(member_id, instance_id, generation, self._clock.steady_ms())

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        """Removes a member; raises UnknownMemberId, FencedInstanceId."""
        entry = self._existing(group_id)
        self._act(entry, entry.group.leave(member_id, instance_id, self._clock.steady_ms()))

    def _ticket(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    # -- actions --------------------------------------------------------------------------------

    def _act(self, entry: GroupMetadata, actions: Sequence[Action]) -> None:
        """Carries out actions: at once, or in a task if something must be written."""
        group, group_id = entry.group, entry.key
        if entry.note_state(self._clock.now_ms()) and group.state in (State.STABLE, State.EMPTY):
            own = {"generation": group.generation, "members": len(group.members)}
            self.groups.folded.add(logging.INFO, "groups rebalanced", group_id, own)
        self._schedule(entry)
        if any(isinstance(action, Store) for action in actions):
            storing = self.runtime.spawn(
                self._store_then_answer(entry, entry.group_record(), actions)
            )
            self._storing[group_id] = storing
            storing.add_done_callback(partial(self._stored, group_id))
            return
        before = self._storing.get(group_id)
        for action in actions:
            if isinstance(action, Answer):
                if before is not None and isinstance(action.outcome, Synced):
                    self.runtime.spawn(self._answer_after(before, entry, action))
                else:
                    resolve(action.ticket, action.outcome)

    def _stored(self, group_id: str, storing: asyncio.Task[None]) -> None:
        if self._storing.get(group_id) is storing:
            del self._storing[group_id]

    async def _answer_after(
        self, storing: asyncio.Task[None], entry: GroupMetadata, action: Answer
    ) -> None:
        """Answers a member with its assignment when that is in the log.

        The next coordinator would not read an assignment that is not there, and would start the same
        generation with other members.
        """
        await asyncio.wait([storing])
        is_stored = entry.group.state is State.STABLE and self.runtime.has(entry)
        resolve(action.ticket, action.outcome if is_stored else RebalanceInProgress())

    async def _store_then_answer(
        self, entry: GroupMetadata, written: Written, actions: Sequence[Action]
    ) -> None:
        """Answers what does not depend on the log, writes, and then answers the rest."""
        failure: BrokerError | None = None
        for action in actions:
            if isinstance(action, Store):
                try:
                    await self.runtime.topic.append(entry.key, [written], entry.epoch)
                except BrokerError as error:
                    where = {"group": entry.key, "reason": error.named}
                    log.warning("group not stored", extra=where)
                    # A retry would be too large again, so the error is for the sender.
                    is_too_large = isinstance(error, MessageTooLarge | RecordListTooLarge)
                    failure = error if is_too_large else CoordinatorNotAvailable(str(error))
            else:
                is_refused = failure is not None and not isinstance(action.outcome, BrokerError)
                resolve(action.ticket, failure if is_refused and failure else action.outcome)
        if failure is not None and self.runtime.has(entry):
            self._act(entry, entry.group.not_stored(self._clock.steady_ms()))

    def _schedule(self, entry: GroupMetadata) -> None:
        self.runtime.schedule(entry, entry.group.next_deadline_ms())


def new_member_id(prefix: str | None) -> str:
    """Returns a new unique member id, as Kafka makes them; a long prefix is cut."""
    ending = f"-{uuid.uuid4()}"
    begin = (prefix or "").encode()[:_LONGEST_CLIENT_ID]
    return begin.decode(errors="ignore") + ending
