"""A port that the process before is still closing is waited for, for a moment."""

from __future__ import annotations

import errno
import socket

import pytest

from broker.network.accepting import sockets


@pytest.fixture
def taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield taken


def test_a_port_that_is_closed_meanwhile_is_bound(taken, monkeypatch):
    monkeypatch.setattr(sockets.time, "sleep", lambda _: taken.close())
    host, port = taken.getsockname()
    with sockets.listen(host, port) as listening:
        assert listening.getsockname() == (host, port)


def test_a_port_that_stays_in_use_is_named(taken, monkeypatch):
    waited_s = []
    monkeypatch.setattr(sockets.time, "sleep", waited_s.append)
    host, port = taken.getsockname()
    with pytest.raises(OSError, match=f"{host}:{port}: Address already in use; name") as raised:
        sockets.listen(host, port)
    assert raised.value.errno == errno.EADDRINUSE
    assert sum(waited_s) == pytest.approx(1)


def test_another_error_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(sockets.time, "sleep", pytest.fail)
    with pytest.raises(OSError, match=r"192\.0\.2\.1:0: Cannot assign"):
        sockets.listen("192.0.2.1", 0)
