"""The transactions that hold back a log's last stable offset.

They are the open ones, and those that have ended where others may not read the end yet.

A transaction ends with its marker. Until the high watermark has passed the marker, readers of
committed data see nothing of what comes after the transaction's first offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Ended(NamedTuple):
    """A transaction that has ended; its last offset is that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class Unstable:
    """Transactions by their first offsets. Not thread-safe."""

    __slots__ = ("_ended", "_open")

    def __init__(self, opened: Iterable[tuple[int, int]] = ()) -> None:
        """Begins with open transactions: (producer id, first offset)."""
        self._open: dict[int, int] = {}  # by producer id; first offsets ascend
        self._ended: list[Ended] = []  # markers ascend
        self.reopen(opened)

    def reopen(self, opened: Iterable[tuple[int, int]]) -> None:
        """Replaces the open transactions: the log has been read again."""
        self._open = dict(sorted(opened, key=lambda each: each[1]))

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Opens a transaction at the end of the log."""
        self._open[producer_id] = first_offset

    def end(self, ended: Ended) -> None:
        """Ends a transaction at the end of the log."""
        self._open.pop(ended.producer_id, None)
        self._ended.append(ended)

    def stable_behind(self, producer_id: int, marker_offset: int) -> int:
        """Returns what would be stable behind a producer's marker if all were replicated.

        That is the first offset of the oldest transaction of another producer that is open.
        """
        others = (first for each, first in self._open.items() if each != producer_id)
        return next(others, marker_offset + 1)

    def first_offset(self, high_watermark: int) -> int | None:
        """Returns the first offset of the oldest transaction that holds back; None if none does.

        Those whose marker is below the high watermark do not, from now on.
        """
        if self._ended and self._ended[0].last_offset < high_watermark:
            self._ended = [each for each in self._ended if each.last_offset >= high_watermark]
        first = next(iter(self._open.values()), None)
        if not self._ended:
            return first
        ended = min(each.first_offset for each in self._ended)
        return ended if first is None else min(first, ended)

    def truncate_to(self, end_offset: int) -> None:
        """Forgets what lies at an offset or behind it; a transaction that loses its marker is open."""
        opened = [each for each in self._open.items() if each[1] < end_offset]
        opened += [
            (each.producer_id, each.first_offset)
            for each in self._ended
            if each.first_offset < end_offset <= each.last_offset
        ]
        self.reopen(opened)
        self._ended = [each for each in self._ended if each.last_offset < end_offset]
