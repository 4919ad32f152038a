"""A replica's log as the checker sees it: batches, and what lies beside them."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.storage.checkpoints import EpochStart

NO_EPOCH = -1
NO_TIME = -1
KEYS = 5
_BASE = attrgetter("base")
_FIRST = itemgetter(0)


class Batch(NamedTuple):
    """A batch of records with one value for all of them."""

    base: int
    count: int
    value: int
    epoch: int  # in the header; NO_EPOCH in formats 0 and 1
    record_time: int
    stamp: int | None  # the append time in the header of a LogAppendTime topic
    producer: int
    producer_epoch: int
    sequence: int
    checksum: int = 0  # of the stored bytes

    @property
    def end(self) -> int:
        return self.base + self.count


def key_of(value: int) -> int:
    """Returns the key of the records with a value, in a topic that is compacted."""
    return value % KEYS


class Log:
    """What was read of one replica's log."""

    is_offline = False
    is_there = True  # a disk that lost power has other files, which the next process opens

    def __init__(self) -> None:
        self.start = 0  # the log start
        self.end = 0
        self.high_watermark = 0
        self.synced = 0
        self.batches: list[Batch] = []
        self.times: list[tuple[int, int]] = []  # (base offset, append time)
        self.epochs: list[EpochStart] = []
        self.mark = 0, 0  # leader epoch and number of the last reset by an operator
        self.back = 0  # where it let append times go back
        self.cuts = 0  # counts the changes after which the log may be another one
        self.changed: Callable[[], None] = lambda: None  # what the checker wants to hear

    def __repr__(self) -> str:
        return f"{self.start}..{self.high_watermark}..{self.end}"

    @property
    def last_append(self) -> int:
        """The last append time, below which no later one may be; NO_TIME if it is not known."""
        return NO_TIME

    @property
    def max_event(self) -> int:
        """The largest record time below the high watermark, of batches that are gone as well."""
        return NO_TIME

    @property
    def counted_event(self) -> int | None:
        """The largest event time, if it is known; None: batches would have to be read for it."""
        return None

    def number_at(self, offset: int) -> int:
        """Returns the number of the first batch that ends after an offset."""
        number = bisect_right(self.batches, offset, key=_BASE)
        if number and self.batches[number - 1].end > offset:
            return number - 1
        return number

    def append_time(self, base: int) -> int:
        """Returns the append time of the batch at a base offset, as it was read."""
        number = bisect_right(self.times, base, key=_FIRST) - 1
        return self.times[number][1] if number >= 0 else NO_TIME

    def judged_time(self, base: int) -> int:
        """Returns what the append time of the batch at a base offset counts as."""
        return self.append_time(base)

    def try_all(self, first: int, time: int, *, by_append: bool) -> int | None:
        """Returns the first base offset from `first` on with a time at or after one."""
        for batch in self.batches:
            found = self.append_time(batch.base) if by_append else batch.record_time
            if batch.base >= first and batch.end <= self.high_watermark and found >= time:
                return batch.base
        return None

    def first_from(self, offset: int) -> int | None:
        """Returns the first base offset from an offset on; None if there is none that is committed."""
        for batch in self.batches:
            if batch.base >= offset and batch.end <= self.high_watermark:
                return batch.base
        return None

    def lookup(self, first: int, time: int, *, by_append: bool) -> int | None:
        """Answers the same as `try_all`, in the product's way."""
        return self.try_all(first, time, by_append=by_append)
