"""Offsets that clients commit, at once (OffsetCommit) or with a transaction (TxnOffsetCommit).

A commit is answered once it is in the log. The offsets of a transaction are pending until its marker
is in the log (`pending_offsets.py`): `transaction_ended` is called with each marker before the end of
the transaction is answered. A marker that comes while its partition is being read waits for that.

Source: KIP-98, KIP-447; Kafka's OffsetMetadataManager as of 4.1.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.broker.coordinators.groups.committed import offset_record
from tidelog.broker.coordinators.groups.group_metadata import required
from tidelog.broker.coordinators.groups.held import of_commit
from tidelog.broker.coordinators.groups.messages import State
from tidelog.broker.coordinators.groups.pending_offsets import PendingBatch
from tidelog.broker.network.scheduler import checkpoint
from tidelog.protocol.errors import BrokerError, MessageTooLarge, RecordListTooLarge
from tidelog.protocol.group_errors import (
    CoordinatorLoadInProgress,
    IllegalGeneration,
    InvalidCommitOffsetSize,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tidelog.broker.clock import Clock
    from tidelog.broker.coordinators.groups.committed import Commit
    from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
    from tidelog.broker.coordinators.groups.groups import Groups
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.protocol.transaction_log import ProducerIdAndEpoch
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.producers.verification import Guard
    from tidelog.storage.time.trusted_clock import Change


AT_ONCE: Final = 250
"""Offsets that are deleted in one write."""
_MOST_ZERO_TIMES = 1_000

log = logging.getLogger("tidelog.groups")


class _End(NamedTuple):
    """A marker in a partition that is being read."""

    producer_id: int
    marker_offset: int
    is_commit: bool


class OffsetCommits:
    """Commits and deletes the offsets of the groups of one broker."""

    def __init__(self, groups: Groups, clock: Clock) -> None:
        """`clock` is that of the groups."""
        self._groups, self._runtime, self._clock = groups, groups.runtime, clock
        self.now_ms = clock.now_ms  # the time of a commit
        self._entries, self._topic = groups.runtime.entries, groups.runtime.topic
        self._being_stored: set[PendingBatch] = set()  # offsets that no group has yet
        self._in_transactions: dict[int, set[str]] = {}  # groups by producer id
        self._ends: dict[int, list[_End]] = {}  # by partitions that are being read
        self._zero_times: set[str] = set()  # groups whose commits with a time of 0 are logged

    def note_zero_time(self, group_id: str) -> None:
        """Logs once that a group commits with a time, or a retention time, of 0."""
        if group_id not in self._zero_times and len(self._zero_times) < _MOST_ZERO_TIMES:
            self._zero_times.add(group_id)
            log.info("offset committed with a time of 0, read as none", extra={"group": group_id})

    def commit_now(self, commit: Commit) -> bool:
        """Stores offsets if that needs no waiting; returns whether they are stored.

        Raises the error for the response.
        """
        log_of_group = self._topic.log_to_append(commit.group_id)
        if log_of_group is None:
            return False  # before anything is counted, which `commit` does
        try:
            entry = self._committing(commit)
        except CoordinatorLoadInProgress:
            return False
        if not commit.offsets:
            return True
        entry = self._entries.setdefault(commit.group_id, entry)
        try:
            stored = self._topic.append_now(log_of_group, commit.records, entry.epoch)
        except BrokerError as error:
            self._groups.delete_unused(entry)
            raise _too_large_for_a_commit(error) from None
        if stored is None:
            return False
        entry.commit_all(commit.offsets, *stored)
        return True

    async def commit(self, commit: Commit) -> None:
        """Stores offsets, all or none; raises the error for the response.

        Waits a few seconds at most for a group that is being read.
        """
        group_id = commit.group_id
        await self._runtime.get_loaded(group_id)
        entry = self._committing(commit)
        if not commit.offsets:
            return
        entry = self._entries.setdefault(group_id, entry)
        batch = PendingBatch(commit.offsets)  # the clock may be corrected meanwhile
        self._being_stored.add(batch)
        try:
            place, base_offset = await self._topic.append(group_id, commit.records, entry.epoch)
        except BrokerError as error:
            self._groups.delete_unused(entry)
            raise _too_large_for_a_commit(error) from None
        finally:
            self._being_stored.discard(batch)
        self._current(entry).commit_all(batch.offsets, place, base_offset)

    def _current(self, entry: GroupMetadata) -> GroupMetadata:
        """Returns a group, or the one that has its name now if it was deleted meanwhile."""
        if entry.group.state is not State.DEAD:
            return entry
        group_id = entry.key
        if self._entries.get(group_id, entry) is entry:
            self._entries[group_id] = self._groups.create(group_id)
        return self._entries[group_id]

    def _committing(self, commit: Commit, *, is_transactional: bool = False) -> GroupMetadata:
        """Returns the group of a commit, or a new one; raises the error if it may not commit."""
        group_id, committer = commit.group_id, commit.committer
        entry = self._runtime.get(group_id)
        if entry is None:
            if committer.generation >= 0:
                raise IllegalGeneration(f"there is no group {group_id}")
            entry = self._groups.create(group_id)
        now_ms = self._clock.steady_ms()
        entry.group.check_commit(*committer, now_ms, is_transactional=is_transactional)
        by, is_known = of_commit(entry, commit, is_transactional=is_transactional)
        self._groups.grow(by, is_known=is_known)
        return entry

    def correct_times(self, change: Change) -> None:
        """Corrects the times of offsets that are being written, after the clock has changed."""
        for batch in self._being_stored:
            batch.correct(change)

    # -- deletion -------------------------------------------------------------------------------

    async def delete(self, group_id: str, names: Sequence[TopicPartition]) -> None:
        """Deletes offsets of a group, and the group too if it is empty and has no more offsets.

        Nothing is awaited before the first `AT_ONCE` of them are on their way to the log.
        """
        entry = self._runtime.get(group_id)
        if entry is None:
            return
        has_gone = False
        for at in range(0, len(names), AT_ONCE):
            has_gone |= await self._delete_some(entry, names[at : at + AT_ONCE])
            await checkpoint()
        if has_gone and entry.is_idle and self._runtime.has(entry):
            await self._groups.delete(group_id)

    async def _delete_some(self, entry: GroupMetadata, names: Sequence[TopicPartition]) -> bool:
        """Deletes some of the offsets of a group; returns whether it had any of them."""
        pending = entry.pending_offsets
        in_transactions = pending.names() if pending else ()
        going = [name for name in names if name in entry.offsets or name in in_transactions]
        if not going:
            return False
        before, batches = {name: entry.offsets.get(name) for name in going}, pending.of(going)
        tombstones = [offset_record(entry.key, name, None) for name in going]
        await self._topic.append(entry.key, tombstones, entry.epoch)
        for name in going:
            if entry.offsets.get(name) == before[name]:  # not committed again meanwhile
                entry.offsets.pop(name, None)
        for batch in batches:
            batch.drop(going)
        return True

    # -- transactions ---------------------------------------------------------------------------

    async def commit_in_transaction(
        self,
        commit: Commit,
        producer: ProducerIdAndEpoch,
        verify: Callable[[Partition], Awaitable[Guard | None]],
    ) -> None:
        """Stores offsets, all or none, that are pending until the producer's transaction ends.

        `verify` asks the coordinator whether the group's partition is in the transaction. Raises
        what it raises, and the error for the response.
        """
        group_id = commit.group_id
        await self._runtime.get_loaded(required(group_id))
        entry = self._committing(commit, is_transactional=True)
        if not commit.offsets:
            return
        entry = self._entries.setdefault(group_id, entry)
        batch = PendingBatch(commit.offsets)
        self._pend(entry, producer.producer_id, batch)
        try:
            place, base_offset = await self._topic.append_in_transaction(
                group_id, commit.records, entry.epoch, producer, verify
            )
        except BrokerError as error:
            self._withdraw(entry, producer.producer_id, batch)
            raise _too_large_for_a_commit(error) from None
        batch.stored(place, base_offset)
        current = self._current(entry)
        if batch.is_committed:
            current.commit_batch(batch)
        elif current is not entry:
            self._pend(current, producer.producer_id, batch)

    def _pend(self, entry: GroupMetadata, producer_id: int, batch: PendingBatch) -> None:
        entry.pending_offsets.add(producer_id, batch)
        self._in_transactions.setdefault(producer_id, set()).add(entry.key)

    def _withdraw(self, entry: GroupMetadata, producer_id: int, batch: PendingBatch) -> None:
        """Removes what a refused request would have added: its offsets, and a group that has nothing."""
        group_id = entry.key
        entry.pending_offsets.withdraw(producer_id, batch)
        current = self._entries.get(group_id, entry)
        if producer_id not in current.pending_offsets.producer_ids:
            self._no_longer_in(producer_id, {group_id})
        self._groups.delete_unused(entry)

    def _no_longer_in(self, producer_id: int, group_ids: set[str]) -> None:
        groups = self._in_transactions.get(producer_id, set())
        groups -= group_ids
        if not groups:
            self._in_transactions.pop(producer_id, None)

    def add_transactions(self, entry: GroupMetadata) -> None:
        """Notes which producers have pending offsets in a group."""
        for producer_id in entry.pending_offsets.producer_ids:
            self._in_transactions.setdefault(producer_id, set()).add(entry.key)

    def transaction_ended(
        self, index: int, producer_id: int, marker_offset: int, *, is_commit: bool
    ) -> None:
        """Ends a transaction whose marker is in the log of groups: commits or drops its pending offsets."""
        try:
            self._runtime.ownership.check(index)
        except CoordinatorLoadInProgress:
            end = _End(producer_id, marker_offset, is_commit)
            self._ends.setdefault(index, []).append(end)
            return
        except BrokerError:
            return  # the next coordinator of the partition reads the marker
        self._end_transaction(index, _End(producer_id, marker_offset, is_commit))

    def _end_transaction(self, index: int, end: _End) -> None:
        producer_id, marker_offset, is_commit = end
        groups = self._in_transactions.get(producer_id, set())
        for group_id in [each for each in groups if self._topic.index_of(each) == index]:
            groups.discard(group_id)
            entry = self._entries.get(group_id)
            if entry is not None:
                entry.transaction_ended(producer_id, marker_offset, is_commit=is_commit)
                if producer_id in entry.pending_offsets.producer_ids:  # of its next transaction
                    groups.add(group_id)
        self._no_longer_in(producer_id, set())

    def transactions_loaded(self, index: int) -> None:
        """Ends the transactions whose markers came while a partition was being read."""
        for end in self._ends.pop(index, ()):
            self._end_transaction(index, end)

    def unload(self, indexes: set[int]) -> None:
        """Drops the transactions in partitions that another broker coordinates now."""
        for index in indexes:
            self._ends.pop(index, None)
        for producer_id, groups in list(self._in_transactions.items()):
            gone = {each for each in groups if self._topic.index_of(each) in indexes}
            self._no_longer_in(producer_id, gone)


def _too_large_for_a_commit(error: BrokerError) -> BrokerError:
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return InvalidCommitOffsetSize(str(error))
    return error
