"""The embedded metadata store: one SQLite file beside the logs.

The database is written ahead (WAL) and synced at every change, so a change that returned survives
kill -9 and a power loss, and one that did not return is there whole or not at all. One thread owns the
connection: it makes a change durable and then replaces the image, so images appear in the order of
the changes even if the caller has given up waiting.

Tables: `meta` (cluster_id, next_producer_id), `topic`, `topic_config`, `broker_config`, `deleted_topic`
(the ids of topics whose logs may still have to go). `PRAGMA user_version` counts the layout; a file
written by a newer layout is refused, not guessed at, and one of an older layout is brought up to date.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from broker.metadata.names import check_topic_name, collision_key, new_id, written_id
from broker.metadata.store import Image, MetadataError, Topic
from protocol.errors import (
    InvalidTopic,
    KafkaStorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Result = TypeVar("Result")

_LAYOUT = 2
# What each layout added to the one before.
_SECOND = (
    """CREATE TABLE deleted_topic (
        topic_id BLOB PRIMARY KEY,
        name TEXT NOT NULL
    ) WITHOUT ROWID""",
    f"PRAGMA user_version = {_LAYOUT}",
)
_SCHEMA = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE topic (
        name TEXT PRIMARY KEY,
        topic_id BLOB NOT NULL UNIQUE,
        partitions INTEGER NOT NULL,
        replication_factor INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE topic_config (
        topic TEXT NOT NULL REFERENCES topic ON DELETE CASCADE,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (topic, name)
    ) WITHOUT ROWID""",
    "CREATE TABLE broker_config (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    *_SECOND,
)
_CLUSTER_ID = "cluster_id"
_NEXT_PRODUCER_ID = "next_producer_id"


