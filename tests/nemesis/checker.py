"""Judges a history: what clients were told, against what the log contains at the end.

The log is what the reader EVERYTHING has polled from offset 0 on after all faults. The rules are those of
Jepsen's workload for Kafka without transactions, and two of our own: no LogAppendTime goes back along a
log, and no committed offset goes back.

A record that a producer gave up on may be stored once, or not at all. Offsets have no gaps: the
topics are neither compacted nor transactional.
"""

from __future__ import annotations

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
    Told,
    parsed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.nemesis.history import History, Place

EVERYTHING = "everything"  # the reader that reads all logs at the end
_SHOWN = 3


class Kind(StrEnum):
    """What can be wrong with a history."""

    LOST = "acknowledged and lost"
    MOVED = "acknowledged at another offset"
    DUPLICATE = "stored twice"
    REORDERED = "stored out of order"
    FOREIGN = "not from a producer"
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


class Problem(NamedTuple):
    """One thing that is wrong, with examples."""

    kind: StrEnum
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Entry(NamedTuple):
    """A record of a log."""

    offset: int
    value: bytes
    time_ms: int


def problems(history: History, *, groups: Iterable[str] = ()) -> list[Problem]:
    """Returns everything that is wrong with a history; `groups` have consumed all of it."""
    logs = _logs(history)
    found: list[tuple[Kind, Place | str, str]] = []
    for place, log in logs.items():
        found += ((kind, place, what) for kind, what in _log_problems(log, place))
        if place.topic in history.stamped:
            found += ((Kind.TIME_BACK, place, what) for what in _times_back(log))
    found += _sends(history, logs)
    found += _polls(history, logs)
    found += [(Kind.COMMIT_BACK, *each) for each in commits_back(history.events)]
    found += [(Kind.FORKED, *each) for each in _forks(history)]
    for group in groups:
        found += _unseen(history, logs, group)
    found += [(Kind.FORGED, each.broker, each.what) for each in _all(history, Believed)]
    found += [(Kind.FAILED, each.who, each.reason) for each in _all(history, Failed)]
    found += [
        (Kind.REFUSED, each.place, f"{each.producer}/{each.number}: {each.reason}")
        for each in _all(history, Refused)
    ]
    return summed_up(found)


def summed_up(found: Sequence[tuple[StrEnum, Place | str, str]]) -> list[Problem]:
    """Returns one problem for each kind and place, with the first few examples."""
    by_kind: defaultdict[tuple[StrEnum, str], list[str]] = defaultdict(list)
    for kind, where, what in found:
        by_kind[kind, str(where)].append(what)
    return [
        Problem(kind, f"{where}: {len(whats)} times, as {'; '.join(whats[:_SHOWN])}")
        for (kind, where), whats in sorted(by_kind.items())
    ]


def _all(history: History, kind: type) -> Iterator:
    return (event for event in history.events if isinstance(event, kind))


def _logs(history: History) -> dict[Place, list[Entry]]:
    """Returns what is stored; a partition that nobody has read is empty."""
    logs: dict[Place, list[Entry]] = {}
    for event in history.events:
        if isinstance(event, Acknowledged):
            logs.setdefault(event.place, [])
        elif isinstance(event, Polled) and event.reader == EVERYTHING:
            entry = Entry(event.offset, event.value, event.time_ms)
            logs.setdefault(event.place, []).append(entry)
    return logs


# --- one log --------------------------------------------------------------------------------------


def _log_problems(log: Sequence[Entry], place: Place) -> Iterator[tuple[Kind, str]]:
    """Finds what is wrong with a log whatever was acknowledged."""
    if log and log[0].offset != 0:
        yield Kind.GAP, f"the first offset is {log[0].offset}"
    for before, after in pairwise(log):
        if after.offset != before.offset + 1:
            yield Kind.GAP, f"{after.offset} follows {before.offset}"
    last: dict[str, int] = {}  # the number that each producer has reached
    seen: dict[tuple[str, int], int] = {}
    for entry in log:
        said = parsed(entry.value)
        if said is None or said[1] != str(place):
            yield Kind.FOREIGN, f"{entry.value[:60]!r} at {entry.offset}"
            continue
        producer, _, number = said
        if (producer, number) in seen:
            first = seen[producer, number]
            yield Kind.DUPLICATE, f"{producer}/{number} at {first} and {entry.offset}"
            continue
        seen[producer, number] = entry.offset
        if number < last.get(producer, -1):
            what = f"{producer}/{number} at {entry.offset}, after {last[producer]}"
            yield Kind.REORDERED, what
        last[producer] = max(number, last.get(producer, -1))


