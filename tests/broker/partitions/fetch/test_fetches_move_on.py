"""Every fetch of every version moves on, whatever compaction left of the batches.

The client here is an old one: it reads on behind the last offset that it received, drops what is before its
position, and asks for more bytes where it got a part of a message alone (Fetch v0-v2).
"""

import os
import random
import struct
import types

import pytest

from tests.broker.asking import all_versions
from tests.broker.logs.test_interrupted_changes import Broker
from tests.storage.cleaning import clean
from tidelog.broker.api import fetch as handler
from tidelog.broker.network.context import Context
from tidelog.broker.security.session import ANONYMOUS, Session
from tidelog.config.topic import TopicConfig
from tidelog.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.message import RequestHeader
from tidelog.protocol.records.batch import Compression, Record, build, records, scan
from tidelog.storage.log.rolling import roll

CODECS = [Compression.NONE, Compression.GZIP, Compression.LZ4, Compression.ZSTD]
VERSIONS = [0, 1, 2, 3, 4, 9, 10, 12]
LIMITS = [1, 700, 5_000, 1 << 20]
RELEASES = ["0.9.0", "0.10.2", "3.0"]  # formats 0, 1 and 2


@pytest.mark.parametrize("stored", RELEASES)
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
    assert [each async for each in positions(node, version, limit, 0, end)][-1] == end


async def positions(node, version, limit, position, end, seen=None):
    """Where a client goes on, fetch by fetch; fails where it stands still."""
    found = 0
    while position < end:
        data = await fetched(node, version, position, limit)
        last = last_offset(data)
        if last is None:
            assert data, (version, limit, position, "nothing, not even a part of a message")
            assert version < 3
            limit *= 2
        else:
            assert last >= position, (version, limit, position, "stands still")
            if seen is not None:
                seen += [each for each in shown(data) if each[0] >= position]
            position = last + 1
            yield position
        found += 1
        assert found < 1_000


async def fetched(node, version, offset, limit):
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=limit, current_leader_epoch=-1
    )
    topic_id = node.metadata.image.topics["t"].topic_id
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=limit,
        isolation_level=limit % 2,
        session_epoch=-1,
        topics=[FetchTopic(topic="t", topic_id=topic_id, partitions=[wanted])],
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


def shown(data):
    """Offset, key and value of every record that a consumer is handed."""
    return [
        (record.offset, record.key, record.value)
        for batch in scan(data)
        if not batch.is_control
        for record in records(data, batch)
    ]


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


LOGS = int(os.environ.get("TIDELOG_FETCHED_LOGS", "24"))


class Filler:
    """Random batches of every format and codec, of producers with an id and in transactions."""

    def __init__(self, partition, chance):
        self.partition, self.chance = partition, chance
        self.settings = {
            "cleanup_policy": ("compact",),
            "delete_retention_ms": chance.choice([0, 10_000]),
            "file_delete_delay_ms": 0,
        }
        self.keys = chance.choice([2, 6, 40])
        self.now_ms, self.sequence = 100, 0

    def put(self):
        chance = self.chance
        release = chance.choice(RELEASES)
        self.partition.config = TopicConfig(**self.settings, message_format_version=release)
        count = chance.choice([1, 1, 2, 3, 9])
        made = [self.record()._replace(offset=at) for at in range(count)]
        packed = chance.choice(CODECS if release == RELEASES[2] else CODECS[:3])
        self.append(build(made, compression=packed))
        if chance.random() < 0.3:
            roll(self.partition.state)

    def record(self):
        chance = self.chance
        size = chance.choice([0, 20, 20, 200, 3_000, 3_000, 3_000, 70_000])
        value = None if chance.random() < 0.2 else chance.randbytes(size)
        return Record(0, 5, b"k%d" % chance.randrange(self.keys), value)

    def transact(self):
        """One transaction of one batch, committed or aborted."""
        self.partition.config = TopicConfig(**self.settings)
        common = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True}
        guard = self.partition.verification(9, 0, self.sequence)
        data = build([self.record()], base_sequence=self.sequence, **common)
        self.append(data, internal=True, guard=guard)
        self.sequence += 1
        ends = struct.pack(">hh", 0, self.chance.randrange(2)), struct.pack(">hi", 0, 0)
        marker = build([Record(0, 5, *ends)], is_control=True, **common)
        self.append(marker, internal=True)

    def append(self, data, **more):
        self.now_ms += 1
        self.partition.append(data, now_ms=self.now_ms, produce_version=9, **more)

    def fill(self):
        for _ in range(self.chance.randrange(1, 4)):
            for _ in range(self.chance.randrange(3, 15)):
                self.put() if self.chance.random() < 0.8 else self.transact()
            self.now_ms += 5_000
            roll(self.partition.state)
            clean(self.partition, self.now_ms)
        self.append(build([Record(0, 5, b"last", b"v")]))


@pytest.mark.parametrize("number", range(LOGS))
async def test_a_client_reads_any_log_from_anywhere(tmp_path, number):
    chance = random.Random(number)
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1)
        partition = broker.node.partitions.get("t", 0)
        Filler(partition, chance).fill()
        end = partition.log_end_offset
        there = shown(
            b"".join(partition.read(0, 1 << 30, upper_offset=end, minimum_one=True).buffers)
        )
        assert there[-1][0] == end - 1
        for version in all_versions("Fetch"):
            limit = chance.choice([1, 2, 61, 700, 5_001, 90_000, 1 << 20])
            first = chance.choice([0, chance.randrange(end)])
            seen = []
            reached = [
                each async for each in positions(broker.node, version, limit, first, end, seen)
            ]
            assert reached[-1] == end
            assert seen == [each for each in there if each[0] >= first], (version, limit, first)
