"""Order, back-pressure and patience: what one connection may expect, and what it cannot do to others."""

from __future__ import annotations

import random
import resource
import select
import socket
import time
from contextlib import ExitStack

import pytest

from tests.broker import asking
from tests.broker.asking import (
    batch_of,
    create,
    fetch,
    fetch_fields,
    new_name,
    new_topic,
    produce,
    read_values,
)
from tests.broker.raw import Pipe, frame, header, request
from tests.broker.subject import eventually
from tests.oracle import codecs, recordset

MIB = 1 << 20
LONG_MS = 300_000
AT_ONCE_S = 30  # on a busy machine, and far from LONG_MS


@pytest.fixture
def pipe(broker):
    with Pipe(broker) as pipe:
        yield pipe


def wait_fields(topic, offset=0, *, max_wait_ms=LONG_MS, min_bytes=1, **more):
    return fetch_fields(topic, offset, max_wait_ms=max_wait_ms, min_bytes=min_bytes, **more)


def is_silent(*sockets, seconds=0.1):
    """Nothing to read on any of the sockets for a while."""
    return not select.select(sockets, [], [], seconds)[0]


def heavy(text, codec=codecs.GZIP):
    """A batch that the broker unpacks in a thread: over 16 KiB compressed."""
    noise = random.Random(text).randbytes(15_000).hex()
    batch = recordset.batch(asking.values(text, noise, noise[::-1]), codec)
    assert len(batch) > 16_384
    return batch


class TestOrder:
    def test_answers_come_in_the_order_of_requests(self, pipe, connection, topic):
        """Fetches that wait stand between requests that need not."""
        fields = asking.produce_fields(topic, batch_of("x"))
        for round_ in range(20):
            pipe.push("Produce", 9, **fields)
            pipe.push("Fetch", 12, **wait_fields(topic, round_ + 1, max_wait_ms=20))
            pipe.push("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False)
            pipe.push("ApiVersions", 0)
            pipe.push("Produce", 3, **asking.produce_fields(topic, heavy("h"), partition=1))
            pipe.push("ListOffsets", 1, **asking.BODY_OF_LIST_OFFSETS)
        for number in range(len(pipe.asked)):
            got, answer = pipe.pull()
            assert got == number
            if pipe.asked[number] == ("Produce", 9):
                part = answer["responses"][0]["partition_responses"][0]
                assert part["base_offset"] == number // 6
        assert read_values(connection, topic) == [b"x"] * 20

    def test_appends_keep_their_order_whether_they_go_to_a_thread_or_not(
        self, pipe, connection, topic
    ):
        sent = []
        for number in range(60):
            text = f"{number}"
            sent.append(text.encode())
            records = heavy(text) if number % 3 == 0 else batch_of(text)
            pipe.push("Produce", 7, **asking.produce_fields(topic, records))
        offsets = []
        for number in range(60):
            got, answer = pipe.pull()
            assert got == number
            offsets.append(answer["responses"][0]["partition_responses"][0]["base_offset"])
        assert offsets == sorted(offsets)
        assert [v for v in read_values(connection, topic) if len(v) < 10] == sent

    def test_answers_that_leave_together_leave_before_who_waits_and_before_the_end(
        self, pipe, connection, topic
    ):
        """One packet: answered at once, one that waits, more of the first, and one nobody can read."""
        small = [("ApiVersions", 0, {})] * 3
        wait = ("Fetch", 12, wait_fields(topic, 0, max_wait_ms=LONG_MS))
        frames = [pipe.encoded(api, version, **fields) for api, version, fields in [*small, wait]]
        frames += [pipe.encoded(api, version) for api, version, _ in small]
        frames.append(header(3, 1) + b"\x7f\xff\xff\xff")
        pipe.send(b"".join(frame(each) for each in frames))
        assert [pipe.pull()[0] for _ in range(3)] == [0, 1, 2]
        asking.produce(connection, topic, batch_of("x"))
        assert [pipe.pull()[0] for _ in range(4)] == [3, 4, 5, 6]
        assert pipe.pull() is None

    def test_many_answers_beyond_what_is_held_back(self, pipe, topic):
        """More than leaves together, of small answers and larger ones."""
        asked = [("Metadata", 9, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})]
        asked += [("ApiVersions", 0, {})] * 9
        frames = [pipe.encoded(api, version, **fields) for api, version, fields in asked * 50]
        pipe.send(b"".join(frame(each) for each in frames))
        assert [pipe.pull()[0] for _ in range(500)] == list(range(500))


