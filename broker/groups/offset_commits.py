"""Offsets that clients commit, at once (OffsetCommit) or with a transaction (TxnOffsetCommit).

A commit is answered once it is in the log. The offsets of a transaction are pending until its marker
is in the log (`pending_offsets.py`): `transaction_ended` is called with each marker before anybody
hears of the end of the transaction. A marker that comes while its partition is being read is kept
until that has been read.

Source: KIP-98, KIP-447; Kafka's OffsetMetadataManager as of 4.1.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.groups.held import of_commit
from tidelog.broker.groups.messages import State
from tidelog.broker.groups.pending_offsets import PendingBatch
from tidelog.broker.groups.registry import GroupRegistry
from tidelog.broker.network.scheduler import checkpoint
from tidelog.protocol.errors import BrokerError, MessageTooLarge, RecordListTooLarge
from tidelog.protocol.group_errors import (
    CoordinatorLoadInProgress,
    IllegalGeneration,
    InvalidCommitOffsetSize,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tidelog.broker.groups.committed import Commit
    from tidelog.broker.groups.group_metadata import GroupMetadata
    from tidelog.broker.groups.services import Services
    from tidelog.protocol.transaction_log import Producer
    from tidelog.storage.log.partition import Partition
    from tidelog.storage.log.producers.verification import Guard


_MOST_ZERO_TIMES = 1_000

log = logging.getLogger("tidelog.groups")


class _End(NamedTuple):
    """A marker in a partition that is being read."""

    producer_id: int
    marker_offset: int
    is_commit: bool


class OffsetCommits(GroupRegistry):
    """The groups of one broker, and the commits of their offsets."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._in_transactions: dict[int, set[str]] = {}  # groups by producer id
        self._ends: dict[int, list[_End]] = {}  # by partitions that are being read
        self._zero_times: set[str] = (
            set()
        )  # groups of which it is logged that their commits have them

    def note_zero_time(self, group_id: str) -> None:
        """Logs once that a group commits with a time, or a retention time, of 0."""
        if group_id not in self._zero_times and len(self._zero_times) < _MOST_ZERO_TIMES:
            self._zero_times.add(group_id)
            log.info("offset committed with a time of 0, read as none", extra={"group": group_id})

    def commit_now(self, commit: Commit) -> bool:
        """Stores offsets if that needs no waiting; returns whether they are stored.

        Raises the error that the client gets.
        """
        if self.topic.is_replicated:
            return False  # before anything is counted, which `commit` does
        try:
            kept = self._committing(commit)
        except CoordinatorLoadInProgress:
            return False
        if not commit.offsets:
            return True
        kept = self._groups.setdefault(commit.group_id, kept)
        try:
            stored = self.topic.append_now(commit.group_id, commit.records)
        except BrokerError as error:
            self._drop_unused(kept)
            raise _too_large_for_a_commit(error) from None
        if stored is None:
            return False
        kept.take_in(commit.offsets, *stored)
        return True

    async def commit(self, commit: Commit) -> None:
        """Stores offsets, all or none; raises the error that the client gets.

        A group that is being read is waited for, a few seconds at most.
        """
        group_id = commit.group_id
        await self.loader.until_loaded(partial(self.find, group_id, may_be_empty=True))
        kept = self._committing(commit)
        if not commit.offsets:
            return
        kept = self._groups.setdefault(group_id, kept)
        batch = PendingBatch(commit.offsets)  # the clock may be corrected meanwhile
        self._being_stored.add(batch)
        try:
            place, base_offset = await self.topic.append(group_id, commit.records, kept.epoch)
        except BrokerError as error:
            self._drop_unused(kept)
            raise _too_large_for_a_commit(error) from None
        finally:
            self._being_stored.discard(batch)
        self._still_kept(kept).take_in(batch.offsets, place, base_offset)

    def _still_kept(self, kept: GroupMetadata) -> GroupMetadata:
        """Returns a group, or the one that has its name now if it was deleted meanwhile."""
        if kept.group.state is not State.DEAD:
            return kept
        group_id = kept.group.group_id
        if self._groups.get(group_id, kept) is kept:
            self._groups[group_id] = self._created(group_id)
        return self._groups[group_id]

    def _committing(self, commit: Commit, *, is_transactional: bool = False) -> GroupMetadata:
        """Returns the group of a commit, or a new one; raises the error if it may not commit."""
        group_id, committer = commit.group_id, commit.committer
        kept = self.find(group_id, may_be_empty=not is_transactional)
        if kept is None:
            if committer.generation >= 0:
                raise IllegalGeneration(f"there is no group {group_id}")
            kept = self._created(group_id)
        now_ms = self._clock.steady_ms()
        kept.group.check_commit(*committer, now_ms, is_transactional=is_transactional)
        by, is_known = of_commit(kept, commit, is_transactional=is_transactional)
        self._grow(by, is_known=is_known)
        return kept

    def now_ms(self) -> int:
        """The time of a commit, in ms since the epoch."""
        return self._clock.now_ms()

    # -- transactions ---------------------------------------------------------------------------

    async def commit_in_transaction(
        self,
        commit: Commit,
        producer: Producer,
        verify: Callable[[Partition], Awaitable[Guard | None]],
    ) -> None:
        """Stores offsets, all or none, that are pending until the producer's transaction ends.

        `verify` asks the coordinator whether the group's partition is in the transaction. Raises
        what it raises, and the error that the client gets.
        """
        group_id = commit.group_id
        await self.loader.until_loaded(partial(self.find, group_id))
        kept = self._committing(commit, is_transactional=True)
        if not commit.offsets:
            return
        kept = self._groups.setdefault(group_id, kept)
        batch = PendingBatch(commit.offsets)
        self._pend(kept, producer.producer_id, batch)
        try:
            place, base_offset = await self.topic.append_in_transaction(
                group_id, commit.records, kept.epoch, producer, verify
            )
        except BrokerError as error:
            self._withdraw(kept, producer.producer_id, batch)
            raise _too_large_for_a_commit(error) from None
        batch.stored(place, base_offset)
        now_kept = self._still_kept(kept)
        if batch.is_committed:
            now_kept.take_in_committed(batch)
        elif now_kept is not kept:
            self._pend(now_kept, producer.producer_id, batch)

    def _pend(self, kept: GroupMetadata, producer_id: int, batch: PendingBatch) -> None:
        kept.pending_offsets.add(producer_id, batch)
        self._in_transactions.setdefault(producer_id, set()).add(kept.group.group_id)

    def _withdraw(self, kept: GroupMetadata, producer_id: int, batch: PendingBatch) -> None:
        """Removes what a refused request would have added: its offsets, and a group that has nothing."""
        group_id = kept.group.group_id
        kept.pending_offsets.withdraw(producer_id, batch)
        now_kept = self._groups.get(group_id, kept)
        if producer_id not in now_kept.pending_offsets.producer_ids:
            self._no_longer_in(producer_id, {group_id})
        self._drop_unused(kept)

    def _no_longer_in(self, producer_id: int, group_ids: set[str]) -> None:
        groups = self._in_transactions.get(producer_id, set())
        groups -= group_ids
        if not groups:
            self._in_transactions.pop(producer_id, None)

    def _note_transactions(self, kept: GroupMetadata) -> None:
        """Notes which producers have pending offsets in a group."""
        for producer_id in kept.pending_offsets.producer_ids:
            self._in_transactions.setdefault(producer_id, set()).add(kept.group.group_id)

    def transaction_ended(
        self, index: int, producer_id: int, marker_offset: int, *, is_commit: bool
    ) -> None:
        """Takes in a marker that is in the log of groups: pending offsets count now, or never."""
        try:
            self.ownership.check(index)
        except CoordinatorLoadInProgress:
            end = _End(producer_id, marker_offset, is_commit)
            self._ends.setdefault(index, []).append(end)
            return
        except BrokerError:
            return  # whoever reads the partition next reads the marker
        self._end_transaction(index, _End(producer_id, marker_offset, is_commit))

    def _end_transaction(self, index: int, end: _End) -> None:
        producer_id, marker_offset, is_commit = end
        groups = self._in_transactions.get(producer_id, set())
        for group_id in [each for each in groups if self.topic.index_of(each) == index]:
            groups.discard(group_id)
            kept = self._groups.get(group_id)
            if kept is not None:
                kept.transaction_ended(producer_id, marker_offset, is_commit=is_commit)
                if producer_id in kept.pending_offsets.producer_ids:  # of its next transaction
                    groups.add(group_id)
        if not groups:
            self._in_transactions.pop(producer_id, None)

    def _transactions_loaded(self, index: int) -> None:
        """Takes in the markers that came while a partition was being read."""
        for end in self._ends.pop(index, ()):
            self._end_transaction(index, end)

    def _forget_transactions(self, indexes: set[int]) -> None:
        """Drops what is known of partitions that another broker coordinates now."""
        for index in indexes:
            self._ends.pop(index, None)
        for producer_id, groups in list(self._in_transactions.items()):
            gone = {each for each in groups if self.topic.index_of(each) in indexes}
            self._no_longer_in(producer_id, gone)


def _too_large_for_a_commit(error: BrokerError) -> BrokerError:
    if isinstance(error, MessageTooLarge | RecordListTooLarge):
        return InvalidCommitOffsetSize(str(error))
    return error
