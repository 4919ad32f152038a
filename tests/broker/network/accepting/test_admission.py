"""The limits of connections: of one address, with exceptions, and of new ones in a second."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from tests.broker.asking import BROKER, alter
from tests.broker.raw import Pipe
from tests.broker.subject import eventually
from tidelog.broker.network.accepting.admission import MOST_WAIT_S, Admission
from tidelog.config import ConfigError, load

SET = 0
INVALID_CONFIG = 40


def admission(**settings):
    given = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return Admission(SimpleNamespace(broker=load(None, {}, given)))


class TestAddresses:
    def test_each_address_for_itself(self):
        limited = admission(max_connections_per_ip=2)
        assert [limited.admit("10.0.0.1", 0.0) for _ in range(3)] == [
            0.0,
            0.0,
            "max.connections.per.ip reached",
        ]
        assert limited.admit("10.0.0.2", 0.0) == 0.0
        limited.discard("10.0.0.1")
        assert limited.admit("10.0.0.1", 0.0) == 0.0

    def test_exceptions(self):
        limited = admission(
            max_connections_per_ip=0, max_connections_per_ip_overrides="10.0.0.1:1, ::1:2"
        )
        for host in ("10.0.0.2", "fe80::1%eth0"):
            assert limited.admit(host, 0.0) == "max.connections.per.ip reached"
        assert limited.admit("::ffff:10.0.0.1", 0.0) == 0.0
        assert limited.admit("10.0.0.1", 0.0) == "max.connections.per.ip reached"
        assert [limited.admit("::1", 0.0) for _ in range(2)] == [0.0, 0.0]

    def test_an_address_that_has_left_is_forgotten(self):
        limited = admission()
        for number in range(100):
            limited.admit(f"10.0.0.{number}", 0.0)
            limited.discard(f"10.0.0.{number}")
        assert not limited._open  # memory: nothing that is answered shows it

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("client.example:5", "names are not looked up"),
            ("10.0.0.1", "is not ADDRESS:COUNT"),
            ("10.0.0.1:-1", "is not ADDRESS:COUNT"),
            ("10.0.0.1:1,::ffff:10.0.0.1:2", "given twice"),
        ],
    )
    def test_what_is_no_list_of_exceptions(self, text, sentence):
        with pytest.raises(ConfigError, match=sentence):
            admission(max_connections_per_ip_overrides=text)

    def test_no_address_at_all_is_refused_as_in_kafka(self):
        with pytest.raises(ConfigError, match="nobody could connect"):
            admission(max_connections_per_ip=0)


class TestRate:
    def test_so_many_at_once_and_the_others_in_turn(self):
        limited = admission(max_connection_creation_rate=2)
        waits = [limited.admit("10.0.0.1", 100.0) for _ in range(5)]
        assert waits == pytest.approx([0, 0, 0.5, 1.0, 1.5])
        assert limited.admit("10.0.0.1", 101.5) == pytest.approx(0.5)
        assert limited.admit("10.0.0.1", 200.0) == 0

    def test_who_would_wait_too_long_is_refused_and_takes_no_turn(self):
        limited = admission(max_connection_creation_rate=1)
        waits = [limited.admit("10.0.0.1", 5.0) for _ in range(20)]
        assert waits[:11] == pytest.approx([*range(11)])
        assert waits[10] == MOST_WAIT_S
        assert set(waits[11:]) == {"max.connection.creation.rate reached"}
        assert limited.admit("10.0.0.1", 6.0) == pytest.approx(MOST_WAIT_S)

    def test_a_rate_of_0_serves_nobody(self):
        limited = admission(max_connection_creation_rate=0)
        assert limited.admit("10.0.0.1", 5.0) == "max.connection.creation.rate reached"


def is_served(broker):
    with Pipe(broker) as pipe:
        pipe.push("ApiVersions", 0)
        return pipe.pull() is not None


def test_the_limit_of_an_address_changes_while_the_broker_runs(start):
    broker = start({"max.connections.per.ip": 3})
    with ExitStack() as stack:
        connection = stack.enter_context(broker.connect())
        connection.ask("ApiVersions", 0)
        for _ in range(2):
            pipe = stack.enter_context(Pipe(broker))
            pipe.push("ApiVersions", 0)
            assert pipe.pull() is not None
        for _ in range(15):
            assert not is_served(broker)
        assert broker.metric("tidelog_connections_refused_total") == 15
        lines = broker.lines(
            "connection refused", "max.connections.per.ip reached", "level=warning"
        )
        assert len(lines) == 10  # the others are counted
        overrides = ("max.connections.per.ip.overrides", SET, "127.0.0.1:20")
        assert alter(connection, BROKER, "", overrides)[0] == 0
        assert is_served(broker)
        name = ("max.connections.per.ip.overrides", SET, "localhost:20")
        assert alter(connection, BROKER, "", name)[0] == INVALID_CONFIG
    assert eventually(lambda: is_served(broker))


def seconds_to_serve(broker, connections):
    """Returns how long it takes until so many new connections have had an answer each."""
    begun = time.monotonic()
    with ExitStack() as stack:
        pipes = [stack.enter_context(Pipe(broker)) for _ in range(connections)]
        for pipe in pipes:
            pipe.push("ApiVersions", 0)
        for pipe in pipes:
            assert pipe.pull() is not None
        return time.monotonic() - begun


def test_connections_beyond_the_rate_are_served_later(start):
    broker = start({"max.connection.creation.rate": 4})
    # The last of 8 waits 1 s, less what made them takes.
    assert seconds_to_serve(broker, 8) >= 0.75
    assert broker.metric("tidelog_connections_delayed_total") >= 1
