"""The checker of transactions finds each anomaly, and none in histories that look like one and are right."""

from __future__ import annotations

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
from tests.nemesis.test_checker import PLANTED
from tests.nemesis.transactions.checker import problems

A, B = Place("ledger", 0), Place("ledger", 1)
IN, OUT = Place("in", 0), Place("out", 0)
GROUPS = {"g": "out"}


class Story:
    """A history that is told step by step; each step takes a second."""

    def __init__(self):
        self.events = []
        self.now_s = 0.0

    def add(self, *events):
        self.events += events
        self.now_s += 1

    def begin(self, txn):
        self.add(Began(txn, txn.partition("/")[0], self.now_s))

    def write(self, txn, place, offset, index=0, source=""):
        """Sends a record, which is acknowledged at an offset."""
        value = value_of(txn, place, index, source)
        self.add(Sent(txn, place, value), Stored(txn, place, value, offset))

    def read(self, reader, place, offset, value, txn="", stream=1):
        self.add(Polled(reader, stream, place, offset, value, 0, self.now_s, txn))

    def ask(self, txn, *, commit=True):
        self.add(Asked(txn, commit, self.now_s))

    def end(self, txn, *, commit=True):
        self.ask(txn, commit=commit)
        self.add(Ended(txn, commit, self.now_s))

    def whole(self, txn, *writes, commit=True):
        """A transaction that writes one record to each place at an offset."""
        self.begin(txn)
        for place, offset in writes:
            self.write(txn, place, offset)
        self.end(txn, commit=commit)

    def copy(self, txn, offset, end, *, at, commit=True):
        """Copies the record at an offset, and sends the offset behind it."""
        self.begin(txn)
        self.write(txn, OUT, at, source=source_of(IN, offset))
        self.add(OffsetSent(txn, "g", IN, end))
        self.end(txn, commit=commit)

    def tell(self, offset, *, stable=True):
        self.add(Told("g", IN, offset, self.now_s, self.now_s + 0.5, stable))

    def keep(self, place, *entries):
        """The committed log at the end: offsets with their transactions, and what these wrote there."""
        for offset, txn, *more in entries:
            value = value_of(txn, place, *(more or [0]))
            self.add(Polled(EVERYTHING, 0, place, offset, value, 0))

    def kinds(self):
        return {problem.kind for problem in problems(self.events, GROUPS)}


def right(story):
    """Two commits and an abort, read from outside, and a copy whose first attempt is aborted."""
    story.whole("w/1/1", (A, 0), (B, 0), (IN, 0))
    story.whole("w/1/2", (A, 2), (B, 2), commit=False)
    story.whole("w/1/3", (A, 4), (B, 4))
    story.tell(NO_OFFSET)
    story.copy("c/1/1", 0, 2, at=0, commit=False)
    story.copy("c/1/2", 0, 2, at=2)
    story.tell(2)
    story.add(Sought("r", 1, A, 0))
    story.read("r", A, 0, value_of("w/1/1", A, 0))
    story.read("r", A, 4, value_of("w/1/3", A, 0))
    story.keep(A, (0, "w/1/1"), (4, "w/1/3"))
    story.keep(B, (0, "w/1/1"), (4, "w/1/3"))
    story.keep(IN, (0, "w/1/1"))
    story.keep(OUT, (2, "c/1/2", 0, source_of(IN, 0)))
    story.add(Ends(A, 6, 6))


def unknown_and_committed(story):
    story.begin("w/1/1")
    story.write("w/1/1", A, 0)
    story.write("w/1/1", B, 0)
    story.ask("w/1/1")
    story.keep(A, (0, "w/1/1"))
    story.keep(B, (0, "w/1/1"))


def unknown_and_aborted(story):
    story.begin("w/1/1")
    story.write("w/1/1", A, 0)
    story.ask("w/1/1")


def killed_before_it_asked(story):
    story.begin("w/1/1")
    story.write("w/1/1", A, 0)


def read_as_the_commit_is_under_way(story):
    story.begin("w/1/1")
    story.write("w/1/1", A, 0)
    story.ask("w/1/1")
    story.read("r", A, 0, value_of("w/1/1", A, 0))
    story.add(Ended("w/1/1", True, story.now_s))
    story.keep(A, (0, "w/1/1"))


def two_ids_that_interleave(story):
    """Each comes before the other, which Kafka allows transactions of different producers."""
    for txn in ("w/1/1", "v/1/1"):
        story.begin(txn)
    story.write("w/1/1", A, 0)
    story.write("v/1/1", A, 1)
    story.write("v/1/1", B, 0)
    story.write("w/1/1", B, 1)
    story.end("w/1/1")
    story.end("v/1/1")
    story.keep(A, (0, "w/1/1"), (1, "v/1/1"))
    story.keep(B, (0, "v/1/1"), (1, "w/1/1"))


def a_new_stream_goes_back(story):
    story.whole("w/1/1", (A, 0))
    for stream in (1, 2):
        story.add(Sought("r", stream, A, 0))
        story.read("r", A, 0, value_of("w/1/1", A, 0), stream=stream)
    story.keep(A, (0, "w/1/1"))


