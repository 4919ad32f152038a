"""A coordinator's memory of a group: its state machine and offsets, and both as records of the log.

`offset_expiry.py` decides which offsets are deleted. Nothing here waits or reads a clock; times are
arguments, in ms since the epoch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.broker.coordinators.groups.committed import Committed, offset_record
from tidelog.broker.coordinators.groups.members import Member
from tidelog.broker.coordinators.groups.messages import State
from tidelog.broker.coordinators.groups.pending_offsets import PendingBatch, PendingOffsets
from tidelog.broker.coordinators.groups.subscriptions import subscribed_topics
from tidelog.broker.coordinators.ownership import NO_EPOCH
from tidelog.broker.network.scheduler import listed
from tidelog.protocol import group_records
from tidelog.protocol.group_errors import InvalidGroupId
from tidelog.protocol.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from tidelog.protocol.message import DecodeError
from tidelog.protocol.records.layout import NO_PRODUCER_ID
from tidelog.storage.time.trusted_clock import corrected_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tidelog.broker.coordinators.groups.group import Group
    from tidelog.broker.coordinators.internal_topic import Log, Written
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.time.trusted_clock import Change

log = logging.getLogger("tidelog.groups")

_CONSUMER = "consumer"


@dataclass(slots=True)
class GroupMetadata:
    """A group, its committed offsets, and the time at which it came into its state.

    `epoch` is the coordinator epoch in which it was loaded or created; nothing is written for it in
    another one.
    """

    group: Group
    offsets: dict[TopicPartition, Committed] = field(default_factory=dict)
    since_ms: int = 0
    seen: State = State.EMPTY
    epoch: int = NO_EPOCH
    pending_offsets: PendingOffsets = field(default_factory=PendingOffsets)

    @property
    def key(self) -> str:
        """The group id."""
        return self.group.group_id

    def note_state(self, now_ms: int) -> bool:
        """Notes the time if the state has changed; returns whether it has."""
        if self.group.state is self.seen:
            return False
        self.seen, self.since_ms = self.group.state, now_ms
        return True

    def commit(self, name: TopicPartition, committed: Committed) -> None:
        """Commits an offset that is in the log, unless a later record has another one.

        The records are compared only within one log: a topic that was created again, or has got
        more partitions, is another log.
        """
        before = self.offsets.get(name)
        if before is None or before.log != committed.log or before.at <= committed.at:
            self.offsets[name] = committed

    def commit_all(
        self, offsets: Mapping[TopicPartition, Committed], log: Log, base_offset: int
    ) -> None:
        """Commits offsets that are stored, the first record at `base_offset`.

        There may be tens of thousands, which nothing may come between: so this calls nothing else.
        """
        ours = self.offsets
        for at, (name, committed) in enumerate(offsets.items(), base_offset):
            before = ours.get(name)
            if before is None or before.log != log or before.at <= at:
                ours[name] = committed.placed(at, log)

    def transaction_ended(self, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        """Puts the pending offsets of a producer among the committed ones, or drops them."""
        for batch in self.pending_offsets.end(producer_id, marker_offset):
            if is_commit:
                batch.is_committed = True
                self.commit_batch(batch)

    def commit_batch(self, batch: PendingBatch) -> None:
        """Commits the offsets of a committed transaction, once their records' place is known."""
        if batch.log is not None and batch.is_whole:
            self.commit_all(batch.offsets, batch.log, batch.base_offset)
        elif batch.is_stored:
            for name, committed in batch.placed():
                self.commit(name, committed)

    def merge(self, other: GroupMetadata) -> None:
        """Adds offsets that only another partition has, where the group was stored before."""
        for name, committed in other.offsets.items():
            self.offsets.setdefault(name, committed)

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members and no offsets left."""
        group = self.group
        has_offsets = self.offsets or self.pending_offsets
        return group.state is State.EMPTY and not has_offsets and not group.pending

    @property
    def is_of_consumers(self) -> bool:
        """Whether the members are consumers, whose subscriptions can be read."""
        return self.group.protocol_type == _CONSUMER

    def topics_in_use(self) -> set[str] | None:
        """Returns the topics that the members read; None if that is unknown."""
        group = self.group
        if not self.is_of_consumers:
            return None
        found: set[str] = set()
        for member in group.members.values():
            topics = subscribed_topics(member.metadata(group.protocol or ""))
            if topics is None:
                return None
            found |= topics
        return found

    # -- records --------------------------------------------------------------------------------

    def group_record(self) -> Written:
        """Returns the group as a record."""
        group = self.group
        protocol = group.protocol or ""
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ]
        value = GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol,
            leader=group.leader,
            current_state_timestamp=self.since_ms,
            members=members,
        )
        return group_records.group_key(group.group_id), group_records.group_value(value)

    async def tombstones(self) -> list[Written]:
        """Returns the records that delete the group from the log; others may have their turn meanwhile."""
        names = [*self.offsets, *self.pending_offsets.names().difference(self.offsets)]
        gone = await listed(offset_record(self.key, name, None) for name in names)
        return [*gone, (group_records.group_key(self.group.group_id), None)]


def required(group_id: str) -> str:
    """Returns the id of a group that must have one. Raises InvalidGroupId for an empty one."""
    if not group_id:
        raise InvalidGroupId("the group id is empty")
    return group_id


class Loading:
    """Groups, built from the records of a partition one after another."""

    def __init__(self, make: Callable[[str], Group], log: Log | None = None) -> None:
        self._make = make
        self._log = log
        self._entries: dict[str, GroupMetadata] = {}
        self._members: dict[str, list[Member]] = {}
        self._in_transactions: dict[int, set[str]] = {}  # groups by producer id
        self.unreadable = 0

    def replay(
        self,
        at: int,
        key: bytes | None,
        value: bytes | None,
        changes: Sequence[Change] = (),
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Applies the record at an offset; one that cannot be read is counted and skipped.

        `changes` are those of the clock since the record was written: its times are corrected by them.
        `producer_id` is that of a transaction, which an offset is pending in.
        """
        try:
            parsed = group_records.read_key(key or b"")
            if parsed is None:
                return
            if isinstance(parsed, GroupMetadataKey):
                self._group(
                    parsed.group,
                    None if value is None else group_records.read_group(value),
                    changes,
                )
                return
            entry = self._of(parsed.group)
            name = (parsed.topic, parsed.partition)
            if value is None:
                entry.offsets.pop(name, None)
                for batch in entry.pending_offsets.of([name]):
                    batch.drop([name])
                return
            offset = group_records.read_offset(value)
        except DecodeError as error:
            self.unreadable += 1
            log.warning("unreadable group record skipped", extra={"offset": at, "reason": error})
            return
        committed = Committed(
            offset.offset,
            offset.leader_epoch,
            offset.metadata,
            offset.commit_timestamp,
            offset.expire_timestamp,
            at,
            self._log,
        )
        for change in changes:
            committed = committed.corrected(change)
        if producer_id == NO_PRODUCER_ID:
            entry.offsets[name] = committed
        else:
            entry.pending_offsets.add(producer_id, PendingBatch({name: committed}, at))
            self._in_transactions.setdefault(producer_id, set()).add(parsed.group)

    def transaction_ended(self, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        """Applies a marker: commits or drops the offsets of a producer's transaction."""
        for group_id in self._in_transactions.pop(producer_id, ()):
            entry = self._entries[group_id]
            entry.transaction_ended(producer_id, marker_offset, is_commit=is_commit)

    def _of(self, group_id: str) -> GroupMetadata:
        entry = self._entries.get(group_id)
        if entry is None:
            entry = self._entries[group_id] = GroupMetadata(self._make(group_id))
        return entry

    def _group(
        self, group_id: str, stored: GroupMetadataValue | None, changes: Sequence[Change]
    ) -> None:
        entry = self._of(group_id)
        if stored is None:
            entry.group = self._make(group_id)
            self._members.pop(group_id, None)
            return
        group = entry.group
        group.protocol_type = stored.protocol_type or None
        group.generation, group.protocol, group.leader = (
            stored.generation,
            stored.protocol,
            stored.leader,
        )
        entry.since_ms = stored.current_state_timestamp
        for change in changes:
            entry.since_ms = corrected_time(change, entry.since_ms)
        self._members[group_id] = [
            Member(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout,
                each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout,
                ((stored.protocol or "", each.subscription),),
                assignment=each.assignment,
            )
            for each in stored.members
        ]

    def groups(self, steady_ms: int) -> Iterable[GroupMetadata]:
        """Returns the groups after all records have been applied.

        Sessions begin at `steady_ms`.
        """
        for group_id, entry in self._entries.items():
            entry.group.restore(self._members.get(group_id, ()), steady_ms)
            entry.seen = entry.group.state
            if not entry.is_idle or entry.group.generation:
                yield entry
