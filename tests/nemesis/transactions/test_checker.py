"""The checker of transactions finds each anomaly, and none in histories that look like one and are right.

A history is written in sentences:

    w1 begin A0 B0 commit    transaction 1 of w appends at offset 0 of A and of B, and is committed
    w1 ask; w1 heard         its commit is asked for, then acknowledged; commit is both, abort the other end
    w1 B0=v1                 inside of w1 its client reads what v1 has appended
    c1 begin O4<0 +1 commit  c1 appends a copy of the record at offset 0 of I; its group's offset is 1 then
    r >A0 A0=w1              reader r begins at offset 0 of A, and reads what w1 appended; r/2: next stream
    told 5                   somebody is told the group's offset; told? is one who does not wait for markers
    A: 0=w1 1=w1#1 end=2/3   the committed log at the end, of w1 and its second record there; both ends of A
"""

from __future__ import annotations

import re

import pytest

from tests.nemesis.checker import EVERYTHING, Kind
from tests.nemesis.history import (
    NO_OFFSET,
    Asked,
    Began,
    Ended,
    Ends,
    Failed,
    OffsetSent,
    Place,
    Polled,
    Sent,
    Sought,
    Stored,
    Told,
    source_of,
    value_of,
)
from tests.nemesis.test_checker import BUGS
from tests.nemesis.transactions.checker import problems

NAMES = {"A": ("ledger", 0), "B": ("ledger", 1), "I": ("in", 0), "O": ("out", 0)}
PLACES = {name: Place(*place) for name, place in NAMES.items()}
RECORD = re.compile(r">?([ABIO])(\d+)(?:=(\w\d))?(?:#(\d))?(?:<(\d))?")


def record(word, writer):
    """The place, offset and value of a record; `writer` where the word names none."""
    place, offset, named, number, source = RECORD.fullmatch(word).groups()
    client, count = named or writer
    copied = source_of(PLACES["I"], int(source)) if source else ""
    value = value_of(f"{client}/1/{count}", PLACES[place], int(number or 0), copied)
    return PLACES[place], int(offset), value


class Story:
    """A history that is told word by word; each event takes a second."""

    def __init__(self, text):
        self.events, self.now_s = [], 0.0
        for sentence in text.split("; "):
            subject, *words = sentence.split()
            for word in words:
                self.tell(subject, word)

    def add(self, *events):
        self.events += events
        self.now_s += 1

    def tell(self, subject, word):
        client, now_s = subject[0], self.now_s
        if word == "failed":
            self.add(Failed(client, "it ended"))
        elif subject.startswith("told"):
            offset = NO_OFFSET if word == "none" else int(word)
            self.add(Told("g", PLACES["I"], offset, now_s, now_s + 0.5, subject == "told"))
        elif word.startswith("end="):
            self.add(Ends(PLACES[client], *map(int, word[4:].split("/"))))
        elif client in PLACES:
            self.add(Polled(EVERYTHING, 0, *record(client + word, "x1"), 0))
        elif subject[1:].isdigit():
            self.tell_of(subject, f"{client}/1/{subject[1:]}", word)
        else:
            self.read(client, int(subject[2:] or 1), word)

    def tell_of(self, subject, txn, word):
        """One word about a transaction."""
        if word == "begin":
            self.add(Began(txn, subject[0], self.now_s))
        elif word.startswith("+"):
            self.add(OffsetSent(txn, "g", PLACES["I"], int(word[1:])))
        elif "=" in word:
            self.read(subject[0], 1, word, txn)
        elif word[0] in PLACES:
            place, offset, value = record(word, subject)
            self.add(Sent(txn, place, value), Stored(txn, place, value, offset))
        else:
            if word != "heard":
                self.add(Asked(txn, word != "abort", self.now_s))
            if word != "ask":
                self.add(Ended(txn, word != "abort", self.now_s))

    def read(self, reader, stream, word, txn=""):
        place, offset, value = record(word, "x1")
        if word.startswith(">"):
            self.add(Sought(reader, stream, place, offset))
        else:
            self.add(Polled(reader, stream, place, offset, value, 0, self.now_s, txn))


def kinds(text):
    return {problem.kind for problem in problems(Story(text).events, {"g": "out"})}


FINE = {
    "two commits and an abort, read from outside, and a copy whose first attempt is aborted": (
        "w1 begin A0 B0 I0 commit; w2 begin A2 B2 abort; w3 begin A4 B4 commit; told none; "
        "c1 begin O0<0 +2 abort; c2 begin O2<0 +2 commit; told 2; r >A0 A0=w1 A4=w3; "
        "A: 0=w1 4=w3; B: 0=w1 4=w3; I: 0=w1; O: 2=c2<0; A: end=6/6"
    ),
    "unknown and committed": "w1 begin A0 B0 ask; A: 0=w1; B: 0=w1",
    "unknown and aborted": "w1 begin A0 ask",
    "killed before it asked": "w1 begin A0",
    "read as the commit is under way": "w1 begin A0 ask; r A0=w1; w1 heard; A: 0=w1",
    "two ids that interleave, which Kafka allows": (
        "w1 begin; v1 begin; w1 A0; v1 A1 B0; w1 B1 commit; v1 commit; A: 0=w1 1=v1; B: 0=v1 1=w1"
    ),
    "a new stream goes back": "w1 begin A0 commit; r >A0 A0=w1; r/2 >A0 A0=w1; A: 0=w1",
    "a stream that begins behind": (
        "w1 begin A0 commit; w2 begin A2 commit; r >A1 A2=w2; A: 0=w1 2=w2"
    ),
    "told before the commit is heard of": "c1 begin +5 ask; told 5; c1 heard",
    "told before the marker of a commit is written": "c1 begin +5 commit; told? none; told 5",
    "not copied and not committed over": "w1 begin I0 commit; told none; I: 0=w1",
    "read inside and written": ("w1 begin A0 commit; v1 begin A0=w1 A2 commit; A: 0=w1 2=v1"),
}


