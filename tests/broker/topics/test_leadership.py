"""Who leads a partition is what the metadata say; a broker that is alone claims what nobody leads."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from broker.metadata.records import PartitionRecord
from broker.topics.leadership import claim_partitions
from protocol.errors import NotLeaderOrFollower, UnknownTopicOrPartition
from tests.broker import asking
from tests.broker.topics.test_interrupted_changes import Broker

OTHER = 7


async def _give_away(broker, epoch=3):
    image = broker.metadata.image
    record = PartitionRecord((OTHER, 1), (OTHER, 1), OTHER, epoch)
    await broker.metadata.put_partitions({("t", 0): record}, since=image)


async def test_only_the_leader_by_the_image_has_a_leader_partition(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=2)
        assert broker.node.leader_partition("t", 0) is broker.store.partition("t", 0)
        await _give_away(broker)
        with pytest.raises(NotLeaderOrFollower, match="broker 7 leads t-0"):
            broker.node.leader_partition("t", 0)
        assert broker.node.leader_partition("t", 1).index == 1
        for name, index in (("t", 2), ("t", -1), ("unknown", 0)):
            with pytest.raises(UnknownTopicOrPartition):
                broker.node.leader_partition(name, index)


async def test_a_broker_that_is_alone_claims_partitions_in_a_new_epoch(tmp_path):
    async with Broker(tmp_path) as broker:
        await broker.node.topics.create("t", partitions=2)
        await _give_away(broker)
        await claim_partitions(broker.metadata, broker.store, broker.node.pools.reads)
        claimed, kept = broker.metadata.image.topics["t"].assignments
        assert claimed == PartitionRecord((1,), (1,), 1, 4)
        assert kept == PartitionRecord((1,), (1,), 1, 0)
        assert broker.node.leader_partition("t", 0)
        revision = broker.metadata.image.revision
        await claim_partitions(broker.metadata, broker.store, broker.node.pools.reads)
        assert broker.metadata.image.revision == revision


async def test_partitions_of_older_metadata_get_the_epochs_of_their_logs(tmp_path):
    """The tables of older layouts named no leader and no epoch; the logs know theirs."""
    async with Broker(tmp_path) as broker:
        topic = await broker.node.topics.create("t", partitions=2)
        broker.node.append(broker.node.partition("t", 0), asking.batch_of("a"), 7)
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
            await broker.node.open_partition("t", index)
            assert broker.node.leader_partition("t", index).leader_epoch == index * 7
