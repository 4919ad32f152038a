"""What followers receive is counted, waits for room, and goes on however little room there is."""

from __future__ import annotations

import asyncio
import os

from tests.broker.partitions.inside import brokers, eventually, produce, values_of
from tidelog.broker.network.memory.share import Share
from tidelog.client import apis
from tidelog.client.async_connection import open_connection
from tidelog.protocol.api import fetch as fetch_api

MIB = 1 << 20
LIMIT = 8 * MIB
LARGE = 700_000
PATIENCE_S = 20


class Watched(Share):
    """A share that knows how much of it was reserved at most."""

    __slots__ = ("most_bytes",)

    def __init__(self, limit_bytes):
        super().__init__(limit_bytes)
        self.most_bytes = 0

    def take(self, size_bytes):
        is_taken = super().take(size_bytes)
        self.most_bytes = max(self.most_bytes, self.reserved_bytes)
        return is_taken

    def release(self, size_bytes):
        super().release(size_bytes)
        self.most_bytes = max(self.most_bytes, self.reserved_bytes)


async def test_a_follower_of_two_leaders_with_room_for_less_than_one_batch_gets_all(tmp_path):
    settings = {3: {"memory.limit.bytes": str(LIMIT)}}
    sent = [os.urandom(LARGE) for _ in range(4)]
    async with brokers(tmp_path, settings=settings) as three:
        follower = three[3]
        room = follower.node.memory.received
        assert (
            follower.replicas.fetching.response_max_bytes == room.limit_bytes == LIMIT // 32 < LARGE
        )
        watched = follower.replicas.fetching.received = Watched(room.limit_bytes)
        for topic, leader in (("a", 1), ("b", 2)):
            await three.create(topic, [(leader, 3)])
        for value in sent:
            for topic, leader in (("a", 1), ("b", 2)):
                assert (await produce(three[leader], topic, value, acks=1)).error_code == 0
        for topic in ("a", "b"):
            await eventually(lambda t=topic: follower.log(t).log_end_offset == len(sent))
            assert values_of(follower.log(topic)) == sent
        assert watched.most_bytes == room.limit_bytes
        await eventually(lambda: watched.reserved_bytes == 0)


async def fetching(broker, room):
    """A connection, and what it waits for: an answer with a large batch."""
    connection = await open_connection(
        "127.0.0.1", broker.port, "test", timeout_s=PATIENCE_S, room=room
    )
    wanted = fetch_api.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2 * MIB)
    request = fetch_api.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=2 * MIB,
        topics=[fetch_api.FetchTopic(topic="t", partitions=[wanted])],
    )
    return connection, connection.post(request, apis.FETCH)


async def test_an_answer_waits_until_nobody_refers_to_records_of_the_one_before(tmp_path):
    async with brokers(tmp_path, 1) as one:
        await one.create("t", [(1,)])
        assert (await produce(one[1], "t", os.urandom(LARGE))).error_code == 0
        room = Share(MIB)
        first, answer = await fetching(one[1], room)
        held = [(await answer).responses[0].partitions[0].records]
        del answer
        assert LARGE < room.reserved_bytes < MIB
        gone, never = await fetching(one[1], room)
        await eventually(lambda: room.waiting == 1)
        second, answer = await fetching(one[1], room)
        await eventually(lambda: room.waiting == 2)
        first.close()  # what it has brought is there all the same
        gone.close()
        await eventually(lambda: room.waiting == 1)
        assert never.exception() is not None
        assert not answer.done()
        await asyncio.to_thread(held.clear)
        got = len((await answer).responses[0].partitions[0].records)
        assert LARGE < got < room.reserved_bytes
        del answer
        await eventually(lambda: room.reserved_bytes == 0)
        second.close()
        for each in (first, gone, second):
            await each.wait_closed()
