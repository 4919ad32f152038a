"""Cuts between brokers, over real connections and real stores: nothing passes, and then all of it does."""

from __future__ import annotations

import asyncio
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


class Two:
    """Cuts of a broker, and broker 2 with what its server has seen; both on the running loop."""

    async def __aenter__(self):
        self.seen, self.askers = [], []
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(lambda: Echo(self.seen), "127.0.0.1", 0)
        self.address = host, port = self.server.sockets[0].getsockname()
        session = SimpleNamespace(
            record=SimpleNamespace(endpoints=(SimpleNamespace(host=host, port=port),))
        )
        image = SimpleNamespace(brokers={BROKER: session})
        self.cuts = Cuts(SimpleNamespace(store=None, image=image))
        return self

    async def dial(self, kind=Asker):
        self.askers.append(await async_connection.current_dial(kind, *self.address))
        return self.askers[-1]

    async def __aexit__(self, *_):
        for asker in self.askers:
            asker.transport.abort()
            await until(lambda asker=asker: asker.lost)
        async_connection.dial_by(None)
        self.server.close()
        await self.server.wait_closed()


@pytest.fixture
async def two():
    async with Two() as two:
        yield two


async def test_bytes_wait_on_both_sides_of_a_cut_and_arrive_when_it_heals(two):
    asker = await two.dial()
    asker.transport.write(b"1")
    await until(lambda: asker.got == b"1")
    two.cuts.add(BROKER)
    asker.transport.write(b"2")
    asker.transport.write(b"3")
    await settle()
    assert (asker.got, b"".join(each for each in two.seen if each != "made")) == (b"1", b"1")
    two.cuts.heal(BROKER)
    await until(lambda: asker.got == b"123")


async def test_an_answer_on_its_way_waits_too(two):
    asker = await two.dial()
    asker.transport.write(b"1")
    two.cuts.add(BROKER)
    await until(lambda: b"1" in two.seen)
    await settle()
    assert asker.got == b""
    two.cuts.heal()
    await until(lambda: asker.got == b"1")


def test_a_dial_that_is_given_up_when_it_has_connected_leaves_nothing_to_heal():
    """uvloop, which brokers run on, closes such a connection and tells its protocol nothing."""

    async def test():
        async with Two() as two:

            class GivenUp(Asker):
                def connection_made(self, transport):
                    super().connection_made(transport)
                    transport.write(b"1")
                    dialling.cancel()

            dialling = asyncio.ensure_future(two.dial(GivenUp))
            with pytest.raises(asyncio.CancelledError):
                await dialling
            two.cuts.add(BROKER)
            two.cuts.heal()
            assert not two.cuts.lines

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


async def test_a_connection_that_was_being_opened_when_the_cut_came_is_cut_too(two):
    dialling = asyncio.ensure_future(two.dial())
    await asyncio.sleep(0)
    assert not two.cuts.lines
    two.cuts.add(BROKER)
    asker = await dialling
    asker.transport.write(b"1")
    await settle()
    assert b"1" not in two.seen
    two.cuts.heal()
    await until(lambda: asker.got == b"1")


async def test_the_other_side_does_not_notice_that_a_connection_is_given_up(two):
    asker = await two.dial()
    await until(lambda: "made" in two.seen)
    two.cuts.add(BROKER)
    asker.transport.abort()
    await until(lambda: asker.lost)
    await settle()
    assert "lost" not in two.seen
    two.cuts.heal()
    await until(lambda: "lost" in two.seen)


async def test_a_new_connection_is_not_answered(two):
    two.cuts.add(BROKER)
    with pytest.raises(ConnectionBroken, match="timed out"):
        await async_connection.open_connection(*two.address, "t", timeout_s=0.1)
    assert two.seen == []
    opening = asyncio.ensure_future(two.dial())
    await settle()
    assert two.seen == []
    two.cuts.heal()
    await opening


async def test_other_brokers_are_still_reached(two):
    two.cuts.add(3)
    asker = await two.dial()
    asker.transport.write(b"1")
    await until(lambda: asker.got == b"1")


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
