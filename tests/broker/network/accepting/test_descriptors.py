"""Connections beside everything else that needs descriptors: idle ones must not take those of the logs."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from contextlib import ExitStack, contextmanager
from unittest import mock

import pytest

from tests.broker.asking import create, produce, records_for
from tests.broker.network.accepting.test_over_limit import Cluster
from tests.broker.subject import eventually
from tidelog.broker.network.accepting.descriptors import Descriptors
from tidelog.broker.network.accepting.silent import SILENT_S
from tidelog.serving import START, serve_command

DESCRIPTORS = 200
IDLE = 400
TOPICS = 60
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)

# A child that may have few descriptors, and for which a connection is silent after a second.
FEW = (
    "import resource;"
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}));"
    "from tidelog.broker.network.accepting import silent; silent.SILENT_S = 1.0;"
)
MAIN = "from tidelog.cli import main;"


@contextmanager
def few_descriptors():
    assert MAIN in START
    start = START.replace(MAIN, FEW + MAIN)

    def command(options):
        python, *flags, _, root, serve, stop = serve_command(())
        return [python, *flags, start, root, serve, stop, *options]

    with mock.patch("tidelog.process.serve_command", command):
        yield


def is_served(port):
    """Whether a new client gets an answer, by its own bytes."""
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(("127.0.0.1", port)) as peer,
    ):
        peer.settimeout(30)
        peer.sendall(API_VERSIONS)
        return len(peer.recv(4)) == 4
    return False


@pytest.mark.parametrize("limit", [200, 1_024, 20_000])
def test_the_shares_fit_into_the_limit(limit):
    shares = Descriptors(limit)
    clients = shares.clients(http=100, other_brokers=2)
    assert clients > 25
    assert clients + shares.http(100) + 2 * shares.segments + 8 * 2 < limit
    assert shares.segments <= 384
    assert not shares.are_short(clients)
    assert shares.are_short(limit - 1)


def test_one_that_is_silent_leaves_for_one_that_comes():
    cluster = Cluster(0, max_connections=2)
    first, second = cluster.come(), cluster.come()
    assert cluster.come() is None  # both wait for answers
    second.is_busy = False
    assert cluster.come() is None  # it has not been silent for long
    cluster.now_s += SILENT_S + 1
    assert cluster.come() is not None
    assert [first.is_expired, second.is_expired] == [False, True]
    assert len(cluster.connections) == 2
    assert (cluster.metrics.connections_silent, cluster.metrics.connections_refused) == (1, 2)


def test_no_other_has_to_leave_for_one_whose_address_has_too_many():
    cluster = Cluster(0, max_connections=2, max_connections_per_ip=1)
    client = cluster.come(host="10.0.0.2")
    cluster.come()
    client.is_busy = False
    cluster.now_s += SILENT_S + 1
    assert cluster.come() is None
    assert not client.is_expired


@pytest.mark.slow
def test_idle_connections_do_not_take_the_descriptors_of_logs(start):
    with few_descriptors():
        broker = start({"auto.create.topics.enable": "false"})
    with broker.connect() as connection, ExitStack() as stack:
        create(connection, "before")
        for _ in range(IDLE):
            with contextlib.suppress(ConnectionError):
                stack.enter_context(socket.create_connection(("127.0.0.1", broker.port), 30))
        connection.ask("ApiVersions", 0)
        for number in range(TOPICS):
            assert create(connection, f"t{number}")
            answer = produce(connection, f"t{number}", records_for(7, "x"))
            assert answer["error_code"] == 0
        assert eventually(lambda: is_served(broker.port), what="a new client")
        assert "ready" in broker.page("/readyz")
        assert produce(connection, "before", records_for(7, "x"))["error_code"] == 0
        assert len(os.listdir(f"/proc/{broker.pid}/fd")) < DESCRIPTORS
    assert not broker.lines("Too many open files")
