"""Who leads a partition is what the metadata say; a broker that is alone claims what nobody leads."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from tests.broker import asking
from tests.broker.logs.test_interrupted_changes import Broker
from tidelog.broker.lifecycle.leadership import claim_partitions
from tidelog.broker.metadata.records import PartitionRecord
from tidelog.broker.partitions.fetch.delayed_fetch import wait_for_bytes
from tidelog.protocol.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)

OTHER = 7


async def _give_away(broker, epoch=3):
    image = broker.metadata.image
    record = PartitionRecord((OTHER, 1), (OTHER, 1), OTHER, epoch)
    await broker.metadata.put_partitions({("t", 0): record}, since=image)


async def test_only_the_leader_by_the_image_has_a_leader_partition(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=2)
        assert broker.node.partitions.leader("t", 0) is broker.store.partition("t", 0)
        await _give_away(broker)
        with pytest.raises(NotLeaderOrFollower, match="broker 7 leads t-0"):
            broker.node.partitions.leader("t", 0)
        assert broker.node.partitions.leader("t", 1).index == 1
        for name, index in (("t", 2), ("t", -1), ("unknown", 0)):
            with pytest.raises(UnknownTopicOrPartition):
                broker.node.partitions.leader(name, index)


async def test_a_broker_that_is_alone_claims_partitions_in_a_new_epoch(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=2)
        await _give_away(broker)
        await claim_partitions(broker.metadata, broker.store, broker.node.pools.reads)
        claimed, kept = broker.metadata.image.topics["t"].assignments
        assert claimed == PartitionRecord((1,), (1,), 1, 4)
        assert kept == PartitionRecord((1,), (1,), 1, 0)
        assert broker.node.partitions.leader("t", 0)
        revision = broker.metadata.image.revision
        await claim_partitions(broker.metadata, broker.store, broker.node.pools.reads)
        assert broker.metadata.image.revision == revision


async def test_partitions_of_older_metadata_get_the_epochs_of_their_logs(tmp_path):
    """The tables of older layouts named no leader and no epoch; the logs know theirs."""
    async with Broker(tmp_path) as broker:
        topic = await broker.node.topics.create("t", partitions=2)
        broker.node.appends.append(broker.node.partitions.get("t", 0), asking.batch_of("a"), 7)
    (tmp_path / "t-1" / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    for path in tmp_path.glob("tidelog.sqlite*"):
        path.unlink()
    with closing(sqlite3.connect(tmp_path / "tidelog.sqlite")) as db, db:
        db.executescript(
            """CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
            INSERT INTO meta VALUES ('cluster_id', 'c'), ('next_producer_id', '0');
            CREATE TABLE topic (name TEXT PRIMARY KEY, topic_id BLOB NOT NULL UNIQUE,
                partitions INTEGER NOT NULL, replication_factor INTEGER NOT NULL) WITHOUT ROWID;
            CREATE TABLE topic_config (topic TEXT, name TEXT, value TEXT);
            CREATE TABLE broker_config (name TEXT PRIMARY KEY, value TEXT NOT NULL);
            PRAGMA user_version = 1"""
        )
        db.execute("INSERT INTO topic VALUES ('t', ?, 2, 1)", (topic.topic_id.bytes,))

    async with Broker(tmp_path) as broker:
        await claim_partitions(broker.metadata, broker.store, broker.node.pools.reads)
        records = broker.metadata.image.topics["t"].assignments
        assert [(record.leader, record.leader_epoch) for record in records] == [(1, 0), (1, 7)]
        for index in (0, 1):
            await broker.node.partitions.open("t", index)
            assert broker.node.partitions.leader("t", index).leader_epoch == index * 7


async def _raise_epoch(broker, epoch, index=0):
    """Write a newer leader epoch into the metadata, as a controller does, and let the logs follow."""
    record = PartitionRecord.led_by(broker.metadata.node_id, epoch)
    await broker.metadata.put_partitions({("t", index): record}, since=broker.metadata.image)
    await broker.node.topics.start()


async def _produce(broker, value):
    partition = broker.node.partitions.leader("t", 0)
    appended = broker.node.appends.append(partition, asking.batch_of(value), 7)
    if isinstance(appended, asyncio.Future):  # the first append of an epoch writes it to disk
        await appended


async def test_the_log_begins_the_leader_epoch_of_the_image(tmp_path):
    checkpoint = tmp_path / "t-0" / "leader-epoch-checkpoint"
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=2)
        await _produce(broker, "a")
        assert checkpoint.read_text() == "0\n1\n0 0\n"
        await _raise_epoch(broker, 3)
        partition = broker.node.partitions.leader("t", 0)
        assert partition.leader_epoch == 3
        assert broker.node.partitions.leader("t", 1).leader_epoch == 0
        assert checkpoint.read_text() == "0\n1\n0 0\n", "an epoch without batches is not written"
        await _produce(broker, "b")
        assert [partition.reader.leader_epoch_at(offset) for offset in (0, 1, 2)] == [0, 3, 3]
        assert partition.reader.end_offset_for_epoch(0) == (0, 1)
        assert checkpoint.read_text() == "0\n2\n0 0\n3 1\n"


async def test_a_client_with_another_leader_epoch_is_refused(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1)
        await _raise_epoch(broker, 3)
        for epoch in (-1, 3):
            assert broker.node.partitions.leader("t", 0, epoch).leader_epoch == 3
        with pytest.raises(FencedLeaderEpoch, match="epoch 2 ended; it is 3 now"):
            broker.node.partitions.leader("t", 0, 2)
        with pytest.raises(UnknownLeaderEpoch, match="epoch 4 is not known yet; it is 3"):
            broker.node.partitions.leader("t", 0, 4, may_block=True)


async def test_a_log_that_is_closed_begins_the_epoch_when_it_is_opened(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1)
        await _raise_epoch(broker, 3)
    for epoch in (3, 5):
        async with Broker(tmp_path) as broker:
            if epoch == 5:
                await _raise_epoch(broker, epoch)
            broker.store.read_leader_epochs([("t", 0)])
            assert broker.store.opened_partition("t", 0) is None
            assert broker.store.leader_epoch("t", 0) == epoch
            assert (await broker.node.partitions.open_leader("t", 0)).leader_epoch == epoch


async def test_a_log_is_not_set_back_to_an_older_epoch(tmp_path):
    """A directory of Kafka's may have a newer one than the metadata say."""
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1)
        broker.node.partitions.get("t", 0).leader_epoch = 7
        await _raise_epoch(broker, 3)
        assert broker.node.partitions.leader("t", 0).leader_epoch == 7


async def test_a_topic_made_anew_begins_at_epoch_0(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=1)
        await _raise_epoch(broker, 3)
        await broker.node.topics.delete("t")
        await broker.node.topics.create("t", partitions=1)
        assert broker.node.partitions.leader("t", 0).leader_epoch == 0


async def test_who_waits_for_a_partition_hears_of_a_new_leader_or_epoch(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=2)
        changes = (lambda: _raise_epoch(broker, 3), lambda: _give_away(broker, epoch=4))
        for change in changes:
            both = [broker.node.partitions.get("t", index) for index in (0, 1)]
            changed, unchanged = (
                asyncio.ensure_future(wait_for_bytes(broker.node.purgatory, [each], 1, 60))
                for each in both
            )
            await asyncio.sleep(0)
            await change()
            await broker.node.topics.start()
            async with asyncio.timeout(60):
                assert await changed is True
            assert not unchanged.done()
            unchanged.cancel()
