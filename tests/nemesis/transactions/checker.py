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
from typing import TYPE_CHECKING, NamedTuple

from tests.nemesis.checker import EVERYTHING, Entry, commits_back, summed_up
from tests.nemesis.history import NO_OFFSET, Committed, Failed, Polled, Told
from tests.nemesis.transactions import copies, cycles
from tests.nemesis.transactions.history import (
    Asked,
    Began,
    Ended,
    Ends,
    Got,
    OffsetSent,
    OffsetTold,
    Sent,
    Sought,
    Stored,
    said,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.nemesis.checker import Problem
    from tests.nemesis.history import Place
    from tests.nemesis.transactions.history import Event

    Logs = Mapping[Place, Sequence[Entry]]


class Kind(StrEnum):
    """What can be wrong with transactions."""

    LOST = "committed and lost"
    TORN = "a part of a transaction"
    TWO_ENDS = "committed and aborted"
    ABORTED_READ = "aborted read (G1a)"
    PRECOMMITTED = "read before the commit"
    DIRTY_WRITE = "cycle of writes (G0)"
    CIRCULAR = "cycle of writes and reads (G1c)"
    DUPLICATE = "stored twice"
    MOVED = "acknowledged at another offset"
    REORDERED = "stored out of order"
    FOREIGN = "not from a transaction"
    INCONSISTENT = "another record at an offset"
    POLL_BACK = "poll goes back"
    POLL_SKIP = "poll skips"
    PENDING_OFFSET = "offset that is not committed"
    COMMIT_BACK = "committed offset goes back"
    NOT_COPIED = "committed over and not copied"
    COPIED_TWICE = "copied too often"
    HANGING = "never stable"
    FAILED = "a client or a broker failed"


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


class Found(NamedTuple):
    """A problem, before those of one kind and place are summed up."""

    kind: Kind
    where: Place | str
    what: str


def problems(events: Iterable[Event], groups: Mapping[str, str]) -> list[Problem]:
    """Returns everything that is wrong; `groups` maps groups to the topics of their copies."""
    events = list(events)
    txns = transactions(events)
    logs = committed_logs(events)
    found = [
        *_outcomes(txns, logs),
        *_logs(txns, logs),
        *_reads(txns, logs, events),
        *_streams(logs, events),
        *_offsets(txns, events),
        *_cycles(txns, logs, events),
    ]
    for kind, where, what in copies.wrong(logs, events, groups):
        found.append(Found(Kind[kind], where, what))
    for event in events:
        if isinstance(event, Failed):
            found.append(Found(Kind.FAILED, event.who, event.reason))
        elif isinstance(event, Ends) and event.last_stable_offset != event.high_watermark:
            what = f"stable up to {event.last_stable_offset} of {event.high_watermark}"
            found.append(Found(Kind.HANGING, event.place, what))
    return summed_up(found)


def transactions(events: Iterable[Event]) -> dict[str, Txn]:
    """Returns the transactions by name."""
    txns: dict[str, Txn] = {}
    for event in events:
        if not isinstance(event, Began | Sent | Stored | OffsetSent | Asked | Ended):
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


def committed_logs(events: Iterable[Event]) -> dict[Place, list[Entry]]:
    """Returns the committed records of each partition at the end."""
    logs: defaultdict[Place, list[Entry]] = defaultdict(list)
    for event in events:
        if isinstance(event, Polled) and event.reader == EVERYTHING:
            logs[event.place].append(Entry(event.offset, event.value, event.time_ms))
    return logs


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


def _logs(txns: Mapping[str, Txn], logs: Logs) -> Iterator[Found]:
    """Finds what is wrong with a log whatever clients were told."""
    sent = {(each.place, each.value) for txn in txns.values() for each in txn.sent}
    for place, log in logs.items():
        first: dict[bytes, int] = {}
        last: dict[str, int] = {}  # the index that each transaction has reached
        for entry in log:
            if (place, entry.value) not in sent:
                yield Found(Kind.FOREIGN, place, f"{entry.value[:60]!r} at {entry.offset}")
                continue
            if entry.value in first:
                what = f"{entry.value!r} at {first[entry.value]} and {entry.offset}"
                yield Found(Kind.DUPLICATE, place, what)
                continue
            first[entry.value] = entry.offset
            told = said(entry.value)
            assert told is not None
            if told.index < last.get(told.txn, -1):
                yield Found(Kind.REORDERED, place, f"{entry.value!r} at {entry.offset}")
            last[told.txn] = max(told.index, last.get(told.txn, -1))


# --- what was read --------------------------------------------------------------------------------


def _reads(txns: Mapping[str, Txn], logs: Logs, events: Iterable[Event]) -> Iterator[Found]:
    """Compares what readers of committed data got with the log, and with when it was committed."""
    stored = {place: {entry.offset: entry.value for entry in log} for place, log in logs.items()}
    for event in events:
        if not isinstance(event, Got):
            continue
        what = f"{event.reader} got {event.value[:60]!r} at {event.offset}"
        told = said(event.value)
        writer = None if told is None else txns.get(told.txn)
        if writer is None:
            yield Found(Kind.FOREIGN, event.place, what)
        elif writer.outcome is Outcome.ABORTED:
            yield Found(Kind.ABORTED_READ, event.place, what)
        elif stored.get(event.place, {}).get(event.offset) != event.value:
            yield Found(Kind.INCONSISTENT, event.place, f"{what}, where it is not in the end")
        elif writer.commit_asked_s is not None and event.at_s < writer.commit_asked_s:
            early_ms = int((writer.commit_asked_s - event.at_s) * 1000)
            yield Found(Kind.PRECOMMITTED, event.place, f"{what}, {early_ms} ms too early")


def _streams(logs: Logs, events: Iterable[Event]) -> Iterator[Found]:
    """Finds records that readers got out of order, or not at all."""
    after: dict[tuple[str, int, Place], int] = {}  # the offset that comes next, or a later one
    offsets = {place: [entry.offset for entry in log] for place, log in logs.items()}
    numbers = {place: {o: n for n, o in enumerate(those)} for place, those in offsets.items()}
    for event in events:
        if isinstance(event, Sought):
            after[event.reader, event.stream, event.place] = event.offset
            continue
        if not isinstance(event, Got):
            continue
        stream = (event.reader, event.stream, event.place)
        before = after.get(stream)
        after[stream] = event.offset + 1
        what = f"{event.reader} in stream {event.stream} got {event.offset}"
        if before is None:
            continue
        if event.offset < before:
            yield Found(Kind.POLL_BACK, event.place, f"{what} after {before - 1}")
            continue
        number = numbers.get(event.place, {}).get(event.offset, 0)
        if number and offsets[event.place][number - 1] >= before:
            missed = offsets[event.place][number - 1]
            yield Found(Kind.POLL_SKIP, event.place, f"{what}, before it {missed} was skipped")


# --- offsets of groups ----------------------------------------------------------------------------


def _offsets(txns: Mapping[str, Txn], events: Iterable[Event]) -> Iterator[Found]:
    """Compares the offsets that groups were told with those that transactions committed."""
    asked_s: dict[
        tuple[str, Place, int], float
    ] = {}  # when each offset's commit was asked for first
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
    told = [event for event in events if isinstance(event, OffsetTold)]
    for event in told:
        since_s = asked_s.get((event.group, event.place, event.offset))
        if event.offset != NO_OFFSET and (since_s is None or event.ended_s < since_s):
            when = "never" if since_s is None else "later"
            what = f"{event.group} was told {event.offset}, whose commit was asked for {when}"
            yield Found(Kind.PENDING_OFFSET, event.place, what)
    stable = (Told(*event[:4]) for event in told if event.is_stable)
    for where, what in commits_back([*commits, *stable]):
        yield Found(Kind.COMMIT_BACK, where, what)


# --- cycles ---------------------------------------------------------------------------------------


def _cycles(txns: Mapping[str, Txn], logs: Logs, events: Iterable[Event]) -> Iterator[Found]:
    """Finds transactions that each come before the other."""
    writes = cycles.Graph()
    kept: set[str] = set()
    for log in logs.values():
        last: dict[str, str] = {}  # the transaction of each id that wrote before
        for entry in log:
            told = said(entry.value)
            if told is None or told.txn not in txns:
                continue
            kept.add(told.txn)
            name = txns[told.txn].transactional_id
            writes.add(last.get(name, told.txn), told.txn)
            last[name] = told.txn
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
        if isinstance(event, Got) and event.txn:
            told = said(event.value)
            if told is not None:
                writes.add(told.txn, event.txn)
    cycle = writes.cycle()
    if cycle:
        yield Found(Kind.CIRCULAR, "all logs", " -> ".join(cycle))
