"""The judge of transactions judged: every injected fault is named, and no client is without an expectation.

The readers here are made of answers, so that no broker is asked; the writers are told what a broker that does
otherwise would tell.
"""

from __future__ import annotations

import pytest

from tests.clients import clients
from tests.clients.transactions import expectations as rules
from tests.clients.transactions import run
from tests.clients.transactions.expectations import ABILITIES, ABORT, COMMIT, READ_COMMITTED

LOGS = {"t": rules.logs_of_steps()}
FENCED = {"error": {"code": 90, "name": "ProducerFencedException", "message": ""}, "abort": None}


def answers_of(seen):
    """A reader's answers; `seen` are the records of each partition."""
    return [
        {
            "topic": "t",
            "partition": number,
            "records": [{"offset": offset, "value": value} for offset, value in records],
        }
        for number, records in enumerate(seen)
    ]


def compared(change, isolation=READ_COMMITTED):
    """What is wrong with a reader whose first partition was changed."""
    seen = [log.seen(isolation) for log in LOGS["t"]]
    change(seen[0])
    return run.compare(answers_of(seen), LOGS, isolation)[1]


def test_every_client_has_an_expectation_with_its_reasons():
    assert set(ABILITIES) == {client.name for client in clients.CLIENTS}
    for name, able in ABILITIES.items():
        assert bool(able.fenced) != bool(able.no_writing), name


def test_what_is_right_passes_in_each_isolation():
    for isolation in (*rules.ISOLATIONS, None):
        assert compared(lambda records: None, isolation) == []
    committed, everything = (len(LOGS["t"][0].seen(one)) for one in rules.ISOLATIONS)
    assert 0 < committed < everything


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda records: records.insert(3, (4, "dropped 0 in 0")), "dropped 0 in 0"),
        (lambda records: records.pop(), "last 0 in 0"),
        (lambda records: records.append((99, "late 0 in 0")), "late 0 in 0"),
        (lambda records: records.append(records[-1]), "11 records"),
        (lambda records: records.insert(3, (3, "\0\0\0\0\0\0")), "3, "),
    ],
    ids=["an aborted one", "one lost", "a zombie's", "one twice", "a marker"],
)
def test_a_reader_that_was_handed_something_else_is_found(change, words):
    (told,) = compared(change)
    assert words in told


def test_a_marker_is_expected_by_those_who_show_them_alone():
    seen = [log.seen(None, markers=True) for log in LOGS["t"]]
    raw = [[(o, "\0\0\0\0\0\0" if v == rules.MARKER else v) for o, v in part] for part in seen]
    assert run.compare(answers_of(raw), LOGS, None, markers=True)[1] == []
    assert len(run.compare(answers_of(raw), LOGS, None)[1]) == rules.PARTITIONS


class Broker:
    """A session that answers every operation well, but for those of a zombie."""

    def __init__(self, zombie):
        self.zombie = zombie
        self.newest = None

    def ask(self, command, timeout_s):
        if command["what"] == "open":
            self.newest = command["as"]
        late = command["what"] == "write" and command["as"] != self.newest
        return [self.zombie if late else {}]


def writer(zombie):
    return run.Writer("", Broker(zombie), clients.JAVA_39)


def test_a_zombie_must_hear_that_it_is_fenced():
    assert writer(FENCED).take_steps() == ["ProducerFencedException"] * 2
    for zombie in ({}, {"error": {"name": "TimeoutException"}, "abort": None}):
        with pytest.raises(run.Different, match="first is not fenced"):
            writer(zombie).take_steps()


class Copier:
    """A session that copies what it is told to have read."""

    def __init__(self, *reads):
        self.reads = list(reads)

    def ask(self, command, timeout_s):
        return [{"read": self.reads.pop(0)} if command["what"] == "copy" else {}]


SOURCE = {(p, o): f"{o}" for p in (0, 1) for o in (0, 4, 8, 12)}
PLACES = sorted(SOURCE)


@pytest.mark.parametrize(
    ("reads", "offsets", "words"),
    [
        ((PLACES[:5], PLACES[:5], PLACES[5:]), [{0: 13, 1: 1}] * 3, "offsets are"),
        ((PLACES[:5], PLACES[:5], PLACES[5:]), [{0: None, 1: None}] * 3, "offsets are"),
        ((PLACES[:5], PLACES[:5], PLACES[4:]), [{}, {0: 13, 1: 1}, {0: 13, 1: 13}], "copied"),
    ],
    ids=["of the aborted one", "none at all", "one copied twice"],
)
def test_offsets_of_a_transaction_are_judged(monkeypatch, reads, offsets, words):
    told = [{0: None, 1: None} | each for each in offsets]
    monkeypatch.setattr(run, "committed", lambda *_: told.pop(0))
    with pytest.raises(run.Different, match=words):
        run.Writer("", Copier(*reads), clients.JAVA_39).copy(SOURCE)


def test_copies_leave_what_was_committed():
    logs = rules.logs_of_copies([(PLACES[:5], ABORT), (PLACES[:5], COMMIT)], SOURCE)
    assert logs[0].seen(READ_COMMITTED) == [
        (5, "0 copied"), (6, "4 copied"), (7, "8 copied"), (8, "12 copied"),
    ]  # fmt: skip
    assert logs[1].seen(None) == [(0, "0 copied"), (2, "0 copied")]
