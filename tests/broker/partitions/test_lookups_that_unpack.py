"""Lookups by time in batches that unpack to much: off the event loop, and with memory that is counted."""

from __future__ import annotations

import threading

import pytest

from tests.broker.asking import create, produce
from tests.broker.inside import Inside
from tidelog.broker.network.memory.unpacking import COPIES
from tidelog.protocol.records import batch as batches
from tidelog.protocol.records.batch import Record, build

MIB = 1 << 20
GZIP = 1
TOO_LARGE = 10
MAX_TIMESTAMP = -3
SHARE = 8 * MIB
SIZES = {"none": 0, "some": MIB * 3 // 2, "much": 6 * MIB, "all": 10 * MIB}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Inside(tmp_path_factory.mktemp("lookups")) as broker, broker.connect() as connection:
        for topic, size in SIZES.items():
            create(connection, topic)
            packed = build([Record(0, 1_000, None, bytes(size))], compression=GZIP)
            assert produce(connection, topic, packed)["error_code"] == 0
        broker.node.memory.records.limit_bytes = SHARE
        yield broker


@pytest.fixture
def unpacked(broker, monkeypatch):
    """Where each batch was unpacked, to how many bytes at most, and how many were reserved."""
    found, real, share = [], batches.decompress, broker.node.memory.records

    def decompress(codec, data, magic, limit):
        kind = threading.current_thread().name.rpartition("_")[0]
        found.append((kind, limit, share.reserved_bytes))
        return real(codec, data, magic, limit)

    monkeypatch.setattr(batches, "decompress", decompress)
    return found


def look_up(broker, topic, timestamp):
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
    fields = {"replica_id": -1, "isolation_level": 0}
    with broker.connect() as connection:
        topics = [{"name": topic, "partitions": [wanted]}]
        answer = connection.ask("ListOffsets", 7, **fields, topics=topics)
    (partition,) = answer["topics"][0]["partitions"]
    return partition["error_code"], partition["offset"], partition["timestamp"]


def test_a_batch_that_unpacks_to_little_is_looked_into_on_the_loop(broker, unpacked):
    assert look_up(broker, "none", 1_000) == (0, 0, 1_000)
    ((kind, limit, reserved),) = unpacked
    assert (kind, reserved) == ("", 0)
    assert limit < MIB


@pytest.mark.parametrize("timestamp", [1, MAX_TIMESTAMP])
@pytest.mark.parametrize(("topic", "reserved"), [("some", SHARE // COPIES), ("much", SHARE)])
def test_one_that_unpacks_to_more_waits_for_memory(broker, unpacked, timestamp, topic, reserved):
    assert look_up(broker, topic, timestamp) == (0, 0, 1_000)
    assert unpacked[-1] == ("convert", reserved, reserved)
    assert all(limit <= MIB for kind, limit, _ in unpacked if kind != "convert")
    assert broker.node.memory.records.reserved_bytes == 0


def test_one_that_unpacks_to_more_than_there_is_is_refused(broker, unpacked):
    assert look_up(broker, "all", 1) == (TOO_LARGE, -1, -1)
    assert max(limit for _, limit, _ in unpacked) == SHARE
    assert broker.node.memory.records.reserved_bytes == 0
