"""Requests to produce that are served behind one whose answer waits for other replicas."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging

import pytest

from tests.broker import raw
from tests.broker.asking import produce_fields
from tests.broker.partitions.inside import batch, brokers, eventually
from tidelog.broker.api import produce_single
from tidelog.broker.network import routes
from tidelog.broker.network.answers import CloseConnection, Encoded, Pending
from tidelog.broker.network.stream import ahead
from tidelog.broker.network.stream.ahead import MOST_AHEAD, serve_ahead
from tidelog.broker.network.stream.frames import COPY_BYTES, Frames
from tidelog.broker.network.stream.served import Served
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.message import api_of, codec

PRODUCE, FETCH = b"\0\0", b"\0\1"
VERSION = 9


@pytest.fixture(autouse=True)
def _long_turns(monkeypatch):
    """On a busy machine a turn of 1 ms may end before the requests behind are served."""
    monkeypatch.setattr("tidelog.broker.network.stream.requests._TURN_S", 60.0)


def stored(*, is_done=False, answer=(b"late",)):
    happened = asyncio.get_running_loop().create_future()
    if is_done:
        happened.set_result(None)
    return Pending(happened, lambda: list(answer), is_stored=True)


def waiting(*frames):
    found = Frames()
    found.waiting.extend(frames)
    found.waiting_bytes = sum(map(len, frames))
    return found


# --- which frames, and what stands for them -------------------------------------------------------


async def test_only_produce_behind_what_is_stored_is_served():
    served = []

    def serve(frame):
        served.append(frame[2:])
        return {b"now": [b"answer"], b"late": stored()}.get(frame[2:])

    frames = waiting(PRODUCE + b"late", PRODUCE + b"now", PRODUCE + b"no answer", FETCH, PRODUCE)
    serve_ahead(frames, serve, lambda: True)
    assert served == [b"late", b"now", b"no answer"]
    assert [isinstance(each, Served) for each in frames.waiting] == [True, True, True, False, False]
    assert frames.waiting_bytes == len(FETCH + PRODUCE)
    assert frames.has_unserved
    assert frames.has_served
    serve_ahead(frames, serve, lambda: True)
    assert len(served) == 3, "none is served twice"
    assert isinstance(frames.pop().take(), Pending)
    assert frames.pop().take() == [b"answer"]
    assert waiting(frames.waiting[0]).has_waiting, "its answer waits, though it counts no bytes"
    assert frames.pop().take() is None
    assert frames.waiting_bytes == len(FETCH + PRODUCE)


async def test_nothing_is_served_behind_what_is_not_stored_and_its_memory_counts():
    happened = asyncio.get_running_loop().create_future()
    frames = waiting(PRODUCE + bytes(COPY_BYTES), PRODUCE)
    serve_ahead(frames, lambda _: Pending(happened, list), lambda: True)
    assert [isinstance(each, Served) for each in frames.waiting] == [True, False]
    assert frames.waiting_bytes == 2 + COPY_BYTES + 2
    serve_ahead(frames, pytest.fail, lambda: True)
    first = frames.pop()
    assert len(first) == 2 + COPY_BYTES
    assert first[:2] == PRODUCE
    assert frames.waiting_bytes == 2


async def test_what_a_task_does_is_done_in_its_turn_whatever_becomes_of_the_connection():
    done = []

    async def work():
        done.append(1)
        raise CloseConnection("acks=0 and an error")

    task = asyncio.ensure_future(work())
    served = Served.of(PRODUCE, lambda _: Pending(task, task.result))
    assert not served.is_stored
    await asyncio.wait([served.take().happened])
    assert done
    with pytest.raises(CloseConnection):
        served.take().finish()


def test_some_are_served_at_most_and_none_when_the_turn_is_over():
    frames = waiting(*[PRODUCE] * (MOST_AHEAD + 2))
    serve_ahead(frames, lambda _: [b"answer"], lambda: True)
    assert sum(isinstance(each, Served) for each in frames.waiting) == MOST_AHEAD
    frames = waiting(PRODUCE)
    serve_ahead(frames, pytest.fail, lambda: False)
    assert not frames.has_served


async def test_an_answer_that_is_there_in_its_turn_is_taken_at_once(caplog):
    assert Served.of(PRODUCE, lambda _: stored(is_done=True)).take() == [b"late"]
    late = stored()
    assert Served.of(PRODUCE, lambda _: late).take() is late

    def refuse(_):
        raise CloseConnection("bad")

    frames = waiting(PRODUCE, PRODUCE)
    serve_ahead(frames, refuse, lambda: True)
    assert [isinstance(each, Served) for each in frames.waiting] == [True, False]
    with pytest.raises(CloseConnection, match="bad"):
        frames.pop().take()
    broken = stored(is_done=True)._replace(finish=lambda: 1 // 0)
    with pytest.raises(CloseConnection), caplog.at_level(logging.ERROR):
        Served.of(PRODUCE, lambda _: broken).take()
    assert "ZeroDivisionError" in caplog.text


# --- on a connection ------------------------------------------------------------------------------


def request(topic="t", value=b"a", number=1, acks=-1, timeout_ms=20_000):
    fields = {**produce_fields(topic, batch(value)), "timeout_ms": timeout_ms, "acks": acks}
    return raw.frame(raw.request("Produce", VERSION, correlation_id=number, **fields))


class Peer:
    """A connection on which requests are sent without waiting for answers."""

    def __init__(self, port):
        self._port = port

    async def __aenter__(self):
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_):
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    def send(self, *frames):
        self._writer.write(b"".join(frames))

    async def answer(self):
        """The correlation id, the error code and the base offset of the next answer."""
        async with asyncio.timeout(20):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            body = await self._reader.readexactly(size)
        message, _ = codec(api_of(0).response, VERSION).decode(body, 5)
        (part,) = message.responses[0].partition_responses
        return int.from_bytes(body[:4], "big"), part.error_code, part.base_offset

    async def end(self):
        async with asyncio.timeout(20):
            assert await self._reader.read() == b""


@contextlib.asynccontextmanager
async def nobody_fetches(directory):
    """Three brokers of which the followers count, and do not fetch."""
    async with brokers(directory) as three:
        await three.create("t", configs={"min.insync.replicas": "2"})
        for number in (2, 3):
            await three[number].lose_session(is_noticed=False)
        yield three


async def test_followers_get_the_records_of_several_requests_at_once(tmp_path):
    async with brokers(tmp_path) as three:
        await three.create("t", configs={"min.insync.replicas": "2"})
        log, fetched = three[1].log("t"), []
        read = type(log.reader).read_for_follower

        def counted(reader, offset, *args, **options):
            answer = read(reader, offset, *args, **options)
            if answer.fetched.size:
                fetched.append(offset)
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(log.reader), "read_for_follower", counted)
            async with Peer(three[1].port) as peer:
                peer.send(*(request(number=number) for number in range(5)))
                got = [await peer.answer() for _ in range(5)]
        assert got == [(number, 0, number) for number in range(5)]
        assert log.high_watermark == 5
        assert set(fetched) == {0}, "one read for all"


async def test_answers_leave_in_their_turn_and_other_requests_wait(tmp_path):
    async with nobody_fetches(tmp_path) as three:
        log = three[1].log("t")
        async with Peer(three[1].port) as peer:
            api_versions = raw.frame(raw.request("ApiVersions", 0, correlation_id=5))
            peer.send(request(number=1))
            await eventually(lambda: log.log_end_offset == 1)
            peer.send(request(number=2, acks=1), request(number=3, topic="none"))
            peer.send(request(number=4, timeout_ms=300), api_versions, request(number=6))
            await eventually(lambda: log.log_end_offset == 3)
            (connection,) = [each for each in three[1].node.connections if each.has_more]
            assert connection.is_busy
            three[1].replicas.assigned.stop_all("the test says so")
            gone = ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await peer.answer() == (1, gone, -1)
            assert await peer.answer() == (2, 0, 1)
            assert (await peer.answer())[:2] == (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            assert await peer.answer() == (4, gone, -1)
        assert log.log_end_offset == 3, "the last one was not served ahead of another API"
        assert three[1].node.metrics.unexpected_errors == 0


async def test_a_request_that_closes_the_connection_does_so_in_its_turn(tmp_path):
    async with nobody_fetches(tmp_path) as three:
        log = three[1].log("t")
        async with Peer(three[1].port) as peer:
            peer.send(request(number=1), request(topic="none", acks=0), request(number=3))
            await eventually(lambda: log.log_end_offset == 1)
            three[1].replicas.assigned.stop_all("the test says so")
            assert await peer.answer() == (1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            await peer.end()
        assert log.log_end_offset == 1


async def test_what_was_served_for_a_peer_that_leaves_is_stored_and_not_answered(tmp_path, caplog):
    async with nobody_fetches(tmp_path) as three:
        log = three[1].log("t")
        async with Peer(three[1].port) as peer:
            peer.send(*(request(number=number) for number in range(3)))
            await eventually(lambda: log.log_end_offset == 3)
        three[1].replicas.assigned.stop_all("the test says so")
        await eventually(lambda: not any(each.is_busy for each in three[1].node.connections))
        gc.collect()
        assert "never retrieved" not in caplog.text
        assert three[1].node.memory.requests.reserved_bytes == 0


async def test_a_large_request_arrives_while_another_waits(tmp_path):
    async with nobody_fetches(tmp_path) as three:
        log = three[1].log("t")
        async with Peer(three[1].port) as peer:
            peer.send(*(request(number=number, value=bytes(200_000)) for number in range(3)))
            await eventually(lambda: log.log_end_offset == 3)
            three[1].replicas.assigned.stop_all("the test says so")
            assert [(await peer.answer())[0] for _ in range(3)] == [0, 1, 2]
        await eventually(lambda: three[1].node.memory.requests.reserved_bytes == 0)


async def test_the_checks_here_fail_if_requests_are_served_behind_what_is_not_stored(
    tmp_path, monkeypatch
):
    """The bug injected: every request counts as stored, so a later one overtakes one that waits."""
    order, shortcut = [], produce_single.shortcut

    async def slowly(answer):
        await asyncio.sleep(0)
        return answer

    def first_waits(node, client, header, frame):
        order.append(header.correlation_id)
        answer = shortcut(node, client, header, frame)
        if header.correlation_id == 2:
            task = asyncio.ensure_future(slowly(Encoded(b"\0\0\0\4\0\0\0\2", is_frame=True)))
            return Pending(task, task.result)
        return answer

    monkeypatch.setattr(produce_single, "shortcut", first_waits)
    routes.wrap(None)  # routes are made anew
    async with nobody_fetches(tmp_path) as three:
        for is_injected in (False, True):
            if is_injected:
                monkeypatch.setattr(ahead.Served, "is_stored", True)
            order.clear()
            async with Peer(three[1].port) as peer:
                peer.send(*(request(number=number) for number in (1, 2, 3)))
                await eventually(lambda: 2 in order)
                assert (3 in order) == is_injected
    monkeypatch.undo()
    routes.wrap(None)
