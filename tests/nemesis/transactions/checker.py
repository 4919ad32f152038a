"""Judges transactions: what their clients did and were told, against the committed log at the end.

The log is what the reader EVERYTHING has polled with read_committed from offset 0 on, after all
faults. Offsets give the order of writes, so nothing has to be inferred. The rules are those of
Jepsen's workload for Kafka with transactions:

* A transaction is committed if its client was told so. It is aborted if its client was told so, or
  never asked for the commit. Else nobody knows, and it is in the log whole or not at all.
* What a reader of committed data gets is in the log, and was read after its commit was asked for.
* G0 and G1c are cycles. Transactions of different producers interleave in a log by design; those
  of one transactional id follow one another, in every partition in the same order.
* A copy is made with the offset of its source in one transaction: each record below the committed
  offset of the group was copied once, and no other.
"""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.nemesis.checker import (
    EVERYTHING,
    Found,
    Kind,
    commits_back,
    failures,
    logs_of,
    records,
    streams,
    summed_up,
)
from tests.nemesis.history import (
    NO_OFFSET,
    Began,
    Committed,
    Ended,
    Ends,
    OffsetSent,
    OfTransaction,
    Polled,
    Sent,
    Stored,
    Told,
    said,
)
from tests.nemesis.transactions import copies, cycles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.nemesis.checker import Logs, Problem
    from tests.nemesis.history import Event, Place


class Outcome(StrEnum):
    """What is known of the end of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "of unknown outcome"


class Txn:
    """A transaction, as its client's events tell it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.transactional_id = ""
        self.began_s = 0.0
        self.sent: list[Sent] = []
        self.stored: list[Stored] = []
        self.offsets: list[OffsetSent] = []
        self.commit_asked_s: float | None = None  # when it was asked for first
        self.ends: set[bool] = set()  # what the client was told: True for committed
        self.commit_told_s = 0.0

    @property
    def outcome(self) -> Outcome:
        """What is known of its end."""
        if True in self.ends:
            return Outcome.COMMITTED
        if False in self.ends or self.commit_asked_s is None:
            return Outcome.ABORTED
        return Outcome.UNKNOWN


def problems(events: Iterable[Event], groups: Mapping[str, str]) -> list[Problem]:
    """Returns everything that is wrong; `groups` maps groups to the topics of their copies."""
    events = list(events)
    txns = transactions(events)
    logs = logs_of(events)
    sent = {(each.place, each.value) for txn in txns.values() for each in txn.sent}
    found = [
        *_outcomes(txns, logs),
        *records(logs, lambda place, value: (place, value) in sent),
        *_reads(txns, logs, events),
        *streams(logs, events),
        *_offsets(txns, events),
        *_cycles(txns, logs, events),
        *copies.wrong(logs, events, groups),
        *failures(events),
    ]
    for event in events:
        if isinstance(event, Ends) and event.last_stable_offset != event.high_watermark:
            what = f"stable up to {event.last_stable_offset} of {event.high_watermark}"
            found.append(Found(Kind.HANGING, event.place, what))
    return summed_up(found)


def transactions(events: Iterable[Event]) -> dict[str, Txn]:
    """Returns the transactions by name."""
    txns: dict[str, Txn] = {}
    for event in events:
        if not isinstance(event, OfTransaction):
            continue
        txn = txns.setdefault(event.txn, Txn(event.txn))
        if isinstance(event, Began):
            txn.transactional_id, txn.began_s = event.transactional_id, event.at_s
        elif isinstance(event, Sent):
            txn.sent.append(event)
        elif isinstance(event, Stored):
            txn.stored.append(event)
        elif isinstance(event, OffsetSent):
            txn.offsets.append(event)
        elif isinstance(event, Ended):
            txn.ends.add(event.is_commit)
            txn.commit_told_s = event.at_s
        elif event.is_commit and txn.commit_asked_s is None:
            txn.commit_asked_s = event.at_s
    return txns


# --- what is stored -------------------------------------------------------------------------------


def _outcomes(txns: Mapping[str, Txn], logs: Logs) -> Iterator[Found]:
    """Compares what clients were told of their transactions with the log."""
    kept = {(place, entry.value) for place, log in logs.items() for entry in log}
    at = {(place, e.offset): e.value for place, log in logs.items() for e in log}
    for txn in txns.values():
        if len(txn.ends) > 1:
            yield Found(Kind.TWO_ENDS, txn.transactional_id, txn.name)
        there = sum((each.place, each.value) in kept for each in txn.sent)
        what = f"{there} of {len(txn.sent)} records of {txn.name}, {txn.outcome}"
        if txn.outcome is Outcome.ABORTED:
            if there:
                yield Found(Kind.ABORTED_READ, txn.transactional_id, f"{what}, are in the log")
            continue
        if 0 < there < len(txn.sent):
            yield Found(Kind.TORN, txn.transactional_id, what)
        elif txn.outcome is Outcome.COMMITTED and there < len(txn.sent):
            yield Found(Kind.LOST, txn.transactional_id, what)
        for each in txn.stored:
            if there == len(txn.sent) and at.get((each.place, each.offset)) != each.value:
                what = f"{each.value!r}, acknowledged at {each.offset}"
                yield Found(Kind.MOVED, each.place, what)


