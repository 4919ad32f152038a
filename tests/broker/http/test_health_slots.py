"""Health is answered whoever holds connections: idle, silent, or of many addresses."""

from __future__ import annotations

import socket
from contextlib import ExitStack, suppress

import pytest

from tests.broker.subject import eventually

KEPT_ALIVE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
OF_ONE = 30


def connected(stack, broker, address):
    """A connection from an address of this machine."""
    host, port = broker.http.split(":")
    peer = socket.create_connection((host, int(port)), 30, source_address=(address, 0))
    return stack.enter_context(peer)


def asked(peer, data=KEPT_ALIVE):
    """The beginning of an answer; nothing if the connection is closed."""
    with suppress(ConnectionError):
        peer.sendall(data)
        return peer.recv(4096)
    return b""


def status(broker, path, address="127.0.0.1"):
    with ExitStack() as stack:
        peer = connected(stack, broker, address)
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        return asked(peer, head.encode()).partition(b"\r\n")[0].decode()


UNENDED = b"POST /v1/clock/accept HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.parametrize(
    "data",
    [
        KEPT_ALIVE,
        pytest.param(b"GET /healthz HTTP/1.1\r\n", marks=pytest.mark.slow),
        pytest.param(UNENDED, marks=pytest.mark.slow),
    ],
)
def test_health_is_answered_beside_150_connections(start, data):
    broker = start()
    assert status(broker, "/readyz") == "HTTP/1.1 200 OK"
    with ExitStack() as stack:
        for number in range(2, 7):
            for _ in range(OF_ONE):
                peer = connected(stack, broker, f"127.0.0.{number}")
                if data == KEPT_ALIVE:
                    asked(peer)
                else:
                    with suppress(ConnectionError):
                        peer.sendall(data)
        for _ in range(20):
            assert status(broker, "/readyz") == "HTTP/1.1 200 OK"
            assert status(broker, "/healthz", "127.0.0.9") == "HTTP/1.1 200 OK"
        eventually(lambda: "200 OK" in status(broker, "/metrics"), what="metrics for this machine")