class LocalMetadataStore:
    """MetadataStore in a file that only this broker opens."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._image: Image | None = None
        self._db: sqlite3.Connection | None = None
        self._names: dict[str, str] = {}  # collision key -> the topic that has it
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")

    @property
    def image(self) -> Image:
        """The newest image; there is one from open() to close()."""
        assert self._image is not None, "the metadata store is not open"
        return self._image

    async def open(self) -> None:
        """Make the file, or read what is in it. Raises MetadataError."""
        await self._run(self._open)

    async def close(self) -> None:
        """Close the file, after the changes under way."""
        await self._run(self._close)
        self._thread.shutdown()

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        configs: Mapping[str, str],
        *,
        topic_id: UUID | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Make a topic. Raises InvalidTopic, TopicAlreadyExists."""
        topic = Topic(name, topic_id or new_id(), partitions, replication_factor, dict(configs))
        return await self._run(lambda: self._create_topic(topic, validate_only=validate_only))

    async def set_partitions(self, name: str, partitions: int) -> Topic:
        """Have a topic count so many partitions. Raises UnknownTopicOrPartition."""
        return await self._change(lambda db: self._set_partitions(db, name, partitions))

    async def delete_topic(self, name: str) -> Topic:
        """Forget a topic. Raises UnknownTopicOrPartition."""
        return await self._run(lambda: self._delete_topic(name))

    async def deleted_ids(self) -> frozenset[UUID]:
        """The topics that were deleted and whose logs may still be there."""
        return await self._change(self._deleted_ids)

    async def deletion_done(self, topic_id: UUID) -> None:
        """Note that no log of a deleted topic is left."""
        await self._change(lambda db: self._deletion_done(db, topic_id))

    async def alter_topic_configs(self, name: str, changes: Mapping[str, str | None]) -> Topic:
        """Set or remove some of a topic's settings. Raises UnknownTopicOrPartition."""
        return await self._change(lambda db: self._alter_topic_configs(db, name, dict(changes)))

    async def alter_broker_configs(self, changes: Mapping[str, str | None]) -> None:
        """Set or remove some of the brokers' dynamic settings."""
        await self._change(lambda db: self._alter_broker_configs(db, dict(changes)))

    async def allocate_producer_ids(self, count: int) -> range:
        """A block of producer ids that nobody has had or will have."""
        assert count > 0, count
        return await self._change(lambda db: self._allocate_producer_ids(db, count))

    # -- in the thread --------------------------------------------------------------------------

    async def _run(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _change(self, change: Callable[[sqlite3.Connection], tuple[Result, Image]]) -> Result:
        """Run one change in the thread, in a transaction; its image counts once that is durable."""
        return await self._run(lambda: self._transact(change))

    def _transact(self, change: Callable[[sqlite3.Connection], tuple[Result, Image]]) -> Result:
        db = self._db
        if db is None:
            raise KafkaStorageError("the metadata store is closed")
        try:
            with db:
                db.execute("BEGIN IMMEDIATE")
                result, image = change(db)
        except sqlite3.Error as error:
            raise KafkaStorageError(f"the metadata in {self._path} failed: {error}") from error
        self._image = image
        return result

    def _open(self) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        except (sqlite3.Error, OSError) as error:
            raise MetadataError(f"cannot open the metadata in {self._path}: {error}") from None
        try:
            self._image = _prepare(db, self._path)
        except sqlite3.Error as error:
            db.close()
            raise MetadataError(f"cannot read the metadata in {self._path}: {error}") from None
        except MetadataError:
            db.close()
            raise
        self._names = {collision_key(name): name for name in self._image.topics}
        self._db = db

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _create_topic(self, topic: Topic, *, validate_only: bool) -> Topic:
        name = topic.name
        check_topic_name(name)
        if name in self.image.topics:
            raise TopicAlreadyExists(f"topic {name} exists")
        other = self._names.get(collision_key(name))
        if other is not None:
            raise InvalidTopic(
                f"topic name {name} collides with {other}: metrics cannot tell '.' from '_'"
            )
        if validate_only:
            return topic
        self._transact(lambda db: self._insert_topic(db, topic))
        self._names[collision_key(name)] = name
        return topic

    def _insert_topic(self, db: sqlite3.Connection, topic: Topic) -> tuple[None, Image]:
        db.execute(
            "INSERT INTO topic VALUES (?, ?, ?, ?)",
            (topic.name, topic.topic_id.bytes, topic.partitions, topic.replication_factor),
        )
        _insert_configs(db, topic)
        return None, self.image.with_topic(topic)

    def _delete_topic(self, name: str) -> Topic:
        topic = self._transact(lambda db: self._remove_topic(db, name))
        del self._names[collision_key(name)]
        return topic

    def _remove_topic(self, db: sqlite3.Connection, name: str) -> tuple[Topic, Image]:
        topic = self._known(name)
        db.execute("DELETE FROM topic WHERE name = ?", (name,))
        db.execute(
            "INSERT OR REPLACE INTO deleted_topic VALUES (?, ?)", (topic.topic_id.bytes, name)
        )
        return topic, self.image.without_topic(name)

    def _deleted_ids(self, db: sqlite3.Connection) -> tuple[frozenset[UUID], Image]:
        rows = db.execute("SELECT topic_id FROM deleted_topic").fetchall()
        return frozenset(UUID(bytes=topic_id) for (topic_id,) in rows), self.image

    def _deletion_done(self, db: sqlite3.Connection, topic_id: UUID) -> tuple[None, Image]:
        db.execute("DELETE FROM deleted_topic WHERE topic_id = ?", (topic_id.bytes,))
        return None, self.image

    def _set_partitions(
        self, db: sqlite3.Connection, name: str, partitions: int
    ) -> tuple[Topic, Image]:
        topic = self._known(name)._replace(partitions=partitions)
        db.execute("UPDATE topic SET partitions = ? WHERE name = ?", (partitions, name))
        return topic, self.image.with_topic(topic)

    def _alter_topic_configs(
        self, db: sqlite3.Connection, name: str, changes: dict[str, str | None]
    ) -> tuple[Topic, Image]:
        known = self._known(name)
        topic = known._replace(configs=_changed(known.configs, changes))
        db.execute("DELETE FROM topic_config WHERE topic = ?", (name,))
        _insert_configs(db, topic)
        return topic, self.image.with_topic(topic)

    def _alter_broker_configs(
        self, db: sqlite3.Connection, changes: dict[str, str | None]
    ) -> tuple[None, Image]:
        configs = _changed(self.image.broker_configs, changes)
        db.execute("DELETE FROM broker_config")
        db.executemany("INSERT INTO broker_config VALUES (?, ?)", list(configs.items()))
        return None, self.image.with_broker_configs(configs)

    def _allocate_producer_ids(self, db: sqlite3.Connection, count: int) -> tuple[range, Image]:
        (text,) = db.execute(
            "SELECT value FROM meta WHERE name = ?", (_NEXT_PRODUCER_ID,)
        ).fetchone()
        first = int(text)
        db.execute(
            "UPDATE meta SET value = ? WHERE name = ?", (str(first + count), _NEXT_PRODUCER_ID)
        )
        return range(first, first + count), self.image

    def _known(self, name: str) -> Topic:
        topic = self.image.topics.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return topic


def _insert_configs(db: sqlite3.Connection, topic: Topic) -> None:
    db.executemany(
        "INSERT INTO topic_config VALUES (?, ?, ?)",
        [(topic.name, name, value) for name, value in topic.configs.items()],
    )


def _changed(configs: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Settings after a change; None takes one away."""
    merged = {**configs, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _prepare(db: sqlite3.Connection, path: Path) -> Image:
    """Set the connection up, make the tables of a new file, and read what is there."""
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA foreign_keys = ON")
    (layout,) = db.execute("PRAGMA user_version").fetchone()
    if layout > _LAYOUT:
        raise MetadataError(
            f"the metadata in {path} was written by a newer tidelog (layout {layout}, "
            f"this one knows {_LAYOUT})"
        )
    if layout == 0:
        with db:
            db.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                db.execute(statement)
            db.executemany(
                "INSERT INTO meta VALUES (?, ?)",
                [(_CLUSTER_ID, written_id(new_id())), (_NEXT_PRODUCER_ID, "0")],
            )
    elif layout < _LAYOUT:
        with db:
            db.execute("BEGIN IMMEDIATE")
            for statement in _SECOND:
                db.execute(statement)
    _check(db, path)
    try:
        return _read(db)
    except (TypeError, ValueError) as error:  # a row that is not there, or is no number or id
        raise MetadataError(f"the metadata in {path} is damaged: {error}") from None


def _check(db: sqlite3.Connection, path: Path) -> None:
    """Refuse a damaged file: without its settings a topic's records might be deleted."""
    (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise MetadataError(f"the metadata in {path} is damaged: {' '.join(found.split())}")


def _read(db: sqlite3.Connection) -> Image:
    """The image of what the file holds."""
    with closing(db.cursor()) as cursor:
        (cluster_id,) = cursor.execute(
            "SELECT value FROM meta WHERE name = ?", (_CLUSTER_ID,)
        ).fetchone()
        configs: dict[str, dict[str, str]] = {}
        for topic, name, value in cursor.execute("SELECT topic, name, value FROM topic_config"):
            configs.setdefault(topic, {})[name] = value
        topics = [
            Topic(name, UUID(bytes=topic_id), partitions, factor, configs.get(name, {}))
            for name, topic_id, partitions, factor in cursor.execute(
                "SELECT name, topic_id, partitions, replication_factor FROM topic"
            )
        ]
        broker_configs = dict(cursor.execute("SELECT name, value FROM broker_config").fetchall())
    return Image.of(cluster_id, topics, broker_configs)
