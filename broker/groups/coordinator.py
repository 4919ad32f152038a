"""The coordinator of every group of this broker: a thin shell around the state machine in group.py.

It passes events to the machine and carries out the actions that come back: it answers waiting
members and writes to the log of groups. One timer serves all deadlines. A commit is answered once
it is in the log, by the log's own flush settings. `registry.py` holds the groups,
`offset_commits.py` takes their offsets, and `offsets_topic.py` stores both.

The log is read in a thread, partition by partition: by a broker that is alone at its start, by one
of several when it becomes the leader of a partition (`ownership.py`, `loading.py`). Sessions and the
expiry of offsets follow the machine's clock, or the broker's with clock.scope=all.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.coordination.coordinating import resolve
from tidelog.broker.coordination.deadlines import Deadlines
from tidelog.broker.groups.deleted_topics import DeletedTopics
from tidelog.broker.groups.held import of_assignments, of_join
from tidelog.broker.groups.messages import Answer, Join, Joined, State, Store, Synced
from tidelog.broker.groups.offset_commits import OffsetCommits
from tidelog.protocol.errors import BrokerError, InvalidRequest, MessageTooLarge, RecordListTooLarge
from tidelog.protocol.group_errors import (
    CoordinatorNotAvailable,
    InvalidSessionTimeout,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from tidelog.broker.coordination.internal_topic import Written
    from tidelog.broker.coordination.ownership import Load
    from tidelog.broker.groups.group import Group
    from tidelog.broker.groups.group_metadata import GroupMetadata, Loading
    from tidelog.broker.groups.messages import Action
    from tidelog.broker.groups.services import Services
    from tidelog.broker.metadata.image import Image

log = logging.getLogger("tidelog.groups")

LONGEST_INSTANCE_ID: Final = 249
"""Characters of a group.instance.id, as in Kafka's clients."""
_LONGEST_CLIENT_ID: Final = 255
"""Bytes of a client id that a member id begins with."""


