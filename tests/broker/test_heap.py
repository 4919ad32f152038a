"""What the garbage collector looks at: not the logs that stay, and not for ever what has gone."""

from __future__ import annotations

import gc
import uuid

import pytest

from broker.heap import GROWTH, LEAST_GONE, Heap
from config.topic import TopicConfig
from storage.directory.store import LogStore


class Node:
    """Part of a cycle."""

    def __init__(self):
        self.me = self


def alive():
    return sum(type(each) is Node for each in gc.get_objects())


@pytest.fixture
def heap():
    """A collector that begins with a hundred logs; it is as before afterwards."""
    heap = Heap(100)
    yield heap
    gc.unfreeze()
    gc.collect()


def looked_at(kept):
    """How many of the objects a full collection would look at."""
    known = set(map(id, gc.get_objects()))
    return sum(id(each) in known for each in kept)


def test_what_has_grown_is_not_looked_at_again(heap):
    kept = [Node() for _ in range(50)]
    heap.look(100 + GROWTH - 1)
    assert looked_at(kept) == 50
    heap.look(100 + GROWTH)
    assert looked_at(kept) == 0
    more = [Node() for _ in range(50)]
    heap.look(100 + 2 * GROWTH - 1)
    assert looked_at(more) == 50
    heap.look(100 + 2 * GROWTH)
    assert looked_at(more) == 0


def test_garbage_is_collected_before_the_others_are_frozen(heap):
    kept = Node()
    for _ in range(20):
        Node()
    gc.collect(0)  # it is in the next generation
    heap.look(100 + GROWTH)
    gc.unfreeze()
    assert alive() == 1
    assert kept.me is kept


def test_cycles_go_when_many_logs_have_gone(heap):
    kept = [Node() for _ in range(50)]
    most = 100 + LEAST_GONE
    heap.look(most)
    del kept
    gc.collect()
    heap.look(most - LEAST_GONE + 1)
    gc.unfreeze()
    assert alive() == 50, "they were frozen, and too few logs have gone"
    gc.freeze()
    heap.look(most - LEAST_GONE)
    assert alive() == 0
    gc.unfreeze()
    assert alive() == 0


def test_logs_that_come_and_go_are_frozen_once(heap):
    heap.look(100 + GROWTH)
    heap.look(100)
    kept = [Node()]
    heap.look(100 + GROWTH - 1)
    assert looked_at(kept) == 1
    heap.look(100 + GROWTH)
    assert looked_at(kept) == 0


def test_a_deleted_log_needs_no_collector(tmp_path):
    store = LogStore([tmp_path], default_config=TopicConfig())
    store.open(0)

    def make(count):
        for index in range(count):
            store.create_partition("t", uuid.UUID(int=7), index, TopicConfig(), 0)
        for index in range(count):
            store.delete_partition("t", index)

    make(2)
    gc.collect()
    gc.disable()
    try:
        make(5)
        assert gc.collect() == 0, "a cycle keeps what was deleted"
    finally:
        gc.enable()
        store.close()
