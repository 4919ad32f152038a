"""The choice of an offset by time, as in KIP-33.

No unread record is older than the next one by more than the longest latency of the cluster. So a
search for the time of the next record less that latency finds an offset in the other cluster with no
unread record before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.engine.plausible import are_odd

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

FIRST_MS: Final = -(2**63)
FIRST_SPECIAL: Final = -6
"""ListOffsets means something else by the milliseconds from here to -1."""


class _Seen:
    """The first time of some records, its offset, and the least time."""

    def __init__(self) -> None:
        self.next_ms: int | None = None
        self.next_offset: int | None = None
        self.least_ms: int | None = None

    def add(self, offsets: Ints, timestamp_ms: Ints) -> None:
        if not len(offsets):
            return
        if self.next_ms is None:
            self.next_ms, self.next_offset = int(timestamp_ms[0]), int(offsets[0])
        least = int(timestamp_ms.min())
        self.least_ms = least if self.least_ms is None else min(self.least_ms, least)


class UnreadTimes:
    """The times of the unread records, collected while they are read.

    Times that cannot be right (`plausible.are_odd`, as of `now_ms`) are counted and otherwise left
    out: one in seconds would put the margin back to 1970. They count where no time can be right.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._plausible, self._all = _Seen(), _Seen()
        self.without = 0
        self.stamped = 0
        self.odd = 0
        self.first_odd: tuple[int, int] | None = None  # offset, time

    def add(
        self,
        offsets: Ints,
        timestamp_ms: Ints,
        append_time_ms: Ints,
        has_timestamp: Bools,
        stamped: Bools,
    ) -> None:
        """Adds the records that follow."""
        self.without += int(len(offsets) - has_timestamp.sum())
        self.stamped += int(stamped.sum())
        offsets, stamps = offsets[has_timestamp], timestamp_ms[has_timestamp]
        odd = are_odd(stamps, append_time_ms[has_timestamp], self._now_ms)
        if odd.any():
            first = int(odd.argmax())
            self.first_odd = self.first_odd or (int(offsets[first]), int(stamps[first]))
            self.odd += int(odd.sum())
        self._all.add(offsets, stamps)
        self._plausible.add(offsets[~odd], stamps[~odd])

    @property
    def _counted(self) -> _Seen:
        return self._all if self._plausible.next_ms is None else self._plausible

    @property
    def next_ms(self) -> int | None:
        """The time of the first record that has one; None if none has."""
        return self._counted.next_ms

    @property
    def next_offset(self) -> int | None:
        """The offset of that record."""
        return self._counted.next_offset

    @property
    def are_all_odd(self) -> bool:
        """Whether there are times, and none of them can be right."""
        return self.odd > 0 and self._plausible.next_ms is None

    @property
    def step_back_ms(self) -> int:
        """How much older the oldest unread record is than the next one, in ms."""
        seen = self._counted
        if seen.next_ms is None or seen.least_ms is None:
            return 0
        return seen.next_ms - seen.least_ms


def margin_of(longest_ms: int, shortest_ms: int) -> int:
    """Returns the margin for latencies (append minus event time) between these two.

    An unread record u was appended no earlier than the next one n. So time(n) - time(u) is at most
    latency(u) - latency(n). That is at most the longest latency, or more if clocks run ahead and a
    latency is negative.
    """
    return max(0, longest_ms) - min(0, shortest_ms)


def search_time(next_ms: int, margin_ms: int) -> int:
    """Returns the time to search for; it is never one of the codes of ListOffsets below 0."""
    wanted = max(FIRST_MS, next_ms - margin_ms)
    return FIRST_SPECIAL - 1 if FIRST_SPECIAL <= wanted <= -1 else wanted
