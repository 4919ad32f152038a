"""A broker that does not lead a partition names the leader and its address (KIP-951)."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.partitions.inside import append, batch, eventually, fetch, part_of
from tidelog.protocol.errors import ErrorCode


@pytest.fixture
async def three(three):
    """Broker 1 leads t-0, which has replicas at 1 and 2."""
    await three.create("t", replicas=((1, 2),))
    for broker in three.all.values():
        await eventually(lambda at=broker: "t" in at.node.metadata.image.topics)
    return three


def told(answer):
    """The code, the leader with its epoch, and the addresses that an answer names."""
    part = part_of(answer)
    leader = part.current_leader
    return (
        part.error_code,
        leader and (leader.leader_id, leader.leader_epoch),
        [(each.node_id, each.host, each.port) for each in answer.node_endpoints],
    )


def produce(broker):
    return append(broker, "t", batch(b"a"))


async def test_a_producer_at_another_broker_is_told_the_leader(three):
    address = (1, "127.0.0.1", three[1].port)
    for other in (2, 3):
        assert told(await produce(three[other])) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            (1, 0),
            [address],
        )
    assert told(await produce(three[1])) == (0, None, [])


async def test_a_producer_that_waits_is_told_the_new_leader(three):
    await three[2].lose_session(is_noticed=False)  # it fetches no more
    waiting = asyncio.ensure_future(produce(three[1]))
    log = three[1].log("t")
    await eventually(lambda: log.log_end_offset == 1)
    await three.put("t", leader=2, leader_epoch=1)
    assert told(await waiting) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (2, 1),
        [(2, "127.0.0.1", three[2].port)],
    )


async def test_a_leader_that_is_gone_has_no_address(three):
    await three[1].lose_session()
    await eventually(lambda: 1 not in three[2].node.metadata.image.brokers)
    assert told(await produce(three[2])) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, (1, 0), [])
    await three.put("t", leader=-1, leader_epoch=1)
    await eventually(lambda: three[2].node.metadata.image.topics["t"].assignments[0].leader == -1)
    assert told(await produce(three[2])) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None, [])


async def test_a_consumer_is_told_the_leader_by_whom_it_asks_with_which_epoch(three):
    await three.elect("t", 2)
    topic_id = three[1].node.metadata.image.topics["t"].topic_id
    await eventually(lambda: three[1].replicas.followed_by_id(topic_id, 0))
    new = ((2, 1), [(2, "127.0.0.1", three[2].port)])
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    fenced, unknown = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
    for broker, epoch, answer in (
        (2, -1, (0, None, [])),
        (2, 0, (fenced, *new)),
        (2, 2, (unknown, None, [])),
        (1, -1, (0, None, [])),  # followers serve consumers (KIP-392)
        (1, 0, (fenced, *new)),
        (1, 1, (0, None, [])),
        (1, 2, (unknown, None, [])),
        (3, 0, (refused, *new)),
        (3, 2, (refused, *new)),
    ):
        found = told(await fetch(three[broker], "t", epoch=epoch))
        assert found == answer, (broker, epoch)
