"""Fetch at its edges: what comes between the read and the wait, and a second partition's share."""

import asyncio
import itertools
import types

import pytest

from tests.broker import asking
from tests.broker.logs.test_interrupted_changes import Broker
from tests.oracle import recordset
from tidelog.broker.api import fetch as handler
from tidelog.broker.network.context import Context
from tidelog.broker.security.session import ANONYMOUS, Session
from tidelog.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.message import RequestHeader


async def test_what_is_appended_before_the_wait_begins_wakes_it(tmp_path):
    """Asked of the handler itself: over TCP the moment between its return and its task is too short."""
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
                ],
            )
        ],
    )
    session = Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT")
    context = Context(RequestHeader(1, 4, 0, None, 0), types.SimpleNamespace(session=session))
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1)
        waiting = handler.handle(broker.node, request, context)
        broker.node.appends.append(broker.node.partitions.get("t", 0), asking.batch_of("early"), 7)
        response = await asyncio.wait_for(waiting, 60)
    assert b"early" in b"".join(map(bytes, (response.responses[0].partitions[0].records)))


@pytest.mark.parametrize("version", [3, 4, 11, 12])
def test_a_second_partition_sends_whole_batches_or_nothing(connection, version):
    """From version 3 on a first batch that does not fit is left out: half of one is an error to Java."""
    first, second = asking.new_topic(connection), asking.new_topic(connection)
    for topic in (first, second):
        asking.produce(connection, topic, asking.batch_of("x" * 1000))
    asked = asking.fetch_fields(first, max_bytes=1_100)
    asked["topics"] += asking.fetch_fields(second)["topics"]
    answer = connection.ask("Fetch", version, **asked)
    found = [each["partitions"][0]["records"] for each in answer["responses"]]
    batches, rest = recordset.parse(found[0])
    assert len(batches) == 1
    assert not rest
    assert not found[1]


@pytest.mark.parametrize("version", [0, 4, 12])
def test_a_partition_named_twice_is_answered_once_as_kafka_does(connection, version):
    """By its last naming, in the place of its first; a topic left without partitions is left out."""
    first, second = (asking.new_topic(connection, partitions=2) for _ in range(2))
    for topic, partition, text in itertools.product((first, second), range(2), "ab"):
        asking.produce(connection, topic, asking.batch_of(text), partition=partition)
    topics = [
        asking.fetch_fields(topic, offset, partition=partition)["topics"][0]
        for topic, offset, partition in [
            (first, 0, 0),
            (second, 0, 1),
            (first, 1, 0),
            (first, 0, 1),
            (second, 1, 1),
        ]
    ]
    topics[0]["partitions"] += topics[3]["partitions"]  # 0 and 1, both of which come again
    answer = connection.ask("Fetch", version, **asking.fetch_fields(first, topics=topics))
    found = [
        (topic["topic"], [_summary(each) for each in topic["partitions"]])
        for topic in answer["responses"]
    ]
    assert found == [(first, [(0, [1]), (1, [0, 1])]), (second, [(1, [1])])]


def _summary(part):
    """A partition's number and the offsets it got."""
    assert part["error_code"] == 0
    batches, _ = recordset.parse(part["records"])
    records = [record for batch in batches for record in batch.get("records", [batch])]
    return part["partition_index"], [record["offset"] for record in records]
