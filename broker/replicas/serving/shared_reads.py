"""What was read for one follower, kept for the next one that asks the same.

Followers that keep up ask the same, one soon after the other. So an answer is kept until another
follower has got it, something changes, or newer answers of this broker need the room.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from broker.partitions.replication_state import ReadForFollower

MOST_BYTES: Final = 4 << 20
"""The bytes of records that a broker keeps, of all partitions that it leads."""


class _Kept(NamedTuple):
    asked: object
    facts: object
    answer: ReadForFollower


class SharedReads:
    """The last answer of each partition, within MOST_BYTES; any thread may use it."""

    def __init__(self) -> None:
        self._kept: dict[object, _Kept] = {}  # the oldest first
        self._size = 0
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """The bytes of records that are kept."""
        return self._size

    def take(self, led: object, asked: object, facts: object) -> ReadForFollower | None:
        """Returns the answer to the same question at the same state of the log, and forgets it."""
        kept = self._forget(led)
        is_same = kept is not None and kept.asked == asked and kept.facts == facts
        return kept.answer if is_same and kept is not None else None

    def keep(self, led: object, asked: object, facts: object, answer: ReadForFollower) -> None:
        """Keeps an answer with records, unless it is too large, or was converted."""
        if not 0 < answer.size <= MOST_BYTES or answer.converted:
            return
        with self._lock:
            before = self._kept.pop(led, None)
            if before is not None:
                self._size -= before.answer.size
            self._kept[led] = _Kept(asked, facts, answer)
            self._size += answer.size
            while self._size > MOST_BYTES:
                oldest = self._kept.pop(next(iter(self._kept)))
                self._size -= oldest.answer.size

    def forget(self, led: object) -> None:
        """Forgets the answer of a partition, which is not led here any more."""
        self._forget(led)

    def _forget(self, led: object) -> _Kept | None:
        with self._lock:
            kept = self._kept.pop(led, None)
            if kept is not None:
                self._size -= kept.answer.size
        return kept
