"""Cuts between brokers, over real connections and real stores: nothing passes, and then all of it does."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import pytest
import uvloop

from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.testing.cuts import GIVE_UP_S, Cuts
from tidelog.client import async_connection
from tidelog.client.errors import ConnectionBroken
from tidelog.protocol.errors import KafkaStorageError

BROKER = 2


class Echo(asyncio.Protocol):
    """The server's side: it answers what it gets, and notes what it saw."""

    def __init__(self, seen):
        self.seen = seen

    def connection_made(self, transport):
        self.transport = transport
        self.seen.append("made")

    def data_received(self, data):
        self.seen.append(data)
        self.transport.write(data)

    def connection_lost(self, exc):
        self.seen.append("lost")


class Asker(asyncio.BufferedProtocol):
    """The inner protocol: it collects the answers."""

    def __init__(self):
        self.got, self.lost = b"", False
        self._buffer = bytearray(1000)

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, _sizehint):
        return self._buffer

    def buffer_updated(self, nbytes):
        self.got += self._buffer[:nbytes]

    def connection_lost(self, exc):
        self.lost = True


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.001)


async def settle():
    """What would arrive without a cut has arrived after this."""
    for _ in range(20):
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def cluster_of_two():
    """Cuts, and the address of broker 2 with what its server has seen."""
    seen = []
    server = await asyncio.get_running_loop().create_server(lambda: Echo(seen), "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    endpoint = SimpleNamespace(host=host, port=port)
    session = SimpleNamespace(record=SimpleNamespace(endpoints=(endpoint,)))
    image = SimpleNamespace(brokers={BROKER: session})
    cuts = Cuts(SimpleNamespace(store=None, image=image))
    try:
        yield cuts, (host, port), seen
    finally:
        async_connection.dial_by(None)
        server.close()
        await server.wait_closed()


async def test_bytes_wait_on_both_sides_of_a_cut_and_arrive_when_it_heals():
    async with cluster_of_two() as (cuts, address, seen):
        asker = await async_connection.current_dial(Asker, *address)
        asker.transport.write(b"1")
        await until(lambda: asker.got == b"1")
        cuts.add(BROKER)
        asker.transport.write(b"2")
        asker.transport.write(b"3")
        await settle()
        assert (asker.got, b"".join(each for each in seen if each != "made")) == (b"1", b"1")
        cuts.heal(BROKER)
        await until(lambda: asker.got == b"123")
        asker.transport.abort()
        await until(lambda: asker.lost)


async def test_an_answer_on_its_way_waits_too():
    async with cluster_of_two() as (cuts, address, seen):
        asker = await async_connection.current_dial(Asker, *address)
        asker.transport.write(b"1")
        cuts.add(BROKER)
        await until(lambda: b"1" in seen)
        await settle()
        assert asker.got == b""
        cuts.heal()
        await until(lambda: asker.got == b"1")
        asker.transport.abort()
        await until(lambda: asker.lost)


def test_a_dial_that_is_given_up_when_it_has_connected_leaves_nothing_to_heal():
    """uvloop, which brokers run on, closes such a connection and tells its protocol nothing."""

    async def test():
        async with cluster_of_two() as (cuts, address, _seen):

            class GivenUp(Asker):
                def connection_made(self, transport):
                    super().connection_made(transport)
                    transport.write(b"1")
                    dialling.cancel()

            dialling = asyncio.ensure_future(async_connection.current_dial(GivenUp, *address))
            with pytest.raises(asyncio.CancelledError):
                await dialling
            cuts.add(BROKER)
            cuts.heal()
            assert not cuts.lines

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


async def test_a_connection_that_was_being_opened_when_the_cut_came_is_cut_too():
    async with cluster_of_two() as (cuts, address, seen):
        dialling = asyncio.ensure_future(async_connection.current_dial(Asker, *address))
        await asyncio.sleep(0)
        assert not cuts.lines
        cuts.add(BROKER)
        asker = await dialling
        asker.transport.write(b"1")
        await settle()
        assert b"1" not in seen
        cuts.heal()
        await until(lambda: asker.got == b"1")
        asker.transport.abort()
        await until(lambda: asker.lost)


async def test_the_other_side_does_not_notice_that_a_connection_is_given_up():
    async with cluster_of_two() as (cuts, address, seen):
        asker = await async_connection.current_dial(Asker, *address)
        await until(lambda: "made" in seen)
        cuts.add(BROKER)
        asker.transport.abort()
        await until(lambda: asker.lost)
        await settle()
        assert "lost" not in seen
        cuts.heal()
        await until(lambda: "lost" in seen)


async def test_a_new_connection_is_not_answered():
    async with cluster_of_two() as (cuts, address, seen):
        cuts.add(BROKER)
        with pytest.raises(ConnectionBroken, match="timed out"):
            await async_connection.open_connection(*address, "t", timeout_s=0.1)
        assert seen == []
        opening = asyncio.ensure_future(async_connection.current_dial(Asker, *address))
        await settle()
        assert seen == []
        cuts.heal()
        asker = await opening
        asker.transport.abort()
        await until(lambda: asker.lost)


async def test_other_brokers_are_still_reached():
    async with cluster_of_two() as (cuts, address, _):
        cuts.add(3)
        asker = await async_connection.current_dial(Asker, *address)
        asker.transport.write(b"1")
        await until(lambda: asker.got == b"1")
        asker.transport.abort()
        await until(lambda: asker.lost)


async def test_the_metadata_do_nothing_while_they_are_cut_off(tmp_path):
    metadata = local_metadata(tmp_path / "tidelog.sqlite")
    cuts = Cuts(metadata)
    await metadata.open()
    try:
        before = metadata.image.revision
        cuts.metadata = True
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        with pytest.raises(KafkaStorageError, match="cut off by a test"):
            await metadata.create_topic("t", 1, {})
        assert loop.time() - began_s >= GIVE_UP_S
        cuts.heal()
        assert (await metadata.store.read()).revision == before  # it had no effect
        await metadata.create_topic("t", 1, {})
        assert "t" in metadata.image.topics
    finally:
        async_connection.dial_by(None)
        await metadata.close()
