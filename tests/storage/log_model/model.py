"""What a log has to hold: a list of batches, and rules that fit on a page. Nothing here is storage's."""

from __future__ import annotations

from typing import NamedTuple

EVENT_SLACK_MS = 3_600_000
REMEMBERED_BATCHES = 5


class Row(NamedTuple):
    """A record: its offset, the time a consumer sees (None: none), and its value."""

    offset: int
    time: int | None
    value: bytes


class Batch(NamedTuple):
    """Records that are cut as one, and what is known of them beside their bytes."""

    rows: tuple[Row, ...]
    append: int | None  # when the leader appended it; None: nobody knows
    epoch: int  # -1: nobody knows
    producer: tuple[int, int, int, int] | None  # id, epoch, first and last sequence

    @property
    def first(self) -> int:
        return self.rows[0].offset

    @property
    def end(self) -> int:
        return self.rows[-1].offset + 1

    @property
    def times(self) -> list[int]:
        return [row.time for row in self.rows if row.time is not None]


class ModelLog:
    """A log as its followers and leaders see it."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.base = 0  # where the log would end if it had no batch
        self.start = 0
        self.high_watermark = 0
        self.mark = 0  # where an operator let append times go back
        self.last_append: int | None = None
        self.counted: int | None = None  # the largest event time counted for good
        self.bounds: list[tuple[int, int]] = []  # what lies before an offset was written by then
        self.epochs: list[tuple[int, int]] = []  # (epoch, where it began)

    def copy(self) -> ModelLog:
        other = type(self)()
        other.__dict__.update(self.__dict__)
        other.batches, other.epochs = list(self.batches), list(self.epochs)
        return other

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else self.base

    @property
    def rows(self) -> list[Row]:
        return [row for batch in self.batches for row in batch.rows if row.offset >= self.start]

    # --- what happens -----------------------------------------------------------------------------

    def append(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.batches.append(batch)
            if batch.append is not None:
                self.last_append = larger(batch.append, self.last_append)

    def begin_epoch(self, epoch: int, start: int) -> None:
        if epoch > (self.epochs[-1][0] if self.epochs else -1):
            self.epochs = [known for known in self.epochs if known[1] < start]
            self.epochs.append((epoch, start))

    def advance(self, offset: int) -> None:
        before, self.high_watermark = self.high_watermark, max(self.high_watermark, offset)
        for batch in self.batches:
            if before < batch.end <= self.high_watermark:
                self.count(batch)

    def count(self, batch: Batch) -> None:
        self.counted = larger(self.event_of(batch), self.counted)

    def event_of(self, batch: Batch) -> int | None:
        """The largest event time of a batch as far as it counts; None: it has none."""
        limits = [cap(to_ms) for end, to_ms in self.bounds if batch.end <= end]
        if batch.append is not None:
            limits.append(cap(batch.append))
        return min(max(batch.times), *limits, 1 << 62) if batch.times else None

    def count_again(self) -> None:
        """Count what is left below the high watermark, and forget what else was counted."""
        self.counted = None
        for batch in self.batches:
            if batch.end <= self.high_watermark:
                self.count(batch)

    def cut(self, offset: int) -> None:
        """Drop what reaches an offset, or lies behind it."""
        if offset >= self.end:
            self.forget_epochs_without_batches()
            return
        if offset < self.start:
            self.begin_at(offset)
            return
        before = self.last_append
        self.batches = [batch for batch in self.batches if batch.end <= offset]
        end = self.end
        self.start = min(self.start, end)
        self.high_watermark = min(self.high_watermark, end)
        self.epochs = [entry for entry in self.epochs if entry[1] < end]
        self.bounds = [(min(bound, end), to_ms) for bound, to_ms in self.bounds]
        self.mark = self.mark if self.mark <= end else 0
        if self.mark == end > 0:
            self.last_append = None
        elif self.batches and self.batches[-1].append is not None:
            self.last_append = self.batches[-1].append
        else:
            self.last_append = before

    def begin_at(self, offset: int) -> None:
        """Drop everything; the log begins and ends at an offset."""
        self.batches, self.epochs, self.bounds = [], [], []
        self.base = self.start = self.high_watermark = offset
        self.mark = self.mark if self.mark <= offset else 0
        if self.mark == offset > 0:
            self.last_append = None

    def forget_before(self, offset: int) -> None:
        """Forget whole batches before an offset: their segment went."""
        self.batches = [batch for batch in self.batches if batch.end > offset]
        following = [start for _, start in self.epochs[1:]] + [10**9]
        if not self.epochs:
            return
        self.epochs = [
            (epoch, max(start, self.start))
            for (epoch, start), end in zip(self.epochs, following, strict=True)
            if end > self.start
        ]

    def forget_epochs_without_batches(self) -> None:
        """Forget what neither a start nor a cut keeps: epochs of which the log has no batch."""
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]

    # --- what is asked ----------------------------------------------------------------------------

    def epoch_of(self, offset: int) -> int:
        return max((epoch for epoch, start in self.epochs if start <= offset), default=-1)

    def find_by_time(self, time: int, upper: int) -> tuple[int, int] | None:
        """The first record at or after a time, below an offset."""
        hits = ((row.offset, row.time) for row in self.rows if row.offset < upper)
        return next(((o, t) for o, t in hits if t is not None and t >= time), None)

    def find_largest(self, upper: int) -> tuple[int, int] | None:
        known = [(r.time, -r.offset) for r in self.rows if r.offset < upper and r.time is not None]
        return (-max(known)[1], max(known)[0]) if known else None

    def find_appended(
        self, time: int, upper: int, bases: list[int]
    ) -> tuple[Batch | None, Batch | None]:
        """The first batch known to be appended at or after a time, and the first in doubt before it.

        `bases` are those of the segments, the log's start in the first. What is unknown is in no
        doubt where a known earlier time follows, unless that one, in another segment, has gone
        back, or times were let go back at an offset between.
        """
        found = doubt = unknown = last = None
        begun = bases[0]
        for batch in self.batches:
            if batch.first < bases[0]:
                continue
            begun = max((base for base in bases if base <= batch.first), default=begun)
            if batch.append is None:
                unknown = unknown or batch
                continue
            is_back = unknown is not None and unknown.first < self.mark <= begun
            has_gone_back = (
                unknown is not None
                and last is not None
                and unknown.first < begun
                and batch.append < last
            )
            if is_back or has_gone_back:
                doubt = doubt or unknown
            if batch.append >= time:
                found = batch
                break
            unknown, last = None, batch.append
        doubt = doubt or unknown
        start = max(found.first, self.start) if found is not None else upper
        if start >= upper:
            found = None
        if doubt is not None and max(doubt.first, self.start) >= min(start, upper):
            doubt = None
        return found, doubt

    def producers(self) -> dict[int, tuple[int, list[tuple[int, int, int, int]]]]:
        """What is remembered of each producer: its epoch, and its last batches in it."""
        known: dict[int, tuple[int, list[tuple[int, int, int, int]]]] = {}
        for batch in self.batches:
            if batch.producer is None:
                continue
            producer, epoch, first, last = batch.producer
            before = known.get(producer, (epoch, []))
            kept = before[1] if before[0] == epoch else []
            entry = (first, last, batch.first, batch.end - 1)
            known[producer] = (epoch, [*kept, entry][-REMEMBERED_BATCHES:])
        return known


def larger(one: int | None, other: int | None) -> int | None:
    """Return the larger of two times; None is none."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def cap(append: int) -> int:
    """As which time an event appended then counts at most: an hour later; -1 would be no time."""
    latest = min(append + EVENT_SLACK_MS, (1 << 63) - 1)
    return 0 if latest == -1 else latest