class TestLeaving:
    def test_acks_0_then_close_loses_nothing(self, broker, connection, topic):
        """Batches unpacked in a thread queue behind each other while the peer is gone already."""
        with Pipe(broker) as leaver:
            data = b""
            for number in range(20):
                fields = asking.produce_fields(topic, heavy(f"{number}"), acks=0)
                data += frame(leaver.encoded("Produce", 7, **fields))
            leaver.send(data)
        eventually(lambda: fetch(connection, topic, 0)["high_watermark"] == 60)
        found = [v for v in read_values(connection, topic) if len(v) < 10]
        assert found == [b"%d" % number for number in range(20)]

    def test_a_waiting_fetch_is_given_up_with_its_connection(self, broker, topic):
        name = "kafka_server_socket_server_metrics_connection_count"
        before = broker.metric(name)
        with ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(Pipe(broker)).push("Fetch", 12, **wait_fields(topic))
            eventually(lambda: broker.metric(name) == before + 50)
        eventually(lambda: broker.metric(name) == before)

    def test_a_half_closed_connection_still_gets_its_answers(self, pipe, topic):
        for number in range(5):
            pipe.push("Produce", 7, **asking.produce_fields(topic, heavy(f"{number}")))
        pipe._socket.shutdown(socket.SHUT_WR)
        assert [pipe.pull()[0] for _ in range(4)] == [0, 1, 2, 3]


class TestFetchWaits:
    def test_max_wait_is_honoured(self, connection, topic):
        took = []
        while not took or (min(took) >= 3 and len(took) < 10):  # the machine may be slow, once
            started = time.monotonic()
            got = fetch(connection, topic, 0, max_wait_ms=300)
            took.append(time.monotonic() - started)
            assert (got["error_code"], got["records"] or b"") == (0, b"")
        assert 0.29 < min(took) < 3

    def test_answered_at_once(self, connection, topic):
        for offset, more, why in (
            (0, {"max_wait_ms": 0}, "no wait asked for"),
            (0, {"min_bytes": 0}, "nothing is enough"),
            (0, {"partition": 9}, "an error"),
            (5, {}, "an error"),
        ):
            started = time.monotonic()
            fetch(connection, topic, offset, **{"max_wait_ms": LONG_MS, **more})
            assert time.monotonic() - started < AT_ONCE_S, why

    @pytest.mark.parametrize("version", [0, 3, 4, 11, 12, 16])
    def test_an_append_wakes_at_once(self, pipe, connection, version):
        topic = new_name()
        topic_id = create(connection, topic)
        named = topic_id if version >= 13 else topic
        pipe.push("Fetch", version, **wait_fields(named))
        assert is_silent(pipe._socket)
        produced = produce(connection, topic, asking.records_for(0, "x"), version=0)
        assert produced["error_code"] == 0
        started = time.monotonic()
        _, answer = pipe.pull()
        assert time.monotonic() - started < AT_ONCE_S
        assert answer["responses"][0]["partitions"][0]["records"]

    def test_a_deleted_topic_wakes(self, pipe, connection, topic):
        pipe.push("Fetch", 12, **wait_fields(topic))
        assert is_silent(pipe._socket)
        connection.ask("DeleteTopics", 1, topic_names=[topic], timeout_ms=1_000)
        _, answer = pipe.pull()
        assert answer["responses"][0]["partitions"][0]["error_code"] == 3


class TestSlowReaders:
    """They ask for more than they read; what waits for them is bounded, and others are served."""

    def test_pipelined_fetches_that_nobody_reads(self, broker, connection, topic):
        big = new_topic(connection)
        assert produce(connection, big, batch_of("x" * 1_000_000))["error_code"] == 0
        before = broker.forget_peak()
        with Pipe(broker) as slow:
            fields = fetch_fields(big, partition_max_bytes=MIB, max_bytes=MIB)
            for _ in range(1_000):
                slow.push("Fetch", 11, **fields)
            for _ in range(20):
                assert produce(connection, topic, batch_of("x"))["error_code"] == 0
            assert len(read_values(connection, topic)) == 20
            assert broker.rss_mb(peak=True) - before < 40
            for number in range(20):  # it reads after all: everything is there, in order
                got, answer = slow.pull()
                assert got == number
                assert len(answer["responses"][0]["partitions"][0]["records"]) > 1_000_000

    def test_requests_are_not_taken_in_without_end(self, broker, connection):
        """A peer that sends and never reads is not read from any more, beyond what buffers hold."""
        before = broker.forget_peak()
        with Pipe(broker) as slow:
            slow.push("ApiVersions", 0)
            slow._socket.setblocking(False)
            data = frame(header(18, 0)) * 4_000
            sent = 0
            while sent < 64 * MIB and select.select([], [slow._socket], [], 1)[1]:
                sent += slow._socket.send(data)
            assert sent < 64 * MIB, "the broker took everything in"
            assert connection.ask("ApiVersions", 0)["error_code"] == 0
            assert broker.rss_mb(peak=True) - before < 40


