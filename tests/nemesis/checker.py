"""Judges a history: what clients were told, against what the log contains at the end.

The log is what the reader EVERYTHING has polled from offset 0 on after all faults. The rules are those of
Jepsen's workload for Kafka without transactions, and two of our own: no LogAppendTime goes back along a
log, and no committed offset goes back. Those of transactions are in `transactions/checker.py`.

A record that a producer gave up on may be stored once, or not at all. Offsets have no gaps: the
topics are neither compacted nor transactional.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tests.nemesis.history import (
    NO_OFFSET,
    Acknowledged,
    Believed,
    Committed,
    CutOff,
    Failed,
    Led,
    Polled,
    Refused,
    Sought,
    Told,
    said,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

    from tests.nemesis.history import Event, History, Place

    Logs = Mapping[Place, Sequence["Entry"]]

EVERYTHING = "everything"  # the reader that reads all logs at the end
_SHOWN = 3


class Kind(StrEnum):
    """What can be wrong with a history."""

    LOST = "acknowledged and lost"
    MOVED = "acknowledged at another offset"
    DUPLICATE = "stored twice"
    REORDERED = "stored out of order"
    FOREIGN = "not from a client"
    GAP = "offsets missing"
    INCONSISTENT = "another record at an offset"
    POLL_BACK = "poll goes back"
    POLL_SKIP = "poll skips"
    SEND_BACK = "offsets of sends go back"
    TIME_BACK = "LogAppendTime goes back"
    COMMIT_BACK = "committed offset goes back"
    FORKED = "two leaders acknowledge"
    UNSEEN = "not seen by the group"
    REFUSED = "given up"
    FORGED = "a forged request was believed"
    FAILED = "a client or a broker failed"
    # of transactions
    TORN = "a part of a transaction"
    TWO_ENDS = "committed and aborted"
    ABORTED_READ = "aborted read (G1a)"
    PRECOMMITTED = "read before the commit"
    DIRTY_WRITE = "cycle of writes (G0)"
    CIRCULAR = "cycle of writes and reads (G1c)"
    PENDING_OFFSET = "offset that is not committed"
    NOT_COPIED = "committed over and not copied"
    COPIED_TWICE = "copied too often"
    HANGING = "never stable"


class Problem(NamedTuple):
    """One thing that is wrong, with examples."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Found(NamedTuple):
    """A problem, before those of one kind and place are summed up."""

    kind: Kind
    where: Place | str
    what: str


class Entry(NamedTuple):
    """A record of a log."""

    offset: int
    value: bytes
    time_ms: int


def problems(history: History, *, groups: Iterable[str] = ()) -> list[Problem]:
    """Returns everything that is wrong with a history; `groups` have consumed all of it."""
    logs = logs_of(history.events)
    found = [*records(logs, _is_of_its_place), *_gaps(logs), *failures(history.events)]
    found += _times_back(logs, history.stamped)
    found += _sends(history, logs)
    found += _polls(history, logs)
    found += streams(logs, history.events)
    found += commits_back(history.events)
    found += _forks(history)
    for group in groups:
        found += _unseen(history, logs, group)
    for each in _all(history, Refused):
        what = f"{each.producer}/{each.number}: {each.reason}"
        found.append(Found(Kind.REFUSED, each.place, what))
    return summed_up(found)


def summed_up(found: Iterable[Found]) -> list[Problem]:
    """Returns one problem for each kind and place, with the first few examples."""
    by_kind: defaultdict[tuple[Kind, str], list[str]] = defaultdict(list)
    for kind, where, what in found:
        by_kind[kind, str(where)].append(what)
    return [
        Problem(kind, f"{where}: {len(whats)} times, as {'; '.join(whats[:_SHOWN])}")
        for (kind, where), whats in sorted(by_kind.items())
    ]


def failures(events: Iterable[Event]) -> Iterator[Found]:
    """Finds what must not happen, whatever clients do."""
    for event in events:
        if isinstance(event, Failed):
            yield Found(Kind.FAILED, event.who, event.reason)
        elif isinstance(event, Believed):
            yield Found(Kind.FORGED, event.broker, event.what)


def _all(history: History, kind: type) -> Iterator:
    return (event for event in history.events if isinstance(event, kind))