class Coordinator(OffsetCommits):
    """The groups of one broker."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._deadlines = Deadlines(self._clock, self._deadline_reached)
        self._tasks: set[asyncio.Task[None]] = set()
        self._deleted_topics = DeletedTopics(self.forget_topic)
        self._storing: dict[str, asyncio.Task[None]] = {}  # the last write of each group under way

    # -- start and stop -------------------------------------------------------------------------

    def _followed(self, image: Image) -> None:
        self._deleted_topics.look(image)

    def start(self) -> None:
        """Starts to read the stored groups, and the timer."""
        self._begin(self._deadlines.run(), self._expire(), self._make_room())

    async def stop(self) -> None:
        """Answers all waiting members, because the broker stops."""
        await self._end()
        self._folded.flush()
        for kept in self._groups.values():
            for ticket in kept.group.tickets():
                resolve(ticket, CoordinatorNotAvailable("the broker stops"))
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _read(self, index: int, goes_on: Callable[[], bool]) -> Loading:
        """Reads the groups of a partition, in a thread."""
        is_one_of_several = not self.ownership.is_alone
        return self._reader.read(
            index, self._new_group, goes_on=goes_on, to_log_end=is_one_of_several
        )

    def _loaded(self, load: Load, loading: Loading) -> None:
        """Takes in the groups of a partition that has been read."""
        for kept in loading.groups(self._clock.steady_ms()):
            kept.epoch = load.epoch
            self._found(kept, load.partition)
            self._crowded.set()  # to count them
        self._transactions_loaded(load.partition)

    def _found(self, kept: GroupMetadata, index: int) -> None:
        """Takes in a group read from a partition; if several have it, its own partition wins."""
        group_id = kept.group.group_id
        known = self._groups.get(group_id)
        if known is not None and index != self.topic.index_of(group_id):
            known.fill_in(kept)
            return
        if known is not None:
            kept.fill_in(known)
        self._groups[group_id] = kept
        self._note_transactions(kept)
        self._schedule(kept.group)

    def _resigned(self, indexes: Sequence[int]) -> None:
        """Drops the groups of partitions that another broker coordinates now."""
        gone = set(indexes)
        self._forget_transactions(gone)
        self._crowded.set()  # to count what is left
        for group_id, kept in list(self._groups.items()):
            if self.topic.index_of(group_id) in gone:
                del self._groups[group_id]
                self._deadlines.forget(group_id)
                for ticket in kept.group.tickets():
                    resolve(ticket, NotCoordinator(f"group {group_id} is coordinated elsewhere"))

    def _known(self, group_id: str) -> GroupMetadata:
        kept = self.find(group_id)
        if kept is None:
            raise UnknownMemberId(f"there is no group {group_id}")
        return kept

    # -- events ---------------------------------------------------------------------------------

    async def join(self, group_id: str, request: Join) -> Joined:
        """Lets a member join; raises the error that the member gets.

        A group that is being read is waited for, a few seconds at most.
        """
        await self.loader.until_loaded(partial(self.find, group_id))
        config = self._services.config.groups
        least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        kept = self.find(group_id)
        if not least <= request.session_timeout_ms <= most:
            raise InvalidSessionTimeout(
                f"{request.session_timeout_ms} ms is not within {least} and {most} ms"
            )
        if request.instance_id is not None and len(request.instance_id) > LONGEST_INSTANCE_ID:
            raise InvalidRequest(f"group.instance.id has up to {LONGEST_INSTANCE_ID} characters")
        if kept is None:
            if request.member_id:
                raise UnknownMemberId(f"there is no group {group_id}")
            kept = self._groups[group_id] = self._created(group_id)
        group, ticket = kept.group, self._ticket()
        try:
            by, is_member = of_join(group, request)
            self._grow(by, is_known=is_member)
            self._act(kept, group.join(request, ticket, self._clock.steady_ms()))
        except BrokerError:
            self._schedule(group)
            self._drop_unused(kept)
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
        """Returns a member's assignment; raises the error that the member gets."""
        kept, ticket = self._known(group_id), self._ticket()
        now_ms = self._clock.steady_ms()
        if (member_id, generation) == (kept.group.leader, kept.group.generation):
            self._grow(of_assignments(kept.group, assignments.values()), is_known=True)
        actions = kept.group.sync(
            member_id, instance_id, generation, protocols, assignments, ticket, now_ms
        )
        self._act(kept, actions)
        synced: Synced = await ticket
        return synced

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> None:
        """Notes that a member is alive; raises the error that the member gets."""
        kept = self._known(group_id)
        kept.group.heartbeat(member_id, instance_id, generation, self._clock.steady_ms())

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        """Removes a member; raises UnknownMemberId, FencedInstanceId."""
        kept = self._known(group_id)
        self._act(kept, kept.group.leave(member_id, instance_id, self._clock.steady_ms()))

    async def forget(self, group_id: str) -> None:
        """Deletes a group; raises GroupIdNotFound, NonEmptyGroup."""
        await super().forget(group_id)
        if group_id not in self._groups:
            self._deadlines.forget(group_id)

    def _ticket(self) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    # -- actions --------------------------------------------------------------------------------

    def _act(self, kept: GroupMetadata, actions: Sequence[Action]) -> None:
        """Carries out actions: at once, or in a task if something must be written."""
        kept.noted(self._clock.now_ms())
        self._schedule(kept.group)
        group_id = kept.group.group_id
        if any(isinstance(action, Store) for action in actions):
            storing = self._task(self._store_then_answer(kept, kept.group_record(), actions))
            self._storing[group_id] = storing
            storing.add_done_callback(partial(self._stored, group_id))
            return
        before = self._storing.get(group_id)
        for action in actions:
            if isinstance(action, Answer):
                if before is not None and isinstance(action.outcome, Synced):
                    self._task(self._answer_after(before, kept, action))
                else:
                    resolve(action.ticket, action.outcome)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _stored(self, group_id: str, storing: asyncio.Task[None]) -> None:
        if self._storing.get(group_id) is storing:
            del self._storing[group_id]

    async def _answer_after(
        self, storing: asyncio.Task[None], kept: GroupMetadata, action: Answer
    ) -> None:
        """Gives a member its assignment when that is in the log.

        A coordinator that takes over would not know an assignment that is not, and would give the
        same generation to others.
        """
        await asyncio.wait([storing])
        is_stored = kept.group.state is State.STABLE and self._is_kept(kept)
        resolve(action.ticket, action.outcome if is_stored else RebalanceInProgress())

    async def _store_then_answer(
        self, kept: GroupMetadata, written: Written, actions: Sequence[Action]
    ) -> None:
        """Answers what does not depend on the log, writes, and then answers the rest."""
        failure: BrokerError | None = None
        for action in actions:
            if isinstance(action, Store):
                try:
                    await self.topic.append(kept.group.group_id, [written], kept.epoch)
                except BrokerError as error:
                    where = {"group": kept.group.group_id}
                    log.warning("group not stored: %s", error.named, extra=where)
                    # A retry would be too large again, so the sender gets the error.
                    is_too_large = isinstance(error, MessageTooLarge | RecordListTooLarge)
                    failure = error if is_too_large else CoordinatorNotAvailable(str(error))
            else:
                is_refused = failure is not None and not isinstance(action.outcome, BrokerError)
                resolve(action.ticket, failure if is_refused and failure else action.outcome)
        if failure is not None and self._is_kept(kept):
            self._act(kept, kept.group.not_stored(self._clock.steady_ms()))

    # -- time -----------------------------------------------------------------------------------

    def _schedule(self, group: Group) -> None:
        self._deadlines.set(group.group_id, group.next_deadline_ms())

    def _deadline_reached(self, group_id: str, now_ms: int) -> None:
        kept = self._groups.get(group_id)
        if kept is None:
            return
        try:
            self._act(kept, kept.group.tick(now_ms))
        finally:
            self._drop_unused(kept)

    def _drop_unused(self, kept: GroupMetadata) -> None:
        super()._drop_unused(kept)
        if kept.group.group_id not in self._groups:
            self._deadlines.forget(kept.group.group_id)

    async def _expire(self) -> None:
        """Deletes expired offsets at intervals, until the broker stops."""
        every_ms = self._services.config.groups.offsets_retention_check_interval_ms
        due_ms = self._clock.steady_ms() + every_ms
        while True:
            await self._clock.reached(due_ms)
            try:
                await self.expire()
                self._crowded.set()  # to count what is left
            except Exception:  # the next round may succeed; the loop must not end
                log.exception("offsets could not expire")
            due_ms = self._clock.steady_ms() + every_ms


def new_member_id(prefix: str | None) -> str:
    """Returns a new unique member id, as Kafka makes them; a long prefix is cut."""
    ending = f"-{uuid.uuid4()}"
    kept = (prefix or "").encode()[:_LONGEST_CLIENT_ID]
    return kept.decode(errors="ignore") + ending
