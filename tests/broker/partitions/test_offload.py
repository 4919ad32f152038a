"""An answer is tried on the loop, and made in the pool for its kind of work where it would block there."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from tidelog.broker.network.memory.memory import Memory
from tidelog.broker.network.scheduler import at_once
from tidelog.broker.partitions.offload import WouldConvert, answer
from tidelog.broker.pools import Pools
from tidelog.config import BrokerConfig
from tidelog.protocol.errors import MessageTooLarge
from tidelog.storage.would_block import NeedsMemory, WouldBlock

MIB = 1 << 20


class Node:
    """What `answer` needs of a node; `opened` are the partitions that were asked to be opened."""

    def __init__(self):
        self.pools = Pools([])
        self.opened = []
        self.memory = Memory(BrokerConfig())
        self.partitions = SimpleNamespace(opener=SimpleNamespace(open=self._open))

    async def _open(self, names):
        self.opened += names


@pytest.fixture
def node():
    node = Node()
    yield node
    node.pools.stop()


def test_what_does_not_block_is_answered_at_once(node):
    async def attempt(permit):
        return permit.may_block

    assert at_once(answer(node, [("t", 0)], attempt)) is False
    assert node.opened == []


async def test_what_opening_makes_possible_is_answered_on_the_loop(node):
    async def attempt(permit):
        assert not permit.may_block
        if not node.opened:
            raise WouldBlock
        return threading.current_thread()

    assert await answer(node, [("t", 0)], attempt) is threading.current_thread()
    assert node.opened == [("t", 0)]


@pytest.mark.parametrize(("error", "name"), [(WouldBlock, "read"), (WouldConvert, "convert")])
async def test_what_blocks_is_answered_in_the_pool_for_its_kind(node, error, name):
    async def attempt(permit):
        if not permit.may_block:
            raise error
        permit.check()
        return threading.current_thread().name

    assert (await answer(node, [], attempt)).startswith(name)


async def test_a_conversion_gets_more_memory_before_it_is_refused_and_gives_it_back(node):
    records, answers = node.memory.records, node.memory.answers
    allowed, held = [], []

    async def attempt(permit):
        if not permit.may_block:
            raise WouldConvert
        allowed.append(permit.unpacked_bytes)
        held.append((records.reserved_bytes, answers.reserved_bytes))
        if permit.may_need_more:
            raise NeedsMemory
        raise MessageTooLarge

    with pytest.raises(MessageTooLarge):
        await answer(node, [], attempt)
    assert allowed == [16 * MIB, 64 * MIB]
    assert held == [(64 * MIB, 16 * MIB), (256 * MIB, 64 * MIB)]
    assert records.reserved_bytes == answers.reserved_bytes == 0


async def test_a_conversion_waits_for_memory_and_one_given_up_leaves_nothing(node):
    records, answers = node.memory.records, node.memory.answers

    async def attempt(permit):
        if not permit.may_block:
            raise WouldConvert
        return permit.unpacked_bytes

    assert records.take(records.limit_bytes)
    waiting = [asyncio.ensure_future(answer(node, [], attempt)) for _ in range(3)]
    await asyncio.wait(waiting, timeout=0.05)
    assert records.waiting == 3
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    assert records.waiting == 2
    records.release(records.limit_bytes)
    assert [await each for each in waiting[1:]] == [16 * MIB] * 2
    assert records.reserved_bytes == answers.reserved_bytes == 0
