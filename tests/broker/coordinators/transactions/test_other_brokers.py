"""Markers for other brokers: none is forgotten, whatever is under way, and none waits for another's fault."""

from __future__ import annotations

import asyncio

import pytest

from tidelog.broker.coordinators.transactions.others import OtherBrokers
from tidelog.client.errors import ConnectionBroken
from tidelog.protocol.api.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tidelog.protocol.errors import NotLeaderOrFollower, TransactionCoordinatorFenced
from tidelog.protocol.transaction_log import ProducerIdAndEpoch

PRODUCER = ProducerIdAndEpoch(7, 0)


class Answering(OtherBrokers):
    """Answers by itself what would be sent: the code of each producer's marker, or a broken connection."""

    def __init__(self, codes=None):
        super().__init__(None)
        self.codes = codes or {}
        self.sent = []
        self.is_broken = False

    async def _ask(self, broker, request, key, least_version):
        self.sent.append((broker, [each.producer_id for each in request.markers]))
        await asyncio.sleep(0)
        if self.is_broken:
            raise ConnectionBroken("it is gone")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=each.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name="t",
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    error_code=self.codes.get(each.producer_id, 0)
                                )
                            ],
                        )
                    ],
                )
                for each in request.markers
            ]
        )


def write(others, broker=2, producer=PRODUCER):
    return others.write_marker(broker, ("t", 0), producer, 3, is_commit=True)


async def test_one_marker_after_the_other():
    """The next one comes in the moment in which the one before is answered."""
    others = Answering()
    async with asyncio.timeout(60):
        for _ in range(3):
            await write(others)
    assert others.sent == [(2, [7])] * 3


async def test_what_comes_meanwhile_goes_together_and_each_has_its_own_error():
    others = Answering({2: 6, 4: 52})
    async with asyncio.timeout(60):
        first = asyncio.ensure_future(write(others))
        await asyncio.sleep(0)
        rest = [write(others, producer=ProducerIdAndEpoch(each, 0)) for each in (1, 2, 3, 4)]
        rest.append(write(others, broker=3))
        outcomes = await asyncio.gather(first, *rest, return_exceptions=True)
    assert [type(each) for each in outcomes] == [
        type(None),
        type(None),
        NotLeaderOrFollower,
        type(None),
        TransactionCoordinatorFenced,
        type(None),
    ]
    assert sorted(others.sent) == [(2, [1, 2, 3, 4]), (2, [7]), (3, [7])]
    assert outcomes[2].named.startswith("NOT_LEADER_OR_FOLLOWER: broker 2 refuses: ")


async def test_a_broker_that_cannot_be_asked_is_asked_again_later():
    others = Answering()
    others.is_broken = True
    async with asyncio.timeout(60):
        with pytest.raises(NotLeaderOrFollower, match="broker 2 cannot be asked: it is gone"):
            await write(others)
        others.is_broken = False
        await write(others)
    assert len(others.sent) == 2
