"""An answer is tried on the loop, and made in the pool for its kind of work where it would block there."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from broker.partitions.offload import WouldConvert, answer
from broker.pools import Pools
from storage.would_block import WouldBlock


class Node:
    """What `answer` needs of a node; `opened` are the partitions that were asked to be opened."""

    def __init__(self):
        self.pools = Pools([])
        self.opened = []
        self.openings = SimpleNamespace(open=self._open)

    async def _open(self, names):
        self.opened += names


@pytest.fixture
def node():
    node = Node()
    yield node
    node.pools.stop()


def test_what_does_not_block_is_answered_at_once(node):
    assert answer(node, [("t", 0)], lambda permit: permit.may_block) is False
    assert node.opened == []


async def test_what_opening_makes_possible_is_answered_on_the_loop(node):
    def attempt(permit):
        assert not permit.may_block
        if not node.opened:
            raise WouldBlock
        return threading.current_thread()

    assert await answer(node, [("t", 0)], attempt) is threading.current_thread()
    assert node.opened == [("t", 0)]


@pytest.mark.parametrize(("error", "name"), [(WouldBlock, "read"), (WouldConvert, "convert")])
async def test_what_blocks_is_answered_in_the_pool_for_its_kind(node, error, name):
    def attempt(permit):
        if not permit.may_block:
            raise error
        permit.check()
        return threading.current_thread().name

    assert (await answer(node, [], attempt)).startswith(name)