def _times_back(log: Sequence[Entry]) -> Iterator[str]:
    for before, after in pairwise(log):
        if after.time_ms < before.time_ms:
            back_ms = before.time_ms - after.time_ms
            yield f"by {back_ms} ms from offset {before.offset} to {after.offset}"


# --- producers ------------------------------------------------------------------------------------


def _sends(
    history: History, logs: Mapping[Place, Sequence[Entry]]
) -> Iterator[tuple[Kind, Place, str]]:
    """Compares acknowledgements with the logs, and with each other."""
    stored: defaultdict[tuple[str, Place, int], set[int]] = defaultdict(set)
    for place, log in logs.items():
        for entry in log:
            said = parsed(entry.value)
            if said is not None and said[1] == str(place):
                stored[said[0], place, said[2]].add(entry.offset)
    by_sender: defaultdict[tuple[str, Place], list[Acknowledged]] = defaultdict(list)
    for event in _all(history, Acknowledged):
        by_sender[event.producer, event.place].append(event)
    for (producer, place), events in by_sender.items():
        known: list[Acknowledged] = []
        for event in events:
            offsets = stored.get((producer, place, event.number))
            what = f"{producer}/{event.number}, acknowledged at {event.offset}"
            if offsets is None:
                yield Kind.LOST, place, what
            elif event.offset != NO_OFFSET:
                known.append(event)
                if event.offset not in offsets:
                    yield Kind.MOVED, place, f"{what}, is at {sorted(offsets)}"
        known.sort(key=lambda event: event.number)
        for before, after in pairwise(known):
            if after.offset <= before.offset:
                what = f"{producer}/{after.number} got {after.offset} after {before.offset}"
                yield Kind.SEND_BACK, place, what


def _forks(history: History) -> Iterator[tuple[Place, str]]:
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
                    yield place, f"broker {cut.broker} does {after_s:.1f} s after it was cut off"


# --- consumers ------------------------------------------------------------------------------------


def _polls(
    history: History, logs: Mapping[Place, Sequence[Entry]]
) -> Iterator[tuple[Kind, Place, str]]:
    """Compares what consumers got with the logs, and with what they got before."""
    stored = {place: {entry.offset: entry for entry in log} for place, log in logs.items()}
    reached: dict[tuple[str, int, Place], int] = {}
    for event in _all(history, Polled):
        who = f"{event.reader} in stream {event.stream}"
        stream = (event.reader, event.stream, event.place)
        before = reached.get(stream)
        reached[stream] = event.offset
        if before is not None and event.offset <= before:
            yield Kind.POLL_BACK, event.place, f"{who} got {event.offset} after {before}"
        elif before is not None and event.offset > before + 1:
            yield Kind.POLL_SKIP, event.place, f"{who} got {event.offset} after {before}"
        entry = stored.get(event.place, {}).get(event.offset)
        if entry is None:
            what = f"{who} got {event.value[:60]!r} at {event.offset}, where nothing is stored"
            yield Kind.INCONSISTENT, event.place, what
        elif (entry.value, entry.time_ms) != (event.value, event.time_ms):
            what = (
                f"{who} got {event.value[:60]!r} of {event.time_ms} at {event.offset}, "
                f"stored is {entry.value[:60]!r} of {entry.time_ms}"
            )
            yield Kind.INCONSISTENT, event.place, what


def _unseen(
    history: History, logs: Mapping[Place, Sequence[Entry]], group: str
) -> Iterator[tuple[Kind, Place, str]]:
    """Finds records that no member of a group has got. Members are called GROUP/MEMBER."""
    seen = {
        (event.place, event.offset)
        for event in _all(history, Polled)
        if event.reader.partition("/")[0] == group
    }
    for place, log in logs.items():
        for entry in log:
            if (place, entry.offset) not in seen:
                yield Kind.UNSEEN, place, f"{group}: {entry.value[:60]!r} at {entry.offset}"


def has_got_everything(history: History, group: str) -> bool:
    """Returns whether members of a group have got all that EVERYTHING has read."""
    return not any(_unseen(history, _logs(history), group))


def commits_back(events: Iterable[object]) -> Iterator[tuple[Place, str]]:
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
                yield place, what
