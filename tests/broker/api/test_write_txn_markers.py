"""WriteTxnMarkers: the markers of a request are begun in its order, and waited for together."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from tests.broker.asking import new_topic
from tidelog.broker.api.write_txn_markers import AT_ONCE, handle
from tidelog.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tidelog.protocol.errors import InvalidProducerEpoch, UnknownTopicOrPartition


def marker(epoch, *indexes, topic="t", producer_id=7):
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        coordinator_epoch=0,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes))],
    )


class Slow:
    """A node whose markers wait for other replicas until the test says so."""

    def __init__(self):
        self.begun = []
        self.partitions = SimpleNamespace(opener=SimpleNamespace(open=self.open))
        self.transactions = SimpleNamespace(markers=self)
        self.metadata = SimpleNamespace(node_id=1, image=SimpleNamespace(brokers={}))
        self.replicas = self

    async def open(self, names):
        self.opened = list(names)
        return {}

    async def is_of_broker(self, _context):
        """Nobody names a broker in its header."""

    def begin(self, name, producer, coordinator_epoch, *, is_commit):
        if name[1] == 9:
            raise UnknownTopicOrPartition("no such partition")
        self.begun.append((name, producer.epoch, asyncio.get_running_loop().create_future()))
        return self.begun[-1][2]


def test_no_marker_waits_for_another():
    count = 3 * AT_ONCE

    async def play():
        node = Slow()
        request = WriteTxnMarkersRequest(markers=[marker(e, 0, 9, 1) for e in range(count)])
        answer = asyncio.ensure_future(handle(node, request, None))
        while len(node.begun) < 2 * count:
            assert not answer.done()
            await asyncio.sleep(0)
        expected = [(("t", index), epoch) for epoch in range(count) for index in (0, 1)]
        assert [each[:2] for each in node.begun] == expected
        for name, _, future in reversed(node.begun):
            if name[1]:
                future.set_exception(InvalidProducerEpoch("old"))
            else:
                future.set_result(None)
        return await answer

    found = asyncio.run(play()).markers
    assert len(found) == count
    for each in found:
        (topic,) = each.topics
        codes = [(one.partition_index, one.error_code) for one in topic.partitions]
        assert codes == [(0, 0), (9, 3), (1, 47)]


def test_markers_of_one_partition_are_judged_in_the_order_of_the_request(connection):
    topic = new_topic(connection)
    asked = [
        {
            "producer_id": 70_000,
            "producer_epoch": epoch,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": [{"name": topic, "partition_indexes": [0, 5]}],
        }
        for epoch in (5, 6, 5, 7)
    ]
    answer = connection.ask("WriteTxnMarkers", 1, markers=asked)
    codes = [
        [one["error_code"] for one in each["topics"][0]["partitions"]] for each in answer["markers"]
    ]
    assert codes == [[0, 3], [0, 3], [47, 3], [0, 3]]
