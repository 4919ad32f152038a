"""What clients can make a broker hold: memory under the limit, neighbours served, all of it given back."""

from __future__ import annotations

import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from tests.broker.asking import (
    batch_of,
    create,
    fetch,
    fetch_fields,
    new_name,
    new_topic,
    produce,
    produce_fields,
)
from tests.broker.conftest import of_module
from tests.broker.network.test_connection import LONG_MS, MIB
from tests.broker.raw import Pipe, frame, request
from tests.broker.subject import eventually
from tidelog.protocol.records.batch import Record, build

LIMIT = 16 * MIB  # a quarter of it is for frames
REQUESTS = LIMIT // 4


small = of_module({"memory.limit.bytes": LIMIT})  # a broker with little memory for requests


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
        topic = new_topic(neighbour, max_message_bytes=str(4 * MIB))
        waited = small.metric("tidelog_memory_waited_total")  # loads what serves HTTP
        before = small.forget_peak()
        data = frame(request("Produce", 7, **produce_fields(topic, batch_of("x" * (3 * MIB)))))
        with ExitStack() as stack:
            halves = [stack.enter_context(small.connect()) for _ in range(12)]
            for half in halves:
                half.send(data[:1_000])
            eventually(lambda: small.metric("tidelog_memory_waiting", use="requests") == 11)
            assert len(data) <= reserved(small, "requests") <= REQUESTS
            assert produce(neighbour, topic, batch_of("y"))["error_code"] == 0
            for half in halves:  # each is read when those before it have been served
                half.send(data[1_000:])
                assert struct.unpack_from(">i", half.receive())[0] == 7
        assert small.metric("tidelog_memory_waited_total") == waited + 11
        assert small.rss_mb(peak=True) - before < LIMIT / MIB

    def test_a_large_frame_behind_a_fetch_that_waits_holds_up_nobody(self, small, neighbour):
        topic, quiet = new_name(), new_name()
        for name in (topic, quiet):
            create(neighbour, name, max_message_bytes=str(4 * MIB))
        fields = produce_fields(topic, batch_of("x" * (3 * MIB)))
        with Pipe(small) as pipe, ThreadPoolExecutor(1) as pool:
            pipe.push("Fetch", 11, **fetch_fields(quiet, max_wait_ms=LONG_MS, min_bytes=1))
            sent = pool.submit(pipe.push, "Produce", 7, **fields)  # it is not read to its end
            try:
                eventually(lambda: reserved(small, "requests") > 0)
                assert produce(neighbour, topic, batch_of("y" * (3 * MIB)))["error_code"] == 0
                assert reserved(small, "requests") < MIB
            finally:
                assert produce(neighbour, quiet, batch_of("z"))["error_code"] == 0
                sent.result()
            assert [pipe.pull()[0] for _ in range(2)] == [0, 1]

    def test_a_frame_that_could_never_fit_is_refused(self, small, neighbour):
        neighbour.send(struct.pack(">i", REQUESTS) + b"\0" * 20)
        assert neighbour.receive() is None
        assert small.lines(f"frame of {REQUESTS} bytes (allowed: 8 to {REQUESTS - 4})")

    def test_pipelined_requests_and_broken_ones_give_everything_back(self, small, neighbour):
        topic = new_topic(neighbour)
        one = request("Produce", 7, **produce_fields(topic, batch_of("x" * 100_000)))
        with small.connect() as connection:
            connection.send(frame(one) * 30)
            for _ in range(30):
                assert connection.receive()
        with small.connect() as connection:
            connection.send(frame(one) * 3 + frame(b"\x7f\xff" + one[2:]) + frame(one)[:90_000])
            while connection.receive() is not None:
                pass


BATCH = 3 * MIB


@pytest.fixture
def large(neighbour):
    """A topic whose only batch is large; the batch as it is stored."""
    topic = new_topic(neighbour, max_message_bytes=str(4 * MIB), file_delete_delay_ms="0")
    assert produce(neighbour, topic, batch_of("x" * BATCH))["error_code"] == 0
    return topic


