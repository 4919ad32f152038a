"""The checker finds each thing that can be wrong with a history, and nothing in one that is right."""

from __future__ import annotations

import pytest

from tests.nemesis.checker import EVERYTHING, Kind, has_got_everything, problems
from tests.nemesis.history import (
    NO_OFFSET,
    Acknowledged,
    Believed,
    Committed,
    CutOff,
    Failed,
    History,
    Led,
    Place,
    Polled,
    Refused,
    Told,
    value_of,
)

PLACE = Place("stamped", 0)
GROUP = "group"
COUNT = 6


def polled(reader, stream, offset, number=None, time_ms=None, value=None):
    number = offset if number is None else number
    value = value_of("p", PLACE, number) if value is None else value
    return Polled(
        reader, stream, PLACE, offset, value, 1_000 + offset if time_ms is None else time_ms
    )


def right():
    """The events of a history in which all went well: a list to be altered."""
    events = [Acknowledged("p", PLACE, number, number) for number in range(COUNT)]
    events += [polled("alone", 1, offset) for offset in range(COUNT)]
    events += [Told(GROUP, PLACE, NO_OFFSET, 0.0, 0.0)]
    events += [polled(f"{GROUP}/1", 2, offset) for offset in range(4)]
    events += [Committed(GROUP, PLACE, 4, 1.0, 2.0), Told(GROUP, PLACE, 4, 3.0, 3.0)]
    events += [polled(f"{GROUP}/2", 3, offset) for offset in range(4, COUNT)]
    events += [Committed(GROUP, PLACE, COUNT, 4.0, 5.0)]
    return events + [polled(EVERYTHING, 0, offset) for offset in range(COUNT)]


def history_of(events):
    history = History(stamped=["stamped"])
    for event in events:
        history.add(event)
    return history


def kinds(events):
    return {problem.kind for problem in problems(history_of(events), groups=[GROUP])}


def altered(change, reader=None):
    """The events with those of one reader, or of all, replaced by what `change` makes of each."""
    found = []
    for event in right():
        concerned = isinstance(event, Polled) and reader in (None, event.reader)
        found += change(event) if concerned else [event]
    return found


def without(offset):
    return lambda event: [] if event.offset == offset else [event]


def at(offset, **fields):
    """A change of the record at an offset."""
    return lambda event: [event._replace(**fields) if event.offset == offset else event]


def test_nothing_is_wrong_with_a_history_in_which_all_went_well():
    assert kinds(right()) == set()


def test_nothing_is_wrong_with_a_retry_whose_offset_the_client_does_not_know():
    events = right()
    events[2] = Acknowledged("p", PLACE, 2, NO_OFFSET)
    assert kinds(events) == set()


def test_nothing_is_wrong_with_a_commit_that_ends_late():
    """It was under way when another member was told an older offset."""
    events = [*right(), Committed(GROUP, PLACE, 5, 3.5, 9.0), Told(GROUP, PLACE, 6, 5.5, 5.5)]
    assert kinds(events) == set()


@pytest.mark.parametrize(
    "led",
    [
        [Led(1, PLACE, 19.0)],  # nobody else leads
        [Led(1, PLACE, 5.9), Led(2, PLACE, 4.0), Led(2, PLACE, 9.0)],
        [Led(1, PLACE, 9.0), Led(2, PLACE, 8.0)],  # an in-sync replica may not have heard of it
        [Led(1, PLACE, 30.0), Led(2, PLACE, 4.0)],  # it is not cut off any more
        [Led(1, Place("stamped", 1), 19.0), Led(2, PLACE, 4.0)],
    ],
)
def test_nothing_is_wrong_with_a_leader_that_goes_on_for_a_while(led):
    assert kinds([*right(), CutOff(1, 0.0, 20.0, 3.0), *led]) == set()