# --- what was read --------------------------------------------------------------------------------


def _reads(txns: Mapping[str, Txn], logs: Logs, events: Iterable[Event]) -> Iterator[Found]:
    """Compares what readers of committed data got with the log, and with when it was committed."""
    stored = {place: {entry.offset: entry.value for entry in log} for place, log in logs.items()}
    for event in events:
        if not isinstance(event, Polled) or event.reader == EVERYTHING:
            continue
        what = f"{event.reader} got {event.value[:60]!r} at {event.offset}"
        told = said(event.value)
        writer = None if told is None else txns.get(told.writer)
        if writer is None:
            yield Found(Kind.FOREIGN, event.place, what)
        elif writer.outcome is Outcome.ABORTED:
            yield Found(Kind.ABORTED_READ, event.place, what)
        elif stored.get(event.place, {}).get(event.offset) != event.value:
            yield Found(Kind.INCONSISTENT, event.place, f"{what}, where it is not in the end")
        elif writer.commit_asked_s is not None and event.at_s < writer.commit_asked_s:
            early_ms = int((writer.commit_asked_s - event.at_s) * 1000)
            yield Found(Kind.PRECOMMITTED, event.place, f"{what}, {early_ms} ms too early")


# --- offsets of groups ----------------------------------------------------------------------------


def _offsets(txns: Mapping[str, Txn], events: Iterable[Event]) -> Iterator[Found]:
    """Compares the offsets that groups were told with those that transactions committed."""
    # When each offset's commit was asked for first.
    asked_s: dict[tuple[str, Place, int], float] = {}
    commits: list[object] = []
    for txn in txns.values():
        if txn.outcome is Outcome.ABORTED or txn.commit_asked_s is None:
            continue
        for group, place, offset in (each[1:] for each in txn.offsets):
            name = (group, place, offset)
            asked_s[name] = min(txn.commit_asked_s, asked_s.get(name, txn.commit_asked_s))
            if txn.outcome is Outcome.COMMITTED:
                times = (txn.commit_asked_s, txn.commit_told_s)
                commits.append(Committed(*name, *times))
    told = [event for event in events if isinstance(event, Told)]
    for event in told:
        since_s = asked_s.get((event.group, event.place, event.offset))
        if event.offset != NO_OFFSET and (since_s is None or event.ended_s < since_s):
            when = "never" if since_s is None else "later"
            what = f"{event.group} was told {event.offset}, whose commit was asked for {when}"
            yield Found(Kind.PENDING_OFFSET, event.place, what)
    yield from commits_back([*commits, *(event for event in told if event.is_stable)])


# --- cycles ---------------------------------------------------------------------------------------


def _cycles(txns: Mapping[str, Txn], logs: Logs, events: Iterable[Event]) -> Iterator[Found]:
    """Finds transactions that each come before the other."""
    writes = cycles.Graph()
    kept: set[str] = set()
    for log in logs.values():
        last: dict[str, str] = {}  # the transaction of each id that wrote before
        for entry in log:
            told = said(entry.value)
            if told is None or told.writer not in txns:
                continue
            kept.add(told.writer)
            name = txns[told.writer].transactional_id
            writes.add(last.get(name, told.writer), told.writer)
            last[name] = told.writer
    by_id: defaultdict[str, list[Txn]] = defaultdict(list)
    for name in kept:
        by_id[txns[name].transactional_id].append(txns[name])
    for those in by_id.values():
        for before, after in pairwise(sorted(those, key=lambda txn: txn.began_s)):
            writes.add(before.name, after.name)
    cycle = writes.cycle()
    if cycle:
        yield Found(Kind.DIRTY_WRITE, "all logs", " -> ".join(cycle))
        return
    for event in events:
        if isinstance(event, Polled) and event.txn:
            told = said(event.value)
            if told is not None:
                writes.add(told.writer, event.txn)
    cycle = writes.cycle()
    if cycle:
        yield Found(Kind.CIRCULAR, "all logs", " -> ".join(cycle))