class TestAnswers:
    @pytest.mark.parametrize("version", [4, 11])
    def test_a_batch_that_nobody_reads_is_not_held(self, small, neighbour, large, version):
        whole = fetch(neighbour, large, 0, partition_max_bytes=2 * BATCH)["records"]
        before = small.forget_peak()
        fields = fetch_fields(large, partition_max_bytes=1_000, max_bytes=1_000)
        with ExitStack() as stack:
            unread = [stack.enter_context(Pipe(small)) for _ in range(30)]
            for pipe in unread:
                pipe.push("Fetch", version, **fields)
            for pipe in unread:  # each has begun to answer
                assert pipe._socket.recv(4, 2)
            for _ in range(20):
                assert produce(neighbour, large, batch_of("y"))["error_code"] == 0
            assert small.rss_mb(peak=True) - before < LIMIT / MIB
            for pipe in unread:
                pipe.push("Fetch", version, **fields)
            for pipe in unread:
                for _ in range(2):
                    part = pipe.pull()[1]["responses"][0]["partitions"][0]
                    assert part["records"] == whole

    def test_small_fetches_behind_one_that_is_streamed_come_in_order(self, small, large):
        with Pipe(small) as pipe:
            for number in range(10):
                limit = 1_000 if number % 3 else 2 * BATCH
                pipe.push("Fetch", 11, **fetch_fields(large, partition_max_bytes=limit))
                pipe.push("ApiVersions", 0)
            for number in range(20):
                got, answer = pipe.pull()
                assert got == number
                if number % 2 == 0:
                    part = answer["responses"][0]["partitions"][0]
                    assert len(part["records"]) > BATCH

    def test_who_does_not_read_loses_the_connection_after_its_file(self, small, neighbour, large):
        with Pipe(small) as pipe:
            for _ in range(20):  # more than the buffers of both ends hold
                pipe.push("Fetch", 11, **fetch_fields(large, partition_max_bytes=1_000))
            assert pipe._socket.recv(4, socket.MSG_PEEK)
            fields = {"topics": [{"name": large, "topic_id": None}], "timeout_ms": 10_000}
            (gone,) = neighbour.ask("DeleteTopics", 6, **fields)["responses"]
            assert gone["error_code"] == 0
            assert eventually(lambda: small.lines("does not read an answer whose file was deleted"))
            received = 0
            with suppress(ConnectionResetError):
                while data := pipe._socket.recv(1 << 20):
                    received += len(data)
            assert received < 20 * BATCH

    def test_a_reader_that_has_ended_its_sending_gets_all_of_it(self, small, large):
        with Pipe(small) as pipe:
            for _ in range(3):
                limits = {"partition_max_bytes": 1_000, "max_bytes": 1_000}
                pipe.push("Fetch", 11, **fetch_fields(large, **limits))
            assert pipe._socket.recv(4, socket.MSG_PEEK)
            pipe._socket.shutdown(socket.SHUT_WR)
            for number in range(3):
                got, answer = pipe.pull()
                assert got == number
                assert len(answer["responses"][0]["partitions"][0]["records"]) > BATCH
            assert pipe.receive() is None

    def test_a_reader_that_leaves_within_a_batch_leaves_nothing(self, small, large):
        for _ in range(5):
            with Pipe(small) as pipe:
                pipe.push("Fetch", 11, **fetch_fields(large, partition_max_bytes=1_000))
                assert pipe._socket.recv(1_000)


GZIP = 1
TOO_LARGE = 10


def packed(size):
    return build([Record(0, 1_000, None, bytes(size))], compression=GZIP)


class TestRecords:
    """Half of the memory is for records: a batch may unpack to an eighth of all of it."""

    @pytest.mark.slow
    def test_what_unpacks_to_too_much_is_refused_and_its_memory_given_back(self, small, neighbour):
        topic = new_topic(neighbour)
        refused = small.metric("tidelog_memory_refused_total", use="records")
        before = small.forget_peak()
        with ExitStack() as stack:
            pipes = [stack.enter_context(Pipe(small)) for _ in range(8)]
            for pipe in pipes:
                pipe.push("Produce", 7, **produce_fields(topic, packed(50 * MIB)))
                pipe.push("Produce", 7, **produce_fields(topic, packed(LIMIT // 8 - 100)))
            assert produce(neighbour, topic, batch_of("y"))["error_code"] == 0
            for pipe in pipes:
                codes = [
                    pipe.pull()[1]["responses"][0]["partition_responses"][0]["error_code"]
                    for _ in range(2)
                ]
                assert codes == [TOO_LARGE, 0]
        assert small.metric("tidelog_memory_refused_total", use="records") == refused + 8
        assert small.rss_mb(peak=True) - before < LIMIT / MIB
