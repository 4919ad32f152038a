"""Migrates the tables of a metadata file to the newest layout.

Layouts 1 and 2 had a table for each type of object; layout 3 holds keys (see `records`); layout 4
has leases too. All of it happens in one transaction of the caller, so a crash leaves the old file
as it was. The partitions of topics from layouts 1 and 2 have no leader and no known leader epoch,
because those tables had neither. The broker that opens the file claims them
(`broker/lifecycle/leadership.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from tidelog.broker.metadata import records
from tidelog.broker.metadata.records import NO_LEADER, UNKNOWN_EPOCH, PartitionRecord, TopicRecord

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from tidelog.broker.metadata.store import Put

LAYOUT = 4

_KEYS = (
    """CREATE TABLE kv (
        key TEXT PRIMARY KEY,
        value BLOB NOT NULL,
        create_revision INTEGER NOT NULL,
        mod_revision INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE change (
        revision INTEGER NOT NULL,
        key TEXT NOT NULL,
        value BLOB,
        PRIMARY KEY (revision, key)
    ) WITHOUT ROWID""",
    "CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
)
_LEASES = (
    "ALTER TABLE kv ADD COLUMN lease INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX key_of_lease ON kv (lease) WHERE lease > 0",
    """CREATE TABLE lease (
        id INTEGER PRIMARY KEY,
        ttl_ms INTEGER NOT NULL,
        deadline_ms INTEGER NOT NULL,
        clock TEXT NOT NULL
    )""",
    "INSERT INTO counter VALUES ('lease', 0)",
)
_WITH_KEYS = 3  # the first layout that held keys
_WITH_DELETIONS = 2  # the first layout that kept deleted topics
_UNCLAIMED = PartitionRecord((), (), NO_LEADER, UNKNOWN_EPOCH)


def migrate(db: sqlite3.Connection) -> None:
    """Creates the tables of the newest layout, and moves the content of older tables into them.

    Raises ValueError or TypeError for values that no tidelog wrote, and sqlite3.Error.
    """
    (layout,) = db.execute("PRAGMA user_version").fetchone()
    if layout == LAYOUT:
        return  # another process has migrated it
    if layout < _WITH_KEYS:
        _make_keys(db, layout)
    for statement in _LEASES:
        db.execute(statement)
    db.execute(f"PRAGMA user_version = {LAYOUT}")


def _make_keys(db: sqlite3.Connection, layout: int) -> None:
    """Creates the tables of layout 3 and moves the content of older tables, if any, into them."""
    puts = list(_old_records(db, layout)) if layout else []
    for statement in _KEYS:
        db.execute(statement)
    revision = 1 if puts else 0
    db.executemany(
        "INSERT INTO kv VALUES (?, ?, ?, ?)",
        [(put.key, put.value, revision, revision) for put in puts],
    )
    db.executemany(
        "INSERT INTO counter VALUES (?, ?)", [("revision", revision), ("compacted", revision)]
    )
    if layout:
        for table in ("topic_config", "topic", "broker_config", "meta"):
            db.execute(f"DROP TABLE {table}")
        db.execute("DROP TABLE IF EXISTS deleted_topic")


def _old_records(db: sqlite3.Connection, layout: int) -> Iterator[Put]:
    """Yields the content of the tables of layouts 1 and 2, as keys."""
    meta = dict(db.execute("SELECT name, value FROM meta").fetchall())
    if not {"cluster_id", "next_producer_id"} <= meta.keys():
        raise ValueError("the cluster's id or the next producer id is missing")
    yield records.put_cluster(meta["cluster_id"])
    yield records.put_producer_ids(int(meta["next_producer_id"]))
    yield records.put_broker_configs(dict(db.execute("SELECT name, value FROM broker_config")))
    configs: dict[str, dict[str, str]] = {}
    for topic, name, value in db.execute("SELECT topic, name, value FROM topic_config"):
        configs.setdefault(topic, {})[name] = value
    for name, written, partitions in db.execute("SELECT name, topic_id, partitions FROM topic"):
        topic_id = UUID(bytes=written)
        yield records.put_topic(TopicRecord(name, topic_id, partitions, configs.get(name, {})))
        for index in range(partitions):
            yield records.put_partition(topic_id, index, _UNCLAIMED)
    if layout >= _WITH_DELETIONS:
        for written, name in db.execute("SELECT topic_id, name FROM deleted_topic"):
            yield records.put_deletion(UUID(bytes=written), name)
