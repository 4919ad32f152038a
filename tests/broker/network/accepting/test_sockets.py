"""A port that the process before is still closing is waited for, for a moment."""

from __future__ import annotations

import errno
import socket
import threading
from types import SimpleNamespace

import pytest

from tidelog.broker.network.accepting import sockets
from tidelog.broker.network.servers import bound_servers
from tidelog.broker.pools import Pool
from tidelog.config import load


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken


def test_a_port_that_is_closed_meanwhile_is_bound(taken, monkeypatch):
    monkeypatch.setattr(sockets.time, "sleep", lambda _: taken.close())
    host, port = taken.getsockname()
    with sockets.listen(host, port, "listeners") as listening:
        assert listening.getsockname() == (host, port)


def test_a_port_that_stays_in_use_is_named(taken, monkeypatch):
    waited_s = []
    monkeypatch.setattr(sockets.time, "sleep", waited_s.append)
    host, port = taken.getsockname()
    with pytest.raises(sockets.AddressError) as raised:
        sockets.listen(host, port, "http.listener")
    assert str(raised.value) == (
        f"http.listener: {host}:{port}: Address already in use, by another broker or some other program "
        f"(ss -ltnp 'sport = :{port}' shows which); name another port, or 0 for a free one"
    )
    assert raised.value.errno == errno.EADDRINUSE
    assert sum(waited_s) == pytest.approx(1)


def test_another_error_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(sockets.time, "sleep", pytest.fail)
    with pytest.raises(sockets.AddressError) as raised:
        sockets.listen("192.0.2.1", 0, "listeners")
    assert str(raised.value) == (
        "listeners: 192.0.2.1:0: Cannot assign requested address; name an address of this machine, or "
        "0.0.0.0 for every interface"
    )


def test_a_host_that_nobody_knows_is_named():
    with pytest.raises(sockets.AddressError, match=r"^control\.listener: no such:0: "):
        sockets.listen("no such", 0, "control.listener")


async def test_the_event_loop_does_not_wait_for_a_port(taken, monkeypatch):
    def sleep(_):
        assert threading.current_thread() is not threading.main_thread()
        taken.close()

    monkeypatch.setattr(sockets.time, "sleep", sleep)
    host, port = taken.getsockname()
    config = load(None, {}, {"listeners": f"PLAINTEXT://{host}:{port}"})
    pool = Pool("topics", 1)
    node = SimpleNamespace(config=config, listeners=[], pools=SimpleNamespace(topics=pool))
    (server,) = await bound_servers(node, {})
    server.close()
    pool.stop()
    assert [each.port for each in node.listeners] == [port]
