"""What an HTTP port refuses: connections too many or silent, names not known, lengths that lie."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import pytest
import uvloop
from aiohttp import web

from tidelog.broker.http import answers
from tidelog.broker.http.answers import body_of, error_middleware
from tidelog.broker.http.server import HttpLimits, HttpServer
from tidelog.broker.http.slots import RESERVED_SLOTS

OK = b"HTTP/1.1 200 OK\r\n"
BAD = b" 400 Bad Request\r\n"


def request(path="/length", host="localhost", method="GET", headers="", body=""):
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n"
    return (head + body).encode()


class Port:
    """A port with one page: it answers how long the body of a POST is."""

    def __init__(self, *, connections=5, head_timeout_s=10.0):
        self.refused = 0
        names = frozenset({"known"})
        limits = HttpLimits(lambda: connections, lambda: names, self._refuse, head_timeout_s)
        self.server = HttpServer(web, limits)
        self.listening = socket.create_server(("127.0.0.1", 0))

    def _refuse(self, host):
        assert host == "127.0.0.1"
        self.refused += 1

    async def ask(self, data):
        """Returns everything that is answered until the end of the connection."""
        reader, writer = await asyncio.open_connection(*self.listening.getsockname())
        try:
            writer.write(data)
            return await asyncio.wait_for(reader.read(), 30)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def serving(**limits):
    async def length(request):
        return web.Response(text=str(len(await body_of(request))))

    port = Port(**limits)
    middlewares = [port.server.middleware(), error_middleware(web, answers, ["/"])]
    app = web.Application(middlewares=middlewares)
    app.router.add_route("*", "/length", length)
    await port.server.start(app, port.listening)
    try:
        yield port
    finally:
        await port.server.cleanup()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "[::1]", "known", "KNOWN:8080"])
async def test_known_names_and_addresses_are_answered(host):
    async with serving() as port:
        assert (await port.ask(request(host=host))).startswith(OK)


@pytest.mark.parametrize("host", ["evil.example", "known.evil.example", "localhost.evil.example"])
async def test_any_other_name_is_forbidden(host):
    async with serving() as port:
        answer = await port.ask(request(host=host))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert f"Host: {host}: this name is not known here (http.allowed.hosts)".encode() in answer


async def test_connections_over_the_limit_are_served_once_or_refused_and_counted():
    """One of 1; when it is busy, kept ones that are busy; then nobody."""
    waiting = request(method="POST", headers="Content-Length: 1\r\n")
    async with serving(connections=1) as port:
        opened = []
        for _ in range(1 + RESERVED_SLOTS):
            opened.append(await asyncio.open_connection(*port.listening.getsockname()))
            opened[-1][1].write(waiting)
        while port.server.slots.has_unused:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.01)
        assert b"503 Service Unavailable" in await port.ask(request())
        assert b"BUSY" in await port.ask(request())
        silent = [
            await asyncio.open_connection(*port.listening.getsockname())
            for _ in range(RESERVED_SLOTS)
        ]
        assert port.refused == 0
        for _, writer in opened:
            writer.write(b"1")
        answers = [await asyncio.wait_for(reader.read(), 30) for reader, _ in opened]
        assert all(answer.startswith(OK) for answer in answers)
        for _, writer in [*opened, *silent]:
            writer.close()
        assert (await port.ask(request())).startswith(OK)


def test_a_connection_that_was_reset_before_it_is_accepted_is_no_error():
    """Nobody knows any more from where it came."""
    errors = []

    async def reset():
        asyncio.get_running_loop().set_exception_handler(lambda _, said: errors.append(said))
        async with serving() as port:
            with socket.create_connection(port.listening.getsockname()) as leaving:
                leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert (await port.ask(request())).startswith(OK)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(reset())
    assert errors == []


@pytest.mark.parametrize("sent", [b"", request()[:-2]])
async def test_a_head_that_does_not_end_is_not_waited_for(sent):
    async with serving(head_timeout_s=0.2) as port:
        assert await port.ask(sent) == b""
        assert not port.server.slots.has_unused


async def test_a_connection_with_a_request_is_kept():
    async with serving(head_timeout_s=0.1) as port:
        reader, writer = await asyncio.open_connection(*port.listening.getsockname())
        writer.write(request().replace(b"Connection: close\r\n", b""))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(OK)
        assert await port.ask(b"") == b""  # longer than the time for a head
        assert not reader.at_eof()
        writer.close()


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ("Content-Length: abc\r\n", ""),
        ("Content-Length: -1\r\n", ""),
        ("Content-Length: 99999999999999999999\r\n", "{}"),
        ("Content-Length: 1\r\nContent-Length: 2\r\n", "{}"),
        ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "{}"),
        ("Content-Length: 100\r\n", "{}"),  # the rest never comes
    ],
)
async def test_a_length_that_lies_is_a_bad_request(headers, body, monkeypatch, caplog):
    monkeypatch.setattr(answers, "_BODY_TIMEOUT_S", 0.1)
    async with serving() as port:
        answer = await port.ask(request(method="POST", headers=headers, body=body))
    assert BAD in answer
    assert all(record.exc_info is None for record in caplog.records)


async def test_a_get_with_a_body_is_a_bad_request():
    async with serving() as port:
        answer = await port.ask(request(headers="Content-Length: 100\r\n", body="{}"))
    assert BAD in answer
    assert b"GET takes no body" in answer


def test_a_broker_answers_its_known_names_alone(start):
    broker = start({"http.allowed.hosts": "Broker.Example"})
    host, port = broker.http.split(":")

    def ask(name):
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(request("/metrics", name))
            with contextlib.suppress(ConnectionResetError):
                return connection.recv(100)
        return b""

    assert ask(socket.gethostname()).startswith(OK)
    assert ask("broker.example").startswith(OK)
    assert ask("evil.example").startswith(b"HTTP/1.1 403 ")