def a_stream_that_begins_behind(story):
    story.whole("w/1/1", (A, 0))
    story.whole("w/1/2", (A, 2))
    story.add(Sought("r", 1, A, 1))
    story.read("r", A, 2, value_of("w/1/2", A, 0))
    story.keep(A, (0, "w/1/1"), (2, "w/1/2"))


def told_before_the_commit_is_heard_of(story):
    story.begin("c/1/1")
    story.add(OffsetSent("c/1/1", "g", IN, 5))
    story.ask("c/1/1")
    story.tell(5)
    story.add(Ended("c/1/1", True, story.now_s))


def told_before_the_marker_is_written(story):
    """A commit is acknowledged when it is decided; who does not ask for stable offsets sees it later."""
    story.begin("c/1/1")
    story.add(OffsetSent("c/1/1", "g", IN, 5))
    story.end("c/1/1")
    story.tell(NO_OFFSET, stable=False)
    story.tell(5)


def not_copied_and_not_committed_over(story):
    story.whole("w/1/1", (IN, 0))
    story.tell(NO_OFFSET)
    story.keep(IN, (0, "w/1/1"))


def read_inside_and_written(story):
    story.whole("w/1/1", (A, 0))
    story.begin("v/1/1")
    story.read("v", A, 0, value_of("w/1/1", A, 0), txn="v/1/1")
    story.write("v/1/1", A, 2)
    story.end("v/1/1")
    story.keep(A, (0, "w/1/1"), (2, "v/1/1"))


FINE = [
    right,
    unknown_and_committed,
    unknown_and_aborted,
    killed_before_it_asked,
    read_as_the_commit_is_under_way,
    two_ids_that_interleave,
    a_new_stream_goes_back,
    a_stream_that_begins_behind,
    told_before_the_commit_is_heard_of,
    told_before_the_marker_is_written,
    not_copied_and_not_committed_over,
    read_inside_and_written,
]


@pytest.mark.parametrize("tell", FINE, ids=lambda tell: tell.__name__)
def test_nothing_is_wrong(tell):
    story = Story()
    tell(story)
    assert story.kinds() == set()


def lost(story):
    story.whole("w/1/1", (A, 0), (B, 0))


def torn(story):
    story.whole("w/1/1", (A, 0), (B, 0))
    story.keep(A, (0, "w/1/1"))


def torn_of_unknown_outcome(story):
    unknown_and_committed(story)
    story.events.pop()


def committed_and_aborted(story):
    story.whole("w/1/1", (A, 0))
    story.end("w/1/1", commit=False)
    story.keep(A, (0, "w/1/1"))


def aborted_and_there(story):
    story.whole("w/1/1", (A, 0), commit=False)
    story.keep(A, (0, "w/1/1"))


def never_asked_for_and_there(story):
    killed_before_it_asked(story)
    story.keep(A, (0, "w/1/1"))


def aborted_and_read(story):
    story.whole("w/1/1", (A, 0), commit=False)
    story.read("r", A, 0, value_of("w/1/1", A, 0))


def a_copy_of_what_was_aborted(story):
    story.copy("c/1/1", 7, 8, at=0)
    story.tell(8)
    story.keep(OUT, (0, "c/1/1", 0, source_of(IN, 7)))


def read_before_the_commit(story):
    story.begin("w/1/1")
    story.write("w/1/1", A, 0)
    story.read("r", A, 0, value_of("w/1/1", A, 0))
    story.end("w/1/1")
    story.keep(A, (0, "w/1/1"))


def two_transactions_of_one_id_that_interleave(story):
    story.whole("w/1/1", (A, 0), (B, 2))
    story.whole("w/1/2", (A, 2), (B, 0))
    story.keep(A, (0, "w/1/1"), (2, "w/1/2"))
    story.keep(B, (0, "w/1/2"), (2, "w/1/1"))


def a_write_that_comes_after_the_next_transaction(story):
    story.whole("w/1/1", (A, 3))
    story.whole("w/1/2", (A, 0))
    story.keep(A, (0, "w/1/2"), (3, "w/1/1"))


def each_reads_what_the_other_wrote(story):
    """Late in time, so that the cycle is all that is wrong."""
    for txn in ("w/1/1", "v/1/1"):
        story.begin(txn)
    story.write("w/1/1", A, 0)
    story.write("v/1/1", B, 0)
    story.ask("w/1/1")
    story.ask("v/1/1")
    story.read("w", B, 0, value_of("v/1/1", B, 0), txn="w/1/1")
    story.read("v", A, 0, value_of("w/1/1", A, 0), txn="v/1/1")
    story.keep(A, (0, "w/1/1"))
    story.keep(B, (0, "v/1/1"))


def stored_twice(story):
    story.whole("w/1/1", (A, 0))
    story.keep(A, (0, "w/1/1"), (1, "w/1/1"))


def at_another_offset(story):
    story.whole("w/1/1", (A, 0))
    story.keep(A, (1, "w/1/1"))


