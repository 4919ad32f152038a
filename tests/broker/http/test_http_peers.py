"""Another broker's HTTP port that hangs, or answers too much: this one waits no longer, and takes no more."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import pytest

pytest.importorskip("aiohttp")

from tidelog.broker.http import http_peers
from tidelog.broker.http.http_peers import HttpPeers, NoAnswerError
from tidelog.broker.metadata.brokers.records import Endpoint


def node_beside(port):
    """A node whose cluster has another broker, 2, with an HTTP port."""
    record = SimpleNamespace(endpoints=(Endpoint("HTTP", "127.0.0.1", port),))
    image = SimpleNamespace(cluster_id="c", brokers={2: SimpleNamespace(record=record)})
    return SimpleNamespace(metadata=SimpleNamespace(image=image, node_id=1))


async def asked(answer):
    """The error of a request to a port that does `answer(reader, writer)`."""
    ended = asyncio.Event()

    async def serve(reader, writer):
        await answer(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    asking = HttpPeers(node_beside(server.sockets[0].getsockname()[1]))
    try:
        with pytest.raises(NoAnswerError) as refused:
            await asking.ask(2, "/v1/clock", is_long=False)
    finally:
        await asking.close()
        await ended.wait()
        server.close()
    return str(refused.value)


async def test_a_port_that_is_silent_is_waited_for_so_long(monkeypatch):
    monkeypatch.setattr(http_peers, "_WITHIN_S", 0.2)

    async def hang(reader, _writer):
        await reader.read()

    assert "in time" in await asked(hang)


async def test_an_answer_that_is_too_long_is_none(monkeypatch):
    monkeypatch.setattr(http_peers, "_MOST_BYTES", 1_000)

    async def flood(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTidelog-Broker: c/2\r\nContent-Length: 100000\r\n\r\n")
        writer.write(bytes(100_000))
        with contextlib.suppress(ConnectionError):
            await reader.read()

    assert await asked(flood) == "answers with more than 1000 bytes"


async def test_a_broker_without_a_session_is_not_asked():
    asking = HttpPeers(node_beside(1))
    with pytest.raises(NoAnswerError, match="has no session"):
        await asking.ask(3, "/v1/clock", is_long=False)
