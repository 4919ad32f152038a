"""The SQLite store: what is kept, and what is refused."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing
from uuid import UUID

import pytest

from tidelog.broker.metadata.local import local_metadata
from tidelog.broker.metadata.sqlite import tables
from tidelog.broker.metadata.store import Delete, MetadataError
from tidelog.protocol.errors import (
    InvalidTopic,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logs" / "tidelog.sqlite"


@asynccontextmanager
async def opened(path):
    store = local_metadata(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def image_of(path):
    async with opened(path) as store:
        return store.image


async def test_a_new_store_is_empty_and_keeps_its_cluster_id(path):
    image = await image_of(path)
    assert len(image.cluster_id) == 22
    assert (dict(image.topics), dict(image.broker_configs)) == ({}, {})
    assert await image_of(path) == image


async def test_topics_survive_reopening(path):
    async with opened(path) as store:
        await store.create_topic("a", 3, {"retention.ms": "5", "segment.bytes": "100"})
        await store.create_topic("b", 1, {})
        before = store.image
    after = await image_of(path)
    assert after == before
    topic = after.topics["a"]
    assert (topic.partitions, topic.replication_factor) == (3, 1)
    assert topic.configs == {"retention.ms": "5", "segment.bytes": "100"}
    assert after.topics_by_id[topic.topic_id] is topic
    assert len({topic.topic_id for topic in after.topics.values()}) == 2


async def test_an_image_never_changes(path):
    images = []
    async with opened(path) as store:
        images.append(store.image)
        await store.create_topic("a", 1, {})
        images.append(store.image)
        await store.delete_topic("a")
        images.append(store.image)
    assert [list(each.topics) for each in images] == [[], ["a"], []]
    assert [len(each.topics_by_id) for each in images] == [0, 1, 0]
    with pytest.raises(TypeError):
        images[1].topics["b"] = None


async def test_refusals(path):
    async with opened(path) as store:
        await store.create_topic("a.b", 1, {})
        before = store.image
        with pytest.raises(TopicAlreadyExists, match=r"topic a\.b exists"):
            await store.create_topic("a.b", 1, {})
        with pytest.raises(InvalidTopic, match="empty"):
            await store.create_topic("", 1, {})
        with pytest.raises(UnknownTopicOrPartition):
            await store.delete_topic("c")
        with pytest.raises(UnknownTopicOrPartition):
            await store.alter_topic_configs("c", {"retention.ms": "1"})
        assert store.image is before
    async with opened(path) as store:
        with pytest.raises(InvalidTopic, match=r"a_b collides with a\.b"):
            store.check_name("a_b")
        with pytest.raises(InvalidTopic, match="collides"):
            await store.create_topic("a_b", 1, {})
        await store.delete_topic("a.b")
        await store.create_topic("a_b", 1, {})
    assert list((await image_of(path)).topics) == ["a_b"]


async def test_a_topic_made_again_is_another_topic_without_the_old_settings(path):
    async with opened(path) as store:
        first = await store.create_topic("a", 1, {"retention.ms": "5"})
        assert await store.delete_topic("a") == first
        second = await store.create_topic("a", 1, {})
        assert first.topic_id != second.topic_id
    assert (await image_of(path)).topics["a"].configs == {}


async def test_settings_of_topics_and_brokers_change_one_by_one(path):
    async with opened(path) as store:
        await store.create_topic("a", 1, {"x": "1", "y": "2"})
        changed = await store.alter_topic_configs("a", {"x": None, "z": "3", "w": None})
        assert changed is store.image.topics["a"]
        assert changed is store.image.topics_by_id[changed.topic_id]
        await store.alter_broker_configs({"log.retention.ms": "1", "log.segment.bytes": "2"})
        await store.alter_broker_configs({"log.retention.ms": None})
    image = await image_of(path)
    assert image.topics["a"].configs == {"y": "2", "z": "3"}
    assert image.broker_configs == {"log.segment.bytes": "2"}


async def test_producer_ids_are_never_given_twice(path):
    async with opened(path) as store:
        blocks = await asyncio.gather(*map(store.allocate_producer_ids, (3, 1, 1000)))
    async with opened(path) as store:
        blocks.append(await store.allocate_producer_ids(2))
    assert [number for block in blocks for number in block] == list(range(1006))


async def test_changes_asked_for_at_once_all_happen_and_of_two_equal_ones_one(path):
    names = [*(f"t{number}" for number in range(20)), "t0"]
    async with opened(path) as store:
        made = (store.create_topic(name, 1, {}) for name in names)
        *topics, error = await asyncio.gather(*made, return_exceptions=True)
    assert [topic.name for topic in topics] == names[:-1]
    assert isinstance(error, TopicAlreadyExists)
    assert len((await image_of(path)).topics) == 20


async def test_a_failing_disk_changes_nothing(path, monkeypatch):
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR

    def fails(*_):
        raise error

    async with opened(path) as store:
        await store.create_topic("a", 1, {})
        before = store.image
        with monkeypatch.context() as patched:
            patched.setattr(tables, "transact", fails)
            with pytest.raises(KafkaStorageError, match="failed"):
                await store.create_topic("b.c", 1, {})
            with pytest.raises(KafkaStorageError):
                await store.delete_topic("a")
        assert store.image is before
        await store.create_topic("b_c", 1, {})


async def test_a_closed_store_says_so(path):
    async with opened(path) as store:
        pass
    with pytest.raises(KafkaStorageError, match="closed"):
        await store.create_topic("a", 1, {})


async def test_what_is_no_database_is_refused(path):
    path.parent.mkdir()
    path.write_bytes(b"not a database, but long enough to look at" * 10)
    with pytest.raises(MetadataError, match="cannot read the metadata in"):
        await image_of(path)


async def test_a_newer_layout_is_refused(path):
    await image_of(path)
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(MetadataError, match="newer tidelog"):
        await image_of(path)


@pytest.mark.parametrize("key", ["cluster", "config/broker", "producer_ids"])
async def test_a_store_without_a_key_that_every_store_has_is_refused(path, key):
    """Defaults in its place would forget settings that keep data, or give an id twice."""
    async with opened(path) as store:
        await store.create_topic("a", 1, {})
        before = store.image
    with closing(sqlite3.connect(path)) as db:
        (value,) = db.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
        with db:
            db.execute("DELETE FROM kv WHERE key = ?", (key,))
    with pytest.raises(MetadataError, match=f"damaged: key '{key}' is missing"):
        await image_of(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT 1 FROM kv WHERE key = ?", (key,)).fetchone() is None
        with db:
            db.execute("INSERT INTO kv VALUES (?, ?, 1, 1, 0)", (key, value))
    assert await image_of(path) == before


async def test_a_running_broker_keeps_the_image_when_such_a_key_is_deleted(path):
    async with opened(path) as store:
        before = store.image
        await store.store.transact((), (Delete("config/broker"),))
        with pytest.raises(KafkaStorageError, match="key 'config/broker' is missing"):
            await store.create_topic("a", 1, {})
        assert store.image is before


async def test_a_deleted_topic_is_remembered_until_its_logs_are_gone(path):
    async with opened(path) as store:
        topic = await store.create_topic("t", 1, {}, topic_id=UUID(int=77))
        assert topic.topic_id == UUID(int=77)
        await store.delete_topic("t")
    async with opened(path) as store:
        assert dict(store.image.deletions) == {UUID(int=77): "t"}
        await store.deletion_done(UUID(int=77))
        assert not store.image.deletions
    assert not (await image_of(path)).deletions