BUGS = {
    "a lost tail": (altered(lambda e: [e] if e.offset < COUNT - 1 else []), {Kind.LOST}),
    "a lost record": (altered(without(3)), {Kind.LOST, Kind.GAP}),
    "a log that is gone": (altered(lambda _: [], EVERYTHING), {Kind.LOST, Kind.INCONSISTENT}),
    "a lost head": (altered(without(0)), {Kind.LOST, Kind.GAP}),
    "records that changed places": (
        altered(
            lambda e: [e._replace(value=value_of("p", PLACE, {2: 3, 3: 2}.get(e.offset, e.offset)))]
        ),
        {Kind.MOVED, Kind.REORDERED},
    ),
    "a record that came twice": (
        [*right(), *(polled(r, s, COUNT, 1) for r, s in ((EVERYTHING, 0), (f"{GROUP}/2", 3)))],
        {Kind.DUPLICATE},
    ),
    "a changed record": (
        altered(at(2, value=b"p|stamped-0|two|")),
        {Kind.LOST, Kind.FOREIGN},
    ),
    "a record of another partition": (
        altered(at(2, value=value_of("p", Place("stamped", 1), 2))),
        {Kind.LOST, Kind.FOREIGN},
    ),
    "a record that one reader saw otherwise": (
        altered(at(2, value=value_of("p", PLACE, 9)), "alone"),
        {Kind.INCONSISTENT},
    ),
    "a timestamp that one reader saw otherwise": (
        altered(at(2, time_ms=77), "alone"),
        {Kind.INCONSISTENT},
    ),
    "a record that was read and then truncated": (
        [*right(), polled("alone", 1, COUNT)],
        {Kind.INCONSISTENT},
    ),
    "a poll that goes back": ([*right(), polled("alone", 1, 2)], {Kind.POLL_BACK}),
    "a poll that skips": (altered(without(2), "alone"), {Kind.POLL_SKIP}),
    "sends that go back": (
        [*right(), Acknowledged("p", PLACE, 3, 1)],
        {Kind.SEND_BACK, Kind.MOVED},
    ),
    "an append time that goes back": (altered(at(4, time_ms=1_000)), {Kind.TIME_BACK}),
    "a committed offset that goes back": (
        [*right(), Told(GROUP, PLACE, 4, 6.0, 6.0)],
        {Kind.COMMIT_BACK},
    ),
    "a committed offset that is gone": (
        [*right(), Told(GROUP, PLACE, NO_OFFSET, 6.0, 6.0)],
        {Kind.COMMIT_BACK},
    ),
    "a member of the past that commits": (
        [*right(), Committed(GROUP, PLACE, 4, 6.0, 7.0)],
        {Kind.COMMIT_BACK},
    ),
    "a record that the group did not get": (
        altered(without(3), f"{GROUP}/1"),
        {Kind.UNSEEN},
    ),
    "a record that was given up": ([*right(), Refused("p", PLACE, 9, "timeout")], {Kind.REFUSED}),
    "a leader that is cut off and goes on": (
        [*right(), CutOff(1, 0.0, 20.0, 3.0), Led(2, PLACE, 5.0), Led(1, PLACE, 9.0)],
        {Kind.FORKED},
    ),
    "a stranger who is served": ([*right(), Believed("1", "a marker in t-0")], {Kind.FORGED}),
    "a client that ended": ([*right(), Failed("alone", "fatal")], {Kind.FAILED}),
}


@pytest.mark.parametrize("name", BUGS)
def test_what_is_injected_is_found(name):
    events, expected = BUGS[name]
    assert kinds(events) == expected


def test_a_group_that_misses_a_record_has_not_got_everything():
    assert has_got_everything(history_of(right()), GROUP)
    assert not has_got_everything(history_of(altered(without(5), f"{GROUP}/2")), GROUP)


def test_created_times_may_go_back():
    place = Place("created", 0)
    history = History(stamped=["stamped"])
    for offset, time_ms in ((0, 5), (1, 3)):
        history.add(Polled(EVERYTHING, 0, place, offset, value_of("p", place, offset), time_ms))
    assert problems(history) == []


def test_a_problem_is_told_once_for_each_place_with_examples():
    history = History()
    for number in range(5):
        history.add(Acknowledged("p", PLACE, number, number))
    (problem,) = problems(history)
    assert str(problem) == (
        "acknowledged and lost: stamped-0: 5 times, as p/0, acknowledged at 0; "
        "p/1, acknowledged at 1; p/2, acknowledged at 2"
    )
