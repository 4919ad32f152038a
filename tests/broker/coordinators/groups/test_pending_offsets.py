"""The pending offsets of a group, beside a model that looks at every batch."""

from __future__ import annotations

import random
import sys

import pytest

from tidelog.broker.coordinators.groups.committed import Committed
from tidelog.broker.coordinators.groups.pending_offsets import PendingBatch, PendingOffsets

_NAMES = [("t", index) for index in range(12)]
_MOST_LINES = 20


def batch_of(names):
    return PendingBatch({name: Committed(0, -1, "", 0) for name in names})


def lines_of(call):
    """How many lines of Python a call executes."""
    lines = 0

    def trace(_frame, event, _):
        nonlocal lines
        lines += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return lines


class Model:
    """What is pending, by a look at every batch."""

    def __init__(self):
        self.batches = {}

    def all(self):
        return [batch for batches in self.batches.values() for batch in batches]

    def names(self):
        return {name for batch in self.all() for name in batch.offsets}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_added_ended_withdrawn_and_dropped(seed):
    chosen, pending, model, at = random.Random(seed), PendingOffsets(), Model(), 0
    for _ in range(200):
        producer, some = chosen.randrange(4), chosen.sample(_NAMES, chosen.randrange(1, 5))
        mine = model.batches.get(producer, [])
        match chosen.choice(("add", "add", "add", "end", "withdraw", "drop")):
            case "add":
                batch, at = batch_of(some), at + 1
                batch.base_offset = at
                pending.add(producer, batch)
                model.batches.setdefault(producer, []).append(batch)
            case "end":
                marker = at - chosen.randrange(3) + 0.5
                ended = pending.end(producer, marker)
                assert ended == [batch for batch in mine if batch.base_offset < marker]
                model.batches[producer] = [batch for batch in mine if batch not in ended]
            case "withdraw" if mine:
                pending.withdraw(producer, mine.pop(chosen.randrange(len(mine))))
            case "drop":
                for batch in pending.of(some):
                    batch.drop(some)
                assert not model.names().intersection(some)
        assert pending.names() == model.names()
        assert [name for name in _NAMES if name in pending] == sorted(model.names())
        assert set(pending.of(some)) == {
            batch for batch in model.all() if not batch.offsets.keys().isdisjoint(some)
        }
        assert bool(pending) == any(model.batches.values())


def test_a_batch_that_two_groups_of_one_name_have_is_dropped_from_both():
    """A group that was deleted meanwhile, and the one that has its name now."""
    before, now, batch = PendingOffsets(), PendingOffsets(), batch_of(_NAMES)
    before.add(1, batch)
    now.add(1, batch)
    batch.drop(_NAMES[:2])
    assert before.names() == now.names() == set(_NAMES[2:])


def test_a_look_at_one_partition_does_not_look_at_every_batch():
    pending = PendingOffsets()
    for number in range(1_000):  # as after a start: each record is a batch
        pending.add(number % 7, batch_of([("t", number)]))
    assert lines_of(lambda: ("t", 999) in pending) < _MOST_LINES
    assert lines_of(lambda: ("t", 1_000) in pending) < _MOST_LINES
    assert lines_of(lambda: pending.of([("t", 1_000)])) < _MOST_LINES
