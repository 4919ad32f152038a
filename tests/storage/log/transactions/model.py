"""A log with transactions as plain lists: what a partition must say of it after each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.protocol.records.batch import records, scan
from tidelog.protocol.records.markers import read_marker


class Written(NamedTuple):
    """One batch of the log."""

    first: int
    last: int
    producer: int  # -1: none
    kind: str  # "plain", "data", "commit" or "abort"


class AbortedTransaction(NamedTuple):
    """What Kafka's index has of an aborted transaction."""

    producer: int
    first: int
    last: int
    stable: int


@dataclass
class TransactionModel:
    """The batches of a log; everything else follows from them."""

    batches: list[Written] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    def add(self, count: int, producer: int, kind: str) -> None:
        self.batches.append(Written(self.end, self.end + count - 1, producer, kind))

    def truncate_to(self, offset: int) -> None:
        self.batches = [each for each in self.batches if each.last < offset]

    def transactions(self) -> tuple[dict[int, int], list[AbortedTransaction]]:
        """The open transactions: first offset by producer; and the aborted ones, by marker."""
        opened: dict[int, int] = {}
        aborted = []
        for each in self.batches:
            if each.kind == "data":
                opened.setdefault(each.producer, each.first)
            elif each.kind != "plain" and each.producer in opened:
                first = opened.pop(each.producer)
                if each.kind == "abort":
                    stable = min(opened.values(), default=each.last + 1)
                    aborted.append(AbortedTransaction(each.producer, first, each.last, stable))
        return opened, aborted

    def stable(self, high_watermark: int, start: int) -> int:
        """The last stable offset, from its definition."""
        least = high_watermark
        for number, each in enumerate(self.batches):
            if each.kind != "data":
                continue
            ends = [
                later.last
                for later in self.batches[number:]
                if later.producer == each.producer and later.kind in ("commit", "abort")
            ]
            if not ends or ends[0] >= high_watermark:
                least = min(least, each.first)
        return min(high_watermark, max(least, start))

    def committed(self, start: int, end: int) -> list[int]:
        """The offsets of committed data, and of data outside of transactions."""
        found = []
        for number, each in enumerate(self.batches):
            if each.last < start or each.first >= end:
                continue
            if each.kind == "data":
                marker = next(
                    later
                    for later in self.batches[number:]
                    if later.producer == each.producer and later.kind in ("commit", "abort")
                )
                if marker.kind == "abort":
                    continue
            elif each.kind != "plain":
                continue
            found += [o for o in range(each.first, each.last + 1) if start <= o < end]
        return found


def shown(data: bytes, aborted: list[tuple[int, int]], offset: int) -> list[int]:
    """The offsets that Java's consumer of committed data shows of what it has fetched."""
    waiting = sorted(aborted, key=lambda each: each[1])
    dropped: set[int] = set()
    found = []
    for batch in scan(data):
        while waiting and waiting[0][1] <= batch.last_offset:
            dropped.add(waiting.pop(0)[0])
        if batch.is_control:
            marker = read_marker(data, batch)
            if marker is not None and not marker.is_commit:
                dropped.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in dropped):
            found += [each.offset for each in records(data, batch) if each.offset >= offset]
    return found
