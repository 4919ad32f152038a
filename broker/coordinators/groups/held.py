"""The size of a broker's groups in bytes, and whether there is room for more (max.groups.bytes).

Only growth is counted as it comes, so the count is never less than the size. The bytes of members that left
and of deleted offsets are subtracted when everything is counted again. An object counts as a round number of
bytes, and text that clients chose by its length.

Pure: it is asked before anything grows, and changes no group.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from tidelog.broker.coordinators.groups.committed import text_bytes
from tidelog.protocol.errors import PolicyViolation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidelog.broker.coordinators.groups.committed import Commit, Committed
    from tidelog.broker.coordinators.groups.group import Group
    from tidelog.broker.coordinators.groups.group_metadata import GroupMetadata
    from tidelog.broker.coordinators.groups.messages import Join, Protocols

GROUP_BYTES: Final = 1_500
MEMBER_BYTES: Final = 1_200
HELD_ID_BYTES: Final = 500  # of a member that has not joined with its id yet
OFFSET_BYTES: Final = 400
_AT_ONCE = 250  # members or offsets that are counted in one piece
_SLACK: Final = 8  # a part of the limit that is reserved for existing groups and members


class HeldBytes:
    """The size of the groups of one broker in bytes: `counted`, and never more."""

    def __init__(self) -> None:
        self.counted = 0
        self._grown = 0  # since everything was counted

    def grow(self, by: int, limit: int, *, is_known: bool = False) -> None:
        """Counts what is about to grow.

        What is there already (`is_known`) may grow by an eighth of the limit more, so that groups go on
        working when there is no room for new ones. What shrinks (`by` is negative) is not believed before
        it is counted. Raises PolicyViolation if there is no room.
        """
        if by <= 0:
            return
        most = limit + limit // _SLACK if is_known else limit
        if self.counted + by > most:
            raise PolicyViolation(f"the groups of this broker take max.groups.bytes={limit}")
        self.counted += by
        self._grown += by

    def should_be_counted(self, limit: int) -> bool:
        """Returns whether there seems to be little room, and part of that may be free by now."""
        return self.counted > limit * 3 // 4 and self._grown > limit // 16

    def begin(self) -> None:
        """Everything is about to be counted; what grows meanwhile is counted twice at most."""
        self._grown = 0

    def end(self, counted: int) -> None:
        """Replaces the count by the bytes that were counted since `begin`."""
        self.counted = counted + self._grown


def of_group(group_id: str) -> int:
    """Returns the size of a group without members and offsets."""
    return GROUP_BYTES + text_bytes(group_id)


def of_join(group: Group, request: Join) -> tuple[int, bool]:
    """Returns by how much a group grows if this member joins, and whether it is a member already."""
    member_id = request.member_id
    if request.instance_id is not None:
        member_id = group.static.get(request.instance_id, member_id)
    member = group.members.get(member_id)
    if member is not None:
        return _of_protocols(request.protocols) - _of_protocols(member.protocols), True
    if request.needs_id and not member_id and request.instance_id is None:
        return HELD_ID_BYTES, False
    return _of_member(request.new_id, request.instance_id, request.protocols), False


def of_assignments(group: Group, assignments: Iterable[bytes]) -> int:
    """Returns by how much a group grows with these assignments of its members."""
    before = sum(len(member.assignment) for member in group.members.values())
    return sum(map(len, assignments)) - before


def of_commit(
    entry: GroupMetadata, commit: Commit, *, is_transactional: bool = False
) -> tuple[int, bool]:
    """Returns by how much a group grows by a commit, and whether it has all these offsets already.

    Metadata counts by what it is longer than that which it replaces. The offsets of a transaction are
    held beside those that are there.
    """
    offsets, there = commit.offsets, entry.offsets
    new = sum(name not in there for name in offsets)
    if is_transactional:
        return OFFSET_BYTES * len(offsets) + commit.metadata_bytes, not new
    by = OFFSET_BYTES * new + commit.metadata_bytes
    if commit.metadata_bytes and new < len(offsets):
        by -= sum(
            min(text_bytes(each.metadata), text_bytes(there[name].metadata))
            for name, each in offsets.items()
            if name in there
        )
    return by, not new


def pieces(entry: GroupMetadata) -> Iterator[int]:
    """Yields the size of a group, in pieces that are counted at once."""
    group = entry.group
    yield of_group(group.group_id) + HELD_ID_BYTES * len(group.pending)
    members = (
        _of_member(each.member_id, each.instance_id, each.protocols) + len(each.assignment)
        for each in list(group.members.values())
    )
    yield from _sums(members)
    yield from _sums(map(_of_offset, list(entry.offsets.values())))
    for batch in entry.pending_offsets.all():
        yield from _sums(map(_of_offset, list(batch.offsets.values())))


def _sums(sizes: Iterator[int]) -> Iterator[int]:
    while size := sum(islice(sizes, _AT_ONCE)):
        yield size


def _of_protocols(protocols: Protocols) -> int:
    return sum(text_bytes(name) + len(metadata) for name, metadata in protocols)


def _of_member(member_id: str, instance_id: str | None, protocols: Protocols) -> int:
    names = text_bytes(member_id) + text_bytes(instance_id)
    return MEMBER_BYTES + names + _of_protocols(protocols)


def _of_offset(committed: Committed) -> int:
    return OFFSET_BYTES + text_bytes(committed.metadata)
