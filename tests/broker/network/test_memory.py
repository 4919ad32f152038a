"""What clients can make a broker hold: memory under the limit, neighbours served, all of it given back."""

from __future__ import annotations

import struct
from contextlib import ExitStack

import pytest

from tests.broker.asking import batch_of, create, new_name, produce, produce_fields
from tests.broker.network.test_connection import MIB
from tests.broker.raw import frame, request
from tests.broker.subject import eventually

LIMIT = 16 * MIB  # a quarter of it is for frames
REQUESTS = LIMIT // 4


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A broker with little memory for requests."""
    from tests.broker.conftest import healthy

    with healthy(tmp_path_factory.mktemp("small"), {"memory.limit.bytes": LIMIT}) as broker:
        yield broker


@pytest.fixture
def neighbour(small):
    with small.connect() as connection:
        yield connection


@pytest.fixture(autouse=True)
def nothing_stays_reserved(small):
    """Whatever a test has done, the broker has given everything back afterwards."""
    yield
    eventually(lambda: reserved(small) == 0, what="memory stays reserved")
    assert small.metric("tidelog_memory_waiting") == 0


def reserved(broker, use=None):
    more = {} if use is None else {"use": use}
    return broker.metric("tidelog_memory_reserved_bytes", **more)


class TestFrames:
    def test_half_frames_wait_for_each_other_and_neighbours_do_not(self, small, neighbour):
        topic = new_name()
        create(neighbour, topic, max_message_bytes=str(4 * MIB))
        before, waited = small.forget_peak(), small.metric("tidelog_memory_waited_total")
        data = frame(request("Produce", 7, **produce_fields(topic, batch_of("x" * (3 * MIB)))))
        with ExitStack() as stack:
            halves = [stack.enter_context(small.connect()) for _ in range(12)]
            for half in halves:
                half.send(data[:1_000])
            eventually(lambda: small.metric("tidelog_memory_waiting", use="requests") == 11)
            assert len(data) <= reserved(small, "requests") <= REQUESTS
            for _ in range(20):
                assert produce(neighbour, topic, batch_of("y"))["error_code"] == 0
            for half in halves:  # each is read when those before it have been served
                half.send(data[1_000:])
                assert struct.unpack_from(">i", half.receive())[0] == 7
        assert small.metric("tidelog_memory_waited_total") == waited + 11
        assert small.rss_mb(peak=True) - before < LIMIT / MIB

    def test_who_leaves_while_it_waits_holds_up_nobody(self, small, neighbour):
        with ExitStack() as stack:
            halves = [stack.enter_context(small.connect()) for _ in range(6)]
            for half in halves:
                half.send(struct.pack(">i", 3 * MIB) + b"\0\0\0\7" + b"x" * 20)
            eventually(lambda: small.metric("tidelog_memory_waiting", use="requests") == 5)
        eventually(lambda: reserved(small) == 0)

    def test_a_frame_that_could_never_fit_is_refused(self, small, neighbour):
        neighbour.send(struct.pack(">i", REQUESTS) + b"x" * 20)
        assert neighbour.receive() is None
        assert small.lines(f"frame of {REQUESTS} bytes (allowed: 8 to {REQUESTS - 4})")

    def test_pipelined_requests_and_broken_ones_give_everything_back(self, small, neighbour):
        topic = new_name()
        create(neighbour, topic)
        one = request("Produce", 7, **produce_fields(topic, batch_of("x" * 100_000)))
        with small.connect() as connection:
            connection.send(frame(one) * 30)
            for _ in range(30):
                assert connection.receive()
        with small.connect() as connection:
            connection.send(frame(one) * 3 + frame(b"\x7f\xff" + one[2:]) + frame(one)[:90_000])
            while connection.receive() is not None:
                pass
