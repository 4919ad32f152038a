"""The choice of an offset by time, as in KIP-33.

No unread record is older than the next one by more than the longest latency of the cluster. So a
search for the time of the next record less that latency finds an offset in the other cluster with no
unread record before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidelog.pipeline.engine.plausible import are_odd
from tidelog.storage.time.timestamp import earlier

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]
    Bools = npt.NDArray[np.bool_]

FIRST_MS: Final = -(2**63)
FIRST_SPECIAL: Final = -6
"""ListOffsets means something else by the milliseconds from here to -1."""


class Seen:
    """The first time of some unread records, its offset, the least time, and their number."""

    def __init__(self) -> None:
        self.count = 0
        self.next_ms: int | None = None
        self.next_offset: int | None = None
        self.least_ms: int | None = None

    def add(self, offsets: Ints, timestamp_ms: Ints) -> None:
        """Adds the records that follow; all have a time."""
        if not len(offsets):
            return
        self.count += len(offsets)
        if self.next_ms is None:
            self.next_ms, self.next_offset = int(timestamp_ms[0]), int(offsets[0])
        self.least_ms = earlier(int(timestamp_ms.min()), self.least_ms)

    @property
    def step_back_ms(self) -> int:
        """How much older the oldest of the records is than the next one, in ms."""
        if self.next_ms is None or self.least_ms is None:
            return 0
        return self.next_ms - self.least_ms


class UnreadTimes:
    """The times of the unread records, collected while they are read.

    Times that cannot be right (`plausible.are_odd`, as of `now_ms`) are counted and otherwise left
    out: one in seconds would put the margin back to 1970. They count where no time can be right.
    """

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._all, self._plausible = Seen(), Seen()
        self.events = Seen()
        """Of the plausible times those that are not the broker's stamps, which say nothing of latency."""
        self.without = 0
        self.stamped = 0
        self.first_stamped: int | None = None  # offset
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
        offsets, stamps = offsets[has_timestamp], timestamp_ms[has_timestamp]
        stamped = stamped[has_timestamp]
        if stamped.any():
            if self.first_stamped is None:
                self.first_stamped = int(offsets[stamped.argmax()])
            self.stamped += int(stamped.sum())
        odd = are_odd(stamps, append_time_ms[has_timestamp], self._now_ms)
        if odd.any():
            first = int(odd.argmax())
            self.first_odd = self.first_odd or (int(offsets[first]), int(stamps[first]))
            self.odd += int(odd.sum())
        self._all.add(offsets, stamps)
        self._plausible.add(offsets[~odd], stamps[~odd])
        is_event = ~(odd | stamped)
        self.events.add(offsets[is_event], stamps[is_event])

    @property
    def seen(self) -> Seen:
        """The times that count where the latency is known."""
        return self._plausible if self._plausible.count else self._all

    @property
    def are_all_odd(self) -> bool:
        """Whether there are times, and none of them can be right."""
        return self.odd > 0 and not self._plausible.count


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
