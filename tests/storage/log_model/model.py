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
        self.epochs: list[tuple[int, int]] = []  # (epoch, where it began)

    def copy(self) -> ModelLog:
        other = ModelLog()
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
        if batch.times:
            limit = (batch.append if batch.append is not None else 0) + EVENT_SLACK_MS
            self.counted = larger(min(max(batch.times), limit), self.counted)

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
        self.mark = self.mark if self.mark <= end else 0
        if self.mark == end > 0:
            self.last_append = None
        elif self.batches and self.batches[-1].append is not None:
            self.last_append = self.batches[-1].append
        else:
            self.last_append = before

    def begin_at(self, offset: int) -> None:
        """Drop everything; the log begins and ends at an offset."""
        self.batches, self.epochs = [], []
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