def logs_of(events: Iterable[Event]) -> dict[Place, list[Entry]]:
    """Returns what is stored; a partition that nobody has read is empty."""
    logs: dict[Place, list[Entry]] = {}
    for event in events:
        if isinstance(event, Acknowledged):
            logs.setdefault(event.place, [])
        elif isinstance(event, Polled) and event.reader == EVERYTHING:
            entry = Entry(event.offset, event.value, event.time_ms)
            logs.setdefault(event.place, []).append(entry)
    return logs


# --- logs -----------------------------------------------------------------------------------------


def records(logs: Logs, is_known: Callable[[Place, bytes], bool]) -> Iterator[Found]:
    """Finds what is wrong with logs whatever was acknowledged: records of nobody, twice or out of order."""
    for place, log in logs.items():
        last: dict[str, int] = {}  # the number that each writer has reached
        seen: dict[tuple[str, int], int] = {}
        for entry in log:
            value = said(entry.value)
            if value is None or not is_known(place, entry.value):
                yield Found(Kind.FOREIGN, place, f"{entry.value[:60]!r} at {entry.offset}")
                continue
            writer, number = value.writer, value.number
            first = seen.setdefault((writer, number), entry.offset)
            if first != entry.offset:
                what = f"{writer}/{number} at {first} and {entry.offset}"
                yield Found(Kind.DUPLICATE, place, what)
                continue
            if number < last.get(writer, -1):
                what = f"{writer}/{number} at {entry.offset}, after {last[writer]}"
                yield Found(Kind.REORDERED, place, what)
            last[writer] = max(number, last.get(writer, -1))


def _is_of_its_place(place: Place, value: bytes) -> bool:
    parsed = said(value)
    return parsed is not None and parsed.place == str(place)


def _gaps(logs: Logs) -> Iterator[Found]:
    for place, log in logs.items():
        if log and log[0].offset != 0:
            yield Found(Kind.GAP, place, f"the first offset is {log[0].offset}")
        for before, after in pairwise(log):
            if after.offset != before.offset + 1:
                yield Found(Kind.GAP, place, f"{after.offset} follows {before.offset}")


def _times_back(logs: Logs, stamped: Container[str]) -> Iterator[Found]:
    for place, log in logs.items():
        for before, after in pairwise(log if place.topic in stamped else ()):
            if after.time_ms < before.time_ms:
                back_ms = before.time_ms - after.time_ms
                what = f"by {back_ms} ms from offset {before.offset} to {after.offset}"
                yield Found(Kind.TIME_BACK, place, what)


# --- producers ------------------------------------------------------------------------------------


def _sends(history: History, logs: Logs) -> Iterator[Found]:
    """Compares acknowledgements with the logs, and with each other."""
    stored: defaultdict[tuple[str, Place, int], set[int]] = defaultdict(set)
    for place, log in logs.items():
        for entry in log:
            value = said(entry.value)
            if value is not None and value.place == str(place):
                stored[value.writer, place, value.number].add(entry.offset)
    by_sender: defaultdict[tuple[str, Place], list[Acknowledged]] = defaultdict(list)
    for event in _all(history, Acknowledged):
        by_sender[event.producer, event.place].append(event)
    for (producer, place), events in by_sender.items():
        known: list[Acknowledged] = []
        for event in events:
            offsets = stored.get((producer, place, event.number))
            what = f"{producer}/{event.number}, acknowledged at {event.offset}"
            if offsets is None:
                yield Found(Kind.LOST, place, what)
            elif event.offset != NO_OFFSET:
                known.append(event)
                if event.offset not in offsets:
                    yield Found(Kind.MOVED, place, f"{what}, is at {sorted(offsets)}")
        known.sort(key=lambda event: event.number)
        for before, after in pairwise(known):
            if after.offset <= before.offset:
                what = f"{producer}/{after.number} got {after.offset} after {before.offset}"
                yield Found(Kind.SEND_BACK, place, what)