def out_of_order(story):
    story.begin("w/1/1")
    story.write("w/1/1", A, 1)
    story.write("w/1/1", A, 0, index=1)
    story.end("w/1/1")
    story.keep(A, (0, "w/1/1", 1), (1, "w/1/1"))


def from_nobody(story):
    story.keep(A, (0, "x/1/1"))


def read_otherwise(story):
    story.whole("w/1/1", (A, 0))
    story.read("r", A, 1, value_of("w/1/1", A, 0))
    story.keep(A, (0, "w/1/1"))


def read_and_not_there(story):
    unknown_and_aborted(story)
    story.read("r", A, 0, value_of("w/1/1", A, 0))


def twice_in_a_stream(story):
    story.whole("w/1/1", (A, 0))
    for _ in range(2):
        story.read("r", A, 0, value_of("w/1/1", A, 0))
    story.keep(A, (0, "w/1/1"))


def skipped_at_the_begin(story):
    a_stream_that_begins_behind(story)
    story.events = [
        each._replace(offset=0) if isinstance(each, Sought) else each for each in story.events
    ]


def told_what_was_aborted(story):
    story.copy("c/1/1", 0, 1, at=0, commit=False)
    story.tell(1)


def told_what_is_pending(story):
    story.begin("c/1/1")
    story.add(OffsetSent("c/1/1", "g", IN, 5))
    story.tell(5)
    story.end("c/1/1")


def told_less_than_was_committed(story):
    story.add(OffsetSent("c/1/1", "g", IN, 5), OffsetSent("c/1/2", "g", IN, 9))
    for txn in ("c/1/1", "c/1/2"):
        story.begin(txn)
        story.end(txn)
    story.tell(5)


def committed_over(story):
    story.whole("w/1/1", (IN, 0))
    story.add(OffsetSent("c/1/1", "g", IN, 1))
    story.whole("c/1/1")
    story.tell(1)
    story.keep(IN, (0, "w/1/1"))


def copied_twice(story):
    story.whole("w/1/1", (IN, 0))
    for number, at in ((1, 0), (2, 2)):
        story.copy(f"c/1/{number}", 0, 1, at=at)
    story.tell(1)
    story.keep(IN, (0, "w/1/1"))
    story.keep(OUT, *((at, f"c/1/{n}", 0, source_of(IN, 0)) for n, at in ((1, 0), (2, 2))))


def copied_without_its_offset(story):
    story.whole("w/1/1", (IN, 0))
    story.begin("c/1/1")
    story.write("c/1/1", OUT, 0, source=source_of(IN, 0))
    story.end("c/1/1")
    story.tell(NO_OFFSET)
    story.keep(IN, (0, "w/1/1"))
    story.keep(OUT, (0, "c/1/1", 0, source_of(IN, 0)))


def open_for_ever(story):
    story.add(Ends(A, 3, 4))


def a_client_that_failed(story):
    story.add(Failed("w", "it ended"))


WRONG = [
    (lost, {Kind.LOST}),
    (torn, {Kind.TORN}),
    (torn_of_unknown_outcome, {Kind.TORN}),
    (committed_and_aborted, {Kind.TWO_ENDS}),
    (aborted_and_there, {Kind.ABORTED_READ}),
    (never_asked_for_and_there, {Kind.ABORTED_READ}),
    (aborted_and_read, {Kind.ABORTED_READ}),
    (a_copy_of_what_was_aborted, {Kind.ABORTED_READ}),
    (read_before_the_commit, {Kind.PRECOMMITTED}),
    (two_transactions_of_one_id_that_interleave, {Kind.DIRTY_WRITE}),
    (a_write_that_comes_after_the_next_transaction, {Kind.DIRTY_WRITE}),
    (each_reads_what_the_other_wrote, {Kind.CIRCULAR}),
    (stored_twice, {Kind.DUPLICATE}),
    (at_another_offset, {Kind.MOVED}),
    (out_of_order, {Kind.REORDERED}),
    (from_nobody, {Kind.FOREIGN}),
    (read_otherwise, {Kind.INCONSISTENT}),
    (read_and_not_there, {Kind.INCONSISTENT}),
    (twice_in_a_stream, {Kind.POLL_BACK}),
    (skipped_at_the_begin, {Kind.POLL_SKIP}),
    (told_what_was_aborted, {Kind.PENDING_OFFSET}),
    (told_what_is_pending, {Kind.PENDING_OFFSET}),
    (told_less_than_was_committed, {Kind.COMMIT_BACK}),
    (committed_over, {Kind.NOT_COPIED}),
    (copied_twice, {Kind.COPIED_TWICE}),
    (copied_without_its_offset, {Kind.COPIED_TWICE}),
    (open_for_ever, {Kind.HANGING}),
    (a_client_that_failed, {Kind.FAILED}),
]


@pytest.mark.parametrize(("tell", "expected"), WRONG, ids=[tell.__name__ for tell, _ in WRONG])
def test_what_is_wrong_is_found(tell, expected):
    story = Story()
    tell(story)
    assert story.kinds() == expected


def test_each_kind_of_problem_is_planted():
    planted = [expected for _, expected in (*WRONG, *PLANTED.values())]
    assert set().union(*planted) == set(Kind)
