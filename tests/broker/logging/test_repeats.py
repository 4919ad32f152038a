"""What happens again and again: each kind is logged a few times from each source, then counted."""

from __future__ import annotations

from types import SimpleNamespace

from tests.broker.raw import frame, header
from tests.broker.subject import eventually
from tidelog.broker.logging.repeats import MOST_KEYS, OTHERS, SHOWN, SPAN_S, Repeated, Repeats
from tidelog.broker.network.accepting.connections import Connections
from tidelog.broker.security.session import ANONYMOUS, Session

HOST, OTHER = "192.0.2.1", "192.0.2.2"
REASON = "API key 1 has no version 99 here"


def test_the_first_are_shown_and_the_rest_counted_once():
    repeats = Repeats()
    shown = [repeats.is_shown(HOST, REASON, 100.0 + i / 100) for i in range(43_741)]
    assert shown == [True] * SHOWN + [False] * (43_741 - SHOWN)
    assert repeats.take_repeated(100.0 + SPAN_S - 1) == []
    assert repeats.take_repeated(100.0 + SPAN_S) == [Repeated(HOST, REASON, 43_741 - SHOWN)]
    assert repeats.take_repeated(1e9) == []
    assert repeats.is_shown(HOST, REASON, 1e9)


def test_hosts_and_reasons_are_counted_apart():
    repeats = Repeats()
    for _ in range(SHOWN):
        assert repeats.is_shown(HOST, REASON, 0)
    assert not repeats.is_shown(HOST, REASON, 0)
    assert repeats.is_shown(OTHER, REASON, 0)
    assert repeats.is_shown(HOST, "unknown API key 200 (version 0)", 0)
    assert repeats.take_repeated(SPAN_S) == [Repeated(HOST, REASON, 1)]


def test_what_was_shown_each_time_is_not_told_again():
    repeats = Repeats()
    for _ in range(SHOWN):
        repeats.is_shown(HOST, REASON, 0)
    assert repeats.take_repeated(SPAN_S) == []


def test_memory_is_bounded():
    repeats = Repeats()
    for number in range(MOST_KEYS):
        assert repeats.is_shown(HOST, str(number), 0)
    more = [repeats.is_shown(f"192.0.2.{i % 256}", f"{REASON} {i}", 0) for i in range(5_000)]
    assert more == [True] * SHOWN + [False] * (5_000 - SHOWN)
    assert repeats.take_repeated(SPAN_S) == [Repeated(OTHERS, OTHERS, 5_000 - SHOWN)]
    assert repeats.is_shown(HOST, "another", SPAN_S), "all of them were forgotten"


def test_a_client_that_asks_blindly_fills_no_log(broker):
    before, times = broker.bad_requests, SHOWN * 3
    for number in range(times):  # versions are chosen by the client
        with broker.connect() as connection:
            connection.send(frame(header(5, 99 + number) + b"\0" * 40))
            assert connection.receive() is None, "answered instead of closed"
    eventually(lambda: broker.bad_requests == before + times, what="the counter of bad requests")
    assert broker.log().count("unknown API key 5 ") == SHOWN
    with broker.connect() as connection:
        connection.send(frame(header(6, 98) + b"\0" * 40))
        assert connection.receive() is None
    assert eventually(lambda: broker.lines("unknown API key 6 "))


def test_what_was_left_out_is_logged_as_one_line(caplog):
    clock = SimpleNamespace(now_s=5.0, monotonic_s=lambda: clock.now_s)
    client = SimpleNamespace(session=Session(ANONYMOUS, HOST, "PLAINTEXT"))
    connections = Connections(None, None, None, clock, None)
    assert [connections.is_shown(client, REASON) for _ in range(SHOWN + 3)].count(False) == 3
    connections.log_repeated()
    assert caplog.records == []
    clock.now_s += SPAN_S
    for _ in range(2):
        connections.log_repeated()
    (line,) = caplog.records
    assert (line.levelname, line.getMessage()) == ("WARNING", "connections closed")
    assert (line.host, line.reason, line.more) == (HOST, REASON, 3)
