"""When records were appended: the entries of a segment's `.appendtimes`, as arrays.

Only what the broker itself would believe is taken: entries whose offsets grow and whose times do not go
back, up to the first that is none, and of offsets before `until` (see `logs.append_times_until`) or before
what the file vouches for in its end. Everywhere else the answer is UNKNOWN: nothing is guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage import append_times

if TYPE_CHECKING:
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

UNKNOWN: Final = append_times.UNKNOWN
_ENTRY = np.dtype([("time", ">i8"), ("offset", ">i4")])


class AppendTimes:
    """The append times of one segment."""

    def __init__(self, data: bytes | None, base_offset: int, until: int) -> None:
        """Take a file's bytes apart; None: there is no file."""
        self._offsets: Ints = np.empty(0, np.int64)
        self._times: Ints = np.empty(0, np.int64)
        self._until = until
        head = append_times.HEADER
        if data is None or not data.startswith(head):
            return
        count = (len(data) - len(head)) // append_times.ENTRY_SIZE
        entries = np.frombuffer(data, _ENTRY, count, len(head))
        times = entries["time"].astype(np.int64)
        offsets = entries["offset"].astype(np.int64)
        ends = np.flatnonzero(times == append_times.END)
        if len(ends):
            first = int(ends[0])
            vouched = base_offset + int(offsets[first])
            # An end that is not the last is left of a power loss: nothing behind it is known.
            self._until = max(until, vouched) if first == count - 1 else vouched
            times, offsets = times[:first], offsets[:first]
        count = _believable(times, offsets)
        if count < len(times):
            self._until = min(
                self._until, base_offset + int(offsets[count - 1]) + 1 if count else 0
            )
        self._times, self._offsets = times[:count], offsets[:count] + base_offset

    def at(self, offsets: Ints) -> Ints:
        """Return when each of these offsets was appended; UNKNOWN where nobody knows."""
        if not len(self._times):
            return np.full(len(offsets), UNKNOWN, np.int64)
        found = np.searchsorted(self._offsets, offsets, side="right") - 1
        times = self._times[np.maximum(found, 0)]
        return np.where((found >= 0) & (offsets < self._until), times, UNKNOWN)


def _believable(times: Ints, offsets: Ints) -> int:
    """Return how many entries at the start can be: offset 0 first, growing; known times never go back."""
    if not len(times) or offsets[0] != 0:
        return 0
    known = times != UNKNOWN
    largest = np.maximum.accumulate(times)  # UNKNOWN is the smallest number there is
    wrong = np.zeros(len(times), np.bool_)
    wrong[1:] = (offsets[1:] <= offsets[:-1]) | (known[1:] & (times[1:] < largest[:-1]))
    return int(np.argmax(wrong)) if wrong.any() else len(times)
