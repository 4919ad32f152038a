"""A follower appends in a thread what would hold its loop up, with memory for what unpacks to much."""

from __future__ import annotations

import threading
from typing import NamedTuple

import pytest

from tests.broker.partitions.inside import append, eventually, part_of, produce, values_of
from tidelog.broker.network.memory.share import Share
from tidelog.broker.partitions.following import partition_follower
from tidelog.broker.partitions.following.partition_follower import PartitionFollower
from tidelog.protocol.records.batch import build
from tidelog.protocol.records.compression import STORED_LIMIT
from tidelog.protocol.records.layout import Compression, Record
from tidelog.storage.would_block import SHORT_UNPACK_BYTES

MIB = 1 << 20


class Attempt(NamedTuple):
    """One attempt to append an answer: where, what a batch might unpack to, and what was reserved."""

    is_on_loop: bool
    unpack_limit: int
    reserved_bytes: int


@pytest.fixture
def attempts(monkeypatch):
    """What the followers have attempted, for answers with records."""
    seen = []
    append = PartitionFollower._append

    def watched(self, data, *more):
        if data.records:
            is_on_loop = threading.current_thread() is threading.main_thread()
            (unpack_limit,) = more
            seen.append(Attempt(is_on_loop, unpack_limit, self._context.unpacked.reserved_bytes))
        append(self, data, *more)

    monkeypatch.setattr(PartitionFollower, "_append", watched)
    return seen


@pytest.fixture
async def following(three):
    """What follows broker 1 at broker 2: it has read the log and is in sync."""
    for each in three.all.values():
        each.replicas.fetching.fetch_wait_ms = 60_000  # no fetch ends by itself
    topic = await three.create("t", [(1, 2)])
    assert (await produce(three[1], "t", b"first")).error_code == 0
    return three[2].replicas.followed_by_id(topic.topic_id, 0)


async def produce_packed(leader, value, *, acks=-1):
    """Produces a record in a batch of its own, compressed with LZ4."""
    records = build([Record(0, 1_000, None, value)], compression=Compression.LZ4)
    assert part_of(await append(leader, "t", records, acks=acks)).error_code == 0


@pytest.mark.parametrize(("batches", "is_on_loop"), [(4, True), (5, False)])
async def test_many_batches_are_appended_in_a_thread(
    three, following, monkeypatch, attempts, batches, is_on_loop
):
    monkeypatch.setattr(partition_follower, "_LOOP_BATCHES", 4)
    following._wait(3600)  # it asks for nothing, so that all come in one answer
    assert (await produce(three[1], "t", b"0", acks=1)).error_code == 0
    await eventually(lambda: three[2].log("t").log_end_offset == 2)
    attempts.clear()
    for number in range(batches):
        assert (await produce(three[1], "t", b"%d" % number, acks=1)).error_code == 0
    following._go_on(following._pause)
    await eventually(lambda: three[2].log("t").log_end_offset == 2 + batches)
    assert [each.is_on_loop for each in attempts] == [is_on_loop]
    expected = [b"first", b"0", *(b"%d" % number for number in range(batches))]
    assert values_of(three[2].log("t")) == expected


@pytest.mark.usefixtures("following")
async def test_what_unpacks_to_little_is_appended_on_the_loop(three, attempts):
    attempts.clear()
    await produce_packed(three[1], b"x" * MIB)
    assert attempts == [Attempt(True, SHORT_UNPACK_BYTES, 0)]
    assert values_of(three[2].log("t"))[1:] == [b"x" * MIB]


@pytest.mark.usefixtures("following")
async def test_what_unpacks_to_much_is_appended_in_a_thread_with_memory(three, attempts):
    large = b"x" * (6 * MIB)
    share = three[2].replicas.following.unpacked = Share(32 * MIB)
    attempts.clear()
    await produce_packed(three[1], large)
    assert attempts == [
        Attempt(True, SHORT_UNPACK_BYTES, 0),
        Attempt(False, SHORT_UNPACK_BYTES, 0),
        Attempt(False, 8 * MIB, 8 * MIB),
    ]
    assert values_of(three[2].log("t"))[1:] == [large]
    await eventually(lambda: share.reserved_bytes == 0)


@pytest.mark.usefixtures("following")
async def test_what_unpacks_to_more_than_a_follower_has_memory_for_takes_all_of_it(three, attempts):
    large = b"x" * (6 * MIB)
    share = three[2].replicas.following.unpacked = Share(MIB)
    attempts.clear()
    await produce_packed(three[1], large)
    assert attempts[-1] == Attempt(False, STORED_LIMIT, MIB)
    assert values_of(three[2].log("t"))[1:] == [large]
    await eventually(lambda: share.reserved_bytes == 0)


async def test_nothing_is_tried_again_once_the_role_has_ended(three, following, monkeypatch):
    append = PartitionFollower._append
    share = three[2].replicas.following.unpacked = Share(32 * MIB)

    def ends(self, data, *more):
        if data.records and threading.current_thread() is not threading.main_thread():
            self.is_stopped = True
        append(self, data, *more)

    monkeypatch.setattr(PartitionFollower, "_append", ends)
    assert share.take(32 * MIB)
    await produce_packed(three[1], b"x" * (6 * MIB), acks=1)
    await eventually(lambda: following.is_stopped and following.work is None)
    assert share.waiting == 0
    assert three[2].log("t").log_end_offset == 1


@pytest.mark.usefixtures("following")
async def test_it_waits_until_there_is_memory(three, attempts):
    large = b"x" * (6 * MIB)
    share = three[2].replicas.following.unpacked = Share(32 * MIB)
    assert share.take(32 * MIB)
    attempts.clear()
    await produce_packed(three[1], large, acks=1)
    await eventually(lambda: share.waiting == 1)
    assert len(attempts) == 2  # neither of which reserves memory
    assert three[2].log("t").log_end_offset == 1
    share.release(32 * MIB)
    await eventually(lambda: three[2].log("t").log_end_offset == 2)
    assert values_of(three[2].log("t"))[1:] == [large]


@pytest.mark.usefixtures("following")
async def test_who_waits_for_memory_leads_at_once_when_the_leader_is_gone(three):
    share = three[2].replicas.following.unpacked = Share(32 * MIB)
    assert share.take(32 * MIB)
    await produce_packed(three[1], b"x" * (6 * MIB), acks=1)
    await eventually(lambda: share.waiting == 1)
    await three[1].lose_session()
    await three.elect("t", 2)
    await eventually(lambda: three[2].leads("t"))
    assert share.waiting == 0
    assert share.reserved_bytes == 32 * MIB
    assert values_of(three[2].log("t")) == [b"first"]
    assert (await produce(three[2], "t", b"second", acks=1)).error_code == 0