@pytest.mark.parametrize("history", FINE)
def test_nothing_is_wrong(history):
    assert kinds(FINE[history]) == set()


WRONG = {
    "lost": (Kind.LOST, "w1 begin A0 B0 commit"),
    "torn": (Kind.TORN, "w1 begin A0 B0 commit; A: 0=w1"),
    "torn, of unknown outcome": (Kind.TORN, "w1 begin A0 B0 ask; A: 0=w1"),
    "committed and aborted": (Kind.TWO_ENDS, "w1 begin A0 commit abort; A: 0=w1"),
    "aborted and there": (Kind.ABORTED_READ, "w1 begin A0 abort; A: 0=w1"),
    "never asked for and there": (Kind.ABORTED_READ, "w1 begin A0; A: 0=w1"),
    "aborted and read": (Kind.ABORTED_READ, "w1 begin A0 abort; r A0=w1"),
    "a copy of what was aborted": (
        Kind.ABORTED_READ,
        "c1 begin O0<7 +8 commit; told 8; O: 0=c1<7",
    ),
    "read before the commit": (Kind.PRECOMMITTED, "w1 begin A0; r A0=w1; w1 commit; A: 0=w1"),
    "two transactions of one id that interleave": (
        Kind.DIRTY_WRITE,
        "w1 begin A0 B2 commit; w2 begin A2 B0 commit; A: 0=w1 2=w2; B: 0=w2 2=w1",
    ),
    "a write that comes after the next transaction": (
        Kind.DIRTY_WRITE,
        "w1 begin A3 commit; w2 begin A0 commit; A: 0=w2 3=w1",
    ),
    "each reads what the other wrote, late in time": (
        Kind.CIRCULAR,
        "w1 begin; v1 begin; w1 A0; v1 B0; w1 ask; v1 ask; w1 B0=v1; v1 A0=w1; A: 0=w1; B: 0=v1",
    ),
    "stored twice": (Kind.DUPLICATE, "w1 begin A0 commit; A: 0=w1 1=w1"),
    "at another offset": (Kind.MOVED, "w1 begin A0 commit; A: 1=w1"),
    "out of order": (Kind.REORDERED, "w1 begin A1 A0#1 commit; A: 0=w1#1 1=w1"),
    "from nobody": (Kind.FOREIGN, "A: 0=x1"),
    "read otherwise": (Kind.INCONSISTENT, "w1 begin A0 commit; r A1=w1; A: 0=w1"),
    "read and not there": (Kind.INCONSISTENT, "w1 begin A0 ask; r A0=w1"),
    "twice in a stream": (Kind.POLL_BACK, "w1 begin A0 commit; r A0=w1 A0=w1; A: 0=w1"),
    "skipped at the begin": (
        Kind.POLL_SKIP,
        "w1 begin A0 commit; w2 begin A2 commit; r >A0 A2=w2; A: 0=w1 2=w2",
    ),
    "told what was aborted": (Kind.PENDING_OFFSET, "c1 begin O0<0 +1 abort; told 1"),
    "told what is pending": (Kind.PENDING_OFFSET, "c1 begin +5; told 5; c1 commit"),
    "told less than was committed": (
        Kind.COMMIT_BACK,
        "c1 +5; c2 +9; c1 begin commit; c2 begin commit; told 5",
    ),
    "committed over": (
        Kind.NOT_COPIED,
        "w1 begin I0 commit; c1 +1; c1 begin commit; told 1; I: 0=w1",
    ),
    "copied twice": (
        Kind.COPIED_TWICE,
        (
            "w1 begin I0 commit; c1 begin O0<0 +1 commit; c2 begin O2<0 +1 commit; told 1; "
            "I: 0=w1; O: 0=c1<0 2=c2<0"
        ),
    ),
    "copied without its offset": (
        Kind.COPIED_TWICE,
        "w1 begin I0 commit; c1 begin O0<0 commit; told none; I: 0=w1; O: 0=c1<0",
    ),
    "open for ever": (Kind.HANGING, "A: end=3/4"),
    "a client that failed": (Kind.FAILED, "w failed"),
}


@pytest.mark.parametrize("history", WRONG)
def test_what_is_wrong_is_found(history):
    kind, text = WRONG[history]
    assert kinds(text) == {kind}


def test_each_kind_of_problem_is_injected():
    injected = [{kind} for kind, _ in WRONG.values()] + [kinds for _, kinds in BUGS.values()]
    assert set().union(*injected) == set(Kind)
