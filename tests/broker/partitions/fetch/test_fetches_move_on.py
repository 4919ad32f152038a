"""Every fetch of every version moves on, whatever compaction left of the batches.

The client here is an old one: it reads on behind the last offset that it received, drops what is before its
position, and asks for more bytes where it got a part of a message alone (Fetch v0-v2).
"""

import random
import struct
import types

import pytest

from tests.broker.topics.test_interrupted_changes import Broker
from tests.storage.cleaning import clean
from tidelog.broker.api import fetch as handler
from tidelog.broker.network.context import Context
from tidelog.broker.security.session import ANONYMOUS, Session
from tidelog.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.message import RequestHeader
from tidelog.protocol.records.batch import Compression, Record, build

CODECS = [Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD]
VERSIONS = [0, 1, 2, 3, 4, 9, 10, 12]
LIMITS = [1, 700, 5_000, 1 << 20]


@pytest.mark.parametrize("stored", ["0.9.0", "0.10.2", "3.0"])  # formats 0, 1 and 2
@pytest.mark.parametrize("codec", CODECS)
async def test_a_client_reads_a_compacted_log_to_its_end(tmp_path, codec, stored):
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": "10000",
        "message.format.version": stored,
    }
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1, configs=configs)
        partition = broker.node.partitions.get("t", 0)
        fill(partition, codec)
        assert clean(partition, 10_000)
        end = partition.log_end_offset
        for version in VERSIONS:
            for limit in LIMITS:
                await read_to(broker.node, version, limit, end)


def fill(partition, codec):
    """Batches whose first records stay, and whose last records are replaced by later ones."""
    noise = random.Random(7)
    for number in range(12):
        size = (200, 3_000, 6_000)[number % 3]
        made = [
            Record(0, 5, b"stays-%d" % number, noise.randbytes(size)),
            Record(1, 5, b"goes", noise.randbytes(200)),
        ]
        data = build(made, compression=codec)
        partition.append(data, now_ms=100, produce_version=9)
    last = build([Record(0, 5, b"last", noise.randbytes(9_000))])
    partition.append(last, now_ms=100, produce_version=9)


async def read_to(node, version, limit, end):
    position, asked = 0, 0
    while position < end:
        data = await fetched(node, version, position, limit)
        last = last_offset(data)
        if last is None:
            assert data, (version, limit, position, "nothing, not even a part of a message")
            assert version < 3
            limit *= 2
        else:
            assert last >= position, (version, limit, position, "stands still")
            position = last + 1
        asked += 1
        assert asked < 100


async def fetched(node, version, offset, limit):
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=limit)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=limit,
        topics=[FetchTopic(topic="t", partitions=[wanted])],
    )
    connection = types.SimpleNamespace(session=Session(ANONYMOUS, "127.0.0.1", "PLAINTEXT"))
    response = handler.handle(
        node, request, Context(RequestHeader(1, version, 0, None, 0), connection)
    )
    if not hasattr(response, "responses"):
        response = await response
    part = response.responses[0].partitions[0]
    assert part.error_code == 0
    return b"".join(
        each.read(0, len(each)) if hasattr(each, "batch") else bytes(each) for each in part.records
    )


def last_offset(data):
    """The offset of the last whole message or batch, None if there is none."""
    position, last = 0, None
    while len(data) - position > 27:
        offset, size = struct.unpack_from(">qi", data, position)
        if position + 12 + size > len(data):
            break
        delta = struct.unpack_from(">i", data, position + 23)[0] if data[position + 16] == 2 else 0
        last, position = offset + delta, position + 12 + size
    return last