def _forks(history: History) -> Iterator[Found]:
    """Finds a broker that acknowledges beside another one, more than two leases after it was cut off.

    An in-sync replica that has not heard of the next leader may keep it, so that one must have led for a
    lease.
    """
    led = list(_all(history, Led))
    for cut in _all(history, CutOff):
        during = [each for each in led if cut.began_s < each.began_s < cut.ended_s]
        for place in dict.fromkeys(each.place for each in during):
            others = [e.began_s for e in during if e.place == place and e.broker != cut.broker]
            if not others:
                continue
            latest_s = max(cut.began_s + 2 * cut.lease_s, min(others) + cut.lease_s)
            for each in during:
                if each.place == place and each.broker == cut.broker and each.began_s > latest_s:
                    after_s = each.began_s - cut.began_s
                    what = f"broker {cut.broker} does {after_s:.1f} s after it was cut off"
                    yield Found(Kind.FORKED, place, what)


# --- consumers ------------------------------------------------------------------------------------


def _polls(history: History, logs: Logs) -> Iterator[Found]:
    """Compares what consumers got with the logs."""
    stored = {place: {entry.offset: entry for entry in log} for place, log in logs.items()}
    for event in _all(history, Polled):
        what = f"{event.reader} got {event.value[:60]!r} of {event.time_ms} at {event.offset}"
        entry = stored.get(event.place, {}).get(event.offset)
        if entry is None:
            yield Found(Kind.INCONSISTENT, event.place, f"{what}, where nothing is stored")
        elif (entry.value, entry.time_ms) != (event.value, event.time_ms):
            there = f"{what}, stored is {entry.value[:60]!r} of {entry.time_ms}"
            yield Found(Kind.INCONSISTENT, event.place, there)


def streams(logs: Logs, events: Iterable[Event]) -> Iterator[Found]:
    """Finds records that readers got out of order, or not at all."""
    after: dict[tuple[str, int, Place], int] = {}  # the offset that comes next, or a later one
    offsets = {place: [entry.offset for entry in log] for place, log in logs.items()}
    for event in events:
        if isinstance(event, Sought):
            after[event.reader, event.stream, event.place] = event.offset
        if not isinstance(event, Polled) or event.reader == EVERYTHING:
            continue
        stream = (event.reader, event.stream, event.place)
        before = after.get(stream)
        after[stream] = event.offset + 1
        if before is None:
            continue
        what = f"{event.reader} in stream {event.stream} got {event.offset}"
        if event.offset < before:
            yield Found(Kind.POLL_BACK, event.place, f"{what} after {before - 1}")
            continue
        those = offsets.get(event.place, ())
        first = bisect_left(those, before)
        if first < len(those) and those[first] < event.offset:
            yield Found(
                Kind.POLL_SKIP, event.place, f"{what}, before it {those[first]} was skipped"
            )


def _unseen(history: History, logs: Logs, group: str) -> Iterator[Found]:
    """Finds records that no member of a group has got. Members are called GROUP/MEMBER."""
    seen = {
        (event.place, event.offset)
        for event in _all(history, Polled)
        if event.reader.partition("/")[0] == group
    }
    for place, log in logs.items():
        for entry in log:
            if (place, entry.offset) not in seen:
                what = f"{group}: {entry.value[:60]!r} at {entry.offset}"
                yield Found(Kind.UNSEEN, place, what)


def has_got_everything(history: History, group: str) -> bool:
    """Returns whether members of a group have got all that EVERYTHING has read."""
    return not any(_unseen(history, logs_of(history.events), group))


def commits_back(events: Iterable[object]) -> Iterator[Found]:
    """Compares what groups were told, or committed, with commits that were over before."""
    by_group: defaultdict[tuple[str, Place], list[Committed | Told]] = defaultdict(list)
    for event in events:
        if isinstance(event, Committed | Told):
            by_group[event.group, event.place].append(event)
    for (group, place), those in by_group.items():
        ended = sorted(
            (each for each in those if isinstance(each, Committed)), key=lambda each: each.ended_s
        )
        most, position = NO_OFFSET, 0
        for event in sorted(those, key=lambda each: each.began_s):
            while position < len(ended) and ended[position].ended_s < event.began_s:
                most = max(most, ended[position].offset)
                position += 1
            if event.offset < most:
                verb = "was told" if isinstance(event, Told) else "committed"
                what = f"{group} {verb} {event.offset} after {most} was committed"
                yield Found(Kind.COMMIT_BACK, place, what)
