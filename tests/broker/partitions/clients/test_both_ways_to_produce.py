"""Produce of one partition has a way of its own, which waits for replicas, too, and answers alike."""

import asyncio

import pytest

from tests.broker import raw
from tests.broker.asking import produce_fields
from tests.broker.partitions.inside import batch, brokers, eventually, produce
from tidelog.broker.api import admission, produce_single
from tidelog.broker.network import routes
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.message import api_of, codec

PRODUCE = 0


async def exchange(port: int, body: bytes) -> bytes:
    """Sends one request, and returns the response."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw.frame(body))
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    finally:
        writer.close()


def frame(version: int, timeout_ms: int) -> bytes:
    fields = {**produce_fields("t", batch(b"a")), "timeout_ms": timeout_ms}
    return raw.request("Produce", version, **fields)


async def answers(directory, version: int) -> list[bytes]:
    """Those of an append that all get, of one that not all get in time, and of a leader that goes."""
    async with brokers(directory) as three:
        await three.create("t", configs={"min.insync.replicas": "2"})
        port, log = three[1].port, three[1].log("t")
        got = [await exchange(port, frame(version, 20_000))]
        for number in (2, 3):
            await three[number].lose_session(is_noticed=False)  # they count, and do not fetch
        got.append(await exchange(port, frame(version, 1)))
        waiting = asyncio.ensure_future(exchange(port, frame(version, 20_000)))
        await eventually(lambda: log.log_end_offset == 3)
        three[1].replicas.assigned.stop_all("the test says so")
        got.append(await waiting)
        assert three[1].node.metrics.unexpected_errors == 0
        return [each.replace(port.to_bytes(4, "big"), b"port") for each in got]


@pytest.mark.parametrize("version", [3, 8, 9, 12])
async def test_both_ways_answer_alike(tmp_path, monkeypatch, version):
    short, taken = produce_single.shortcut, []

    def counted(*arguments):
        answer = short(*arguments)
        taken.append(answer is not None)
        return answer

    monkeypatch.setattr(routes, "known", {})
    monkeypatch.setattr(produce_single, "shortcut", counted)
    fast = await answers(tmp_path / "fast", version)
    assert taken == [True, True, True]
    monkeypatch.setattr(routes, "_SHORTCUTS", {})
    monkeypatch.setattr(routes, "known", {})
    assert fast == await answers(tmp_path / "ordinary", version)
    assert taken == [True, True, True]
    assert [code_of(version, each) for each in fast] == [0, 7, 6]  # timed out; not the leader


def code_of(version: int, answer: bytes) -> int:
    api = api_of(PRODUCE)
    assert api is not None
    begin = 5 if version >= 9 else 4  # after the correlation id, and tags
    message, _ = codec(api.response, version).decode(answer, begin)
    return message.responses[0].partition_responses[0].error_code


async def test_an_append_that_waits_for_its_admission_waits_for_replicas_too(three, monkeypatch):
    admit, waited = admission.admit_produce, []

    def admit_later(*arguments):
        partition = admit(*arguments)
        waited.append(asyncio.get_running_loop().create_future())
        asyncio.get_running_loop().call_later(0.01, waited[-1].set_result, partition)
        return waited[-1]

    await three.create("t", configs={"min.insync.replicas": "2"})
    monkeypatch.setattr(admission, "admit_produce", admit_later)
    assert (await produce(three[1], "t", b"all get it")).error_code == 0
    for number in (2, 3):
        await three[number].lose_session(is_noticed=False)  # they count, and do not fetch
    late = await produce(three[1], "t", b"nobody gets it", timeout_ms=1)
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await produce(three[1], "t", b"one gets it", acks=1)).error_code == 0
    assert waited
