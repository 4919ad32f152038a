"""The asyncio shell against running brokers, and against peers that behave badly."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest

from tidelog.client import ClusterUnreachable, ConnectionBroken, RequestError
from tidelog.client.apis import FETCH, METADATA
from tidelog.client.async_client import AsyncClient
from tidelog.client.async_connection import open_connection
from tidelog.client.calls import records as calls
from tidelog.client.calls import topics
from tidelog.client.calls.replication import replica_fetch
from tidelog.client.retry import Backoff, Retry
from tidelog.protocol.api import fetch, metadata
from tidelog.protocol.message import codec
from tidelog.protocol.records.batch import Record, build, records

pytestmark = pytest.mark.timeout(60)


def batch(count=3):
    return build([Record(n, 1000 + n, b"k%d" % n, None) for n in range(count)])


async def test_what_is_produced_is_fetched(either, topic):
    async with AsyncClient(either) as client:
        await client.perform(topics.create(topic, 2, {"retention.ms": "-1"}))
        assert len((await client.topics([topic]))[topic].partitions) == 2
        # Apache Kafka may not lead yet what it has just created. It does once it knows the end.
        await client.perform(calls.list_offset(topic, 1, calls.LATEST))
        first = await client.perform(calls.append(topic, 1, batch()))
        second = await client.perform(calls.append(topic, 1, batch()))
        assert (first.base_offset, second.base_offset) == (0, 3)
        fetched = await client.perform(calls.fetch_records(topic, 1, 0))
        assert [one.offset for one in records(fetched.records)] == list(range(6))
        with pytest.raises(RequestError, match="OFFSET_OUT_OF_RANGE"):
            await client.perform(calls.fetch_records(topic, 1, 9))


async def test_many_requests_share_one_connection_and_do_not_wait_for_each_other(broker, topic):
    async with AsyncClient(broker.bootstrap) as client:
        await client.perform(topics.create(topic, 4, {}))
        ends = [calls.list_offset(topic, n % 4, calls.LATEST) for n in range(400)]
        found = await asyncio.gather(*map(client.perform, ends))
        assert {one.offset for one in found} == {0}
        (node,) = (await client.topics([topic]))[topic].partitions[:1]
        assert await client.connection(node.leader) is await client.connection(node.leader)


async def test_without_acknowledgement_nobody_answers(broker, topic):
    async with AsyncClient(broker.bootstrap) as client:
        await client.perform(topics.create(topic, 1, {}))
        await client.perform(calls.append(topic, 0, batch(), acks=0))
        # On the same connection, behind it: what is asked next sees the records.
        assert (await client.perform(calls.list_offset(topic, 0, calls.LATEST))).offset == 3


async def test_a_cancelled_request_leaves_the_connection_in_order(broker, topic):
    async with AsyncClient(broker.bootstrap) as client:
        await client.perform(topics.create(topic, 1, {}))
        waiting = asyncio.create_task(
            client.perform(calls.fetch_records(topic, 0, 0, max_wait_ms=400))
        )
        await asyncio.sleep(0.1)
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert (await client.perform(calls.list_offset(topic, 0, calls.LATEST))).offset == 0
        assert (await client.perform(calls.append(topic, 0, batch()))).base_offset == 0


async def test_a_broker_that_is_killed_and_comes_back_is_found_again(broker, topic):
    async with AsyncClient(broker.bootstrap) as client:
        await client.perform(topics.create(topic, 1, {}))
        await client.perform(calls.append(topic, 0, batch()))
        await asyncio.to_thread(broker.kill)
        back = asyncio.create_task(asyncio.to_thread(broker.restart))
        ends = [client.perform(calls.list_offset(topic, 0, calls.LATEST)) for _ in range(20)]
        assert {one.offset for one in await asyncio.gather(*ends)} == {3}
        await back


async def test_closing_ends_what_is_under_way(broker, topic):
    """Long fetches fail at once, nothing connects again, and a request to a closed client is refused."""
    client = AsyncClient(broker.bootstrap, timeout_s=60)
    await client.perform(topics.create(topic, 2, {}))
    leader = (await client.topics([topic]))[topic].partitions[0].leader
    connection = await client.connection(leader)
    waiting = [
        asyncio.create_task(
            client.perform(calls.fetch_records(topic, n % 2, 0, max_wait_ms=50_000))
        )
        for n in range(6)
    ]
    await asyncio.sleep(0.1)
    assert not any(one.done() for one in waiting)
    began = time.monotonic()
    await client.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert time.monotonic() - began < 20
    assert {type(one) for one in ended} == {ClusterUnreachable}
    assert {str(one) for one in ended} == {"the client was closed"}
    assert connection.is_closed
    with pytest.raises(ClusterUnreachable, match="the client was closed"):
        await client.topics()
    await client.close()


def _silent(came, left):
    """A peer that accepts and shakes no hands; it says when somebody came, and left."""

    async def serve(reader, writer):
        came.set()
        try:
            with contextlib.suppress(ConnectionError):
                while await reader.read(1000):
                    pass
        finally:
            left.set()
            writer.close()

    return serve


async def test_closing_cuts_short_an_attempt_to_connect_and_those_who_wait_for_it():
    came, left = asyncio.Event(), asyncio.Event()

    async with serving(_silent(came, left)) as port:
        client = AsyncClient(f"127.0.0.1:{port}", timeout_s=600, request_timeout_s=600)
        waiting = [asyncio.create_task(client.topics()) for _ in range(3)]
        await came.wait()
        await asyncio.wait_for(client.close(), 20)
        ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 20)
        assert [str(one) for one in ended] == ["the client was closed"] * 3
        assert {type(one) for one in ended} == {ClusterUnreachable}
        await asyncio.wait_for(left.wait(), 20)


@pytest.mark.parametrize("pauses", ["before a retry", "before it connects again"])
async def test_closing_cuts_short_a_pause(monkeypatch, pauses):
    paused = asyncio.Event()

    def forever(*_):
        paused.set()
        return 600.0

    if pauses == "before a retry":
        monkeypatch.setattr(Retry, "pause_after", forever)
    else:
        monkeypatch.setattr(Backoff, "wait_s", forever)
    async with serving(lambda *_: None) as port:
        pass  # nobody listens there any more
    client = AsyncClient(f"127.0.0.1:{port}", timeout_s=600)
    waiting = asyncio.create_task(client.topics())
    await asyncio.wait_for(paused.wait(), 20)
    await asyncio.wait_for(client.close(), 20)
    with pytest.raises(ClusterUnreachable, match="the client was closed"):
        await asyncio.wait_for(waiting, 20)


async def test_a_cancelled_attempt_to_connect_is_cancelled_and_not_closed():
    came = asyncio.Event()

    async with (
        serving(_silent(came, asyncio.Event())) as port,
        AsyncClient(f"127.0.0.1:{port}") as client,
    ):
        waiting = asyncio.create_task(client.topics())
        await came.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


@contextlib.asynccontextmanager
async def serving(serve):
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_a_broker_that_never_answers_is_given_up_in_time(broker, topic):
    """Everybody who waits on the connection is told; the next request makes another."""
    host, _, port = broker.bootstrap.rpartition(":")
    async with AsyncClient(broker.bootstrap) as client:
        await client.perform(topics.create(topic, 1, {}))
    one = await open_connection(host, int(port), "test", timeout_s=30)
    slow = fetch.FetchRequest(
        max_wait_ms=30_000,
        min_bytes=1,
        max_bytes=100,
        topics=[
            fetch.FetchTopic(
                topic=topic,
                partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=100)],
            )
        ],
    )
    began = time.monotonic()
    both = await asyncio.gather(
        one.ask(slow, FETCH, timeout_s=0.3),
        one.ask(metadata.MetadataRequest(topics=[]), METADATA, timeout_s=30),
        return_exceptions=True,
    )
    assert time.monotonic() - began < 20
    assert [type(each) for each in both] == [ConnectionBroken, ConnectionBroken]
    assert "did not answer in time" in str(both[0])
    assert one.is_closed
    with pytest.raises(ConnectionBroken):
        await one.ask(slow, FETCH, timeout_s=1)
    await one.wait_closed()


async def test_a_silent_peer_is_given_up_while_it_shakes_hands():
    async with serving(_silent(asyncio.Event(), asyncio.Event())) as port:
        began = time.monotonic()
        with pytest.raises(ConnectionBroken, match="timed out"):
            await open_connection("127.0.0.1", port, "test", timeout_s=0.2)
        assert time.monotonic() - began < 2


async def test_a_peer_that_talks_nonsense_is_told_apart():
    async def http(reader, writer):
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    async with serving(http) as port:
        with pytest.raises(ConnectionBroken, match="announces an answer of"):
            await open_connection("127.0.0.1", port, "test", timeout_s=30)


async def test_a_cluster_that_is_not_there_is_unreachable_in_time():
    async with serving(lambda *_: None) as port:
        pass  # nobody listens there any more
    began = time.monotonic()
    async with AsyncClient(f"127.0.0.1:{port}", timeout_s=0.5) as client:
        with pytest.raises(ClusterUnreachable, match="cannot be reached"):
            await client.topics()
    assert time.monotonic() - began < 5


class _Receiver:
    """What a connection has told it."""

    def __init__(self):
        self.told = asyncio.Queue()

    def answered(self, answer):
        self.told.put_nowait(answer)

    def broken(self, failure):
        self.told.put_nowait(failure)


async def test_a_receiver_gets_answers_in_their_turn_and_the_end_of_the_connection(broker):
    host, port = broker.bootstrap.split(":")
    connection = await open_connection(host, int(port), "test", timeout_s=20)
    receiver, asked = _Receiver(), metadata.MetadataRequest(topics=[])
    version = connection.version_between(METADATA, 9)
    body = codec(metadata.MetadataRequest, version).encode(asked)
    try:
        before = connection.post(asked, METADATA)
        connection.post_to(receiver, asked, METADATA, version)
        connection.post_to(receiver, body, METADATA, version)
        async with asyncio.timeout(20):
            brokers = (await before).brokers
            for _ in range(2):
                assert (await receiver.told.get()).brokers == brokers
        waiting = replica_fetch(0, 0, {}, max_bytes=1, max_wait_ms=60_000)
        fetch_version = connection.version_between(FETCH, 15)
        connection.post_to(receiver, waiting, FETCH, fetch_version)
    finally:
        connection.close()
        await connection.wait_closed()
    assert isinstance(receiver.told.get_nowait(), ConnectionBroken)
    with pytest.raises(ConnectionBroken):
        connection.post_to(receiver, body, METADATA, version)
    assert receiver.told.empty()
