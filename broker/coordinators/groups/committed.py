"""Committed offsets as values: one, those of a request, and the records that store them.

Times are in ms since the epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.network.scheduler import checkpoint
from tidelog.config.setting import LONG_MAX
from tidelog.protocol import group_records
from tidelog.protocol.group_records import OffsetCommitValue
from tidelog.protocol.records.layout import NO_TIMESTAMP
from tidelog.protocol.records.plain import Plain, together, written
from tidelog.storage.time.trusted_clock import corrected_time

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from tidelog.broker.coordinators.internal_topic import Log, Written
    from tidelog.protocol.topic_partition import TopicPartition
    from tidelog.storage.time.trusted_clock import Change

_WRITTEN_AT_ONCE = 100  # records


class Committed(NamedTuple):
    """A committed offset; `at` is its record's offset in the log, -1 before it is written."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_TIMESTAMP  # none, as a rule: the broker's retention of offsets decides
    at: int = -1
    log: Log | None = None

    def placed(self, at: int, log: Log) -> Committed:
        """Returns the offset with the place of its record; `_replace` is four times as slow."""
        offset, epoch, metadata, commit_ms, expire_ms, _, _ = self
        return tuple.__new__(Committed, (offset, epoch, metadata, commit_ms, expire_ms, at, log))

    def corrected(self, change: Change) -> Committed:
        """Returns the offset with the time that its commit counts as; the same one if that is its own.

        An offset with a retention time of its own keeps that.
        """
        commit_ms = corrected_time(change, self.commit_ms)
        moved_ms = commit_ms - self.commit_ms
        if not moved_ms:
            return self
        expire_ms = self.expire_ms
        if expire_ms not in (NO_TIMESTAMP, LONG_MAX):
            expire_ms = min(expire_ms + moved_ms, LONG_MAX)
        return self._replace(commit_ms=commit_ms, expire_ms=expire_ms)


def offset_record(group_id: str, name: TopicPartition, committed: Committed | None) -> Written:
    """Returns an offset of a group as a record; None as its tombstone."""
    key = group_records.offset_key(group_id, *name)
    if committed is None:
        return key, None
    if committed.expire_ms == NO_TIMESTAMP:
        return key, group_records.lasting_offset_value(
            committed.offset, committed.leader_epoch, committed.metadata, committed.commit_ms
        )
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
        expire_timestamp=committed.expire_ms,
    )
    return key, group_records.offset_value(value)


class Committer(NamedTuple):
    """The member of a group that commits offsets; by default none is named."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1


class Commit(NamedTuple):
    """Offsets that are to be committed for a group, and the records that store them."""

    group_id: str
    committer: Committer
    offsets: Mapping[TopicPartition, Committed]
    records: Plain
    metadata_bytes: int = 0  # of the metadata of all

    @classmethod
    def of(
        cls, group_id: str, committer: Committer, offsets: Mapping[TopicPartition, Committed]
    ) -> Self:
        """Makes the records of a few offsets."""
        records = [offset_record(group_id, name, each) for name, each in offsets.items()]
        metadata_bytes = sum(text_bytes(each.metadata) for each in offsets.values())
        return cls(group_id, committer, offsets, written(records), metadata_bytes)

    @classmethod
    async def of_many(
        cls, group_id: str, committer: Committer, offsets: Mapping[TopicPartition, Committed]
    ) -> Self:
        """Makes the records. Other requests may be served meanwhile, so this comes before any check."""
        parts, begun, at, metadata_bytes = [], [], 0, 0
        for name, each in offsets.items():
            metadata_bytes += text_bytes(each.metadata)
            begun.append(offset_record(group_id, name, each))
            if len(begun) == _WRITTEN_AT_ONCE:
                parts.append(written(begun, at))
                at += len(begun)
                begun = []
            await checkpoint()
        parts.append(written(begun, at))
        return cls(group_id, committer, offsets, together(parts), metadata_bytes)


def text_bytes(text: str | None) -> int:
    """Returns the size of a text in memory, in bytes, at most."""
    if not text:
        return 0
    return len(text) if text.isascii() else 4 * len(text)