class TestManyConnections:
    COUNT = 2_100

    @pytest.mark.slow
    def test_idle_and_waiting_connections_cost_nothing(self, start):
        """2,100 connections, half of them with a waiting fetch: no CPU, little memory, woken at once."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard < self.COUNT + 200:
            pytest.skip(f"only {hard} descriptors are allowed here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, self.COUNT + 200), hard))
        broker = start()
        with broker.connect() as connection, ExitStack() as stack:
            create(connection, "t", partitions=4)
            assert broker.page("/metrics")  # its libraries are loaded before memory is measured
            before_mb = broker.rss_mb()
            pipes = [stack.enter_context(Pipe(broker)) for _ in range(self.COUNT)]
            hello = frame(header(18, 0))
            took = []
            for pipe in pipes:
                started = time.monotonic()
                pipe.send(hello)
                took.append(time.monotonic() - started)
            again = sum(each_s >= 1 for each_s in took)  # who found no place knocks a second later
            assert again < 8, "the queue of the listening socket is short"
            for pipe in pipes:
                assert len(pipe.receive()) > 20
            waiting = pipes[::2]
            fetches = [
                frame(request("Fetch", 12, correlation_id=0, **wait_fields("t", partition=i)))
                for i in range(4)
            ]
            for number, pipe in enumerate(waiting):
                pipe.asked.append(("Fetch", 12))
                pipe.send(fetches[number % 4])
            assert connection.ask("ApiVersions", 0)["error_code"] == 0
            count = "kafka_server_socket_server_metrics_connection_count"
            assert broker.metric(count) == self.COUNT + 1
            assert broker.rss_mb() - before_mb < self.COUNT * 0.025

            def is_idle():  # once it has taken in all that was sent
                used_s = broker.cpu_s()
                assert is_silent(*(pipe._socket for pipe in pipes[:500]), seconds=1.5)
                return broker.cpu_s() - used_s < 0.1

            assert eventually(is_idle)
            for partition in range(4):
                assert (
                    produce(connection, "t", batch_of("x"), partition=partition)["base_offset"] == 0
                )
            for pipe in waiting:
                assert pipe.pull()[1]["responses"][0]["partitions"][0]["records"]

    @pytest.mark.slow
    def test_idle_connections_are_closed(self, start):
        """A waiting fetch and half a request: the one is served, the other counts as silence."""
        broker = start({"connections.max.idle.ms": 15_000})  # longer than a machine stands still
        with (
            Pipe(broker) as idle,
            Pipe(broker) as half,
            Pipe(broker) as waiting,
            Pipe(broker) as busy,
        ):
            busy.push("ApiVersions", 0)
            busy.pull()
            create(busy, "t")
            idle.push("ApiVersions", 0)
            idle.pull()
            half.send(frame(header(18, 0))[:-2])
            waiting.push("Fetch", 12, **wait_fields("t"))
            gone = {idle._socket, half._socket}
            while gone:
                busy.push("ApiVersions", 0)
                assert busy.pull() is not None
                for ready in select.select(list(gone), [], [], 0.3)[0]:
                    assert ready.recv(100) == b""
                    gone.remove(ready)
            assert is_silent(waiting._socket, seconds=0)
            produce(busy, "t", batch_of("x"))
            assert waiting.pull() is not None
        assert broker.lines("idle connections closed")

    def test_who_has_sent_nonsense_behind_a_fetch_that_waits_counts_as_idle(self, start):
        """The socket is not read any more, so nothing tells whether its peer is still there."""
        broker = start({"connections.max.idle.ms": 1_000})
        with Pipe(broker) as maker:
            create(maker, "t")
        with Pipe(broker) as left:
            left.push("Fetch", 12, **wait_fields("t"))
            left.send(frame(b"x"))
            assert left.pull() is None
        assert broker.lines("idle connections closed")
