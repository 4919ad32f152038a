"""TLS below a connection, with a real peer: what is sent arrives, what is not read is bounded and counted."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest

from tests.certificates import Authority
from tidelog.broker.network.tls import stream
from tidelog.broker.network.tls.handshakes import Handshakes
from tidelog.broker.network.tls.stream import ARRIVING_BYTES, TlsStream

HOST = "127.0.0.1"
LARGE = bytes(range(256)) * (40 << 10)  # 10 MiB
CLOSE_FIRST = b"close"


class MonotonicClock:
    """The clock of the running loop."""

    def monotonic_s(self):
        return asyncio.get_running_loop().time()


class Peer(asyncio.BufferedProtocol):
    """What is above the TLS: keeps what arrives, and what else happens."""

    def __init__(self):
        self.place = memoryview(bytearray(50_000))
        self.received = b""
        self.events = []
        self.transport = None
        self.changed = asyncio.Event()

    def note(self, event):
        self.events.append(event)
        self.changed.set()

    def connection_made(self, transport):
        self.transport = transport

    def get_buffer(self, _sizehint):
        return self.place

    def buffer_updated(self, nbytes):
        self.received += bytes(self.place[:nbytes])
        self.note("data")

    def eof_received(self):
        self.note("eof")
        return self.received.startswith(CLOSE_FIRST)

    def connection_lost(self, _exc):
        self.note("lost")

    def pause_writing(self):
        self.note("paused")

    def resume_writing(self):
        self.note("resumed")

    async def wait(self, condition):
        async with asyncio.timeout(20):
            while not condition(self):
                self.changed.clear()
                await self.changed.wait()


class Server:
    """A listener of TLS whose connections are kept."""

    def __init__(self, contexts):
        self.served, self.client = contexts
        self.peers = []
        self.failures = []
        self.arriving = memoryview(bytearray(ARRIVING_BYTES))
        self.handshakes = Handshakes(MonotonicClock())
        self._changed = asyncio.Event()

    def accept(self):
        peer = Peer()
        self.peers.append(peer)
        self._changed.set()
        return TlsStream(peer, self.served, self.handshakes, self.arriving, self.fail)

    def fail(self, error):
        self.failures.append(error)
        self._changed.set()

    async def first(self, found):
        """Returns the first of `peers` or `failures`, when there is one."""
        async with asyncio.timeout(20):
            while not found:
                self._changed.clear()
                await self._changed.wait()
        return found[0]

    async def connect(self):
        reader, writer = await asyncio.open_connection(HOST, self.port, ssl=self.client)
        peer = self.peers[-1]
        writer.write(b"!")
        await peer.wait(lambda each: each.received)
        peer.received, peer.events[:] = b"", []
        return reader, writer, peer


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    authority = Authority("tests")
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = authority.issue("broker", hosts=[HOST])
    served.load_cert_chain(own.write_pem(tmp_path_factory.mktemp("tls") / "own.pem"))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=authority.pem)
    return served, client


@pytest.fixture
async def server(contexts):
    server = Server(contexts)
    listening = await asyncio.get_running_loop().create_server(server.accept, HOST, 0)
    server.port = listening.sockets[0].getsockname()[1]
    yield server
    for peer in server.peers:
        if peer.transport is not None:
            peer.transport.abort()
    listening.close()


async def test_what_a_client_sends_arrives_and_what_it_is_sent_too(server):
    reader, writer, peer = await server.connect()
    writer.write(LARGE)
    await peer.wait(lambda each: len(each.received) == len(LARGE))
    assert peer.received == LARGE
    peer.transport.write(b"one")
    peer.transport.writelines([b"two", bytearray(b"three"), memoryview(b"four")])
    peer.transport.writelines([b"head", LARGE, memoryview(LARGE)[5:]])
    expected = b"onetwothreefour" + b"head" + LARGE + LARGE[5:]
    async with asyncio.timeout(20):
        assert await reader.readexactly(len(expected)) == expected
    writer.close()


async def test_what_is_not_read_is_counted_and_not_encrypted(server):
    reader, writer, peer = await server.connect()
    peer.transport.writelines([b"head", LARGE * 5])
    await peer.wait(lambda each: "paused" in each.events)
    sent = peer.transport._socket.get_write_buffer_size()
    unread = peer.transport.get_write_buffer_size()
    assert unread > len(LARGE) * 3  # the sockets hold some
    assert sent < 1 << 20
    async with asyncio.timeout(20):
        await reader.readexactly(4 + len(LARGE) * 5)
    await peer.wait(lambda each: "resumed" in each.events)
    assert peer.transport.get_write_buffer_size() < 1 << 20
    writer.close()


async def test_one_step_of_the_loop_encrypts_a_slice(server):
    _, writer, peer = await server.connect()
    writer.transport.pause_reading()
    peer.transport.write(LARGE)
    assert peer.transport.get_write_buffer_size() >= len(LARGE) - stream._TURN_BYTES
    writer.close()


async def test_everything_is_sent_before_a_close_and_the_close_is_announced(server):
    reader, writer, peer = await server.connect()
    peer.transport.write(LARGE)
    peer.transport.close()
    peer.transport.write(b"after")
    async with asyncio.timeout(20):
        assert await reader.read() == LARGE
    await peer.wait(lambda each: each.events[-1:] == ["lost"])
    writer.close()


class RawClient:
    """A client with a socket of its own, which closes a side without a close_notify, as TLS allows."""

    def __init__(self, port, context):
        self.socket = socket.create_connection((HOST, port), timeout=60)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=HOST)
        self._until_read(self._tls.do_handshake)

    def send(self, data):
        self._tls.write(data)
        self.socket.sendall(self._outgoing.read())

    def read(self):
        """Returns what is sent next; b"" for a close_notify."""
        return self._until_read(lambda: self._tls.read(65_536))

    def _until_read(self, work):
        while True:
            try:
                result = work()
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._incoming.write(self.socket.recv(65_536))
            else:
                self.socket.sendall(self._outgoing.read())
                return result


def send_and_close(port, context, data):
    """Sends bytes, and closes as a killed process does: without a close_notify."""
    client = RawClient(port, context)
    client.send(data)
    client.socket.shutdown(socket.SHUT_WR)
    while client.socket.recv(65_536):
        pass
    client.socket.close()


async def test_a_side_is_closed_and_the_other_still_read(server):
    client = await asyncio.to_thread(RawClient, server.port, server.client)
    peer = server.peers[0]
    peer.transport.write(b"last")
    peer.transport.write_eof()
    assert await asyncio.to_thread(client.read) == b"last"
    assert await asyncio.to_thread(client.read) == b""
    client.send(b"still")
    await peer.wait(lambda each: each.received == b"still")
    client.socket.close()


@pytest.mark.parametrize("data", [b"x" * 100_000, CLOSE_FIRST])
async def test_what_came_before_a_close_without_notice_is_delivered(server, data):
    ended = asyncio.create_task(asyncio.to_thread(send_and_close, server.port, server.client, data))
    peer = await server.first(server.peers)
    await peer.wait(lambda each: "eof" in each.events)
    assert peer.received == data
    if data == CLOSE_FIRST:  # it still answers
        assert not peer.transport.is_closing()
        peer.transport.close()
    await ended


async def test_the_peers_close_notify_ends_its_side(server):
    _, writer, peer = await server.connect()
    writer.write(b"last")
    writer.close()
    await peer.wait(lambda each: each.events[-1:] == ["lost"])
    assert peer.received == b"last"
    assert "eof" in peer.events


async def test_nothing_is_delivered_while_reading_is_paused(server):
    _, writer, peer = await server.connect()
    peer.transport.pause_reading()
    writer.write(b"early")
    await asyncio.sleep(0.05)  # time in which it would arrive
    assert peer.received == b""
    peer.transport.resume_reading()
    await peer.wait(lambda each: each.received == b"early")
    writer.close()


async def test_a_handshake_that_takes_too_long_ends(server, monkeypatch):
    monkeypatch.setattr(stream, "HANDSHAKE_S", 0.05)
    reader, writer = await asyncio.open_connection(HOST, server.port)
    async with asyncio.timeout(20):
        assert await reader.read() == b""
    assert isinstance(await server.first(server.failures), TimeoutError)
    writer.close()


async def test_a_client_without_tls_is_refused(server):
    reader, writer = await asyncio.open_connection(HOST, server.port)
    writer.write(b"\0\0\0\x10\0\x12\0\0" + bytes(12))
    async with asyncio.timeout(20):
        await reader.read()
    assert isinstance(await server.first(server.failures), ssl.SSLError)
    await server.peers[0].wait(lambda each: each.events == ["lost"])
    writer.close()


async def test_a_client_that_leaves_during_the_handshake_leaves_nothing(server):
    _, writer = await asyncio.open_connection(HOST, server.port)
    writer.write(b"\x16\x03\x01")
    writer.close()
    peer = await server.first(server.peers)
    await peer.wait(lambda each: each.events == ["lost"])
    assert server.failures == []
