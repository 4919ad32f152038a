"""Consumers read from the replica in their rack, and from any follower that they ask (KIP-392)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from tests.broker.asking import fetch_fields
from tests.broker.partitions.inside import brokers, consume, eventually, list_end, produce
from tests.oracle import wire
from tidelog.broker.metadata.brokers.members import LiveBroker
from tidelog.broker.metadata.brokers.records import Endpoint, LiveBrokerRecord
from tidelog.broker.partitions.fetch.consumers import brokers_in
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records.batch import records

LONG_MS = 300_000  # longer than a test waits for all that it does while a fetch waits


def old_fetch(port, version):
    """The error code of a Fetch of an older version."""
    with wire.Connection(f"127.0.0.1:{port}") as connection:
        answer = connection.ask("Fetch", version, **fetch_fields("t", 0))
    return answer["responses"][0]["partitions"][0]["error_code"]


def values(part):
    return [each.value for each in records(part.records or b"")]


async def settled(three, number, topic="t", end=1):
    """Returns when a follower's high watermark is where the log ends."""
    log = three[number].log(topic)
    await eventually(lambda: log.high_watermark == end, f"broker {number} to know of {end}")


async def test_a_leader_sends_a_consumer_to_the_replica_in_its_rack_and_that_serves_it(racked):
    await racked.create("t")
    await produce(racked[1], "t", b"x")
    await settled(racked, 2)
    sent_on = await consume(racked[1], "t", rack="b", wait_ms=LONG_MS)
    assert (sent_on.preferred_read_replica, sent_on.high_watermark) == (2, 1)
    assert values(sent_on) == []
    found = await consume(racked[2], "t", rack="b")
    assert (found.error_code, found.preferred_read_replica) == (0, -1)
    assert values(found) == [b"x"]
    assert (await list_end(racked[2], "t")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    for rack in ("", "a", "elsewhere"):  # none, the leader's own, one without a replica
        found = await consume(racked[1], "t", rack=rack)
        assert (found.preferred_read_replica, values(found)) == (-1, [b"x"])


@pytest.mark.parametrize(
    "selector", [None, "org.apache.kafka.common.replica.LeaderSelector"], ids=["none", "leader"]
)
async def test_without_the_selector_the_leader_serves(tmp_path, selector):
    own = {} if selector is None else {"replica.selector.class": selector}
    settings = {number: {"broker.rack": f"r{number}", **own} for number in (1, 2, 3)}
    async with brokers(tmp_path, settings=settings) as three:
        await three.create("t")
        await produce(three[1], "t", b"x")
        await settled(three, 2)
        found = await consume(three[1], "t", rack="r2")
        assert (found.preferred_read_replica, values(found)) == (-1, [b"x"])


def test_a_broker_that_is_fenced_or_has_another_listener_is_not_near():
    def live(broker, listener, *, is_fenced):
        record = LiveBrokerRecord("id", (Endpoint(listener, "h", 1),), "b", is_fenced, False)
        return LiveBroker(broker, 5, record, 6)

    near = {
        1: live(1, "PLAINTEXT", is_fenced=False),
        2: live(2, "PLAINTEXT", is_fenced=True),
        3: live(3, "OTHER", is_fenced=False),
    }
    image = SimpleNamespace(brokers=near)
    assert brokers_in("b", image, "PLAINTEXT") == [1]
    assert brokers_in("a", image, "PLAINTEXT") == []


async def test_what_a_follower_answers_beside_its_log(three):
    await three.create("t")
    await produce(three[1], "t", b"x")
    await settled(three, 2)
    for offset, epoch, code in (
        (1, 0, ErrorCode.NONE),
        (2, 0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-5, 0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        answer = await consume(three[2], "t", offset=offset, epoch=epoch)
        assert answer.error_code == code, (offset, epoch)
    await three.elect("t", 3)
    await eventually(lambda: three[2].node.metadata.image.topics["t"].assignments[0].leader == 3)
    assert (await consume(three[2], "t", epoch=0)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    await three[2].lose_session()
    answer = await consume(three[2], "t", epoch=1)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_records_above_the_high_watermark_are_not_read_from_a_follower(three):
    await three.create("t")
    await three[3].lose_session(is_noticed=False)  # the leader waits for it
    await produce(three[1], "t", b"x", acks=1)
    log = three[2].log("t")
    await eventually(lambda: log.log_end_offset == 1)
    for offset in (0, 1):
        answer = await consume(three[2], "t", offset=offset)
        assert (answer.error_code, answer.high_watermark, values(answer)) == (0, 0, [])


async def test_an_old_fetch_is_for_the_leader_alone(three):
    await three.create("t")
    await produce(three[1], "t", b"x")
    await settled(three, 2)
    for version, code in ((10, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, ErrorCode.NONE)):
        assert await asyncio.to_thread(old_fetch, three[2].port, version) == code


async def test_a_fetch_that_waits_at_a_follower_is_answered_when_its_high_watermark_rises(three):
    await three.create("t")
    await produce(three[1], "t", b"x")
    await settled(three, 2)
    waiting = asyncio.ensure_future(consume(three[2], "t", offset=1, wait_ms=LONG_MS))
    await eventually(lambda: len(three[2].node.purgatory) == 1)
    await produce(three[1], "t", b"y")
    assert values(await waiting) == [b"y"]


async def test_a_fetch_waits_at_a_follower_for_as_many_bytes_as_it_asks_for(three):
    await three.create("t")
    await produce(three[1], "t", b"x")
    await settled(three, 2)  # it follows
    waiting = asyncio.ensure_future(
        consume(three[2], "t", offset=1, wait_ms=LONG_MS, min_bytes=250)
    )
    await eventually(lambda: len(three[2].node.purgatory) == 1)
    for end, value in enumerate([b"1" * 20, b"2" * 20, b"3" * 20], 2):
        assert not waiting.done()
        await produce(three[1], "t", value)
        await settled(three, 2, end=end)
    assert values(await waiting) == [b"1" * 20, b"2" * 20, b"3" * 20]


async def test_a_fetch_that_waits_at_a_follower_is_told_of_another_leader(three):
    topic = await three.create("t")
    await eventually(lambda: three[2].replicas.followed_by_id(topic.topic_id, 0))
    waiting = asyncio.ensure_future(consume(three[2], "t", wait_ms=LONG_MS, epoch=0))
    await eventually(lambda: len(three[2].node.purgatory) == 1)
    await three.elect("t", 3)
    assert (await waiting).error_code in {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
