"""The aborted transactions that a reader of committed data has to know, from the `.txnindex` files."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidelog.storage.log.version import Version


class AbortedFrom(NamedTuple):
    """An aborted transaction: its data is from this offset on, up to its producer's next marker."""

    producer_id: int
    first_offset: int


def aborted_between(version: Version, offset: int, end_offset: int) -> list[AbortedFrom]:
    """Returns the transactions that end at `offset` or later and begin before `end_offset`.

    They are in the order of their markers. One that ended before `offset` would make clients drop
    what its producer wrote later. No marker behind an entry whose last stable offset has reached
    `end_offset` is of a transaction that began before it. Raises OSError.
    """
    found: list[AbortedFrom] = []
    for segment in version.aborting():
        if segment.tail.end_offset <= offset:
            continue
        for entry in segment.aborted.since(offset):
            if entry.first_offset < end_offset:
                found.append(AbortedFrom(entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= end_offset:
                return found
    return found
