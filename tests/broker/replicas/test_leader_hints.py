"""A broker that does not lead a partition names the leader and its address (KIP-951)."""

from __future__ import annotations

import asyncio

import pytest

from tests.broker.replicas.inside import ask, batch, brokers, eventually
from tidelog.client import apis
from tidelog.protocol.api import fetch as fetch_api
from tidelog.protocol.api import produce as produce_api
from tidelog.protocol.errors import ErrorCode


@pytest.fixture
def three(tmp_path):
    """Runs a coroutine with three brokers; broker 1 leads t-0, which has replicas at 1 and 2."""

    def run(test):
        async def with_brokers():
            async with brokers(tmp_path) as made:
                await made.create("t", replicas=((1, 2),))
                await test(made)

        asyncio.run(with_brokers())

    return run


async def produce(broker, *, acks=-1):
    data = produce_api.PartitionProduceData(index=0, records=batch(b"a"))
    request = produce_api.ProduceRequest(
        acks=acks,
        timeout_ms=20_000,
        topic_data=[produce_api.TopicProduceData(name="t", partition_data=[data])],
    )
    answer = await ask(broker, request, apis.PRODUCE)
    return answer.responses[0].partition_responses[0], answer.node_endpoints


async def fetch(broker, topic_id, *, epoch=-1):
    wanted = fetch_api.FetchPartition(
        partition=0, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1 << 20
    )
    request = fetch_api.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        topics=[fetch_api.FetchTopic(topic="t", topic_id=topic_id, partitions=[wanted])],
    )
    answer = await ask(broker, request, apis.FETCH, least_version=16)
    return answer.responses[0].partitions[0], answer.node_endpoints


def told(part, endpoints):
    """The code, the leader with its epoch, and the addresses that a response names."""
    leader = part.current_leader
    return (
        part.error_code,
        leader and (leader.leader_id, leader.leader_epoch),
        [(each.node_id, each.host, each.port) for each in endpoints],
    )


def test_a_producer_at_another_broker_is_told_the_leader(three):
    async def test(made):
        address = (1, "127.0.0.1", made[1].port)
        for other in (2, 3):
            assert told(*await produce(made[other])) == (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                (1, 0),
                [address],
            )
        assert told(*await produce(made[1])) == (0, None, [])

    three(test)


def test_a_producer_that_waits_is_told_the_new_leader(three):
    async def test(made):
        await made[2].lose_session(is_noticed=False)  # it fetches no more
        waiting = asyncio.ensure_future(produce(made[1]))
        log = made[1].log("t")
        await eventually(lambda: log.log_end_offset == 1)
        await made.put("t", leader=2, leader_epoch=1)
        assert told(*await waiting) == (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            (2, 1),
            [(2, "127.0.0.1", made[2].port)],
        )

    three(test)


def test_a_leader_that_is_gone_has_no_address(three):
    async def test(made):
        await made[1].lose_session()
        await eventually(lambda: 1 not in made[2].node.metadata.image.brokers)
        assert told(*await produce(made[2])) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, (1, 0), [])
        await made.put("t", leader=-1, leader_epoch=1)
        await eventually(
            lambda: made[2].node.metadata.image.topics["t"].assignments[0].leader == -1
        )
        assert told(*await produce(made[2])) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None, [])

    three(test)


def test_a_consumer_is_told_the_leader_by_whom_it_asks_with_which_epoch(three):
    async def test(made):
        topic_id = made[1].node.metadata.image.topics["t"].topic_id
        await made.elect("t", 2)
        await eventually(lambda: made[1].replicas._fetches)  # it follows
        new = ((2, 1), [(2, "127.0.0.1", made[2].port)])
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
            found = told(*await fetch(made[broker], topic_id, epoch=epoch))
            assert found == answer, (broker, epoch)

    three(test)
